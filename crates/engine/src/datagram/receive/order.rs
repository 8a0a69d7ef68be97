//! Restores the order of a flow that uses several paths.
//!
//! A sender numbers datagrams in the order in which they leave, and each path delivers its packets
//! in order. So a missing datagram cannot come any more once every path of the flow has delivered
//! something that was sent later: a later datagram of the flow, or any packet with a later time in
//! its header. A path that has nothing to deliver is waited for only as long as a packet takes on
//! it by experience.
//!
//! It was lost then, and the sender repairs it once the path's report shows the loss. The receiver
//! waits for the repair as long as it takes by experience: the round trip of the slowest path for
//! the report and the datagram, and as much again for a second attempt.
//!
//! The sender mentions the other path when it changes between two. Flows without such mentions, and
//! calls, are not delayed at all.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use crate::datagram::path::Paths;
use crate::{Instant, PathId};

/// The order is restored for this long after the sender last mentioned another path, and a path
/// counts as one of the flow for this long after it last carried a datagram.
const MEMORY: Duration = Duration::from_secs(1);

/// A path on which nothing has arrived is waited for this long.
const UNKNOWN_WAIT: Duration = Duration::from_millis(50);

/// A repair takes this long beyond the round trips, for the report and the queue of the sender.
const REPAIR_SLACK: Duration = Duration::from_millis(25);

/// Round trips in which a repair arrives.
const REPAIR_TRIPS: u32 = 2;

/// Most datagrams of one flow that wait.
const MOST: usize = 8192;

/// Bookkeeping of a waiting datagram, which counts as memory.
pub(super) const OVERHEAD: usize = 96;

/// A datagram that has arrived.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) sequence: u64,
    pub(super) payload: Bytes,
    pub(super) path: PathId,
    /// On the sender's clock.
    pub(super) sent_at: i64,
    pub(super) at: Instant,
}

/// A path that the flow uses.
#[derive(Clone, Copy, Debug)]
struct Way {
    path: PathId,
    /// The number after the highest one that has arrived on it.
    next: u64,
    used: Instant,
}

/// The datagram for which the flow waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::datagram) struct Wait {
    /// A packet on this path that was sent after `sent_at`.
    pub(in crate::datagram) path: PathId,
    pub(in crate::datagram) sent_at: i64,
    /// Then the wait ends anyway.
    pub(in crate::datagram) until: Instant,
}

/// The order of one flow.
#[derive(Debug)]
pub(super) struct Order {
    /// The next number to deliver.
    next: u64,
    /// Later ones, ascending.
    held: VecDeque<Arrival>,
    bytes: usize,
    ways: Vec<Way>,
    /// When the sender last mentioned another path.
    mentioned: Instant,
    /// The wait that is registered.
    pub(super) wait: Option<Wait>,
    /// Numbers that were given up.
    pub(super) given_up: u64,
    /// Datagrams that arrived after they were given up.
    pub(super) late: u64,
}

impl Order {
    /// Begins at the number `next`.
    pub(super) fn new(next: u64, now: Instant) -> Self {
        Self {
            next,
            held: VecDeque::new(),
            bytes: 0,
            ways: Vec::new(),
            mentioned: now,
            wait: None,
            given_up: 0,
            late: 0,
        }
    }

    /// The sender has used this path shortly before.
    pub(super) fn mention(&mut self, path: Option<PathId>, now: Instant) {
        self.mentioned = now;
        if let Some(path) = path {
            self.way(path, now);
        }
    }

    /// Adds a datagram, which has not arrived before. Delivers those in order.
    pub(super) fn add(&mut self, arrival: Arrival, out: &mut impl FnMut(Bytes)) {
        let way = self.way(arrival.path, arrival.at);
        way.next = way.next.max(arrival.sequence + 1);
        if arrival.sequence < self.next {
            self.late += 1;
            out(arrival.payload);
        } else if arrival.sequence == self.next {
            self.next += 1;
            out(arrival.payload);
            self.drain(out);
        } else {
            self.bytes += cost(&arrival.payload);
            // Nearly always at the end.
            let sequence = arrival.sequence;
            let later = self.held.iter().rev();
            let later = later.take_while(|held| held.sequence > sequence).count();
            self.held.insert(self.held.len() - later, arrival);
        }
        while self.held.len() > MOST {
            self.give_up(out);
        }
    }

