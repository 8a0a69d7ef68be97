//! Interfaces, rules and routes of the system.

mod parse;

use std::net::IpAddr;

use ipnet::IpNet;

use super::routing::Family;

pub(super) use parse::{device, route, rule};

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFact {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// The kind of a virtual device (`tun`, `wireguard`); `None` for hardware.
    pub kind: Option<String>,
    /// Whether it is up.
    pub is_up: bool,
    /// Addresses with the prefix of their network.
    pub addresses: Vec<IpNet>,
}

/// A rule of policy routing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFact {
    /// The family.
    pub family: Family,
    /// Rules apply in ascending order.
    pub preference: u32,
    /// The routing table; `None` for other actions.
    pub table: Option<u32>,
    /// Whether it applies to unmarked packets of any address, interface, user and port.
    pub is_general: bool,
    /// Whether the gateway created it.
    pub is_ours: bool,
    /// The rule as `ip rule` prints it.
    pub text: String,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteFact {
    /// The routing table.
    pub table: u32,
    /// The destination.
    pub destination: IpNet,
    /// The type.
    pub kind: RouteKind,
    /// The interface.
    pub device: Option<String>,
    /// The lowest metric wins.
    pub metric: u32,
    /// The source address.
    pub source: Option<IpAddr>,
    /// Whether the gateway created it.
    pub is_ours: bool,
}

/// Type of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// Packets leave by an interface.
    Unicast,
    /// Packets are for this machine.
    Local,
    /// The sender gets an error.
    Unreachable,
    /// Any other type.
    Other,
}
