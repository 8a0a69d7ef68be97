//! Restores the order of a flow that uses several paths, or one path that loses packets.
//!
//! Numbers ascend on each path, and each path delivers its packets in order. So a missing datagram
//! is not in flight any more once every path of the flow has delivered something that was sent
//! later: a later datagram of the flow, or any packet with a later time in its header. A path that
//! has nothing to deliver is waited for only as long as a packet takes on it by experience.
//!
//! It was lost then, and the sender repairs it once the path's report shows the loss. Or it has not
//! left: a slower path carries datagrams before those that faster paths carry meanwhile. The
//! receiver waits as long as a repair takes by experience: the round trip of the slowest path for
//! the report and the datagram, and as much again for a second attempt. Those that have not left
//! arrive sooner.
//!
//! After a repair everything behind the gap is in order. It is released in parts: a program's
//! socket with the system's usual buffer of 208 KiB holds about 90 large datagrams.
//!
//! The sender mentions the other path when it changes between two. Flows without such mentions, and
//! calls, are not delayed at all.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use crate::datagram::path::Paths;
use crate::{Instant, PathId};

/// The order is restored for this long after the sender last mentioned a path, and a path
/// counts as one of the flow for this long after it last carried a datagram.
const MEMORY: Duration = Duration::from_secs(1);

/// A path on which nothing has arrived is waited for this long.
const UNKNOWN_WAIT: Duration = Duration::from_millis(50);

/// A repair takes this long beyond the round trips, for the detection and the queue of the sender.
const REPAIR_SLACK: Duration = Duration::from_millis(25);

/// Round trips in which a repair arrives.
const REPAIR_TRIPS: u32 = 2;

/// Repairs that did not come in a row, after which the sender seems to repair nothing and is not
/// waited for.
const MAX_IN_VAIN: u8 = 8;

/// Datagrams behind a gap that are released at once, at least: those of 1 ms at 370 Mbit/s, and a
/// third of what a socket holds, so that the program may run late ...
const RELEASE: usize = 32;

/// ... and this part of them ...
const RELEASE_PART: usize = 16;

/// ... at this interval.
const RELEASE_INTERVAL: Duration = Duration::from_millis(1);

/// Most datagrams of one flow that wait.
const MAX: usize = super::window::SPAN as usize;

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
    /// When the sender last mentioned a path.
    mentioned: Instant,
    /// The wait that is registered.
    pub(super) wait: Option<Wait>,
    /// The flow waits for a repair.
    awaits_repair: bool,
    /// Repairs that did not come since the last one that did.
    in_vain: u8,
    /// Datagrams that may be released until the end of the interval that began at this time.
    release: (usize, Instant),
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
            awaits_repair: false,
            in_vain: 0,
            release: (0, Instant::ZERO),
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

    /// Adds a datagram, which has not arrived before. Delivers it if it is the next one.
    pub(super) fn add(&mut self, mut arrival: Arrival, out: &mut impl FnMut(Bytes)) {
        let way = self.way(arrival.path, arrival.at);
        way.next = way.next.max(arrival.sequence + 1);
        if arrival.sequence < self.next {
            self.late += 1;
            self.in_vain = 0;
            out(arrival.payload);
        } else if arrival.sequence == self.next {
            if std::mem::take(&mut self.awaits_repair) {
                self.in_vain = 0;
            }
            self.next += 1;
            out(arrival.payload);
        } else {
            self.bytes += cost(&arrival.payload);
            // Nearly always at the end.
            let sequence = arrival.sequence;
            let later = self.held.iter().rev();
            let later = later.take_while(|held| held.sequence > sequence).count();
            let index = self.held.len() - later;
            // A repair between others does not begin another wait.
            if let Some(behind) = self.held.get(index) {
                arrival.at = arrival.at.min(behind.at);
            }
            self.held.insert(index, arrival);
        }
        while self.held.len() > MAX {
            self.give_up(out);
        }
    }

    /// Delivers the datagrams in order, and gives up those that cannot come any more. Returns the
    /// next wait.
    pub(super) fn advance(
        &mut self,
        paths: &Paths,
        longest: Duration,
        now: Instant,
        out: &mut impl FnMut(Bytes),
    ) -> Option<Wait> {
        loop {
            self.release(now, out);
            let first = self.held.front()?;
            let until_path = |until| Wait {
                path: first.path,
                sent_at: i64::MAX,
                until,
            };
            if first.sequence == self.next {
                return Some(until_path(self.release.1 + RELEASE_INTERVAL));
            }
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
            // The sender repairs only while it mentions other paths.
            let is_repaired = first.at < self.mentioned + MEMORY && self.in_vain < MAX_IN_VAIN;
            let until = self.repaired_by(first, paths, longest, now);
            if is_repaired && until > now {
                let wait = until_path(until);
                self.awaits_repair = true;
                return Some(wait);
            }
            if std::mem::take(&mut self.awaits_repair) {
                self.in_vain = self.in_vain.saturating_add(1);
            }
            self.pass_gap();
        }
    }

    /// Gives up everything before the first datagram that waits, and delivers those up to the next
    /// gap at once, to free memory.
    pub(super) fn give_up(&mut self, out: &mut impl FnMut(Bytes)) {
        self.pass_gap();
        self.drain(usize::MAX, out);
    }

    fn pass_gap(&mut self) {
        if let Some(first) = self.held.front() {
            self.given_up += first.sequence - self.next;
            self.next = first.sequence;
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
    fn repaired_by(
        &self,
        first: &Arrival,
        paths: &Paths,
        longest: Duration,
        now: Instant,
    ) -> Instant {
        let used = self.ways.iter().filter(|way| now < way.used + MEMORY);
        let paths = used.filter_map(|way| paths.get(way.path));
        let (mut lost_by, mut trip) = (first.at, Duration::ZERO);
        for path in paths {
            let expected = path.incoming.arrives_by(first.sent_at);
            lost_by = lost_by.max(expected.unwrap_or_default());
            trip = trip.max(path.srtt() + path.report_interval());
        }
        let repair = REPAIR_TRIPS * trip + REPAIR_SLACK;
        (lost_by + repair).min(first.at + longest)
    }

    /// Delivers the datagrams in order that this interval permits.
    fn release(&mut self, now: Instant, out: &mut impl FnMut(Bytes)) {
        if now >= self.release.1 + RELEASE_INTERVAL {
            self.release = (RELEASE.max(self.held.len() / RELEASE_PART), now);
        }
        let released = self.drain(self.release.0, out);
        self.release.0 -= released;
    }

    /// Delivers at most `most` datagrams in order; returns their number.
    fn drain(&mut self, most: usize, out: &mut impl FnMut(Bytes)) -> usize {
        let mut count = 0;
        while count < most
            && self
                .held
                .front()
                .is_some_and(|held| held.sequence == self.next)
            && let Some(held) = self.held.pop_front()
        {
            self.bytes -= cost(&held.payload);
            self.next += 1;
            count += 1;
            out(held.payload);
        }
        count
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
