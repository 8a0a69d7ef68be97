//! Connections that have not proved a key: how many may exist, and which one is dropped when there
//! are too many.
//!
//! A new connection is never refused because others came first: that would let a single host keep
//! all others out. It displaces another connection instead, the oldest of the network that holds
//! the most ([`table`]). A flood therefore displaces itself. Some places are reserved for the
//! addresses of live sessions, so that their links can return however many unknown hosts connect.

mod table;

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::api::config::HalfOpenLimits;
use crate::carrier::handshake::HANDSHAKE_TIMEOUT;
pub(super) use table::{Host, host};
use table::{Place, Table};

/// Keeps the connections that have not proved a key within their limits.
#[derive(Debug)]
pub(super) struct HalfOpenLimit {
    /// Number of places for unknown addresses; a new connection always gets one of them.
    strangers: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    table: Table,
    /// Hosts of live sessions, with the number of guards of each.
    known: HashMap<Host, usize>,
    /// Dropping the sender evicts the connection.
    evict: HashMap<Place, oneshot::Sender<()>>,
}

/// The place of a connection that has not proved a key.
#[derive(Debug)]
pub(super) struct HalfOpen {
    limit: Arc<HalfOpenLimit>,
    place: Place,
    evicted: oneshot::Receiver<()>,
    /// Time limit for TLS, and for each frame of the handshake.
    pub(super) patience: Duration,
}

/// Keeps a host among those of live sessions.
#[derive(Debug)]
pub(super) struct Vouched {
    limit: Arc<HalfOpenLimit>,
    host: Host,
}

/// The lowest [`HalfOpen::patience`]. TLS takes two round trips, and 1 s is far above the round
/// trip of usable links.
const MIN_PATIENCE: Duration = Duration::from_secs(3);

impl HalfOpenLimit {
    pub(super) fn new(limits: &HalfOpenLimits) -> Arc<Self> {
        let table = Table::new(limits);
        Arc::new(Self {
            strangers: table.strangers(),
            state: Mutex::new(State {
                table,
                known: HashMap::new(),
                evict: HashMap::new(),
            }),
        })
    }

    /// Gives a connection a place. If none is free, another connection is evicted.
    pub(super) fn admit(self: &Arc<Self>, from: IpAddr) -> HalfOpen {
        let mut state = self.lock();
        let is_known = state.known.contains_key(&host(from));
        let admitted = state.table.admit(from, is_known);
        let (evict, evicted) = oneshot::channel();
        state.evict.insert(admitted.place, evict);
        for place in admitted.evicted {
            state.evict.remove(&place);
        }
        let patience = match admitted.is_reserved {
            true => HANDSHAKE_TIMEOUT,
            false => patience(state.table.held_by_strangers(), self.strangers),
        };
        let limit = Arc::clone(self);
        HalfOpen {
            limit,
            place: admitted.place,
            evicted,
            patience,
        }
    }

    /// Counts an address among those of live sessions until the guard is dropped.
    pub(super) fn vouch(self: &Arc<Self>, address: IpAddr) -> Vouched {
        let host = host(address);
        *self.lock().known.entry(host).or_default() += 1;
        Vouched {
            limit: Arc::clone(self),
            host,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HalfOpen {
    /// Records that the peer has sent data: among the connections of one host, silent ones are
    /// evicted first.
    pub(super) fn spoke(&self) {
        self.limit.lock().table.spoke(self.place);
    }

    /// Waits until the connection has to make room for another one.
    pub(super) async fn evicted(&mut self) {
        // The channel carries no value; the sender is dropped.
        let _ = (&mut self.evicted).await;
    }
}

impl Drop for HalfOpen {
    fn drop(&mut self) {
        let mut state = self.limit.lock();
        state.table.remove(self.place);
        state.evict.remove(&self.place);
    }
}

impl Vouched {
    /// Whether the guard covers the host of this address.
    pub(super) fn covers(&self, address: IpAddr) -> bool {
        self.host == host(address)
    }
}

impl Drop for Vouched {
    fn drop(&mut self) {
        let mut state = self.limit.lock();
        if let Some(times) = state.known.get_mut(&self.host) {
            *times -= 1;
            if *times == 0 {
                state.known.remove(&self.host);
            }
        }
    }
}

/// Time limit for an unknown peer while unknown peers hold `held` of their `places`: constant until
/// half of them are taken, then decreasing.
fn patience(held: usize, places: usize) -> Duration {
    let free = places.saturating_sub(held) as f64 / places.max(1) as f64;
    HANDSHAKE_TIMEOUT
        .mul_f64((2.0 * free).min(1.0))
        .max(MIN_PATIENCE)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn limit(total: usize, reserved: usize, per_address: usize) -> Arc<HalfOpenLimit> {
        HalfOpenLimit::new(&HalfOpenLimits {
            total,
            reserved,
            per_address,
        })
    }

    fn is_evicted(held: &mut HalfOpen) -> bool {
        held.evicted().now_or_never().is_some()
    }

    #[test]
    fn a_flood_displaces_only_itself() {
        let limit = limit(512, 128, 32);
        let mut honest = limit.admit("2001:db8::7".parse().unwrap());
        let mut flood = Vec::new();
        for number in 0..2000_u128 {
            // All /64 networks of a /60, the usual allocation of one customer.
            let ip = 0x2001_0db8_ffff_0000_0000_0000_0000_0000 | (number % 16) << 64 | number;
            flood.push(limit.admit(IpAddr::V6(ip.into())));
        }
        assert!(!is_evicted(&mut honest));
        let kept = flood
            .iter_mut()
            .filter_map(|held| (!is_evicted(held)).then_some(()));
        assert_eq!(kept.count(), 512 - 128 - 1);
        // The next newcomer gets a place, too.
        let mut late = limit.admit("192.0.2.1".parse().unwrap());
        assert!(!is_evicted(&mut late) && !is_evicted(&mut honest));
        drop((honest, flood, late));
        let state = limit.lock();
        assert!(state.evict.is_empty() && state.table.is_empty());
    }

    #[test]
    fn addresses_of_live_sessions_have_reserved_places() {
        let limit = limit(40, 10, 8);
        let known: IpAddr = "198.51.100.9".parse().unwrap();
        let vouched = (limit.vouch(known), limit.vouch(known));
        let mut links: Vec<HalfOpen> = (0..8).map(|_| limit.admit(known)).collect();
        assert!(vouched.0.covers(known));
        // Each unknown peer has a separate network, so that no fairness rule distinguishes them.
        let strangers = |range: std::ops::Range<u32>| range.map(|n| IpAddr::V4((n << 8).into()));
        let flood: Vec<HalfOpen> = strangers(1..200).map(|ip| limit.admit(ip)).collect();
        assert!(links.iter_mut().all(|link| !is_evicted(link)));
        assert_eq!(links[0].patience, HANDSHAKE_TIMEOUT);
        assert_eq!(flood[0].patience, HANDSHAKE_TIMEOUT);
        assert_eq!(flood[198].patience, MIN_PATIENCE);
        // The end of one session leaves the address of the other known.
        drop((vouched.0, links));
        let mut back = limit.admit(known);
        let _more: Vec<HalfOpen> = strangers(200..400).map(|ip| limit.admit(ip)).collect();
        assert!(!is_evicted(&mut back));
        drop((vouched.1, back));
        let mut stranger = limit.admit(known);
        let _more: Vec<HalfOpen> = strangers(400..600).map(|ip| limit.admit(ip)).collect();
        assert!(is_evicted(&mut stranger));
        assert!(limit.lock().known.is_empty());
    }
}
