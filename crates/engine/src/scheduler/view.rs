//! The view of a scheduler: the paths, and the streams of the classes that it serves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::fbdt::FbdtConfig;
use crate::path::{Path, PathState, Paths};
use crate::policy::Priority;
use crate::share::Share;
use crate::stream::Stream;
use crate::writers::Writers;
use crate::{Class, Instant, PathId, StreamId};

/// The state that a scheduler can read.
#[derive(Debug)]
pub struct View<'a> {
    /// The current time.
    pub now: Instant,
    pub(crate) paths: &'a Paths,
    pub(crate) streams: &'a BTreeMap<StreamId, Stream>,
    /// Streams with unsent bytes.
    pub(crate) ready: &'a BTreeSet<StreamId>,
    /// Programs with more to write than the send buffers of their streams take.
    pub(crate) writers: &'a Writers,
    /// The classes with visible streams.
    pub(crate) classes: ClassSet,
    /// The stream that was served last.
    pub(crate) last_served: StreamId,
    /// Bytes that may still be sent beyond the highest offsets so far, over all streams.
    pub(crate) credit: u64,
    /// Total bytes that the peer permits the session to send; it only grows.
    pub(crate) granted: u64,
    /// How streams share the peer's memory.
    pub(crate) share: Share,
    /// Bytes that may be duplicated now if they are not urgent; negative after an advance.
    pub(crate) repeat_balance: i64,
    /// [`Redundancy::advance`](crate::Redundancy::advance).
    pub(crate) advance: Duration,
    /// Bytes that may be duplicated now if they are urgent.
    pub(crate) race_budget: u64,
    /// Bytes that the asking path has been handed since its sample was taken.
    pub(crate) handed: u64,
    /// Most bytes that one session may buffer.
    pub(crate) memory: u64,
    /// Settings of the `fbdt` scheduler.
    pub(crate) fbdt: &'a FbdtConfig,
}

impl<'a> View<'a> {
    /// The delivering paths that may carry data now. Secondary paths count while the primary ones
    /// have too much data or none of them delivers. Backups count while no other path delivers, and
    /// parked paths while no other of their priority does.
    pub fn active_paths(&self) -> impl Iterator<Item = &'a Path> + use<'a> {
        let paths = self.paths;
        paths.values().filter(move |path| may_work(paths, path))
    }

