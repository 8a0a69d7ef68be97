//! Rules and routes of a plan, and their netlink messages.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};

use super::{MARK_MASK, ROUTE_PROTOCOL};

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both families.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Family of an address.
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// `0.0.0.0/0` or `::/0`.
    pub fn everything(self) -> IpNet {
        match self {
            Self::V4 => IpNet::V4(ipnet::Ipv4Net::default()),
            Self::V6 => IpNet::V6(ipnet::Ipv6Net::default()),
        }
    }

    pub(super) fn to_netlink(self) -> AddressFamily {
        match self {
            Self::V4 => AddressFamily::Inet,
            Self::V6 => AddressFamily::Inet6,
        }
    }

    pub(super) fn of_netlink(family: AddressFamily) -> Option<Self> {
        match family {
            AddressFamily::Inet => Some(Self::V4),
            AddressFamily::Inet6 => Some(Self::V6),
            _ => None,
        }
    }
}

/// A rule of policy routing. Displayed as a command of iproute2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The family.
    pub family: Family,
    /// Rules apply in ascending order.
    pub preference: u32,
    /// Whether the rule applies to packets that do not match.
    pub invert: bool,
    /// Destination of the packets.
    pub to: Option<IpNet>,
    /// Interface on which the packets arrived.
    pub iif: Option<String>,
    /// Value of the gateway's bits of the mark.
    pub mark: Option<u32>,
    /// The routing table.
    pub table: u32,
    /// Ignores routes with this prefix length or a shorter one.
    pub suppress: Option<u32>,
}

impl Rule {
    /// A rule that matches every packet.
    pub(super) fn new(family: Family, preference: u32, table: u32) -> Self {
        Self {
            family,
            preference,
            invert: false,
            to: None,
            iif: None,
            mark: None,
            table,
            suppress: None,
        }
    }

    pub(super) fn to_message(&self) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header.family = self.family.to_netlink();
        message.header.action = RuleAction::ToTable;
        if self.invert {
            message.header.flags |= RuleFlags::Invert;
        }
        let attributes = &mut message.attributes;
        attributes.push(RuleAttribute::Priority(self.preference));
        attributes.push(RuleAttribute::Protocol(ours()));
        match u8::try_from(self.table) {
            Ok(table) => message.header.table = table,
            Err(_) => attributes.push(RuleAttribute::Table(self.table)),
        }
        if let Some(to) = self.to {
            message.header.dst_len = to.prefix_len();
            attributes.push(RuleAttribute::Destination(to.network()));
        }
        if let Some(iif) = &self.iif {
            attributes.push(RuleAttribute::Iifname(iif.clone()));
        }
        if let Some(mark) = self.mark {
            attributes.push(RuleAttribute::FwMark(mark));
            attributes.push(RuleAttribute::FwMask(MARK_MASK));
        }
        if let Some(suppress) = self.suppress {
            attributes.push(RuleAttribute::SuppressPrefixLen(suppress));
        }
        message
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ip_command(self.family))?;
        write!(f, " rule add preference {}", self.preference)?;
        if self.invert {
            f.write_str(" not")?;
        }
        if let Some(to) = self.to {
            write!(f, " to {to}")?;
        }
        if let Some(iif) = &self.iif {
            write!(f, " iif {iif}")?;
        }
        if let Some(mark) = self.mark {
            write!(f, " fwmark {mark:#x}/{MARK_MASK:#x}")?;
        }
        write!(f, " table {}", TableName(self.table))?;
        if let Some(suppress) = self.suppress {
            write!(f, " suppress_prefixlength {suppress}")?;
        }
        write!(f, " protocol {ROUTE_PROTOCOL}")
    }
}

/// Where a route leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hop {
    /// Directly over an interface.
    Device(String),
    /// To this machine, whatever the destination.
    Local,
    /// Nowhere: the sender gets an ICMP error.
    Unreachable,
}

/// A route. Displayed as a command of iproute2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The routing table.
    pub table: u32,
    /// The destination.
    pub destination: IpNet,
    /// Where it leads.
    pub hop: Hop,
    /// The source address of packets from this machine.
    pub source: Option<IpAddr>,
    /// The lowest metric wins.
    pub metric: u32,
}

