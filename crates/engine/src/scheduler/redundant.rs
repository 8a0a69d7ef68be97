//! Redundancy: every path follows each stream with a pointer of its own and sends the
//! unacknowledged bytes.
//!
//! Source: `net/mptcp/mptcp_redundant.c` of Linux MPTCP 0.95 (Frömmgen, Erbshäußer, Buchmann,
//! Zimmermann and Wehrle, "ReMP TCP: Low latency multipath TCP", ICC 2016). Delivery is as early as
//! that of the earliest path; the traffic is multiplied by the number of paths. No path carries a
//! byte twice, and a slow one skips bytes that the others have delivered meanwhile, so that it does
//! not fall ever further behind.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::scheduler::{Pick, RepeatLimit, Scheduler, View};
use crate::stream::Stream;
use crate::{PathId, StreamId};

/// Full redundancy.
#[derive(Debug, Default)]
pub struct Redundant {
    /// For each stream and path, the offset below which the path has nothing more to send.
    pointers: BTreeMap<StreamId, BTreeMap<PathId, u64>>,
    /// The stream that each path served last: streams take turns.
    last: BTreeMap<PathId, StreamId>,
}

/// Bytes that a path takes in one turn: approximately a TLS record.
const PIECE: u64 = 16 * 1024;

impl Scheduler for Redundant {
    fn name(&self) -> &'static str {
        "redundant"
    }

    fn pick(&mut self, path: PathId, budget: u64, view: &View<'_>) -> Pick {
        if self.last.len() > view.paths.len() {
            self.forget_paths(view);
        }
        if view.path(path).is_none() {
            return Pick::Idle;
        }
        let last = self.last.get(&path).copied();
        let is_later = |stream: &&Stream| last.is_none_or(|last| stream.id() > last);
        let later = view.all_streams().filter(is_later);
        let earlier = view.all_streams().filter(|stream| !is_later(stream));
        for stream in later.chain(earlier) {
            if let Some(pick) = self.next_of(stream, path, budget.min(PIECE), view) {
                self.last.insert(path, stream.id());
                return pick;
            }
        }
        Pick::Idle
    }

    fn stream_gone(&mut self, stream: StreamId) {
        self.pointers.remove(&stream);
    }

    fn repeat_limit(&self) -> RepeatLimit {
        RepeatLimit::OncePerPath
    }
}

impl Redundant {
    fn next_of(
        &mut self,
        stream: &Stream,
        path: PathId,
        budget: u64,
        view: &View<'_>,
    ) -> Option<Pick> {
        let end = view.sendable_end(stream);
        let pointer = self.pointers.get(&stream.id()).and_then(|of| of.get(&path));
        let from = pointer.copied().unwrap_or_default();
        // Linux 0.95, mptcp_redundant.c, redundant_next_skb_from_queue: each subflow continues
        // after its last byte, and no lower than the acknowledged bytes
        let missing = first_unacknowledged(stream, from.max(stream.acknowledged())..end)?;
        let most = missing.start + budget.max(1);
        let stream_id = stream.id();
        // Bytes on no path are sent, the others repeated; a frame is one or the other.
        let unsent = stream.unsent().within(missing.clone()).next();
        let pick = match unsent {
            Some(unsent) if unsent.start == missing.start => Pick::Send {
                stream: stream_id,
                range: unsent.start..unsent.end.min(most),
            },
            unsent => Pick::Repeat {
                stream: stream_id,
                range: missing.start..unsent.map_or(missing.end, |next| next.start).min(most),
            },
        };
        if let Pick::Send { range, .. } | Pick::Repeat { range, .. } = &pick {
            let pointers = self.pointers.entry(stream_id).or_default();
            pointers.insert(path, range.end);
        }
        Some(pick)
    }

    fn forget_paths(&mut self, view: &View<'_>) {
        self.last.retain(|id, _| view.path(*id).is_some());
        for pointers in self.pointers.values_mut() {
            pointers.retain(|id, _| view.path(*id).is_some());
        }
    }
}

/// The lowest unacknowledged bytes of `range`, found step by step: acknowledged bytes above them do
/// not matter and may be in many ranges.
fn first_unacknowledged(stream: &Stream, range: Range<u64>) -> Option<Range<u64>> {
    let mut at = range.start;
    while at < range.end {
        let step = range.end.min(at + 4 * PIECE);
        if let Some(first) = stream.unacknowledged(at..step).into_iter().next() {
            return Some(first);
        }
        at = step;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::Spare;
    use crate::scheduler::fixture::Fixture;

    fn repeat(range: Range<u64>) -> Pick {
        Pick::Repeat { stream: 0, range }
    }

    fn send(range: Range<u64>) -> Pick {
        Pick::Send { stream: 0, range }
    }

    #[test]
    fn every_path_sends_everything_once() {
        let (mut fixture, mut scheduler) = (
            Fixture::new(&[(80.0, 10), (8.0, 100)]),
            Redundant::default(),
        );
        fixture.write(0, 25_000);
        fixture.repeat_budget = u64::MAX;
        let mut pick = |path: u32| fixture.pick(&mut scheduler, PathId(path), 10_000);
        assert_eq!(pick(0), send(0..10_000));
        assert_eq!(pick(0), send(10_000..20_000));
        assert_eq!(pick(1), repeat(0..10_000));
        assert_eq!(pick(0), send(20_000..25_000));
        assert_eq!(pick(0), Pick::Idle);
        assert_eq!(pick(1), repeat(10_000..20_000));
        assert_eq!(pick(1), repeat(20_000..25_000));
        assert_eq!(pick(1), Pick::Idle);
    }

    #[test]
    fn acknowledged_bytes_are_skipped() {
        let (mut fixture, mut scheduler) = (
            Fixture::new(&[(80.0, 10), (8.0, 100)]),
            Redundant::default(),
        );
        fixture.write(0, 300_000);
        fixture.repeat_budget = u64::MAX;
        for _ in 0..20 {
            fixture.pick(&mut scheduler, PathId(0), 10_000);
        }
        let spare = &mut Spare::default();
        let stream = &mut fixture.streams.get_mut(&0).unwrap().send;
        stream.acknowledge(0..150_000, spare);
        stream.acknowledge(155_000..170_000, spare);
        let mut pick = |path: u32| fixture.pick(&mut scheduler, PathId(path), 10_000);
        assert_eq!(pick(1), repeat(150_000..155_000));
        assert_eq!(pick(1), repeat(170_000..180_000));
        assert_eq!(pick(1), repeat(180_000..190_000));
        assert_eq!(pick(1), repeat(190_000..200_000));
        assert_eq!(pick(1), send(200_000..210_000));
        assert_eq!(pick(0), repeat(200_000..210_000));
    }

    #[test]
    fn streams_take_turns_on_each_path() {
        let (mut fixture, mut scheduler) = (Fixture::new(&[(80.0, 10)]), Redundant::default());
        for stream in [0, 2, 4] {
            fixture.write(stream, 40_000);
        }
        let streams: Vec<StreamId> = (0..6)
            .map(|_| match fixture.pick(&mut scheduler, PathId(0), 10_000) {
                Pick::Send { stream, .. } => stream,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(streams, [0, 2, 4, 0, 2, 4]);
        scheduler.stream_gone(2);
        assert_eq!(scheduler.pointers.len(), 2);
    }
}
