//! Which clients are served, and how much.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ipnet::IpNet;
use sumlink_exit::recent::Recent;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Most clients with a separate rate; the one that was silent longest is forgotten.
const MAX_CLIENTS: usize = 4096;

/// Limits on clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Questions of one client per second, at least 1. A client is an IPv4 address or an IPv6 /64.
    pub rate: u32,
    /// Questions that a client may ask at once after a pause, at least 1.
    pub burst: u32,
    /// Questions that wait for an answer, of all clients.
    pub queries: usize,
    /// Connections of all clients.
    pub connections: usize,
    /// Connections of one client.
    pub connections_per_client: usize,
    /// Time after which a connection without questions is closed, and within which a question must
    /// arrive whole (RFC 7766, section 6.2.3).
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rate: 500,
            burst: 1000,
            queries: 2048,
            connections: 256,
            connections_per_client: 32,
            idle: Duration::from_secs(10),
        }
    }
}

/// The clients of a server.
#[derive(Debug)]
pub(crate) struct Clients {
    networks: Vec<IpNet>,
    limits: Limits,
    buckets: Mutex<Recent<IpAddr, Bucket>>,
    queries: Arc<Semaphore>,
    connections: Arc<Semaphore>,
    per_client: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// Why a client is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It is in no network that is served.
    Stranger,
    /// It is beyond its limits.
    Limited,
}

/// A place for a connection, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _all: OwnedSemaphorePermit,
    client: IpAddr,
    per_client: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

#[derive(Debug)]
struct Bucket {
    /// Thousandths of questions.
    tokens: u64,
    filled: Instant,
}

impl Clients {
    pub(crate) fn new(networks: Vec<IpNet>, limits: Limits) -> Self {
        let permits = |number: usize| Arc::new(Semaphore::new(number.min(Semaphore::MAX_PERMITS)));
        Self {
            networks,
            buckets: Mutex::default(),
            queries: permits(limits.queries),
            connections: permits(limits.connections),
            per_client: Arc::default(),
            limits,
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Counts a question of `address`.
    pub(crate) fn admit(&self, address: IpAddr) -> Result<(), Refused> {
        let address = address.to_canonical();
        if !self.is_served(address) {
            return Err(Refused::Stranger);
        }
        let (rate, burst) = (self.limits.rate.max(1), self.limits.burst.max(1));
        let (rate, full, one) = (u64::from(rate), u64::from(burst) * 1000, 1000);
        let (client, now) = (client(address), Instant::now());
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.touch(&client).is_none() {
            if buckets.len() >= MAX_CLIENTS {
                buckets.pop_oldest();
            }
            let bucket = Bucket {
                tokens: full,
                filled: now,
            };
            buckets.insert(client, bucket);
        }
        let Some(bucket) = buckets.touch(&client) else {
            return Err(Refused::Limited);
        };
        let millis = now.saturating_duration_since(bucket.filled).as_millis();
        let millis = u64::try_from(millis).unwrap_or(u64::MAX);
        // Whole milliseconds only, so that no fraction gets lost.
        bucket.filled += Duration::from_millis(millis);
        bucket.tokens = bucket
            .tokens
            .saturating_add(millis.saturating_mul(rate))
            .min(full);
        match bucket.tokens.checked_sub(one) {
            Some(left) => {
                bucket.tokens = left;
                Ok(())
            }
            None => Err(Refused::Limited),
        }
    }

    /// A place for a question that waits, if one is free.
    pub(crate) fn query(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.queries).try_acquire_owned().ok()
    }

    /// A place for a connection of `address`.
    pub(crate) fn connection(&self, address: IpAddr) -> Result<Place, Refused> {
        let address = address.to_canonical();
        if !self.is_served(address) {
            return Err(Refused::Stranger);
        }
        let all = Arc::clone(&self.connections).try_acquire_owned();
        let all = all.map_err(|_| Refused::Limited)?;
        let client = client(address);
        let mut per_client = self
            .per_client
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let own = per_client.entry(client).or_default();
        if *own >= self.limits.connections_per_client {
            return Err(Refused::Limited);
        }
        *own += 1;
        Ok(Place {
            _all: all,
            client,
            per_client: Arc::clone(&self.per_client),
        })
    }

    fn is_served(&self, address: IpAddr) -> bool {
        self.networks
            .iter()
            .any(|network| network.contains(&address))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut per_client = self
            .per_client
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = per_client.get_mut(&self.client) {
            *own -= 1;
            if *own == 0 {
                per_client.remove(&self.client);
            }
        }
    }
}

/// The client behind an address: a host has a whole /64 for its IPv6 addresses (RFC 8981).
fn client(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let network = address.to_bits() & !u128::from(u64::MAX);
            Ipv6Addr::from_bits(network).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients(limits: Limits) -> Clients {
        let networks = ["192.168.7.0/24", "fd00:7::/64"].map(|text| text.parse().unwrap());
        Clients::new(networks.into(), limits)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_are_refused_in_every_spelling() {
        let clients = clients(Limits::default());
        for text in [
            "192.168.8.1",
            "fd00:8::1",
            "::ffff:192.168.8.1",
            "127.0.0.1",
        ] {
            assert_eq!(clients.admit(ip(text)), Err(Refused::Stranger));
            assert_eq!(clients.connection(ip(text)).unwrap_err(), Refused::Stranger);
        }
        for text in ["192.168.7.1", "fd00:7::1", "::ffff:192.168.7.1"] {
            assert_eq!(clients.admit(ip(text)), Ok(()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_client_has_its_rate() {
        let limits = Limits {
            rate: 10,
            burst: 3,
            ..Limits::default()
        };
        let clients = clients(limits);
        let admitted = |text: &str| (0..10).filter(|_| clients.admit(ip(text)).is_ok()).count();
        assert_eq!(admitted("192.168.7.1"), 3);
        assert_eq!(admitted("192.168.7.2"), 3);
        assert_eq!(admitted("fd00:7::1") + admitted("fd00:7::2"), 3);
        tokio::time::advance(Duration::from_millis(250)).await;
        assert_eq!(admitted("192.168.7.1"), 2);
        tokio::time::advance(Duration::from_millis(50)).await;
        assert_eq!(admitted("192.168.7.1"), 1);
        tokio::time::advance(Duration::from_secs(100)).await;
        assert_eq!(admitted("192.168.7.1"), 3);
    }

    #[test]
    fn connections_are_limited_for_each_and_for_all() {
        let limits = Limits {
            connections: 3,
            connections_per_client: 2,
            ..Limits::default()
        };
        let clients = clients(limits);
        let connect = |text: &str| clients.connection(ip(text));
        let first = connect("192.168.7.1").unwrap();
        let _second = connect("192.168.7.1").unwrap();
        assert_eq!(connect("192.168.7.1").unwrap_err(), Refused::Limited);
        let _third = connect("192.168.7.2").unwrap();
        assert_eq!(connect("192.168.7.3").unwrap_err(), Refused::Limited);
        drop(first);
        connect("192.168.7.3").unwrap();
        assert_eq!(clients.per_client.lock().unwrap().len(), 2);
    }
}
