//! A made-up view for the tests of single decisions.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

#[cfg(test)]
use super::Schedulers;
use super::fbdt::{FbdtConfig, WindowRule};
use super::{ClassSet, Pick, Scheduler, View};
use crate::pages::Spare;
use crate::path::{Flight, Path, PathSample, PathState, Paths};
use crate::share::Share;
use crate::stream::Stream;
use crate::writers::Writers;
use crate::{Class, Instant, PathId, StreamId};

/// Large from the first byte on, so that all written bytes form one window unless a test changes
/// it.
const WINDOW: WindowRule = WindowRule {
    products: 2.0,
    least: 480_000,
    most: 64 << 20,
};

/// Paths and streams without a session.
#[derive(Debug)]
pub struct Fixture {
    /// The current time.
    pub now: Instant,
    /// The paths.
    pub(crate) paths: Paths,
    /// The streams.
    pub streams: BTreeMap<StreamId, Stream>,
    /// The stream that was served last.
    pub last_served: StreamId,
    /// Bytes that may still be sent beyond the highest offsets so far, over all streams.
    pub credit: u64,
    /// Bytes that may be sent again.
    pub repeat_budget: u64,
    /// [`Redundancy::advance`](crate::Redundancy::advance).
    pub advance: Duration,
    /// Bytes that the asking path has been handed since its sample was taken.
    pub handed: u64,
    /// Most bytes that the session may buffer.
    pub memory: u64,
    /// Settings of the scheduler `fbdt`.
    pub fbdt: FbdtConfig,
    /// Streams that have been written to since a scheduler was last asked.
    fresh: Vec<StreamId>,
}

impl Fixture {
    /// A path for each (Mbit/s, round-trip milliseconds), numbered from 0, well past slow start.
    pub fn new(links: &[(f64, u64)]) -> Self {
        let mut fixture = Self {
            now: Instant::from_secs(100),
            paths: Paths::default(),
            streams: BTreeMap::new(),
            last_served: 0,
            credit: 1 << 40,
            repeat_budget: 0,
            advance: Duration::ZERO,
            handed: 0,
            memory: 64 << 20,
            fbdt: FbdtConfig {
                windows: [WINDOW; 4],
                ..FbdtConfig::default()
            },
            fresh: Vec::new(),
        };
        for (index, &link) in links.iter().enumerate() {
            fixture.add_path(index as u32, link);
        }
        fixture
    }

    /// Adds a path, (Mbit/s, round-trip milliseconds).
    pub fn add_path(&mut self, id: u32, (mbit, rtt): (f64, u64)) {
        let id = PathId(id);
        let mut path = Path::new(id, self.now - Duration::from_secs(10));
        let rate = mbit * 1e6 / 8.0;
        let srtt = Duration::from_millis(rtt);
        path.update(
            PathSample {
                srtt,
                mss: 1448,
                cwnd: (2.0 * rate * srtt.as_secs_f64()) as u64 + 14_600,
                delivery_rate: rate as u64,
                ..PathSample::default()
            },
            self.now,
        );
        path.outbound.sent = 1 << 30;
        path.outbound.confirmed = path.outbound.sent;
        self.paths.insert(path);
    }

    /// The path with this number.
    ///
    /// # Panics
    ///
    /// Without such a path.
    pub fn path(&self, id: u32) -> &Path {
        self.paths.get(&PathId(id)).expect("the path exists")
    }

    /// A path ends: its bytes in flight become unsent again. Returns them.
    pub fn end_path(&mut self, id: PathId) -> Vec<(StreamId, Range<u64>)> {
        let flights = self.paths.remove(&id).map(|path| path.outbound.flights);
        let mut lost = Vec::new();
        for flight in flights.into_iter().flatten() {
            if let Some(stream) = self.streams.get_mut(&flight.stream) {
                let missing = stream.unacknowledged(flight.range.clone());
                lost.extend(missing.into_iter().map(|range| (flight.stream, range)));
                stream.send.requeue(flight.range);
                self.fresh.push(flight.stream);
            }
        }
        lost
    }

    /// A program writes `len` bytes to a bulk stream.
    pub fn write(&mut self, id: StreamId, len: usize) {
        self.write_as(id, Class::Background, len);
    }

    /// A program writes `len` bytes to a stream of a class.
    pub fn write_as(&mut self, id: StreamId, class: Class, len: usize) {
        let stream = self
            .streams
            .entry(id)
            .or_insert_with(|| Stream::new(id, class, 1 << 40, 0));
        stream.send.write(&vec![0; len], &mut Spare::default());
        self.fresh.push(id);
    }

