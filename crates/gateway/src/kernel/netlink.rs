//! Questions to the kernel, and changes, over rtnetlink.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;

use futures_util::TryStreamExt;
use ipnet::IpNet;
use rtnetlink::packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use rtnetlink::packet_route::route::{RouteAttribute, RouteMessage};
use rtnetlink::packet_route::rule::{RuleAttribute, RuleFlags, RuleMessage};
use rtnetlink::{Handle, IpVersion, LinkUnspec};

use super::network::{self, DeviceFact, RouteFact, RouteKind, RuleFact};
use super::routing::{Family, Hop, Route, Rule, ours};
use super::{CARRIER_MARK, MARK_MASK};

/// A netlink socket and the task that serves it.
#[derive(Debug)]
pub(super) struct Netlink {
    handle: Handle,
    connection: tokio::task::JoinHandle<()>,
}

impl Drop for Netlink {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Netlink {
    /// Must be called inside a tokio runtime with I/O.
    pub(super) fn open() -> io::Result<Self> {
        // Strict: the kernel filters routes by our protocol number.
        let (connection, handle, _) = rtnetlink::new_connection_with_strict_check()?;
        Ok(Self {
            handle,
            connection: tokio::spawn(connection),
        })
    }

    /// Interfaces, rules and routes.
    pub(super) async fn state(
        &self,
    ) -> io::Result<(Vec<DeviceFact>, Vec<RuleFact>, Vec<RouteFact>)> {
        let devices = self.devices().await?;
        let names = names(&devices);
        let mut rules = Vec::new();
        let mut routes = Vec::new();
        for family in Family::ALL {
            rules.extend(self.rules(family).await?.iter().filter_map(network::rule));
            let found = self.routes(family, RouteMessage::default()).await?;
            let facts = found
                .iter()
                .filter_map(|message| network::route(message, |index| names.get(&index).cloned()));
            routes.extend(facts);
        }
        Ok((devices, rules, routes))
    }

    /// Interfaces with their addresses.
    pub(super) async fn devices(&self) -> io::Result<Vec<DeviceFact>> {
        let links = self.handle.link().get().execute();
        let links: Vec<_> = links.try_collect().await.map_err(to_io)?;
        let mut devices: Vec<DeviceFact> = links.iter().map(network::device).collect();
        let addresses = self.handle.address().get().execute();
        let addresses: Vec<_> = addresses.try_collect().await.map_err(to_io)?;
        for message in addresses {
            let index = message.header.index;
            if let Some(device) = devices.iter_mut().find(|device| device.index == index) {
                device.addresses.extend(network_of(&message));
            }
        }
        Ok(devices)
    }

    async fn rules(&self, family: Family) -> io::Result<Vec<RuleMessage>> {
        let version = match family {
            Family::V4 => IpVersion::V4,
            Family::V6 => IpVersion::V6,
        };
        let rules = self.handle.rule().get(version).execute();
        none_without_family(rules.try_collect().await.map_err(to_io))
    }

    async fn routes(
        &self,
        family: Family,
        mut question: RouteMessage,
    ) -> io::Result<Vec<RouteMessage>> {
        question.header.address_family = family.to_netlink();
        let routes = self.handle.route().get(question).execute();
        none_without_family(routes.try_collect().await.map_err(to_io))
    }

    /// The rules with our protocol number, and their messages.
    pub(super) async fn our_rules(&self, family: Family) -> io::Result<Vec<(Rule, RuleMessage)>> {
        let rules = self.rules(family).await?;
        let ours = rules.into_iter().filter_map(|message| {
            let rule = our_rule(family, &message)?;
            Some((rule, message))
        });
        Ok(ours.collect())
    }

    /// The routes with our protocol number, and their messages.
    pub(super) async fn our_routes(
        &self,
        family: Family,
    ) -> io::Result<Vec<(Route, RouteMessage)>> {
        let mut question = RouteMessage::default();
        question.header.protocol = ours();
        let names = names(&self.devices().await?);
        let routes = self.routes(family, question).await?;
        let ours = routes.into_iter().filter_map(|message| {
            let fact = network::route(&message, |index| names.get(&index).cloned())?;
            if !fact.is_ours {
                return None;
            }
            let hop = match fact.kind {
                RouteKind::Unicast => Hop::Device(fact.device.unwrap_or_default()),
                RouteKind::Local => Hop::Local,
                RouteKind::Unreachable | RouteKind::Other => Hop::Unreachable,
            };
            let route = Route {
                table: fact.table,
                destination: fact.destination,
                hop,
                source: fact.source,
                metric: fact.metric,
            };
            Some((route, message))
        });
        Ok(ours.collect())
    }

    /// Adds a rule, unless it exists.
    pub(super) async fn add_rule(&self, rule: &Rule) -> io::Result<()> {
        let mut request = self.handle.rule().add();
        *request.message_mut() = rule.to_message();
        existing_is_fine(request.execute().await.map_err(to_io))
    }

    /// Deletes a rule; a missing one is no error.
    pub(super) async fn delete_rule(&self, rule: RuleMessage) -> io::Result<()> {
        gone_is_fine(self.handle.rule().del(rule).execute().await.map_err(to_io))
    }

    /// Adds a route, unless it exists.
    pub(super) async fn add_route(&self, route: &Route) -> io::Result<()> {
        let device = match &route.hop {
            Hop::Device(name) => self.index(name).await?,
            Hop::Local => self.index("lo").await?,
            Hop::Unreachable => 0,
        };
        let request = self.handle.route().add(route.to_message(device));
        existing_is_fine(request.execute().await.map_err(to_io))
    }