impl Route {
    pub(super) fn family(&self) -> Family {
        Family::of(self.destination.addr())
    }

    /// Whether both are the same route for the kernel, which may not report a source address.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.table == other.table
            && self.destination == other.destination
            && self.hop == other.hop
            && self.metric == other.metric
    }

    /// The message; `device` is the index of the interface of the hop.
    pub(super) fn to_message(&self, device: u32) -> RouteMessage {
        let mut message = RouteMessage::default();
        let header = &mut message.header;
        header.address_family = self.family().to_netlink();
        header.destination_prefix_length = self.destination.prefix_len();
        header.protocol = ours();
        (header.kind, header.scope) = match (&self.hop, self.family()) {
            (Hop::Device(_), Family::V4) => (RouteType::Unicast, RouteScope::Link),
            (Hop::Device(_), Family::V6) => (RouteType::Unicast, RouteScope::Universe),
            (Hop::Local, Family::V4) => (RouteType::Local, RouteScope::Host),
            (Hop::Local, Family::V6) => (RouteType::Local, RouteScope::Universe),
            (Hop::Unreachable, _) => (RouteType::Unreachable, RouteScope::Universe),
        };
        let attributes = &mut message.attributes;
        attributes.push(RouteAttribute::Table(self.table));
        attributes.push(RouteAttribute::Priority(self.metric));
        if self.destination.prefix_len() > 0 {
            let network = RouteAddress::from(self.destination.network());
            attributes.push(RouteAttribute::Destination(network));
        }
        if self.hop != Hop::Unreachable {
            attributes.push(RouteAttribute::Oif(device));
        }
        if let Some(source) = self.source {
            attributes.push(RouteAttribute::PrefSource(source.into()));
        }
        message
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ip_command(self.family()))?;
        f.write_str(" route add ")?;
        match self.hop {
            Hop::Device(_) => {}
            Hop::Local => f.write_str("local ")?,
            Hop::Unreachable => f.write_str("unreachable ")?,
        }
        if self.destination.prefix_len() == 0 {
            f.write_str("default")?;
        } else {
            write!(f, "{}", self.destination)?;
        }
        match &self.hop {
            Hop::Device(name) => write!(f, " dev {name}")?,
            Hop::Local => f.write_str(" dev lo")?,
            Hop::Unreachable => {}
        }
        write!(f, " table {}", TableName(self.table))?;
        if let Some(source) = self.source {
            write!(f, " src {source}")?;
        }
        write!(f, " metric {} protocol {ROUTE_PROTOCOL}", self.metric)
    }
}

/// The route protocol of the gateway.
pub(super) fn ours() -> RouteProtocol {
    RouteProtocol::Other(ROUTE_PROTOCOL)
}

fn ip_command(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip -6",
    }
}

/// The routing tables that the kernel names.
pub(super) const MAIN: u32 = 254;
pub(super) const LOCAL: u32 = 255;
pub(super) const DEFAULT: u32 = 253;

/// A routing table as iproute2 displays it.
pub(super) struct TableName(pub(super) u32);

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            MAIN => f.write_str("main"),
            LOCAL => f.write_str("local"),
            DEFAULT => f.write_str("default"),
            number => write!(f, "{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_and_routes_are_shown_as_commands() {
        let mut rule = Rule::new(Family::V6, 7441, MAIN);
        rule.invert = true;
        rule.mark = Some(super::super::CARRIER_MARK);
        rule.suppress = Some(0);
        assert_eq!(
            rule.to_string(),
            "ip -6 rule add preference 7441 not fwmark 0x5c000000/0xff000000 table main \
             suppress_prefixlength 0 protocol 74"
        );
        let route = Route {
            table: 7443,
            destination: Family::V4.everything(),
            hop: Hop::Unreachable,
            source: None,
            metric: u32::MAX,
        };
        assert_eq!(
            route.to_string(),
            "ip route add unreachable default table 7443 metric 4294967295 protocol 74"
        );
    }
}