    /// Limits the bytes of a stream that may be sent, counted from its start.
    pub fn limit(&mut self, id: StreamId, bytes: u64) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.send.limit = bytes;
        }
    }

    /// A path has another state.
    pub fn set_state(&mut self, path: u32, state: PathState) {
        if let Some(path) = self.paths.get_mut(&PathId(path)) {
            path.state = state;
        }
    }

    /// A path has been handed `bytes` more, whichever they are.
    pub fn hand(&mut self, path: u32, bytes: u64) {
        if let Some(path) = self.paths.get_mut(&PathId(path)) {
            path.outbound.sent += bytes;
        }
    }

    /// The peer has reported `bytes` more of a path.
    pub fn confirm(&mut self, path: u32, bytes: u64) {
        if let Some(path) = self.paths.get_mut(&PathId(path)) {
            path.outbound.confirmed += bytes;
        }
    }

    /// Every path has just stalled and delivers again.
    pub fn make_unreliable(&mut self) {
        let now = self.now;
        self.paths
            .values_mut()
            .for_each(|path| path.note_stall(now));
    }

    /// The view of a scheduler.
    pub fn view<T>(&self, look: impl FnOnce(&View<'_>) -> T) -> T {
        self.with_view(|view| look(view))
    }

    /// Returns the pick of `scheduler` without applying it.
    pub fn ask(&self, scheduler: &mut dyn Scheduler, path: u32, budget: u64) -> Pick {
        self.view(|view| scheduler.pick(PathId(path), budget, view))
    }

    fn with_view<T>(&self, look: impl FnOnce(&mut View<'_>) -> T) -> T {
        let ready: BTreeSet<StreamId> = self
            .streams
            .values()
            .filter(|stream| !stream.send.unsent.is_empty())
            .map(Stream::id)
            .collect();
        look(&mut View {
            now: self.now,
            paths: &self.paths,
            streams: &self.streams,
            ready: &ready,
            writers: &Writers::default(),
            classes: ClassSet::ALL,
            last_served: self.last_served,
            credit: self.credit,
            granted: 1 << 40,
            share: Share::default(),
            repeat_balance: self.repeat_budget.min(i64::MAX as u64) as i64,
            advance: self.advance,
            race_budget: self.repeat_budget,
            handed: self.handed,
            memory: self.memory,
            fbdt: &self.fbdt,
        })
    }

    /// Asks `scheduler` for `path`, and applies the pick to the bytes.
    pub fn pick(&mut self, scheduler: &mut dyn Scheduler, path: PathId, budget: u64) -> Pick {
        let pick = self.decide(scheduler, path, budget);
        self.apply(path, &pick);
        pick
    }

    /// Asks `scheduler` for `path` as a session does: it is notified of the streams written to.
    pub fn decide(&mut self, scheduler: &mut dyn Scheduler, path: PathId, budget: u64) -> Pick {
        let fresh = std::mem::take(&mut self.fresh);
        fresh.iter().for_each(|id| scheduler.stream_ready(*id));
        self.view(|view| scheduler.pick(path, budget, view))
    }

    /// Like `pick`, with the schedulers of all classes.
    #[cfg(test)]
    pub(crate) fn pick_of(&mut self, lanes: &mut Schedulers, path: PathId, budget: u64) -> Pick {
        let pick = self.with_view(|view| lanes.pick(path, budget, view));
        if let Pick::Repeat { range, .. } | Pick::Race { range, .. } = &pick {
            // Each lane keeps its own account.
            self.repeat_budget = range.end - range.start;
        }
        self.apply(path, &pick);
        pick
    }

    /// Applies `pick` to the bytes.
    pub fn apply(&mut self, path: PathId, pick: &Pick) {
        match pick.clone() {
            Pick::Send { stream: id, range } => {
                let Some(stream) = self.streams.get_mut(&id) else {
                    panic!("no stream {id}")
                };
                assert!(
                    stream.unsent().covers(range.clone()) && !range.is_empty(),
                    "{range:?} is not unsent"
                );
                stream.send.unsent.remove(range.clone());
                self.credit -= range.end.saturating_sub(stream.send.highest);
                stream.send.highest = stream.send.highest.max(range.end);
                self.last_served = id;
                self.fly(path, id, range, Duration::ZERO);
            }
            Pick::Repeat { stream: id, range } | Pick::Race { stream: id, range } => {
                assert!(
                    range.end - range.start <= self.repeat_budget,
                    "beyond the budget"
                );
                self.repeat_budget -= range.end - range.start;
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.send.unsent.remove(range.clone());
                }
                self.fly(path, id, range.clone(), Duration::ZERO);
                // As in a session, bytes that are sent twice are marked on both paths.
                for path_of in self.paths.values_mut() {
                    match path_of.id == path {
                        true => {
                            path_of
                                .outbound
                                .flights
                                .back_mut()
                                .expect("just sent")
                                .repeated = true
                        }
                        false => path_of.mark_repeated(id, &range),
                    }
                }
            }
            Pick::Idle => {}
        }
    }

    /// Lets a path carry unsent bytes, regardless of a scheduler.
    pub fn take(&mut self, path: u32, stream: StreamId, range: Range<u64>) {
        self.apply(PathId(path), &Pick::Send { stream, range });
    }

    /// The peer has acknowledged bytes of a stream.
    pub fn acknowledge(&mut self, id: StreamId, range: Range<u64>) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.send.acknowledge(range, &mut Spare::default());
        }
    }

    /// Another measurement of a path.
    pub fn change(&mut self, path: u32, change: impl FnOnce(&mut PathSample)) {
        if let Some(path) = self.paths.get_mut(&PathId(path)) {
            let mut sample = *path.sample();
            change(&mut sample);
            path.update(sample, self.now);
        }
    }

    /// Each path's share of the bytes sent when all of them ask in turns, `rounds` times with the
    /// same budget, except those with a full carrier.
    pub fn shares(
        &mut self,
        scheduler: &mut dyn Scheduler,
        budget: u64,
        rounds: usize,
    ) -> Vec<f64> {
        let paths: Vec<PathId> = self.paths.values().map(Path::id).collect();
        let mut sent = vec![0.0; paths.len()];
        for _ in 0..rounds {
            for (path, sent) in paths.iter().zip(&mut sent) {
                if !self.paths[path].sample().full
                    && let Pick::Send { range, .. } = self.pick(scheduler, *path, budget)
                {
                    *sent += (range.end - range.start) as f64;
                }
            }
        }
        let all: f64 = sent.iter().sum();
        sent.iter().map(|sent| sent / all).collect()
    }

    /// Range of the Send that `scheduler` picks for `path`; none for an idle path.
    pub fn send(
        &mut self,
        scheduler: &mut dyn Scheduler,
        path: u32,
        budget: u64,
    ) -> Option<Range<u64>> {
        match self.pick(scheduler, PathId(path), budget) {
            Pick::Send { range, .. } => Some(range),
            Pick::Repeat { .. } | Pick::Race { .. } | Pick::Idle => None,
        }
    }

    /// Adds bytes in flight on a path, expected after `time`.
    pub fn fly(&mut self, path: PathId, stream: StreamId, range: Range<u64>, time: Duration) {
        let (now, Some(path)) = (self.now, self.paths.get_mut(&path)) else {
            return;
        };
        let flight = Flight {
            stream,
            range,
            sent_at: now,
            expected_at: now + time,
            patience: path.patience(),
            round_trip: 2 * time,
            repeated: false,
            path_end: path.outbound.sent,
            record_end: path.outbound.sent,
        };
        path.outbound.flights.push_back(flight);
    }

    /// Sets the bytes that wait before a path's next one.
    pub fn queue_on(&mut self, path: u32, unsent: u64) {
        self.change(path, |sample| sample.unsent = unsent);
    }

    /// Unsent bytes of all streams.
    pub fn unsent(&self) -> u64 {
        self.streams
            .values()
            .map(|stream| stream.unsent().total())
            .sum()
    }
}

/// A row of a decision table: the asking path, the change before it asks, and its bytes.
pub type Decision<'a> = (u32, &'a str, Option<Range<u64>>);

/// Lets paths ask row by row, after `change` has applied the row's change.
pub fn decisions(
    scheduler: &mut dyn Scheduler,
    fixture: &mut Fixture,
    budget: u64,
    table: &[Decision<'_>],
    change: impl Fn(&mut Fixture, &str),
) {
    for (index, (path, when, expected)) in table.iter().enumerate() {
        change(fixture, when);
        let sent = fixture.send(scheduler, *path, budget);
        assert_eq!(sent, *expected, "row {index}: path {path} asks; {when}");
    }
}