    /// Deletes a route; a missing one is no error.
    pub(super) async fn delete_route(&self, route: RouteMessage) -> io::Result<()> {
        gone_is_fine(
            self.handle
                .route()
                .del(route)
                .execute()
                .await
                .map_err(to_io),
        )
    }

    /// Adds an address to an interface.
    pub(super) async fn add_address(&self, device: &str, address: IpNet) -> io::Result<()> {
        let index = self.index(device).await?;
        let request = self.handle.address();
        let mut request = request.add(index, address.addr(), address.prefix_len());
        // No other host on the interface could have the address (RFC 4862, section 5.4).
        request.message_mut().header.flags |= AddressHeaderFlags::Nodad;
        existing_is_fine(request.execute().await.map_err(to_io))
    }

    /// Sets an interface's MTU and brings it up.
    pub(super) async fn bring_up(&self, device: &str, mtu: u32) -> io::Result<()> {
        let index = self.index(device).await?;
        let link = LinkUnspec::new_with_index(index).mtu(mtu).up().build();
        self.handle.link().set(link).execute().await.map_err(to_io)
    }

    /// The interface by which a packet with the mark of carriers reaches this address; `None`
    /// without a route.
    pub(super) async fn carrier_device(&self, remote: IpAddr) -> io::Result<Option<u32>> {
        let mut question = RouteMessage::default();
        let family = Family::of(remote);
        question.header.address_family = family.to_netlink();
        question.header.destination_prefix_length = IpNet::from(remote).prefix_len();
        question
            .attributes
            .push(RouteAttribute::Destination(remote.into()));
        question.attributes.push(RouteAttribute::Mark(CARRIER_MARK));
        let mut answers = std::pin::pin!(self.handle.route().get(question).execute());
        let answer = match answers.try_next().await.map_err(to_io) {
            Ok(answer) => answer,
            Err(error) => match error.raw_os_error() {
                Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES | libc::EINVAL) => None,
                _ => return Err(error),
            },
        };
        Ok(answer.and_then(|route| {
            route
                .attributes
                .iter()
                .find_map(|attribute| match attribute {
                    RouteAttribute::Oif(index) => Some(*index),
                    _ => None,
                })
        }))
    }

    /// The index of the interface.
    pub(super) async fn index(&self, name: &str) -> io::Result<u32> {
        let mut found = std::pin::pin!(
            self.handle
                .link()
                .get()
                .match_name(name.to_owned())
                .execute()
        );
        match found.try_next().await.map_err(to_io)? {
            Some(link) => Ok(link.header.index),
            None => Err(io::Error::from_raw_os_error(libc::ENODEV)),
        }
    }
}

fn names(devices: &[DeviceFact]) -> HashMap<u32, String> {
    let names = devices
        .iter()
        .map(|device| (device.index, device.name.clone()));
    names.collect()
}

/// An address and its network.
fn network_of(message: &AddressMessage) -> Option<IpNet> {
    let find = |wanted: fn(&AddressAttribute) -> Option<IpAddr>| {
        message.attributes.iter().find_map(wanted)
    };
    // On a point-to-point link the "address" is that of the peer.
    let local = find(|attribute| match attribute {
        AddressAttribute::Local(ip) => Some(*ip),
        _ => None,
    });
    let address = find(|attribute| match attribute {
        AddressAttribute::Address(ip) => Some(*ip),
        _ => None,
    });
    IpNet::new(local.or(address)?, message.header.prefix_len).ok()
}

/// A rule of ours, from its message.
fn our_rule(family: Family, message: &RuleMessage) -> Option<Rule> {
    let mut rule = Rule::new(family, 0, u32::from(message.header.table));
    rule.invert = message.header.flags.contains(RuleFlags::Invert);
    let mut is_ours = false;
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Protocol(protocol) => is_ours = *protocol == ours(),
            RuleAttribute::Priority(value) => rule.preference = *value,
            RuleAttribute::Table(value) => rule.table = *value,
            RuleAttribute::Iifname(name) => rule.iif = Some(name.clone()),
            RuleAttribute::Destination(address) => {
                rule.to = IpNet::new(*address, message.header.dst_len).ok();
            }
            RuleAttribute::FwMark(value) => rule.mark = Some(*value),
            // The kernel reports no mark 0.
            RuleAttribute::FwMask(MARK_MASK) => rule.mark = rule.mark.or(Some(0)),
            // It reports "no limit" as the largest number.
            RuleAttribute::SuppressPrefixLen(u32::MAX) => {}
            RuleAttribute::SuppressPrefixLen(value) => rule.suppress = Some(*value),
            _ => {}
        }
    }
    is_ours.then_some(rule)
}

fn to_io(error: rtnetlink::Error) -> io::Error {
    match error {
        rtnetlink::Error::NetlinkError(error) => error.to_io(),
        error => io::Error::other(error),
    }
}

/// A kernel without a family has neither rules nor routes of it.
fn none_without_family<T>(found: io::Result<Vec<T>>) -> io::Result<Vec<T>> {
    match found {
        Err(error) if is_any(&error, &[libc::EOPNOTSUPP, libc::EAFNOSUPPORT]) => Ok(Vec::new()),
        // No route has matched the filter, or its table does not exist.
        Err(error) if is_any(&error, &[libc::ENOENT]) => Ok(Vec::new()),
        found => found,
    }
}

fn existing_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if is_any(&error, &[libc::EEXIST]) => Ok(()),
        result => result,
    }
}

fn gone_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if is_any(&error, &[libc::ENOENT, libc::ESRCH, libc::ENODEV]) => Ok(()),
        result => result,
    }
}

fn is_any(error: &io::Error, numbers: &[i32]) -> bool {
    error
        .raw_os_error()
        .is_some_and(|number| numbers.contains(&number))
}
