//! Policies: which paths carry the datagrams of a flow.
//!
//! Each policy is one file with a type that implements [`FlowPolicy`], and each flow has its own
//! instance.

mod auto;
mod duplicate;
mod learn;
mod pinned;
mod spread;

use std::fmt::Debug;
use std::time::Duration;

use super::config::DatagramConfig;
use super::path::{DatagramPath, Paths};
use crate::{Class, Instant, PathId};

pub(super) use learn::Learner;

/// How the datagrams of a flow use the paths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DatagramPolicy {
    /// Pinned; spread while one path has no room and others have; calls are duplicated within
    /// [`DuplicateLimits`](super::DuplicateLimits).
    #[default]
    Auto,
    /// One path, the one with the least expected delay. The flow moves when that path is suspect.
    Pinned,
    /// Each datagram takes the path on which it arrives earliest, and the receiver restores the
    /// order.
    Spread,
    /// Each datagram takes the best paths of several links, and the first copy counts.
    Duplicate,
}

impl DatagramPolicy {
    /// All policies.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Pinned, Self::Spread, Self::Duplicate];

    /// The name in configuration files and in the status.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Pinned => "pinned",
            Self::Spread => "spread",
            Self::Duplicate => "duplicate",
        }
    }

    /// The policy with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// The policy for a new flow.
    pub(super) fn start(self, limits: &DatagramConfig) -> Box<dyn FlowPolicy> {
        match self {
            Self::Auto => Box::new(auto::Auto::new(limits.duplicates)),
            Self::Pinned => Box::new(pinned::Pinned::default()),
            Self::Spread => Box::new(spread::Spread::default()),
            Self::Duplicate => Box::new(duplicate::Duplicate::new(limits.duplicates)),
        }
    }
}

/// The state of a flow that a policy decides upon.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// The class by which the flow is treated.
    pub(super) class: Class,
    /// Length of the datagram in question, in bytes.
    pub(super) len: usize,
    /// Bytes in the flow's queue, and those of them at its front that only the fastest path takes.
    pub(super) queued: usize,
    pub(super) numbered: usize,
    /// When the first datagram of the queue was sent by the program.
    pub(super) waits_since: Option<Instant>,
    pub(super) now: Instant,
}

/// Where a new datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placement {
    /// Into the flow's queue, which this path serves.
    One(PathId),
    /// Into the queue, which all usable paths serve.
    Any,
    /// A copy for each of these paths.
    Each(Links),
    /// A copy for the first of these paths, and for others as far as their links permit copies.
    Within(Links),
    /// Into the queue; no path serves it now.
    Nowhere,
}

/// Whether a path takes a datagram of a flow's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// The first one.
    Take,
    /// The first one with this number of bytes before it, for other paths.
    Behind(usize),
    /// Another path delivers it sooner.
    Leave,
    /// The path does not serve the flow any more.
    Unlist,
}

/// Most paths that carry the same datagram.
pub(super) const MAX_COPIES: usize = 8;

/// Paths over different links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Links {
    paths: [Option<PathId>; MAX_COPIES],
}

impl Links {
    pub(super) fn iter(&self) -> impl Iterator<Item = PathId> + '_ {
        self.paths.iter().flatten().copied()
    }

    pub(super) fn push(&mut self, path: PathId) {
        if let Some(free) = self.paths.iter_mut().find(|path| path.is_none()) {
            *free = Some(path);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.iter().count()
    }
}

/// Decides which paths carry the datagrams of one flow.
pub(super) trait FlowPolicy: Debug + Send {
    /// Where a datagram goes that the program has just sent, or the flow's queue after a path has
    /// changed.
    fn place(&mut self, facts: &Facts, paths: &Paths) -> Placement;

    /// Whether `path`, which can carry a packet now, takes a datagram of the queue, and which.
    fn offer(&mut self, facts: &Facts, path: &DatagramPath, paths: &Paths) -> Offer;

    /// The queue that the flow needs to use all its paths, in time and in bytes.
    fn standing(&self, _paths: &Paths, _now: Instant) -> (Duration, usize) {
        (Duration::ZERO, 0)
    }

    /// The policy that applies now.
    fn in_use(&self) -> DatagramPolicy;

    /// The reason, in one sentence without a period.
    fn reason(&self, paths: &Paths) -> String;
}

/// Milliseconds for a reason.
fn ms(time: Duration) -> u128 {
    time.as_millis()
}
