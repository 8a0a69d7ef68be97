//! Whether settings fit a system.

use ipnet::IpNet;

use super::facts::Facts;
use super::nft::NftSupport;
use super::routing::Family;
use super::settings::{Capture, CaptureSetting, Settings};
use super::vpn::{Vpn, other_vpns};

/// Why a gateway is not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The process lacks `CAP_NET_ADMIN`.
    #[error("no permission to change routes and firewall: run as root, or with CAP_NET_ADMIN")]
    NotPermitted,
    /// Neither the host nor a LAN is captured.
    #[error("nothing to capture: set host = true, or name an interface in lan")]
    NothingToCapture,
    /// Neither family is captured.
    #[error("nothing to capture: neither IPv4 nor IPv6 is enabled")]
    NoFamily,
    /// The name cannot be that of an interface.
    #[error(
        "'{name}' cannot be the name of an interface: 1 to 15 characters without '/' or spaces"
    )]
    BadName {
        /// The name.
        name: String,
    },
    /// nftables was asked for and does not work.
    #[error("capture = \"nftables\" does not work: {reason}; capture = \"tun\" needs no nftables")]
    NoNftables {
        /// The reason.
        reason: String,
    },
    /// A LAN interface does not exist.
    #[error("no interface named {name} for lan: `ip link` lists the interfaces")]
    NoSuchLan {
        /// The name.
        name: String,
    },
    /// A LAN interface is also a link.
    #[error("{name} is in lan and a link of the bond: it can be only one of them")]
    LanIsLink {
        /// The name.
        name: String,
    },
    /// The TUN device is also a link or a LAN interface: the bond would carry itself.
    #[error("{name} is the gateway's own device: it cannot be a link or in lan")]
    DeviceIsUsed {
        /// The name.
        name: String,
    },
    /// Another VPN routes everything.
    #[error(
        "another VPN has the default route (device {device}, {origin}): stop it, or set over_vpn = \
         true to send everything over the bond nevertheless"
    )]
    OtherVpn {
        /// The interface of its route.
        device: String,
        /// The rule or route, and where it is.
        origin: String,
    },
    /// A rule that matches everything leaves no room for rules before it.
    #[error("no preference is free before the rule {preference} ('{rule}')")]
    NoPreference {
        /// Preference of the rule.
        preference: u32,
        /// The rule.
        rule: String,
    },
}

/// A problem to report to the administrator, although the gateway can start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// The kernel has no IPv6, so none of it can leak.
    #[error("IPv6 is disabled in this kernel: only IPv4 is captured")]
    Ipv6Disabled,
    /// nftables does not work, so everything passes through the TUN device.
    #[error("nftables does not work ({reason}): everything passes through the TUN device")]
    WithoutNftables {
        /// The reason.
        reason: String,
    },
    /// A LAN has the same addresses as another network.
    #[error(
        "the network {network} of {lan} overlaps with {other} of {device}: addresses in it belong \
         to {lan}"
    )]
    OverlappingSubnets {
        /// The LAN interface.
        lan: String,
        /// Its network.
        network: IpNet,
        /// The other interface.
        device: String,
        /// The other network.
        other: IpNet,
    },
    /// A LAN interface has no address, so its hosts cannot use this gateway yet.
    #[error("{name} has no address yet: its hosts have no gateway until it gets one")]
    LanWithoutAddress {
        /// The interface.
        name: String,
    },
    /// The kernel is about to drop new connections.
    #[error(
        "the connection table is nearly full ({count} of {max}): raise \
         net.netfilter.nf_conntrack_max"
    )]
    ConntrackNearlyFull {
        /// Entries in use.
        count: u64,
        /// Maximum.
        max: u64,
    },
    /// Forwarded packets of the LAN are dropped by another program's firewall.
    #[error(
        "a firewall on this host drops forwarded packets, so capture = \"tun\" does not reach the \
         LAN: accept packets between {lan} and {device}, or use capture = \"nftables\""
    )]
    ForwardingDropped {
        /// The LAN interfaces.
        lan: String,
        /// The TUN device.
        device: String,
    },
    /// Another VPN has the default route, and `over_vpn` overrides it.
    #[error("the VPN on {device} no longer gets the default route (over_vpn = true)")]
    VpnOverridden {
        /// The interface of its route.
        device: String,
    },
}

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
