//! What an end is told before it starts.

use std::net::SocketAddr;
use std::time::Duration;

use ipnet::IpNet;
use sumlink_edge::lwa::ReorderConfig;

use crate::wire;

/// Which end this is. Both move packets in the same way; they differ in what may be asked of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Between the network and the links: steers what users receive.
    #[default]
    Node,
    /// Behind the links: gives users' packets back their order, and sends upwards.
    User,
}

impl Role {
    /// The word for it.
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
    /// Its name, at most 15 bytes.
    pub name: String,
    /// Its addresses with their networks.
    pub addresses: Vec<IpNet>,
    /// What is sent through it besides.
    pub routes: Vec<IpNet>,
    /// Largest packet in bytes, without the tunnels' headers: 576 to 65000.
    pub mtu: usize,
    /// Whether the kernel may hand over and take TCP data in super-packets of up to 64 KiB, where it can: less work for both.
    pub offload: bool,
}

impl Default for TunConfig {
    /// `edge0`, without addresses, and with an MTU that leaves room for the headers on links of 1500 bytes.
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
    /// What people call it.
    pub name: String,
    /// Address and port here.
    pub local: SocketAddr,
    /// Address and port at the other end; packets of anybody else are refused.
    pub remote: SocketAddr,
    /// The interface that its packets leave by, whatever the routes say.
    pub interface: Option<String>,
    /// Bits per second of UDP packets with their IP headers that are sent at the most. Without it the link takes what its
    /// socket takes.
    pub rate: Option<u64>,
    /// Bytes that may wait in the socket and in the interface below it (SO_SNDBUF), at least 4608.
    pub backlog: usize,
}

/// Everything that an end is told.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeConfig {
    /// Which end it is.
    pub role: Role,
    /// What the core is told; as many links in the same order as in `links`. Its mode says how this end sends.
    pub core: sumlink_edge::Config,
    /// The TUN device.
    pub tun: TunConfig,
    /// The links.
    pub links: Vec<LinkConfig>,
    /// Number of the tunnel; both ends have the same.
    pub tunnel: u16,
    /// Everything goes over this link as long as it carries anything, and is steered over the others when it does not.
    pub only: Option<usize>,
    /// How packets with sequence numbers are put in order.
    pub reorder: ReorderConfig,
    /// How often each link is probed.
    pub probe: Duration,
    /// A link that has answered no probe for so long carries nothing; several times `probe`.
    pub dead_after: Duration,
}

impl NodeConfig {
    /// Bytes that the tunnel adds to a packet on that link, the IP header included.
    pub fn overhead(&self, link: &LinkConfig) -> usize {
        let ip = if link.remote.is_ipv4() { 20 } else { 40 };
        let pdcp = match self.core.mode {
            sumlink_edge::Mode::Lwa => self.core.sequence_bits.header_len(),
            _ => 0,
        };
        ip + 8 + wire::LEN + pdcp
    }
}
