//! What a scheduler sees, made up for its tests.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use super::{Pick, Scheduler, View};
use crate::pages::Spare;
use crate::path::{Flight, Path, PathSample};
use crate::share::Share;
use crate::stream::Stream;
use crate::{Class, Instant, PathId, StreamId};

/// Paths and streams of a session that does not exist.
pub(crate) struct Fixture {
    pub(crate) now: Instant,
    pub(crate) paths: BTreeMap<PathId, Path>,
    pub(crate) streams: BTreeMap<StreamId, Stream>,
    pub(crate) last_served: StreamId,
    pub(crate) credit: u64,
    pub(crate) repeat_budget: u64,
    pub(crate) memory: u64,
}

impl Fixture {
    /// A path for each (Mbit/s, round-trip milliseconds), numbered from 0, well past slow start.
    pub(crate) fn new(links: &[(f64, u64)]) -> Self {
        let now = Instant::from_secs(100);
        let path = |(index, &(mbit, rtt)): (usize, &(f64, u64))| {
            let id = PathId(index as u32);
            let mut path = Path::new(id, now - Duration::from_secs(10));
            let rate = mbit * 1e6 / 8.0;
            let srtt = Duration::from_millis(rtt);
            path.update(PathSample {
                srtt,
                mss: 1448,
                cwnd: (2.0 * rate * srtt.as_secs_f64()) as u64 + 14_600,
                delivery_rate: rate as u64,
                ..PathSample::default()
            });
            path.sent = 1 << 30;
            (id, path)
        };
        Self {
            now,
            paths: links.iter().enumerate().map(path).collect(),
            streams: BTreeMap::new(),
            last_served: 0,
            credit: 1 << 40,
            repeat_budget: 0,
            memory: 64 << 20,
        }
    }

    /// A program writes `len` bytes to a bulk stream.
    pub(crate) fn write(&mut self, id: StreamId, len: usize) {
        let stream = self
            .streams
            .entry(id)
            .or_insert_with(|| Stream::new(id, Class::Background, 1 << 40, 0));
        stream.send.write(&vec![0; len], &mut Spare::default());
    }

    /// Asks `scheduler` for `path`, and does what it says as far as bytes are concerned.
    pub(crate) fn pick(
        &mut self,
        scheduler: &mut dyn Scheduler,
        path: PathId,
        budget: u64,
    ) -> Pick {
        let ready: BTreeSet<StreamId> = self
            .streams
            .values()
            .filter(|stream| !stream.send.unsent.is_empty())
            .map(Stream::id)
            .collect();
        let view = View {
            now: self.now,
            paths: &self.paths,
            streams: &self.streams,
            ready: &ready,
            last_served: self.last_served,
            credit: self.credit,
            share: Share::default(),
            repeat_budget: self.repeat_budget,
            memory: self.memory,
        };
        let pick = scheduler.pick(path, budget, &view);
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
            Pick::Repeat { stream: id, range } => {
                assert!(
                    range.end - range.start <= self.repeat_budget,
                    "beyond the budget"
                );
                self.repeat_budget -= range.end - range.start;
                for other in self.paths.values_mut() {
                    other
                        .flights
                        .iter_mut()
                        .filter(|f| f.stream == id)
                        .for_each(|f| f.repeated = true);
                }
            }
            Pick::Idle => {}
        }
        pick
    }

    /// What a Send of `scheduler` for `path` covers; nothing for an idle path.
    pub(crate) fn send(
        &mut self,
        scheduler: &mut dyn Scheduler,
        path: u32,
        budget: u64,
    ) -> Option<Range<u64>> {
        match self.pick(scheduler, PathId(path), budget) {
            Pick::Send { range, .. } => Some(range),
            Pick::Repeat { .. } | Pick::Idle => None,
        }
    }

    /// Bytes under way on a path, expected after `time`.
    pub(crate) fn fly(
        &mut self,
        path: PathId,
        stream: StreamId,
        range: Range<u64>,
        time: Duration,
    ) {
        let (now, Some(path)) = (self.now, self.paths.get_mut(&path)) else {
            return;
        };
        let flight = Flight {
            stream,
            range,
            sent_at: now,
            expected_at: now + time,
            repeated: false,
            path_end: path.sent,
        };
        path.flights.push_back(flight);
    }

    /// Bytes that wait before a path's next one.
    pub(crate) fn queue_on(&mut self, path: u32, unsent: u64) {
        if let Some(path) = self.paths.get_mut(&PathId(path)) {
            let sample = PathSample {
                unsent,
                ..*path.sample()
            };
            path.update(sample);
        }
    }

    /// Unsent bytes of all streams.
    pub(crate) fn unsent(&self) -> u64 {
        self.streams
            .values()
            .map(|stream| stream.unsent().total())
            .sum()
    }
}
