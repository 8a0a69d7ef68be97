//! Model carriers for the schedulers' tests: a rate, a delay, and a socket that holds slightly more
//! than the data in flight.
//!
//! They deliver the bytes that a scheduler picks and record its picks; `conformance.rs` checks
//! them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use super::fixture::Fixture;
use super::*;
use crate::pages::Spare;
use crate::{Instant, RangeSet};

/// Bytes that a model carrier accepts per call.
pub(super) const PIECE: u64 = 16 * 1024;

/// Most bytes that wait in its socket when it accepts another piece.
pub(super) const SOCKET: u64 = 32 * 1024;

/// Bytes that schedulers with a share may send twice.
pub(super) const REPEATS: u64 = 128 * 1024;

pub(super) const TICK: Duration = Duration::from_millis(1);

/// A scheduler, and the carriers.
pub(super) struct Model {
    pub(super) scheduler: Box<dyn Scheduler>,
    pub(super) fixture: Fixture,
    carriers: BTreeMap<PathId, Carrier>,
    /// Number of the next path to join.
    next_path: u32,
    /// Most bytes of each stream beyond the acknowledged offset; none for no limit but its credit.
    pub(super) window: Option<u64>,
    /// Bytes on paths when they failed.
    pub(super) lost: u64,
    /// Bytes sent for the first time, and again.
    pub(super) sent: u64,
    pub(super) repeated: u64,
    /// The part of `repeated` that the same path had already carried.
    pub(super) wasted: u64,
    /// Every pick but Idle, with its path.
    pub(super) picks: Vec<(PathId, Pick)>,
    /// Offset of each stream's head that is on no path, and the time since when it has been the
    /// head.
    heads: BTreeMap<StreamId, (u64, Instant)>,
    /// Longest such wait of each stream's heads.
    pub(super) waits: BTreeMap<StreamId, Duration>,
}

struct Carrier {
    rate: f64,
    rtt: Duration,
    /// Time at which all data handed over has left.
    busy_until: Instant,
    /// Acknowledgments in flight: their arrival times and bytes.
    flying: Vec<(Instant, StreamId, Range<u64>)>,
    /// Time until which it accepts no data.
    blocked_until: Instant,
    /// Bytes of other traffic that wait before its own below TCP.
    backlog: u64,
    /// The bytes of each stream that it has carried.
    carried: BTreeMap<StreamId, RangeSet>,
}

impl Carrier {
    /// Round trip including the wait behind other traffic.
    fn round_trip(&self) -> Duration {
        self.rtt + Duration::from_secs_f64(self.backlog as f64 / self.rate)
    }
}

impl Model {
    pub(super) fn new(scheduler: Box<dyn Scheduler>, links: &[(f64, u64)]) -> Self {
        let mut fixture = Fixture::new(&[]);
        fixture.repeat_budget = REPEATS;
        let mut model = Self {
            scheduler,
            fixture,
            carriers: BTreeMap::new(),
            next_path: 0,
            window: None,
            lost: 0,
            sent: 0,
            repeated: 0,
            wasted: 0,
            picks: Vec::new(),
            heads: BTreeMap::new(),
            waits: BTreeMap::new(),
        };
        links.iter().for_each(|link| model.join(*link));
        model
    }

    /// A path joins, (Mbit/s, round-trip milliseconds).
    pub(super) fn join(&mut self, (mbit, ms): (f64, u64)) {
        let id = self.next_path;
        self.next_path += 1;
        self.fixture.add_path(id, (mbit, ms));
        let rate = mbit * 1e6 / 8.0;
        let rtt = Duration::from_millis(ms) + TICK / 2;
        let carrier = Carrier {
            rate,
            rtt,
            busy_until: self.fixture.now,
            flying: Vec::new(),
            blocked_until: Duration::ZERO,
            backlog: 0,
            carried: BTreeMap::new(),
        };
        self.carriers.insert(PathId(id), carrier);
        self.sample(PathId(id));
        self.scheduler.paths_changed();
    }

    /// The existing paths.
    pub(super) fn paths(&self) -> Vec<PathId> {
        self.carriers.keys().copied().collect()
    }

    /// A path fails: its bytes have to go over the others.
    pub(super) fn die(&mut self, path: PathId) {
        self.carriers.remove(&path);
        for (stream, range) in self.fixture.end_path(path) {
            self.lost += range.end - range.start;
            // A path that holds a copy may be given the bytes as new.
            for carrier in self.carriers.values_mut() {
                carrier
                    .carried
                    .entry(stream)
                    .or_default()
                    .remove(range.clone());
            }
        }
        self.scheduler.paths_changed();
    }

    /// From now on `bytes` of other traffic wait on a path, below TCP, before its own.
    pub(super) fn add_backlog(&mut self, path: PathId, bytes: u64) {
        if let Some(carrier) = self.carriers.get_mut(&path) {
            carrier.backlog = bytes;
        }
    }

    /// A path accepts no data for `time`.
    pub(super) fn block(&mut self, path: PathId, time: Duration) {
        if let Some(carrier) = self.carriers.get_mut(&path) {
            carrier.blocked_until = self.fixture.now + time;
        }
    }

