//! Schedulers: a path that can send asks, the scheduler answers with bytes or with "not now".
//!
//! To add one: a file in this folder with a type that implements [`Scheduler`], and a line in [`NAMES`] and in
//! `by_name`. The tests at the end of this file run for every name.

pub mod fbdt;
#[cfg(test)]
mod fixture;
pub mod minrtt;
pub mod roundrobin;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::ops::Range;

use crate::path::{Path, PathState};
use crate::share::Share;
use crate::stream::Stream;
use crate::{Instant, PathId, StreamId};

/// The scheduler of a session that asks for none.
pub const DEFAULT: &str = "fbdt";

/// All schedulers by name.
pub const NAMES: &[&str] = &["fbdt", "minrtt", "roundrobin"];

/// Decides which bytes a path carries next.
pub trait Scheduler: Debug + Send {
    /// The name under which it is chosen.
    fn name(&self) -> &'static str;

    /// `path` is able to send about `budget` bytes: which ones?
    fn pick(&mut self, path: PathId, budget: u64, view: &View<'_>) -> Pick;

    /// The paths have changed: one joined, left, stalled or recovered.
    fn paths_changed(&mut self) {}

    /// The stream is gone and its number will not come back.
    fn stream_gone(&mut self, _stream: StreamId) {}
}

/// A scheduler's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pick {
    /// Send these bytes, which are unsent and within credit.
    Send {
        /// Of this stream.
        stream: StreamId,
        /// Not empty.
        range: Range<u64>,
    },
    /// Send once more these bytes, which another path carries and the peer has not acknowledged.
    Repeat {
        /// Of this stream.
        stream: StreamId,
        /// Not empty.
        range: Range<u64>,
    },
    /// Leave this path idle for now; it is asked again after the next change.
    Idle,
}

/// What a scheduler sees.
#[derive(Debug)]
pub struct View<'a> {
    /// Now.
    pub now: Instant,
    pub(crate) paths: &'a BTreeMap<PathId, Path>,
    pub(crate) streams: &'a BTreeMap<StreamId, Stream>,
    /// Streams that have something unsent.
    pub(crate) ready: &'a BTreeSet<StreamId>,
    /// The stream that was served last.
    pub(crate) last_served: StreamId,
    /// Bytes that may still be sent beyond the highest offsets so far, over all streams.
    pub(crate) credit: u64,
    /// How streams share what they send into.
    pub(crate) share: Share,
    /// Bytes that may be sent twice at this moment.
    pub(crate) repeat_budget: u64,
    /// What one session may buffer.
    pub(crate) memory: u64,
}

impl<'a> View<'a> {
    /// The paths that deliver.
    pub fn active_paths(&self) -> impl Iterator<Item = &'a Path> + use<'a> {
        self.paths
            .values()
            .filter(|path| path.state == PathState::Active)
    }

    /// A path by number; it may be stalled.
    pub fn path(&self, id: PathId) -> Option<&'a Path> {
        self.paths.get(&id)
    }

    /// A stream by number.
    pub fn stream(&self, id: StreamId) -> Option<&'a Stream> {
        self.streams.get(&id)
    }

    /// Streams with unsent bytes, in turns: the one after the one that was served last comes first.
    pub fn ready_streams(&self) -> impl Iterator<Item = &'a Stream> + '_ {
        let after = self.ready.range(self.last_served.saturating_add(1)..);
        let before = self.ready.range(..=self.last_served);
        after.chain(before).filter_map(|id| self.streams.get(id))
    }

    /// All streams, whether or not they have unsent bytes.
    pub fn all_streams(&self) -> impl Iterator<Item = &'a Stream> + use<'a> {
        self.streams.values()
    }

    /// How many streams have unsent bytes.
    pub fn ready_count(&self) -> usize {
        self.ready.len()
    }

    /// Offset up to which credit lets `stream` send now.
    ///
    /// What a stream has sent since its own credit came last counts as held by it; so streams that nobody reads leave
    /// some of the session's credit to those that somebody reads.
    pub fn sendable_end(&self, stream: &Stream) -> u64 {
        let since = stream.send.highest - stream.send.highest_at_credit;
        let share = self.share.more(since, self.credit);
        let by_session = stream.send.highest.saturating_add(share);
        stream.send.written.min(stream.send.limit).min(by_session)
    }

    /// Bytes that may be sent twice at this moment, over all streams.
    pub fn repeat_budget(&self) -> u64 {
        self.repeat_budget
    }

    /// Bytes that the session may buffer on either side.
    pub fn memory(&self) -> u64 {
        self.memory
    }
}

