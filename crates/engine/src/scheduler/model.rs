//! Model carriers for the schedulers' tests: a rate, a delay, a socket that takes a little more than is under way.
//!
//! They deliver what a scheduler has them send, and note what it does; `conformance.rs` says whether it may.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use super::fixture::Fixture;
use super::*;
use crate::pages::Spare;
use crate::{Instant, RangeSet};

/// What a model carrier takes at once.
pub(super) const PIECE: u64 = 16 * 1024;

/// What waits in its socket at most when it takes one more.
pub(super) const SOCKET: u64 = 32 * 1024;

/// What schedulers with a share may send twice.
pub(super) const REPEATS: u64 = 128 * 1024;

pub(super) const TICK: Duration = Duration::from_millis(1);

/// A scheduler, and the carriers.
pub(super) struct Model {
    pub(super) scheduler: Box<dyn Scheduler>,
    pub(super) fixture: Fixture,
    carriers: BTreeMap<PathId, Carrier>,
    /// Number of the next path to join.
    next_path: u32,
    /// How far beyond what is acknowledged each stream may be sent; nothing: as far as its credit goes.
    pub(super) window: Option<u64>,
    /// Bytes that paths had when they died.
    pub(super) lost: u64,
    /// Bytes sent as new ones, and again.
    pub(super) sent: u64,
    pub(super) repeated: u64,
    /// Of the latter those that the same path had carried already.
    pub(super) in_vain: u64,
    /// Every answer but Idle, and who got it.
    pub(super) picks: Vec<(PathId, Pick)>,
    /// Where the head of each stream is that is on no path, and since when it has been the head.
    heads: BTreeMap<StreamId, (u64, Instant)>,
    /// The longest time that a head of each stream has waited so.
    pub(super) waits: BTreeMap<StreamId, Duration>,
}

struct Carrier {
    rate: f64,
    rtt: Duration,
    /// When all that was handed over has left.
    busy_until: Instant,
    /// Whose acknowledgement is under way, and when it arrives.
    flying: Vec<(Instant, StreamId, Range<u64>)>,
    /// Until when it takes nothing.
    blocked_until: Instant,
    /// Bytes of others that wait before its own ones below TCP.
    backlog: u64,
    /// What it has carried of each stream.
    carried: BTreeMap<StreamId, RangeSet>,
}

impl Carrier {
    /// With the wait behind others' bytes.
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
            in_vain: 0,
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

    /// The paths that there are.
    pub(super) fn paths(&self) -> Vec<PathId> {
        self.carriers.keys().copied().collect()
    }

    /// A path ends: what was on it has to go over the others.
    pub(super) fn die(&mut self, path: PathId) {
        self.carriers.remove(&path);
        for (stream, range) in self.fixture.end_path(path) {
            self.lost += range.end - range.start;
            // Whoever has a copy of it may be given it as new.
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

    /// From now on so many bytes of somebody else wait on a path, below TCP, before its own ones.
    pub(super) fn pile_up(&mut self, path: PathId, bytes: u64) {
        if let Some(carrier) = self.carriers.get_mut(&path) {
            carrier.backlog = bytes;
        }
    }

    /// A path takes nothing for a while.
    pub(super) fn block(&mut self, path: PathId, time: Duration) {
        if let Some(carrier) = self.carriers.get_mut(&path) {
            carrier.blocked_until = self.fixture.now + time;
        }
    }

    /// One moment: what is due arrives, and all carriers with room ask until none gets anything.
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
                path.flights.pop_front();
                path.confirmed += range.end - range.start;
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
        // A tick may pass before bytes leave, and one before they are seen to have arrived: without a window for these a
        // fast link of no delay would not carry what its rate says.
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

    /// Whether it was given something.
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
        self.in_vain += len - new.insert(range.clone());
        if let Pick::Send { .. } = pick {
            self.sent += len;
        } else {
            self.repeated += len;
            // What is beyond the budget is counted as well: that is for the check to find.
            self.fixture.repeat_budget = self.fixture.repeat_budget.max(len);
        }
        self.fixture.apply(id, &pick);
        self.picks.push((id, pick));
        let time = Duration::from_secs_f64(len as f64 / carrier.rate);
        carrier.busy_until = carrier.busy_until.max(self.fixture.now) + time;
        // In order, also where the queue before them has become shorter.
        let last = carrier.flying.last().map_or(Instant::ZERO, |(at, ..)| *at);
        let arrives = last.max(carrier.busy_until + carrier.round_trip());
        carrier.flying.push((arrives, stream, range));
        self.fixture.paths.get_mut(&id).unwrap().sent += len;
        self.sample(id);
        true
    }

    /// How long the first byte of each stream that the peer waits for has been on no path while it may be sent.
    ///
    /// Each head counts for itself: that many streams wait one after the other is no fault of anybody.
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
