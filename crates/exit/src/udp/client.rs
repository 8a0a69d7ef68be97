//! The state that the sources of one client share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;

use super::limits::{Account, Budget};
use super::{MIN_IDLE, UdpSettings};
use crate::bucket::Bucket;
use crate::dial::LOOK_UPS;
use crate::egress::EgressPolicy;
use crate::pace::{Pace, Toward};

/// Idle time after which a source makes room for a new one. A call sends every 20 ms, a game every
/// 50 ms, so a flood of new sources does not end them.
pub(super) const YIELD_AFTER: Duration = Duration::from_secs(5);

/// One client's limits, counters and open sources.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) policy: watch::Receiver<Arc<EgressPolicy>>,
    pub(super) settings: UdpSettings,
    pub(super) counters: Counters,
    pub(super) look_ups: Arc<Semaphore>,
    /// Sockets of all clients; `None` is unlimited.
    pub(super) sockets: Option<Arc<Semaphore>>,
    budget: Arc<Budget>,
    sources: Mutex<Sources>,
    to_network: Option<Mutex<Bucket>>,
    to_client: Option<Mutex<Bucket>>,
    /// A limit that all traffic of the client shares.
    pace: Arc<Pace>,
    epoch: Instant,
}

#[derive(Debug, Default)]
struct Sources {
    open: HashMap<u64, Arc<Seat>>,
    next: u64,
    /// No source yields before.
    not_before: Option<Instant>,
}

/// A source as the others see it.
#[derive(Debug)]
struct Seat {
    /// Its last traffic, in milliseconds since the client's epoch.
    last: AtomicU64,
    leave: Notify,
}

/// A source's place among those of its client, until it is dropped.
#[derive(Debug)]
pub(super) struct Place<'a> {
    client: &'a Client,
    number: u64,
    seat: Arc<Seat>,
}

/// Direction of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    ToNetwork,
    ToClient,
}

/// Counters of a client's sources, in datagrams unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UdpStats {
    /// Open sources.
    pub sources: usize,
    /// Bytes of memory in use, of those that [`UdpSettings::memory`] limits.
    pub memory: usize,
    /// Sent to remotes.
    pub sent: u64,
    /// Received from remotes and passed to the client's session.
    pub received: u64,
    /// Refused by the egress policy, in both directions.
    pub refused: u64,
    /// Dropped because of the rate, in both directions.
    pub over_rate: u64,
    /// Dropped because of another limit: too many remotes, names or lookups, or no memory.
    pub over_limit: u64,
    /// Dropped because the session did not take them.
    pub not_taken: u64,
    /// Not sent because of an error.
    pub unsent: u64,
    /// ICMP errors about remotes of the client.
    pub icmp_errors: u64,
    /// Sources that were refused or replaced because there were too many.
    pub sources_over_limit: u64,
}

/// The counters of [`UdpStats`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) over_rate: AtomicU64,
    pub(super) over_limit: AtomicU64,
    pub(super) not_taken: AtomicU64,
    pub(super) unsent: AtomicU64,
    pub(super) icmp_errors: AtomicU64,
    sources_over_limit: AtomicU64,
}