    /// Gives up the datagrams that cannot come any more. Returns the next wait.
    pub(super) fn advance(
        &mut self,
        paths: &Paths,
        longest: Duration,
        now: Instant,
        out: &mut impl FnMut(Bytes),
    ) -> Option<Wait> {
        while let Some(first) = self.held.front() {
            let mut wait: Option<Wait> = None;
            for way in &self.ways {
                let Some(until) = self.waits_until(way, first, paths, longest, now) else {
                    continue;
                };
                let known = wait.map_or(until, |wait| wait.until.max(until));
                wait = Some(Wait {
                    path: way.path,
                    sent_at: first.sent_at,
                    until: known,
                });
            }
            if wait.is_some() {
                return wait;
            }
            let until = self.repaired_by(first, paths, longest);
            if until > now {
                return Some(Wait {
                    path: first.path,
                    sent_at: i64::MAX,
                    until,
                });
            }
            self.give_up(out);
        }
        None
    }

    /// Gives up everything before the first datagram that waits.
    pub(super) fn give_up(&mut self, out: &mut impl FnMut(Bytes)) {
        if let Some(first) = self.held.front() {
            self.given_up += first.sequence - self.next;
            self.next = first.sequence;
            self.drain(out);
        }
    }

    /// Whether the order need not be restored any more.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.held.is_empty() && now >= self.mentioned + MEMORY
    }

    /// Memory of the datagrams that wait, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Until when a datagram before `first` may come over a path; none if it cannot.
    fn waits_until(
        &self,
        way: &Way,
        first: &Arrival,
        paths: &Paths,
        longest: Duration,
        now: Instant,
    ) -> Option<Instant> {
        // The path may have ended, or has delivered something later.
        let incoming = &paths
            .get(way.path)
            .filter(|_| way.path != first.path)?
            .incoming;
        let has_passed = way.next > first.sequence
            || incoming.newest.is_some_and(|newest| newest > first.sent_at)
            || now >= way.used + MEMORY;
        if has_passed {
            return None;
        }
        let expected = match incoming.arrives_by(first.sent_at) {
            Some(at) => at,
            None => first.at + UNKNOWN_WAIT,
        };
        let until = expected.min(first.at + longest);
        (until > now).then_some(until)
    }

    /// When the repair of a datagram before `first` has arrived at the latest.
    fn repaired_by(&self, first: &Arrival, paths: &Paths, longest: Duration) -> Instant {
        let paths = self.ways.iter().filter_map(|way| paths.get(way.path));
        let (mut lost_by, mut trip) = (first.at, Duration::ZERO);
        for path in paths {
            let expected = path.incoming.arrives_by(first.sent_at);
            lost_by = lost_by.max(expected.unwrap_or_default());
            trip = trip.max(path.srtt());
        }
        let repair = REPAIR_TRIPS * trip + REPAIR_SLACK;
        (lost_by + repair).min(first.at + longest)
    }

    fn drain(&mut self, out: &mut impl FnMut(Bytes)) {
        while self
            .held
            .front()
            .is_some_and(|held| held.sequence == self.next)
            && let Some(held) = self.held.pop_front()
        {
            self.bytes -= cost(&held.payload);
            self.next += 1;
            out(held.payload);
        }
    }

    fn way(&mut self, path: PathId, now: Instant) -> &mut Way {
        let known = self.ways.iter().position(|way| way.path == path);
        let index = known.unwrap_or_else(|| {
            self.ways.retain(|way| now < way.used + MEMORY);
            self.ways.push(Way {
                path,
                next: 0,
                used: now,
            });
            self.ways.len() - 1
        });
        self.ways[index].used = now;
        &mut self.ways[index]
    }
}

fn cost(payload: &Bytes) -> usize {
    payload.len() + OVERHEAD
}
