//! The administrator's settings.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Input of a [`Plan`](super::Plan).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How TCP, and the LAN's UDP, reach this program.
    pub capture: CaptureSetting,
    /// Whether the traffic of this host is captured.
    pub host: bool,
    /// Interfaces of the networks that are captured.
    pub lan: Vec<String>,
    /// Interfaces that carry the bond, as far as they are known.
    pub links: Vec<String>,
    /// The TUN device, which must exist before the plan is applied.
    pub device: DeviceSettings,
    /// Ports of the IPv4 listeners on 127.0.0.1.
    pub ipv4_ports: ListenerPorts,
    /// Ports of the IPv6 listeners on `::1`.
    pub ipv6_ports: ListenerPorts,
    /// What happens to traffic when the TUN device, or a family, is missing.
    pub without_bond: WithoutBond,
    /// Whether IPv4 is captured.
    pub ipv4: bool,
    /// Whether IPv6 is captured. If not, [`WithoutBond::Block`] blocks it.
    pub ipv6: bool,
    /// Whether the bond takes the traffic although another VPN has the default route.
    pub over_vpn: bool,
    /// Whether the program answers echo requests of the LAN from a packet socket. If so, the kernel
    /// drops them; otherwise it rejects them.
    pub lan_echo: bool,
    /// Addresses of the server: after a start, their route must not lead into the bond.
    pub servers: Vec<IpAddr>,
}

impl Settings {
    /// Whether programs of this host that bind to a link's interface are refused there, because
    /// nothing may leave beside the bond.
    pub(super) fn refuses_bound_programs(&self) -> bool {
        self.host && self.without_bond == WithoutBond::Block
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            capture: CaptureSetting::Auto,
            host: true,
            lan: Vec::new(),
            links: Vec::new(),
            device: DeviceSettings::default(),
            ipv4_ports: ListenerPorts::default(),
            ipv6_ports: ListenerPorts::default(),
            without_bond: WithoutBond::Block,
            ipv4: true,
            ipv6: true,
            over_vpn: false,
            lan_echo: true,
            servers: Vec::new(),
        }
    }
}

/// The way of capture in the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaptureSetting {
    /// nftables if it works, else the TUN device.
    #[default]
    Auto,
    /// REDIRECT and TPROXY; refused if nftables does not work.
    Nftables,
    /// Only the TUN device.
    Tun,
}

/// The way of capture of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// REDIRECT and TPROXY.
    Nftables,
    /// Only the TUN device.
    Tun,
}

/// Treatment of traffic after the TUN device has disappeared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WithoutBond {
    /// The kill switch: destinations without a specific route are unreachable.
    #[default]
    Block,
    /// Traffic is routed as without sumlink.
    Direct,
}

/// The TUN device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSettings {
    /// Its name, at most 15 bytes.
    pub name: String,
    /// The source address of the host's IPv4 connections.
    pub ipv4: Ipv4Addr,
    /// The source address of the host's IPv6 connections.
    pub ipv6: Ipv6Addr,
    /// MTU in bytes, at least 1280 (RFC 8200, section 5).
    pub mtu: u32,
}

impl Default for DeviceSettings {
    /// An address of the range for benchmarks (RFC 2544), which no network routes, and a unique
    /// local one (RFC 4193).
    fn default() -> Self {
        Self {
            name: "sumlink0".to_owned(),
            ipv4: Ipv4Addr::new(198, 18, 74, 1),
            ipv6: Ipv6Addr::new(0xfd73, 0x756d, 0x6c69, 0, 0, 0, 0, 1),
            mtu: 1500,
        }
    }
}

/// Ports of this program's listeners of one family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerPorts {
    /// Accepts the host's TCP connections (REDIRECT).
    pub redirect: u16,
    /// Accepts the LAN's TCP connections; a transparent socket.
    pub transparent_tcp: u16,
    /// Receives the LAN's datagrams; a transparent socket.
    pub transparent_udp: u16,
}
