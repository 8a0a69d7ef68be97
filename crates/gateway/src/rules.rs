//! Which way a connection or a flow takes: over the bond, over one link, or none at all.
//!
//! A [`Rule`] has conditions, which must all be met, and an [`Action`]. Rules are tried in order,
//! and the first match decides; without one, everything takes the bond. The same function decides
//! for real traffic and for `sumlink route test`.
//!
//! This module is pure: the router fills the [`Query`] with the known facts about a program.
//! [`Needs`] says which of them the rules use, because some are costly to find out.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use sumlink_proxy::Ports;

pub use conditions::{Device, Domains, Mac, User};
pub use error::RuleError;
pub use table::{Entry, Keep, Rules};

mod conditions;
mod error;
mod table;
#[cfg(test)]
mod tests;
mod text;

/// One rule, in text `CONDITION... ACTION`.
///
/// In a file it is a table with the names of the conditions as keys, and the key `action`. See
/// [`Rule::from_str`](std::str::FromStr) for the conditions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "text::Raw", into = "text::Raw")]
pub struct Rule {
    /// All of them must be met. Without any, the rule matches everything.
    pub conditions: Conditions,
    /// What happens to traffic that matches.
    pub action: Action,
}

/// What happens to a connection or a flow.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// It takes the bond.
    Bond,
    /// It takes the link of this name, without the bond.
    Link(String),
    /// It takes the best usable link, without the bond.
    Direct,
    /// It is refused.
    Block,
}

/// Transport protocol of a connection or a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// A TCP connection.
    Tcp,
    /// A flow of UDP datagrams.
    Udp,
    /// Echo requests.
    Icmp,
}

/// The conditions of a rule. An empty list is met by everything; otherwise one of its elements must
/// match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// Domains of the target.
    pub domains: Domains,
    /// Networks of the target.
    pub networks: Vec<IpNet>,
    /// Ports of the target; echo requests have none.
    pub ports: Option<Ports>,
    /// The protocol.
    pub protocol: Option<Protocol>,
    /// The user of a program on this machine.
    pub users: Vec<User>,
    /// The control group (version 2) of a program on this machine, or one above it: `/`-separated,
    /// without an end slash.
    pub cgroups: Vec<String>,
    /// The machine that sends.
    pub devices: Vec<Device>,
}

/// The known facts about a connection or a flow. Unknown ones meet no condition.
#[derive(Clone, Copy, Debug, Default)]
pub struct Query<'a> {
    /// Names of the target: the one by which the program has asked for it, or those to which our
    /// own resolver has answered with its address.
    pub names: &'a [&'a str],
    /// Address of the target.
    pub ip: Option<IpAddr>,
    /// Port of the target; 0 for echo requests.
    pub port: u16,
    /// The protocol.
    pub protocol: Option<Protocol>,
    /// User id of the program.
    pub uid: Option<u32>,
    /// The name of that user.
    pub user: Option<&'a str>,
    /// Control group of the program.
    pub cgroup: Option<&'a str>,
    /// Address of the machine that sends, unless it is this one.
    pub device: Option<IpAddr>,
    /// Its hardware address.
    pub mac: Option<Mac>,
}

/// Parts of a [`Query`] that some rule looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// [`Query::names`] of addresses.
    pub names: bool,
    /// [`Query::uid`].
    pub uid: bool,
    /// [`Query::user`].
    pub user: bool,
    /// [`Query::cgroup`].
    pub cgroup: bool,
    /// [`Query::mac`].
    pub mac: bool,
}

/// The rules' decision about a [`Query`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What happens.
    pub action: Action,
    /// The rule that decides; `None` if no rule matches.
    pub rule: Option<Decisive>,
    /// Why, as a line for people; it names the rule by its id.
    pub reason: String,
}

/// The rule that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decisive {
    /// Its place in the order, from 1.
    pub number: usize,
    /// Its id.
    pub id: u64,
}

/// Decides with the first of the rules that matches.
pub fn decide<'a>(rules: impl IntoIterator<Item = &'a Entry>, query: &Query<'_>) -> Decision {
    for (index, entry) in rules.into_iter().enumerate() {
        let Some(met) = entry.rule.conditions.met(query) else {
            continue;
        };
        let id = entry.id;
        let reason = match met.is_empty() {
            true => format!("rule {id} matches everything"),
            false => format!("rule {id}: {}", met.join(", ")),
        };
        return Decision {
            action: entry.rule.action.clone(),
            rule: Some(Decisive {
                number: index + 1,
                id,
            }),
            reason,
        };
    }
    Decision {
        action: Action::Bond,
        rule: None,
        reason: "no rule matches".to_owned(),
    }
}

impl Conditions {
    /// The met part of each condition, in words; `None` if one is not met.
    fn met(&self, query: &Query<'_>) -> Option<Vec<String>> {
        let mut met = Vec::new();
        if !self.domains.is_empty() {
            let mut names = query.names.iter();
            let (name, domain) =
                names.find_map(|name| Some((name, self.domains.matching(name)?)))?;
            met.push(
                match name.trim_end_matches('.').eq_ignore_ascii_case(domain) {
                    true => format!("the domain is {domain}"),
                    false => format!("{name} is in the domain {domain}"),
                },
            );
        }
        if !self.networks.is_empty() {
            let ip = query.ip?.to_canonical();
            let network = self.networks.iter().find(|network| network.contains(&ip))?;
            met.push(format!("{ip} is in {network}"));
        }
        if let Some(ports) = &self.ports {
            if query.port == 0 || !ports.contain(query.port) {
                return None;
            }
            met.push(format!("the port is {}", query.port));
        }
        if let Some(protocol) = self.protocol {
            if query.protocol != Some(protocol) {
                return None;
            }
            met.push(format!("the protocol is {protocol}"));
        }
        if !self.users.is_empty() {
            let user = self
                .users
                .iter()
                .find(|user| user.is(query.uid, query.user))?;
            met.push(format!("the user is {user}"));
        }
        if !self.cgroups.is_empty() {
            let cgroup = query.cgroup?;
            let above = |group: &&String| conditions::is_within(cgroup, group);
            let group = self.cgroups.iter().find(above)?;
            met.push(format!("the control group {cgroup} is in {group}"));
        }
        if !self.devices.is_empty() {
            let device = query.device.map(|ip| ip.to_canonical());
            let mut devices = self.devices.iter();
            let device = devices.find(|known| known.is(device, query.mac))?;
            met.push(format!("the device is {device}"));
        }
        Some(met)
    }
}

impl Needs {
    /// The needs of some rules together.
    pub fn of<'a>(rules: impl IntoIterator<Item = &'a Rule>) -> Self {
        let mut needs = Self::default();
        for Rule { conditions, .. } in rules {
            needs.names |= !conditions.domains.is_empty();
            needs.uid |= !conditions.users.is_empty();
            needs.user |= conditions
                .users
                .iter()
                .any(|user| matches!(user, User::Name(_)));
            needs.cgroup |= !conditions.cgroups.is_empty();
            needs.mac |= conditions
                .devices
                .iter()
                .any(|device| matches!(device, Device::Mac(_)));
        }
        needs
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Icmp => "icmp",
        })
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bond => f.write_str("bond"),
            Self::Link(name) => write!(f, "link {name}"),
            Self::Direct => f.write_str("direct"),
            Self::Block => f.write_str("block"),
        }
    }
}