pub(crate) fn by_name(name: &str) -> Option<Box<dyn Scheduler>> {
    Some(match name {
        "fbdt" => Box::new(fbdt::Fbdt::default()),
        "minrtt" => Box::new(minrtt::MinRtt),
        "roundrobin" => Box::new(roundrobin::RoundRobin),
        _ => return None,
    })
}

/// The lowest unsent bytes of the first stream that has any within credit: what schedulers that differ only in
/// the choice of the path send.
pub(crate) fn lowest_unsent(view: &View<'_>, budget: u64) -> Pick {
    for stream in view.ready_streams() {
        let end = view.sendable_end(stream);
        if let Some(first) = stream.unsent().first()
            && first.start < end
        {
            let range = first.start..first.end.min(end).min(first.start + budget);
            return Pick::Send {
                stream: stream.id(),
                range,
            };
        }
    }
    Pick::Idle
}

#[cfg(test)]
mod tests {
    use super::fixture::Fixture;
    use super::*;

    #[test]
    fn every_name_has_its_scheduler() {
        for name in NAMES {
            assert_eq!(
                by_name(name).expect("listed schedulers exist").name(),
                *name
            );
        }
        assert!(by_name("fastest").is_none());
        assert!(NAMES.contains(&DEFAULT));
    }

    /// What the paths of a fixture send when each asks in turn until none gets anything.
    fn run(name: &str, fixture: &mut Fixture) -> Vec<(u32, Pick)> {
        let mut scheduler = by_name(name).unwrap();
        let paths: Vec<PathId> = fixture.paths.keys().copied().collect();
        let mut picks = Vec::new();
        let mut idle = 0;
        while idle < paths.len() {
            for &path in &paths {
                let pick = fixture.pick(scheduler.as_mut(), path, 20_000);
                idle = if pick == Pick::Idle { idle + 1 } else { 0 };
                if pick != Pick::Idle {
                    picks.push((path.0, pick));
                }
            }
            assert!(picks.len() < 10_000, "{name} goes on for ever");
        }
        picks
    }

    #[test]
    fn every_scheduler_sends_everything_once_and_the_same_way_again() {
        for name in NAMES {
            for links in [
                &[(80.0, 10)][..],
                &[(80.0, 10), (80.0, 10)],
                &[(8.0, 200), (800.0, 1), (80.0, 20)],
            ] {
                let fixture = || {
                    let mut fixture = Fixture::new(links);
                    fixture.write(0, 700_000);
                    fixture.write(2, 1);
                    fixture.write(4, 50_000);
                    fixture
                };
                let mut first = fixture();
                let picks = run(name, &mut first);
                assert_eq!(
                    first.unsent(),
                    0,
                    "{name} leaves bytes unsent over {links:?}"
                );
                let sent: u64 = picks
                    .iter()
                    .map(|(_, pick)| match pick {
                        Pick::Send { range, .. } => range.end - range.start,
                        _ => 0,
                    })
                    .sum();
                assert_eq!(sent, 750_001);
                assert_eq!(
                    picks,
                    run(name, &mut fixture()),
                    "{name} is not deterministic"
                );
            }
        }
    }

    #[test]
    fn no_scheduler_exceeds_credit() {
        for name in NAMES {
            let mut fixture = Fixture::new(&[(80.0, 10), (80.0, 10)]);
            fixture.write(0, 700_000);
            fixture.streams.get_mut(&0).unwrap().send.limit = 100_000;
            fixture.write(2, 700_000);
            fixture.credit = 300_000;
            run(name, &mut fixture);
            // A stream whose reader has not been heard of leaves a ninth of the credit to others.
            assert!(
                fixture.credit < 200_000 / 8,
                "{name} leaves credit unused: {}",
                fixture.credit
            );
        }
    }

    #[test]
    fn no_scheduler_gives_work_for_a_path_that_is_not_there() {
        for name in NAMES {
            let mut fixture = Fixture::new(&[]);
            fixture.write(0, 1000);
            let mut scheduler = by_name(name).unwrap();
            scheduler.stream_gone(0);
            scheduler.paths_changed();
            let pick = fixture.pick(scheduler.as_mut(), PathId(9), 1000);
            assert!(matches!(pick, Pick::Idle | Pick::Send { .. }));
        }
    }
}
