//! Which clients are served, and how much.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ipnet::IpNet;
use sumlink_exit::recent::Recent;
use sumlink_proxy::{Client, Limit, Place};
use tokio::time::Instant;

/// Most clients with a separate rate; the one that was silent longest is forgotten.
const MAX_CLIENTS: usize = 4096;

/// Tokens of a question: they come by the millisecond, and rates are per second.
const ONE: u64 = 1000;

/// The rate of an IPv6 network, in rates of a client. A client may use many addresses of it.
const NETWORK: u64 = 4;

/// Limits on clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Questions of one client per second, at least 1. A client is an address; those of an IPv6 /64
    /// have four times the rate and the burst together.
    pub rate: u32,
    /// Questions that a client may ask at once after a pause, at least 1.
    pub burst: u32,
    /// Questions that wait for an answer, of all clients. They share this number fairly, as
    /// [`sumlink_proxy::shares`] says.
    pub queries: usize,
    /// Connections of all clients, which share them in the same way.
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
    /// Those of clients, and those of IPv6 networks with `true`.
    buckets: Mutex<Recent<(Client, bool), Bucket>>,
    queries: Limit,
    connections: Limit,
}

/// Why a client is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It is in no network that is served.
    Stranger,
    /// It is beyond its limits.
    Limited,
}

#[derive(Debug)]
struct Bucket {
    /// Thousandths of questions.
    tokens: u64,
    filled: Instant,
}

impl Clients {
    pub(crate) fn new(networks: Vec<IpNet>, limits: Limits) -> Self {
        Self {
            networks,
            buckets: Mutex::default(),
            queries: Limit::new("waiting questions", limits.queries, None),
            connections: Limit::with_most_own(
                "connections for DNS",
                limits.connections,
                limits.connections_per_client,
                None,
            ),
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
        let (client, now) = (Client::lan(address), Instant::now());
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let mut take = |key, share| {
            let (rate, burst) = (self.limits.rate.max(1), self.limits.burst.max(1));
            let (rate, full) = (u64::from(rate) * share, u64::from(burst) * share * ONE);
            if buckets.touch(&key).is_none() {
                if buckets.len() >= MAX_CLIENTS {
                    buckets.pop_oldest();
                }
                buckets.insert(key, Bucket::full(full, now));
            }
            match buckets.touch(&key) {
                Some(bucket) => bucket.take(rate, full, now),
                None => false,
            }
        };
        let is_admitted = take((client, false), 1)
            && (address.is_ipv4() || take((client.network(), true), NETWORK));
        is_admitted.then_some(()).ok_or(Refused::Limited)
    }

    /// A place for a question of `client` that waits, until it is lost.
    pub(crate) fn query(&self, client: Client) -> Option<Place> {
        self.queries.place(client)
    }

    /// A place for a connection of `address`, until it is lost.
    pub(crate) fn connection(&self, address: IpAddr, client: Client) -> Result<Place, Refused> {
        if !self.is_served(address.to_canonical()) {
            return Err(Refused::Stranger);
        }
        self.connections.place(client).ok_or(Refused::Limited)
    }

    fn is_served(&self, address: IpAddr) -> bool {
        self.networks
            .iter()
            .any(|network| network.contains(&address))
    }
}

impl Bucket {
    fn full(tokens: u64, now: Instant) -> Self {
        Self {
            tokens,
            filled: now,
        }
    }

    /// Takes a question's tokens, if they are there.
    fn take(&mut self, rate: u64, full: u64, now: Instant) -> bool {
        let millis = now.saturating_duration_since(self.filled).as_millis();
        let millis = u64::try_from(millis).unwrap_or(u64::MAX);
        // Whole milliseconds only, so that no fraction gets lost.
        self.filled += Duration::from_millis(millis);
        let tokens = self.tokens.saturating_add(millis.saturating_mul(rate));
        self.tokens = tokens.min(full);
        let left = self.tokens.checked_sub(ONE);
        self.tokens = left.unwrap_or(self.tokens);
        left.is_some()
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
            let client = Client::lan(ip(text));
            let refused = clients.connection(ip(text), client).unwrap_err();
            assert_eq!(refused, Refused::Stranger);
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
        assert_eq!(admitted("fd00:7::1"), 3);
        let network: usize = (2..9)
            .map(|last| admitted(&format!("fd00:7::{last}")))
            .sum();
        assert_eq!(3 + network, 3 * NETWORK as usize);
        tokio::time::advance(Duration::from_millis(250)).await;
        assert_eq!(admitted("192.168.7.1"), 2);
        tokio::time::advance(Duration::from_millis(50)).await;
        assert_eq!(admitted("192.168.7.1"), 1);
        tokio::time::advance(Duration::from_secs(100)).await;
        assert_eq!(admitted("192.168.7.1"), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn connections_are_limited_for_each_and_for_all() {
        let limits = Limits {
            connections: 3,
            connections_per_client: 2,
            ..Limits::default()
        };
        let clients = clients(limits);
        let connect = |text: &str| clients.connection(ip(text), Client::lan(ip(text)));
        let mut first = connect("192.168.7.1").unwrap();
        let _second = connect("192.168.7.1").unwrap();
        assert_eq!(connect("192.168.7.1").unwrap_err(), Refused::Limited);
        let _third = connect("192.168.7.2").unwrap();
        // The client with two makes room for one without, but not for one with as many.
        let fourth = connect("192.168.7.3").unwrap();
        first.lost().await;
        drop(first);
        assert_eq!(connect("192.168.7.1").unwrap_err(), Refused::Limited);
        assert_eq!(connect("192.168.7.4").unwrap_err(), Refused::Limited);
        drop(fourth);
        connect("192.168.7.4").unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn questions_that_wait_are_shared() {
        let limits = Limits {
            queries: 3,
            ..Limits::default()
        };
        let clients = clients(limits);
        let client = |text: &str| Client::lan(ip(text));
        let busy = client("192.168.7.1");
        let mut held = [(); 3].map(|()| clients.query(busy).unwrap());
        assert!(clients.query(busy).is_none());
        let _other = clients.query(client("192.168.7.2")).unwrap();
        held[0].lost().await;
    }
}
