//! How a forwarder works.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

/// Receives each address that the forwarder answers, before the client does: the names from the
/// question's to the address's own, with all aliases between them, the address, and its TTL.
pub type Observer = Arc<dyn Fn(&[String], IpAddr, Duration) + Send + Sync>;

/// How a forwarder works.
#[derive(Clone)]
pub struct Settings {
    /// Whether IPv6 addresses are answered. Without them, each AAAA question is answered with no
    /// data.
    pub ipv6: bool,
    /// Memory of the cache in bytes. 0 turns it off.
    pub cache_bytes: usize,
    /// Time after its expiry for which an answer is used if no upstream answers (RFC 8767). Zero
    /// turns that off.
    pub serve_stale: Duration,
    /// Whether answers with private addresses are refused for names without an exception.
    pub rebinding_protection: bool,
    /// Further networks that count as private, such as public ones of the LAN.
    pub own_networks: Vec<IpNet>,
    /// Most different questions that upstreams have at once. A further one takes the place of the
    /// oldest of the client that has the most, which fails, or fails itself if its client has as
    /// many as others.
    pub max_open: usize,
    /// Receives the addresses that are answered.
    pub observer: Option<Observer>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            ipv6: true,
            cache_bytes: 4 << 20,
            serve_stale: Duration::ZERO,
            rebinding_protection: true,
            own_networks: Vec::new(),
            max_open: 512,
            observer: None,
        }
    }
}
