//! Schedulers: a path that can send asks, the scheduler answers with bytes or with "not now".
//!
//! The rules of the literature are written as a push: they take the next segment and choose a path for it. Here a path
//! whose carrier has room pulls. The translation is the same for all of them: *to which path would the rule give this
//! segment now?* If it is the one that asks, it sends; otherwise it stays idle, and that other path will ask. A path
//! whose carrier takes nothing at the moment ([`PathSample::full`](crate::PathSample::full)) cannot ask; rules that
//! pass over paths without room pass over it. A path that was told to wait is asked again after every change, and by a
//! timer while data waits.
//!
//! To add one: a file in this folder with a type that implements [`Scheduler`], and a line in [`NAMES`] and in
//! `by_name`. The tests in `conformance.rs` run for every name; `broken.rs` shows that their checks can fail. To try one
//! without touching this crate, give it to the sessions by [`Config::own_schedulers`](crate::Config::own_schedulers).

pub mod blest;
#[cfg(test)]
mod broken;
mod budget;
#[cfg(test)]
mod choices;
mod classes;
#[cfg(test)]
mod conformance;
pub mod ecf;
pub mod fbdt;
#[cfg(test)]
mod fixture;
pub mod linux;
pub mod lrtt;
pub mod minrtt;
#[cfg(test)]
mod model;
pub mod musher;
pub mod qaware;
pub mod qdepl;
pub mod redundant;
mod registry;
pub mod roundrobin;
mod rounds;
mod subflow;
mod view;
pub mod wrr;

use std::fmt::Debug;
use std::ops::Range;

pub(crate) use classes::Schedulers;
pub use registry::OwnSchedulers;
pub use view::View;
pub(crate) use view::{ClassSet, may_work};

use crate::{PathId, StreamId};

/// The scheduler of a session that asks for none.
pub const DEFAULT: &str = "fbdt";

/// All schedulers by name.
pub const NAMES: &[&str] = &[
    "fbdt",
    "minrtt",
    "linux",
    "blest",
    "ecf",
    "roundrobin",
    "redundant",
    "musher",
    "qaware",
    "lrtt",
    "qdepl",
    "wrr",
];

/// Decides which bytes a path carries next.
pub trait Scheduler: Debug + Send {
    /// The name under which it is chosen.
    fn name(&self) -> &'static str;

    /// `path` is able to send about `budget` bytes: which ones?
    fn pick(&mut self, path: PathId, budget: u64, view: &View<'_>) -> Pick;

    /// The paths have changed: one joined, left, stalled or recovered.
    fn paths_changed(&mut self) {}

    /// The stream has something to send, more credit to send it, or another class or hints. Not told of: credit of the
    /// session, and classes that are learnt.
    fn stream_ready(&mut self, _stream: StreamId) {}

    /// The stream is gone and its number will not come back.
    fn stream_gone(&mut self, _stream: StreamId) {}

    /// How many paths it is made for; a session takes no more. Nothing: any number.
    fn most_paths(&self) -> Option<usize> {
        None
    }

    /// What bounds the bytes that it has sent again.
    fn repeat_limit(&self) -> RepeatLimit {
        RepeatLimit::Share
    }

    /// Whether it looks at [`PathSample::local_queue`](crate::PathSample::local_queue), which costs system calls.
    fn reads_local_queue(&self) -> bool {
        false
    }
}

/// What bounds the bytes that a scheduler has sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepeatLimit {
    /// The part that [`Redundancy`](crate::Redundancy) allows: [`View::repeat_budget`] and
    /// [`View::race_budget`] say what is left of that.
    Share,
    /// Sending everything on every path is what it is for: no path carries a byte twice.
    OncePerPath,
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
    /// The same for bytes for which somebody waits: because the class or a hint of their stream asks for it, or because
    /// nothing is left to send behind them.
    Race {
        /// Of this stream.
        stream: StreamId,
        /// Not empty.
        range: Range<u64>,
    },
    /// Leave this path idle for now; it is asked again after the next change.
    Idle,
}

/// How many paths the scheduler of that name is made for; nothing if any number, or if there is none of that name.
pub fn most_paths(name: &str) -> Option<usize> {
    by_name(name)?.most_paths()
}

pub(crate) fn by_name(name: &str) -> Option<Box<dyn Scheduler>> {
    Some(match name {
        "fbdt" => Box::new(fbdt::Fbdt::default()),
        "minrtt" => Box::new(minrtt::MinRtt::default()),
        "linux" => Box::new(linux::Linux::default()),
        "blest" => Box::new(blest::Blest::default()),
        "ecf" => Box::new(ecf::Ecf::default()),
        "roundrobin" => Box::new(roundrobin::RoundRobin::default()),
        "redundant" => Box::new(redundant::Redundant::default()),
        "musher" => Box::new(musher::Musher::default()),
        "qaware" => Box::new(qaware::QAware),
        "lrtt" => Box::new(lrtt::LRtt),
        "qdepl" => Box::new(qdepl::QDepl::default()),
        "wrr" => Box::new(wrr::Wrr::default()),
        _ => return None,
    })
}

/// The lowest unsent bytes of the first stream that has any within credit: what schedulers that differ only in
/// the choice of the path send.
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
