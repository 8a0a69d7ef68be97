//! Netlink messages as facts.

use std::fmt::Write;
use std::net::IpAddr;

use ipnet::IpNet;
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteType as NetlinkType,
};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};

use super::super::routing::{Family, TableName, ours};
use super::{DeviceFact, RouteFact, RouteKind, RuleFact};

/// An interface without its addresses.
pub(in super::super) fn device(message: &LinkMessage) -> DeviceFact {
    let mut name = String::new();
    let mut kind = None;
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(found) => name.clone_from(found),
            LinkAttribute::LinkInfo(infos) => {
                kind = infos.iter().find_map(|info| match info {
                    LinkInfo::Kind(kind) => Some(kind.to_string()),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    DeviceFact {
        index: message.header.index,
        name,
        kind,
        is_up: message.header.flags.contains(LinkFlags::Up),
        addresses: Vec::new(),
    }
}

/// A rule of policy routing; `None` for families other than IP.
pub(in super::super) fn rule(message: &RuleMessage) -> Option<RuleFact> {
    let family = Family::of_netlink(message.header.family)?;
    let header = &message.header;
    let mut preference = 0;
    let mut table = u32::from(header.table);
    let (mut mark, mut mask) = (None, u32::MAX);
    let mut is_selective = header.dst_len > 0 || header.src_len > 0 || header.tos > 0;
    let mut is_ours = false;
    let mut words = String::new();
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(value) => preference = *value,
            RuleAttribute::Table(value) => table = *value,
            RuleAttribute::FwMark(value) => mark = Some(*value),
            RuleAttribute::FwMask(value) => mask = *value,
            RuleAttribute::Protocol(protocol) => is_ours = *protocol == ours(),
            RuleAttribute::Source(address) => {
                let _ = write!(words, " from {address}/{}", header.src_len);
            }
            RuleAttribute::Destination(address) => {
                let _ = write!(words, " to {address}/{}", header.dst_len);
            }
            RuleAttribute::Iifname(name) => {
                is_selective = true;
                let _ = write!(words, " iif {name}");
            }
            RuleAttribute::Oifname(name) => {
                is_selective = true;
                let _ = write!(words, " oif {name}");
            }
            RuleAttribute::UidRange(_) => {
                is_selective = true;
                words.push_str(" uidrange");
            }
            RuleAttribute::IpProtocol(_)
            | RuleAttribute::SourcePortRange(_)
            | RuleAttribute::DestinationPortRange(_)
            | RuleAttribute::TunId(_) => is_selective = true,
            RuleAttribute::L3MDev(true) => {
                is_selective = true;
                words.push_str(" l3mdev");
            }
            _ => {}
        }
    }
    let is_inverted = header.flags.contains(RuleFlags::Invert);
    let matches_unmarked = mark.is_none_or(|mark| mark & mask == 0);
    let is_general = match is_inverted {
        false => !is_selective && matches_unmarked,
        // "not X": general unless X is the unmarked packet.
        true => is_selective || !matches_unmarked,
    };
    if let Some(mark) = mark {
        let _ = match mask {
            u32::MAX => write!(words, " fwmark {mark:#x}"),
            mask => write!(words, " fwmark {mark:#x}/{mask:#x}"),
        };
    }
    let table = (header.action == RuleAction::ToTable).then_some(table);
    let not = if is_inverted { "not " } else { "" };
    let lookup = match table {
        Some(table) => format!(" lookup {}", TableName(table)),
        None => String::new(),
    };
    let from = if words.contains(" from ") {
        ""
    } else {
        "from all"
    };
    let text = format!("{not}{}{lookup}", format!("{from}{words}").trim());
    Some(RuleFact {
        family,
        preference,
        table,
        is_general,
        is_ours,
        text,
    })
}

/// A route; `name` returns the name of an interface. `None` for families other than IP, and for
/// entries of the cache.
pub(in super::super) fn route(
    message: &RouteMessage,
    name: impl Fn(u32) -> Option<String>,
) -> Option<RouteFact> {
    let header = &message.header;
    let family = Family::of_netlink(header.address_family)?;
    let mut table = u32::from(header.table);
    let mut address = family.everything().addr();
    let mut device = None;
    let mut metric = 0;
    let mut source = None;
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(value) => table = *value,
            RouteAttribute::Destination(found) => address = ip(found)?,
            RouteAttribute::Oif(index) => device = name(*index),
            RouteAttribute::Priority(value) => metric = *value,
            RouteAttribute::PrefSource(found) => source = ip(found),
            RouteAttribute::MultiPath(hops) => {
                device = hops.first().and_then(|hop| name(hop.interface_index));
            }
            _ => {}
        }
    }
    Some(RouteFact {
        table,
        destination: IpNet::new(address, header.destination_prefix_length).ok()?,
        kind: match header.kind {
            NetlinkType::Unicast => RouteKind::Unicast,
            NetlinkType::Local => RouteKind::Local,
            NetlinkType::Unreachable => RouteKind::Unreachable,
            _ => RouteKind::Other,
        },
        device,
        metric,
        source,
        is_ours: header.protocol == ours(),
    })
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some(IpAddr::V4(*address)),
        RouteAddress::Inet6(address) => Some(IpAddr::V6(*address)),
        _ => None,
    }
}
