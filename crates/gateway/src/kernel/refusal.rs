//! Why a gateway is not started, and what its administrator is warned of.

use ipnet::IpNet;

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
