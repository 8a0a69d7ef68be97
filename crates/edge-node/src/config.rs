//! Configuration of an end.

use std::net::SocketAddr;
use std::time::Duration;

use ipnet::IpNet;
use sumlink_edge::lwa::ReorderConfig;

use crate::wire;

/// Which end of the tunnels this is. Both forward packets in the same way; they differ in the
/// settings that they allow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Between the network and the links: steers the users' incoming packets.
    #[default]
    Node,
    /// Behind the links: restores the order of the users' packets, and sends upwards.
    User,
}

impl Role {
    /// The name used in the configuration and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::User => "user",
        }
    }
}

/// The TUN device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TunConfig {
    /// Interface name, at most 15 bytes.
    pub name: String,
    /// Addresses with their networks.
    pub addresses: Vec<IpNet>,
    /// Further networks routed through the device.
    pub routes: Vec<IpNet>,
    /// Largest packet in bytes, excluding the tunnel headers: 576 to 65000.
    pub mtu: usize,
    /// Lets the kernel pass TCP data in super-packets of up to 64 KiB, if it can, which costs both
    /// sides less work.
    pub offload: bool,
}

impl Default for TunConfig {
    /// `edge0` without addresses, and an MTU that leaves room for the headers on links with an MTU
    /// of 1500 bytes.
    fn default() -> Self {
        Self {
            name: "edge0".to_owned(),
            addresses: Vec::new(),
            routes: Vec::new(),
            mtu: 1400,
            offload: true,
        }
    }
}

/// One link: a UDP tunnel between two fixed addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// Name of the link.
    pub name: String,
    /// Local address and port.
    pub local: SocketAddr,
    /// Remote address and port; packets from any other source are refused.
    pub remote: SocketAddr,
    /// The interface that the packets leave by, regardless of the routes.
    pub interface: Option<String>,
    /// Rate limit in bits per second, for UDP packets with their IP headers. Without it, the link
    /// takes as much as its socket accepts.
    pub rate: Option<u64>,
    /// Most bytes waiting in the socket and in the interface below it (SO_SNDBUF), at least 4608.
    pub backlog: usize,
}

/// Configuration of an end.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeConfig {
    /// Which end this is.
    pub role: Role,
    /// Configuration of the core, with as many links as `links` and in the same order. Its mode
    /// says how this end sends.
    pub core: sumlink_edge::Config,
    /// The TUN device.
    pub tun: TunConfig,
    /// The links.
    pub links: Vec<LinkConfig>,
    /// Number of the tunnel, equal at both ends.
    pub tunnel: u16,
    /// Index of the only link to use while it works. When it fails, packets are steered over the
    /// others.
    pub only: Option<usize>,
    /// Reordering of numbered packets.
    pub reorder: ReorderConfig,
    /// Interval between probes of a link.
    pub probe: Duration,
    /// A link without an answer to its probes for this long is down; several times `probe`.
    pub dead_after: Duration,
}

impl NodeConfig {
    /// Bytes that the tunnel adds to a packet on that link, including the IP header.
    pub fn overhead(&self, link: &LinkConfig) -> usize {
        let ip = if link.remote.is_ipv4() { 20 } else { 40 };
        let pdcp = match self.core.mode {
            sumlink_edge::Mode::Lwa => self.core.sequence_bits.header_len(),
            _ => 0,
        };
        ip + 8 + wire::LEN + pdcp
    }
}
