//! Whether settings fit a system.

use ipnet::IpNet;

use super::facts::Facts;
use super::nft::NftSupport;
use super::refusal::{Refusal, Warning};
use super::routing::Family;
use super::settings::{Capture, CaptureSetting, Settings};
use super::vpn::{Vpn, other_vpns};

/// Checks the settings themselves, and those that name interfaces.
pub(super) fn check_settings(settings: &Settings, facts: &Facts) -> Result<(), Refusal> {
    if !facts.is_permitted {
        return Err(Refusal::NotPermitted);
    }
    if !settings.host && settings.lan.is_empty() {
        return Err(Refusal::NothingToCapture);
    }
    let device = &settings.device.name;
    for name in settings.lan.iter().chain([device]) {
        if !is_name(name) {
            return Err(Refusal::BadName { name: name.clone() });
        }
    }
    for name in settings.lan.iter().chain(&settings.links) {
        if name == device {
            return Err(Refusal::DeviceIsUsed { name: name.clone() });
        }
    }
    for name in &settings.lan {
        if settings.links.contains(name) {
            return Err(Refusal::LanIsLink { name: name.clone() });
        }
        if facts.device(name).is_none() {
            return Err(Refusal::NoSuchLan { name: name.clone() });
        }
    }
    Ok(())
}

/// A name that the kernel accepts (`dev_valid_name`) and that needs no quoting.
fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b':' | b'"' | b'\\');
    (1..=15).contains(&name.len()) && !matches!(name, "." | "..") && name.bytes().all(plain)
}

/// Decides the way of capture.
pub(super) fn capture(
    settings: &Settings,
    facts: &Facts,
) -> Result<(Capture, Option<Warning>), Refusal> {
    let reason = match &facts.nft {
        NftSupport::Works => None,
        NftSupport::NoProgram => Some("there is no program nft: install nftables".to_owned()),
        NftSupport::Refused(reason) => Some(format!("nft says: {reason}")),
    };
    match (settings.capture, reason) {
        (CaptureSetting::Tun, _) => Ok((Capture::Tun, None)),
        (_, None) => Ok((Capture::Nftables, None)),
        (CaptureSetting::Nftables, Some(reason)) => Err(Refusal::NoNftables { reason }),
        (CaptureSetting::Auto, Some(reason)) => {
            Ok((Capture::Tun, Some(Warning::WithoutNftables { reason })))
        }
    }
}

/// Decides the first preference: before each rule of others that would take the traffic.
///
/// Without `over_vpn`, another VPN that has the default route is refused wherever its rule is:
/// before ours it takes the bond's traffic, after ours it loses its own without notice.
pub(super) fn first_preference(
    settings: &Settings,
    facts: &Facts,
    families: &[Family],
    (first, count): (u32, u32),
) -> Result<(u32, Vec<Warning>), Refusal> {
    let mut first = first;
    let mut warnings = Vec::new();
    for vpn in other_vpns(settings, facts, families, first + count) {
        let Vpn {
            device,
            origin,
            rule,
        } = vpn;
        if !settings.over_vpn {
            return Err(Refusal::OtherVpn { device, origin });
        }
        if let Some(rule) = rule.filter(|rule| rule.preference < first + count) {
            // Preference 0 is that of the table of local addresses.
            first = match rule.preference.checked_sub(count) {
                Some(preference) if preference > 0 => preference.min(first),
                _ => {
                    return Err(Refusal::NoPreference {
                        preference: rule.preference,
                        rule: rule.text.clone(),
                    });
                }
            };
        }
        let warning = Warning::VpnOverridden { device };
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }
    Ok((first, warnings))
}

/// The warnings for these settings on this system.
pub(super) fn warnings(settings: &Settings, facts: &Facts, capture: Capture) -> Vec<Warning> {
    let mut found = Vec::new();
    if settings.ipv6 && !facts.has_ipv6 {
        found.push(Warning::Ipv6Disabled);
    }
    for lan in &settings.lan {
        let Some(device) = facts.device(lan) else {
            continue;
        };
        let mut networks = device
            .addresses
            .iter()
            .filter(|net| is_routed(net))
            .peekable();
        if networks.peek().is_none() {
            found.push(Warning::LanWithoutAddress { name: lan.clone() });
        }
        for network in networks {
            found.extend(overlaps(settings, facts, lan, network));
        }
    }
    if let Some(table) = facts.conntrack.filter(|table| table.is_nearly_full()) {
        found.push(Warning::ConntrackNearlyFull {
            count: table.count,
            max: table.max,
        });
    }
    if capture == Capture::Tun && !settings.lan.is_empty() && facts.drops_forwarded {
        found.push(Warning::ForwardingDropped {
            lan: settings.lan.join(", "),
            device: settings.device.name.clone(),
        });
    }
    found
}

/// Networks of other interfaces, not themselves in the LAN, that share addresses with this one.
fn overlaps<'a>(
    settings: &'a Settings,
    facts: &'a Facts,
    lan: &'a str,
    network: &'a IpNet,
) -> impl Iterator<Item = Warning> + 'a {
    let others = facts.devices.iter().filter(move |device| {
        device.name != settings.device.name && !settings.lan.contains(&device.name)
    });
    others.flat_map(move |device| {
        let shared = device.addresses.iter().filter(move |other| {
            other.trunc().contains(&network.trunc()) || network.trunc().contains(&other.trunc())
        });
        shared.map(move |other| Warning::OverlappingSubnets {
            lan: lan.to_owned(),
            network: network.trunc(),
            device: device.name.clone(),
            other: other.trunc(),
        })
    })
}

/// Whether packets for this network cross routers: not link-local, and not loopback.
pub(super) fn is_routed(network: &IpNet) -> bool {
    match network {
        IpNet::V4(net) => !net.addr().is_link_local() && !net.addr().is_loopback(),
        IpNet::V6(net) => !net.addr().is_unicast_link_local() && !net.addr().is_loopback(),
    }
}
