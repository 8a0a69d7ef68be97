//! Whether a packet comes from this host.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use nix::ifaddrs::getifaddrs;
use sumlink_proxy::Origin;
use tokio::time::Instant;
use tracing::debug;

/// Shortest time between two reads of the host's addresses.
const PAUSE: Duration = Duration::from_secs(1);

/// The host's addresses.
#[derive(Debug, Default)]
pub(crate) struct Locals {
    addresses: HashSet<IpAddr>,
    looked: Option<Instant>,
}

impl Locals {
    /// The origin of packets from `source`. An address that the host received within the last
    /// second may still count as that of another host.
    pub(crate) fn origin(&mut self, source: SocketAddr, now: Instant) -> Origin {
        let is_due = |looked| now.saturating_duration_since(looked) >= PAUSE;
        if self.looked.is_none_or(is_due) {
            self.looked = Some(now);
            match addresses() {
                Ok(addresses) => self.addresses = addresses,
                Err(error) => debug!(%error, "cannot list this host's addresses"),
            }
        }
        match self.addresses.contains(&source.ip()) {
            true => Origin::host(source),
            false => Origin::lan(source),
        }
    }
}

fn addresses() -> nix::Result<HashSet<IpAddr>> {
    let all = getifaddrs()?.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address
            .as_sockaddr_in()
            .map(|address| IpAddr::from(address.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|address| address.ip().into()))
    });
    Ok(all.collect())
}
