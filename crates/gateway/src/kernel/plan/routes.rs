//! Addresses and routes of a plan.

use std::net::IpAddr;

use ipnet::IpNet;

use super::super::check;
use super::super::facts::Facts;
use super::super::network::DeviceFact;
use super::super::routing::{Family, Hop, Route};
use super::super::settings::{Capture, DeviceSettings, Settings, WithoutBond};
use super::super::{TABLE_BOND, TABLE_LAN, TABLE_LOCAL};
use super::METRIC;

pub(super) fn addresses(settings: &Settings, captured: &[Family]) -> Vec<IpNet> {
    let device = &settings.device;
    captured
        .iter()
        .map(|family| IpNet::from(source(device, *family)))
        .collect()
}

fn source(device: &DeviceSettings, family: Family) -> IpAddr {
    match family {
        Family::V4 => device.ipv4.into(),
        Family::V6 => device.ipv6.into(),
    }
}

pub(super) fn routes(
    settings: &Settings,
    facts: &Facts,
    capture: Capture,
    captured: &[Family],
    touched: &[Family],
) -> Vec<Route> {
    let mut routes = Vec::new();
    for family in touched {
        if settings.without_bond == WithoutBond::Block {
            routes.push(Route {
                table: TABLE_BOND,
                destination: family.everything(),
                hop: Hop::Unreachable,
                source: None,
                metric: u32::MAX,
            });
        }
    }
    for family in captured {
        routes.push(Route {
            table: TABLE_BOND,
            destination: family.everything(),
            hop: Hop::Device(settings.device.name.clone()),
            // The kernel prefers addresses of the outgoing interface (RFC 6724, rule 5), and for
            // IPv6 refuses to name one that another program has added a moment ago.
            source: (*family == Family::V4).then(|| settings.device.ipv4.into()),
            metric: METRIC,
        });
        if capture == Capture::Nftables && !settings.lan.is_empty() {
            routes.push(Route {
                table: TABLE_LOCAL,
                destination: family.everything(),
                hop: Hop::Local,
                source: None,
                metric: METRIC,
            });
        }
    }
    routes.extend(lan_routes(settings, &facts.devices, captured));
    routes
}

/// Routes to the networks of the LAN's interfaces, for which their addresses are needed.
pub(in super::super) fn lan_routes(
    settings: &Settings,
    devices: &[DeviceFact],
    captured: &[Family],
) -> Vec<Route> {
    let mut routes: Vec<Route> = Vec::new();
    let lan = settings.lan.iter().filter_map(|name| {
        // A route over an interface that is down would be refused.
        devices
            .iter()
            .find(|device| device.name == *name && device.is_up)
    });
    for device in lan {
        for address in device
            .addresses
            .iter()
            .filter(|address| check::is_routed(address))
        {
            let destination = address.trunc();
            let family = Family::of(address.addr());
            if !captured.contains(&family) || destination.prefix_len() == 0 {
                continue;
            }
            let route = Route {
                table: TABLE_LAN,
                destination,
                hop: Hop::Device(device.name.clone()),
                // The kernel chooses among several IPv6 addresses, which come and go.
                source: (family == Family::V4).then_some(address.addr()),
                metric: METRIC,
            };
            if !routes.iter().any(|other| other.is_same(&route)) {
                routes.push(route);
            }
        }
    }
    routes
}
