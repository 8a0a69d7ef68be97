//! VPNs of other programs that have the default route, at the start and while the gateway runs.

use super::facts::Facts;
use super::network::{RouteFact, RouteKind, RuleFact};
use super::refusal::Warning;
use super::routing::{DEFAULT, Family, LOCAL, MAIN};
use super::settings::Settings;

/// A VPN of another program that the administrator knows of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reported {
    /// The interface of its route.
    pub(super) device: String,
    /// Its rule precedes those of the gateway.
    pub(super) takes_all: bool,
}

/// The VPNs that the administrator has been warned of at the start.
pub(super) fn overridden(warnings: &[Warning]) -> Vec<Reported> {
    let overridden = warnings.iter().filter_map(|warning| match warning {
        Warning::VpnOverridden { device } => Some(Reported {
            device: device.clone(),
            takes_all: false,
        }),
        _ => None,
    });
    overridden.collect()
}

/// A VPN of another program that has the default route.
#[derive(Clone, Debug)]
pub(super) struct Vpn<'a> {
    /// The interface of its route.
    pub(super) device: String,
    /// The rule or route that leads there, in words.
    pub(super) origin: String,
    /// Its rule of policy routing, if it has one.
    pub(super) rule: Option<&'a RuleFact>,
}

/// The VPNs of other programs that have the default route. Those with a rule at a preference below
/// `behind_ours` take the traffic before the gateway's rules; from the others the gateway takes it.
pub(super) fn other_vpns<'a>(
    settings: &Settings,
    facts: &'a Facts,
    families: &[Family],
    behind_ours: u32,
) -> Vec<Vpn<'a>> {
    let is_link = |device: &str| settings.links.iter().any(|link| link == device);
    let mut found = Vec::new();
    let foreign = facts
        .rules
        .iter()
        .filter(|rule| !rule.is_ours && rule.is_general && families.contains(&rule.family));
    for rule in foreign {
        let Some(table) = rule
            .table
            .filter(|table| ![LOCAL, MAIN, DEFAULT].contains(table))
        else {
            continue;
        };
        let routes = routes_of(facts, rule.family, table);
        let Some(device) = routes.filter(|route| covers_all(route)).find_map(device_of) else {
            continue;
        };
        if rule.preference < behind_ours || !is_link(device) {
            found.push(Vpn {
                device: device.to_owned(),
                origin: format!("rule {}: '{}'", rule.preference, rule.text),
                rule: Some(rule),
            });
        }
    }
    for family in families {
        // OpenVPN's "def1" divides the default route in two, which are more specific than ours.
        let halves = routes_of(facts, *family, MAIN)
            .filter(|route| covers_all(route) && route.destination.prefix_len() > 0);
        let best = routes_of(facts, *family, MAIN)
            .filter(|route| route.destination.prefix_len() == 0)
            .min_by_key(|route| route.metric)
            .filter(|route| is_tunnel(facts, route));
        for route in halves.chain(best) {
            if let Some(device) = device_of(route).filter(|device| !is_link(device)) {
                found.push(Vpn {
                    device: device.to_owned(),
                    origin: format!("route to {} in table main", route.destination),
                    rule: None,
                });
            }
        }
    }
    found
}

fn routes_of(facts: &Facts, family: Family, table: u32) -> impl Iterator<Item = &RouteFact> {
    facts.routes.iter().filter(move |route| {
        route.table == table
            && !route.is_ours
            && route.kind == RouteKind::Unicast
            && Family::of(route.destination.addr()) == family
    })
}

/// Interfaces with an IPv6 default route in the table main.
pub(super) fn ipv6_default_devices(facts: &Facts) -> impl Iterator<Item = &str> {
    let defaults = routes_of(facts, Family::V6, MAIN);
    defaults
        .filter(|route| route.destination.prefix_len() == 0)
        .filter_map(device_of)
}

fn device_of(route: &RouteFact) -> Option<&str> {
    route.device.as_deref()
}

/// Whether a route takes everything, half of it, or all public IPv6 addresses.
fn covers_all(route: &RouteFact) -> bool {
    route.destination.prefix_len() <= widest(Family::of(route.destination.addr()))
}

/// Longest prefix of routes that are a default route in effect: `0.0.0.0/1`, `2000::/3`.
pub(super) fn widest(family: Family) -> u8 {
    match family {
        Family::V4 => 1,
        Family::V6 => 3,
    }
}

/// Whether the route leads through the virtual device of a VPN.
fn is_tunnel(facts: &Facts, route: &RouteFact) -> bool {
    const KINDS: [&str; 11] = [
        "tun",
        "wireguard",
        "ovpn",
        "xfrm",
        "vti",
        "vti6",
        "ipip",
        "sit",
        "gre",
        "ip6tnl",
        "ip6gre",
    ];
    let device = route.device.as_deref().and_then(|name| facts.device(name));
    let kind = device.and_then(|device| device.kind.as_deref());
    kind.is_some_and(|kind| KINDS.contains(&kind))
}
