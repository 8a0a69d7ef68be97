//! Schedulers: a path that can send asks, and the scheduler answers with bytes or with "not now".
//!
//! The rules of the literature are written as a push: they take the next segment and choose a path
//! for it. Here a path with space in its carrier pulls. All rules are translated in the same way:
//! *to which path would the rule give this segment now?* If it is the asking path, that path sends.
//! Otherwise it stays idle, and the other path will ask. A path with a full carrier
//! ([`PathSample::full`](crate::PathSample::full)) cannot ask; rules that skip paths without space
//! skip it. An idle path is asked again after every change, and by a timer while data waits.
//!
//! Schedulers outside of this crate implement [`Scheduler`], too, and reach a session through
//! [`Config::own_schedulers`](crate::Config::own_schedulers). The crate `sumlink-schedulers` has
//! those of research papers; the rules that they share with the ones here are public ([`subflow`],
//! [`rounds`]). To add one here: a file in this folder, and a line in [`NAMES`] and in `by_name`.
//!
//! All of them pass the tests in `conformance.rs` (with the feature `testing` also in other
//! crates); `broken.rs` shows that their checks can fail.

#[cfg(test)]
mod broken;
mod budget;
#[cfg(any(test, feature = "testing"))]
mod case;
mod classes;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod conformance;
pub mod fbdt;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod fixture;
pub mod linux;
pub mod minrtt;
#[cfg(any(test, feature = "testing"))]
mod model;
pub mod redundant;
mod registry;
pub mod rounds;
pub mod subflow;
mod view;

use std::fmt::Debug;
use std::ops::Range;

pub(crate) use classes::Schedulers;
pub use registry::OwnSchedulers;
pub use view::View;
pub(crate) use view::{ClassSet, may_work};

use crate::{PathId, StreamId};

/// The default scheduler of a session.
pub const DEFAULT: &str = "fbdt";

/// The schedulers of this crate, by name.
pub const NAMES: &[&str] = &["fbdt", "minrtt", "linux", "redundant"];

/// Decides which bytes a path carries next.
pub trait Scheduler: Debug + Send {
    /// The name by which it is chosen.
    fn name(&self) -> &'static str;

    /// Picks the bytes that `path`, which can send approximately `budget` bytes, carries next.
    fn pick(&mut self, path: PathId, budget: u64, view: &View<'_>) -> Pick;

    /// The paths have changed: one joined, ended, stalled or recovered.
    fn paths_changed(&mut self) {}

    /// The stream has new data to send, more credit, or another class or hints. Not called for
    /// credit of the session or for classes that are learned.
    fn stream_ready(&mut self, _stream: StreamId) {}

    /// The stream has ended; its number will not be reused.
    fn stream_gone(&mut self, _stream: StreamId) {}

    /// Number of paths that it supports; a session accepts no more. None for any number.
    fn max_paths(&self) -> Option<usize> {
        None
    }

    /// The limit on the bytes that it sends again.
    fn repeat_limit(&self) -> RepeatLimit {
        RepeatLimit::Share
    }

    /// Whether it reads [`PathSample::local_queue`](crate::PathSample::local_queue), which costs
    /// system calls.
    fn reads_local_queue(&self) -> bool {
        false
    }
}

/// A limit on the bytes that a scheduler sends again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepeatLimit {
    /// The scheduler sends nothing again.
    Nothing,
    /// The share that [`Redundancy`](crate::Redundancy) permits: [`View::repeat_budget`] and
    /// [`View::race_budget`] return the rest of it.
    Share,
    /// The scheduler sends everything on every path by design: no path carries a byte twice.
    OncePerPath,
}

/// The decision of a scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pick {
    /// Send these bytes, which are unsent and within credit.
    Send {
        /// The stream.
        stream: StreamId,
        /// The range in the stream; not empty.
        range: Range<u64>,
    },
    /// Send these bytes again, which another path carries and the peer has not acknowledged.
    Repeat {
        /// The stream.
        stream: StreamId,
        /// The range in the stream; not empty.
        range: Range<u64>,
    },
    /// Send these urgent bytes again: the class or a hint of their stream requires it, or nothing
    /// is left to send behind them.
    Race {
        /// The stream.
        stream: StreamId,
        /// The range in the stream; not empty.
        range: Range<u64>,
    },
    /// Leave this path idle for now; it is asked again after the next change.
    Idle,
}

pub(crate) fn by_name(name: &str) -> Option<Box<dyn Scheduler>> {
    Some(match name {
        "fbdt" => Box::new(fbdt::Fbdt::default()),
        "minrtt" => Box::new(minrtt::MinRtt::default()),
        "linux" => Box::new(linux::Linux::default()),
        "redundant" => Box::new(redundant::Redundant::default()),
        _ => return None,
    })
}

/// The lowest unsent bytes of the first stream that has any within credit. Schedulers that differ
/// only in the choice of the path send these.
pub fn lowest_unsent(view: &View<'_>, budget: u64) -> Pick {
    for stream in view.ready_streams() {
        let end = view.sendable_end(stream);
        if let Some(first) = stream.unsent().first()
            && first.start < end
        {
            let range = first.start..first.end.min(end).min(first.start + budget.max(1));
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
}