    /// The path with this number; it may be stalled.
    pub fn path(&self, id: PathId) -> Option<&'a Path> {
        self.paths.get(&id)
    }

    /// The stream with this number.
    pub fn stream(&self, id: StreamId) -> Option<&'a Stream> {
        let stream = self.streams.get(&id)?;
        self.classes.has(stream.class).then_some(stream)
    }

    /// Streams with unsent bytes, in turns, starting after the one that was served last.
    pub fn ready_streams(&self) -> impl Iterator<Item = &'a Stream> + '_ {
        let after = self.ready.range(self.last_served.saturating_add(1)..);
        let before = self.ready.range(..=self.last_served);
        after.chain(before).filter_map(|id| self.stream(*id))
    }

    /// Whether the program is known to have more to write to the stream.
    pub fn is_ahead(&self, stream: &Stream) -> bool {
        self.writers.is_ahead(stream.id())
    }

    /// Streams with a program that waits for space in the send buffer.
    pub fn blocked_streams(&self) -> impl Iterator<Item = &'a Stream> + '_ {
        self.writers
            .blocked()
            .iter()
            .filter_map(|id| self.stream(*id))
    }

    /// All streams, with or without unsent bytes.
    pub fn all_streams(&self) -> impl Iterator<Item = &'a Stream> + use<'a> {
        let classes = self.classes;
        let streams = self.streams.values();
        streams.filter(move |stream| classes.has(stream.class))
    }

    /// How many streams have unsent bytes.
    pub fn ready_count(&self) -> usize {
        match self.classes {
            ClassSet::ALL => self.ready.len(),
            _ => self.ready_streams().count(),
        }
    }

    /// Offset up to which credit permits `stream` to send now.
    ///
    /// The bytes that a stream has sent since its latest credit count as held by it, so streams
    /// without a reader leave some of the session's credit to the others.
    pub fn sendable_end(&self, stream: &Stream) -> u64 {
        stream.send.written.min(self.credit_end(stream))
    }

    /// Unacknowledged bytes that the peer permits `stream`, written or not: the equivalent of a
    /// send window in TCP.
    pub fn send_window(&self, stream: &Stream) -> u64 {
        self.credit_end(stream).saturating_sub(stream.send.base)
    }

    /// Bytes of all streams that may be duplicated now if they are not urgent ([`Pick::Repeat`]).
    ///
    /// [`Pick::Repeat`]: super::Pick::Repeat
    pub fn repeat_budget(&self) -> u64 {
        self.repeat_balance.max(0) as u64
    }

    /// Bytes that may be duplicated now to close a gap behind which the receiver needs more reorder
    /// memory than it must ([`Redundancy::advance`]).
    ///
    /// [`Redundancy::advance`]: crate::Redundancy::advance
    pub fn gap_budget(&self) -> u64 {
        let advance = (self.rate() * self.advance.as_secs_f64()) as i64;
        self.repeat_balance.saturating_add(advance).max(0) as u64
    }

    /// Bytes of all streams that may be duplicated now if they are urgent ([`Pick::Race`]).
    ///
    /// [`Pick::Race`]: super::Pick::Race
    pub fn race_budget(&self) -> u64 {
        self.race_budget
    }

    /// Bytes that the asking path has been handed since its sample was taken.
    pub fn handed(&self) -> u64 {
        self.handed
    }

    /// Bytes that `path` has been handed since its sample was taken: 0 for every path but `asking`.
    pub fn handed_to(&self, path: &Path, asking: PathId) -> u64 {
        match path.id() == asking {
            true => self.handed,
            false => 0,
        }
    }

    /// Bandwidth-delay product in bytes: the sum of the delivering paths' rates times the largest
    /// round-trip time.
    pub fn bandwidth_delay(&self) -> f64 {
        let rtt = self.active_paths().map(Path::srtt).max();
        self.rate() * rtt.unwrap_or_default().as_secs_f64()
    }

    /// Bytes per second of all delivering paths together.
    pub fn rate(&self) -> f64 {
        self.active_paths().map(Path::rate).sum()
    }

    /// Bytes that the session may buffer on either side.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Whether credit permits any unsent byte to be sent.
    pub(crate) fn can_send(&self) -> bool {
        self.ready_streams().any(|stream| {
            let first = stream.unsent().first();
            first.is_some_and(|first| first.start < self.sendable_end(stream))
        })
    }

    fn credit_end(&self, stream: &Stream) -> u64 {
        let since = stream.send.highest - stream.send.highest_at_credit;
        let share = self.share.more(since, self.credit);
        let by_session = stream.send.highest.saturating_add(share);
        stream.send.limit.min(by_session)
    }
}

/// Whether `path` delivers, and no path of a higher rank does.
pub(crate) fn may_work(paths: &Paths, path: &Path) -> bool {
    let delivers = |path: &Path| path.state == PathState::Active;
    let rank = |path: &Path| path.selected_rank().filter(|_| delivers(path));
    rank(path).is_some_and(|own| {
        own == (Priority::Primary, false)
            || paths.values().filter_map(rank).all(|other| other >= own)
    })
}

/// A set of traffic classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClassSet(u8);

impl ClassSet {
    pub(crate) const ALL: Self = Self(0b1111);
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn with(self, class: Class) -> Self {
        Self(self.0 | 1 << class.code())
    }

    pub(crate) fn has(self, class: Class) -> bool {
        self.0 & 1 << class.code() != 0
    }
}