/// Adds one to a counter.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Client {
    pub(super) fn new(
        policy: watch::Receiver<Arc<EgressPolicy>>,
        mut settings: UdpSettings,
        sockets: Option<Arc<Semaphore>>,
        pace: Arc<Pace>,
    ) -> Self {
        settings.sources = settings.sources.max(1);
        settings.idle = settings.idle.max(MIN_IDLE);
        let now = Instant::now();
        let bucket = || {
            settings
                .rate
                .map(|rate| Mutex::new(Bucket::of_bytes(rate, now)))
        };
        Self {
            policy,
            counters: Counters::default(),
            look_ups: Arc::new(Semaphore::new(LOOK_UPS)),
            sockets,
            budget: Budget::new(settings.memory),
            sources: Mutex::default(),
            to_network: bucket(),
            to_client: bucket(),
            pace,
            epoch: now,
            settings,
        }
    }

    /// A place for another source, perhaps that of the one that was idle longest.
    pub(super) fn place(&self, now: Instant) -> Option<Place<'_>> {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        if sources.open.len() >= self.settings.sources {
            count(&self.counters.sources_over_limit);
            if sources.not_before.is_some_and(|at| now < at) {
                return None;
            }
            let last = |seat: &Seat| seat.last.load(Ordering::Relaxed);
            let idlest = sources.open.iter().min_by_key(|(_, seat)| last(seat));
            let (number, seat) = idlest.map(|(number, seat)| (*number, Arc::clone(seat)))?;
            let yields = self.epoch + Duration::from_millis(last(&seat)) + YIELD_AFTER;
            if now < yields {
                // The scan is repeated when one of them may have become idle long enough.
                sources.not_before = Some(yields);
                return None;
            }
            sources.open.remove(&number);
            seat.leave.notify_one();
        }
        let number = sources.next;
        sources.next += 1;
        let seat = Arc::new(Seat {
            last: AtomicU64::new(self.millis(now)),
            leave: Notify::new(),
        });
        sources.open.insert(number, Arc::clone(&seat));
        Some(Place {
            client: self,
            number,
            seat,
        })
    }

    pub(super) fn account(&self) -> Account {
        Account::new(&self.budget)
    }

    /// Whether the rate allows this many bytes more.
    pub(super) fn within_rate(&self, direction: Direction, bytes: usize, now: Instant) -> bool {
        let bucket = match direction {
            Direction::ToNetwork => &self.to_network,
            Direction::ToClient => &self.to_client,
        };
        let is_within = bucket.as_ref().is_none_or(|bucket| {
            let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
            bucket.take(bytes, now)
        });
        let toward = match direction {
            Direction::ToNetwork => Toward::Network,
            Direction::ToClient => Toward::Client,
        };
        let is_within = is_within && self.pace.take(toward, bytes, now);
        if !is_within {
            count(&self.counters.over_rate);
        }
        is_within
    }

    pub(super) fn stats(&self) -> UdpStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        let sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        UdpStats {
            sources: sources.open.len(),
            memory: self.budget.used(),
            sent: get(&counters.sent),
            received: get(&counters.received),
            refused: get(&counters.refused),
            over_rate: get(&counters.over_rate),
            over_limit: get(&counters.over_limit),
            not_taken: get(&counters.not_taken),
            unsent: get(&counters.unsent),
            icmp_errors: get(&counters.icmp_errors),
            sources_over_limit: get(&counters.sources_over_limit),
        }
    }

    fn millis(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.epoch).as_millis();
        u64::try_from(since).unwrap_or(u64::MAX)
    }
}

impl Place<'_> {
    /// The source has traffic.
    pub(super) fn touch(&self, now: Instant) {
        self.seat
            .last
            .store(self.client.millis(now), Ordering::Relaxed);
    }

    /// Completes when another source has taken the place.
    pub(super) async fn lost(&self) {
        self.seat.leave.notified().await;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let sources = self.client.sources.lock();
        let mut sources = sources.unwrap_or_else(PoisonError::into_inner);
        sources.open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(sources: usize) -> Client {
        let (_, policy) = watch::channel(Arc::default());
        let settings = UdpSettings {
            sources,
            ..UdpSettings::default()
        };
        Client::new(policy, settings, None, Arc::default())
    }

    #[tokio::test]
    async fn the_source_idle_longest_makes_room_and_a_busy_one_never_does() {
        let client = client(3);
        let start = client.epoch;
        let call = client.place(start).unwrap();
        let [idle, other] = [1, 2].map(|ms| client.place(start + Duration::from_millis(ms)));
        let (idle, other) = (idle.unwrap(), other.unwrap());
        let mut now = start;
        // A flood of sources, while the call goes on.
        for _ in 0..100 {
            now += Duration::from_millis(20);
            call.touch(now);
            assert!(client.place(now).is_none());
        }
        now = start + YIELD_AFTER + Duration::from_millis(1);
        call.touch(now);
        let newer = client.place(now).unwrap();
        idle.lost().await;
        // The loser's end does not free the place, the others' do.
        drop(idle);
        assert_eq!(client.stats().sources, 3);
        drop((other, newer));
        assert_eq!(client.stats().sources, 1);
        assert_eq!(client.stats().sources_over_limit, 101);
    }
}