    /// One step: due data arrives, and all carriers with space ask until none gets anything.
    pub(super) fn tick(&mut self) {
        self.fixture.now += TICK;
        self.acknowledge();
        self.grant();
        let ids = self.paths();
        loop {
            ids.iter().for_each(|id| self.sample(*id));
            if !ids.iter().any(|id| self.ask(*id)) {
                break;
            }
        }
        self.look_at_heads();
    }

    fn acknowledge(&mut self) {
        let now = self.fixture.now;
        for (id, carrier) in &mut self.carriers {
            let (due, flying) = std::mem::take(&mut carrier.flying)
                .into_iter()
                .partition(|(at, ..)| *at <= now);
            carrier.flying = flying;
            let path = self.fixture.paths.get_mut(id).unwrap();
            for (_, stream, range) in due {
                path.outbound.flights.pop_front();
                path.outbound.confirmed += range.end - range.start;
                let stream = self.fixture.streams.get_mut(&stream).unwrap();
                stream.send.acknowledge(range, &mut Spare::default());
            }
        }
    }

    fn grant(&mut self) {
        let Some(window) = self.window else { return };
        for (id, stream) in &mut self.fixture.streams {
            let limit = stream.send.base + window;
            if limit != stream.send.limit {
                stream.send.limit = limit;
                self.scheduler.stream_ready(*id);
            }
        }
    }

    fn sample(&mut self, id: PathId) {
        let (carrier, now) = (&self.carriers[&id], self.fixture.now);
        let waiting = carrier.busy_until.saturating_sub(now).as_secs_f64() * carrier.rate;
        let flying: u64 = carrier.flying.iter().map(|(_, _, r)| r.end - r.start).sum();
        let blocked = carrier.blocked_until > now;
        let (rtt, backlog) = (carrier.round_trip(), carrier.backlog);
        // One tick may pass before bytes leave, and one before their arrival is seen. Without a
        // window for these a fast link without delay would not reach its rate.
        let cwnd = (2.0 * carrier.rate * (rtt + 2 * TICK).as_secs_f64()) as u64 + 14_600;
        self.fixture.change(id.0, |sample| {
            sample.cwnd = cwnd;
            sample.srtt = rtt;
            sample.min_rtt = rtt;
            sample.rttvar = rtt / 8;
            sample.unsent = waiting as u64;
            sample.local_queue = backlog;
            sample.in_flight = flying.saturating_sub(waiting as u64);
            sample.full = blocked || waiting as u64 > SOCKET || flying >= sample.cwnd;
        });
    }

    /// Asks the scheduler for a path; returns whether it picked bytes.
    fn ask(&mut self, id: PathId) -> bool {
        if self.fixture.paths[&id].sample().full {
            return false;
        }
        if self.scheduler.repeat_limit() == RepeatLimit::OncePerPath {
            self.fixture.repeat_budget = u64::MAX;
        }
        let pick = self.fixture.decide(self.scheduler.as_mut(), id, PIECE);
        let (Pick::Send { stream, range }
        | Pick::Repeat { stream, range }
        | Pick::Race { stream, range }) = pick.clone()
        else {
            return false;
        };
        let len = range.end - range.start;
        let carrier = self.carriers.get_mut(&id).unwrap();
        let new = carrier.carried.entry(stream).or_default();
        self.wasted += len - new.insert(range.clone());
        if let Pick::Send { .. } = pick {
            self.sent += len;
        } else {
            self.repeated += len;
            // Bytes beyond the budget are counted as well, so that the check finds them.
            self.fixture.repeat_budget = self.fixture.repeat_budget.max(len);
        }
        self.fixture.apply(id, &pick);
        self.picks.push((id, pick));
        let time = Duration::from_secs_f64(len as f64 / carrier.rate);
        carrier.busy_until = carrier.busy_until.max(self.fixture.now) + time;
        // In order, even if the queue before them has become shorter.
        let last = carrier.flying.last().map_or(Instant::ZERO, |(at, ..)| *at);
        let arrives = last.max(carrier.busy_until + carrier.round_trip());
        carrier.flying.push((arrives, stream, range));
        self.fixture.paths.get_mut(&id).unwrap().outbound.sent += len;
        self.sample(id);
        true
    }

    /// Records how long the first byte of each stream that the peer waits for has been on no path
    /// while it may be sent.
    ///
    /// Each head counts separately: a scheduler is not at fault if many streams wait one after the
    /// other.
    fn look_at_heads(&mut self) {
        let now = self.fixture.now;
        let waiting: Vec<(StreamId, u64)> = self.fixture.view(|view| {
            let heads = view.ready_streams().filter_map(|stream| {
                let first = stream.unsent().first()?.start;
                let waits = first == stream.acknowledged() && first < view.sendable_end(stream);
                waits.then_some((stream.id(), first))
            });
            heads.collect()
        });
        let before = std::mem::take(&mut self.heads);
        for (id, head) in waiting {
            let known = before.get(&id).filter(|(at, _)| *at == head);
            let since = known.map_or(now, |(_, since)| *since);
            self.heads.insert(id, (head, since));
            let longest = self.waits.entry(id).or_default();
            *longest = (*longest).max(now - since);
        }
    }

    pub(super) fn unacknowledged(&self) -> u64 {
        let streams = self.fixture.streams.values();
        streams.map(|stream| stream.send.buffered()).sum()
    }
}
