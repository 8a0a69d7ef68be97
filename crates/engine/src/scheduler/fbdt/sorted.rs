//! The order of many ready streams, kept sorted so that the cost of a piece does not depend on
//! their number.

use std::array;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::Duration;

use super::group::{GROUPS, can_send, group_of, is_in_danger, key_of};
use crate::path::Path;
use crate::scheduler::View;
use crate::stream::Stream;
use crate::{Instant, StreamId};

/// Interval after which all streams are examined again: a class may have changed, or credit may
/// have arrived without a notification.
const RENEWED: Duration = Duration::from_millis(100);

/// Streams offered for one piece, in addition to urgent ones: a path that is not useful for one may
/// be for another.
const FIRST: usize = 16;

/// Deadlines examined for one piece: some streams may not send, and others are in no danger.
const FIRST_DUE: usize = 4 * FIRST;

/// Number of changes beyond which all streams are examined again.
const MAX_CHANGED: usize = 4096;

/// The ready streams, in order.
#[derive(Debug, Default)]
pub(super) struct SortedStreams {
    /// For each group, the start of each stream's next piece when the stream was last examined; it
    /// has only grown since.
    by_start: [BTreeSet<(u64, StreamId)>; GROUPS],
    /// For each stream with a deadline, that of its next byte, as of the last examination.
    by_due: BTreeSet<(Instant, StreamId)>,
    /// Streams that have changed since then.
    fresh: Vec<StreamId>,
    /// Time at which all streams were last examined, and the session's credit at that time.
    renewed: Option<(Instant, u64)>,
}

impl SortedStreams {
    /// Records that the position of `stream` may have changed.
    pub(super) fn note(&mut self, stream: StreamId) {
        if self.fresh.len() < MAX_CHANGED {
            self.fresh.push(stream);
        } else {
            self.renewed = None;
        }
    }

    /// Approximate number of streams in each group.
    pub(super) fn counts(&self) -> [usize; GROUPS] {
        array::from_fn(|group| self.by_start[group].len())
    }

    /// The first streams in the order in which `path` should serve them, by the start of their
    /// pieces in their groups and of the groups.
    pub(super) fn order<'a>(
        &mut self,
        path: &Path,
        view: &View<'a>,
        start: impl Fn(StreamId, usize) -> f64,
        group_start: impl Fn(usize) -> f64,
    ) -> Vec<&'a Stream> {
        self.refresh(view, &start);
        let mut order = self.urgent_streams(path, view);
        let has_any = |group: &usize| !self.by_start[*group].is_empty();
        let mut groups: Vec<usize> = (0..GROUPS).rev().filter(has_any).collect();
        groups.sort_by_key(|group| key_of(group_start(*group)));
        let mut kept = Vec::with_capacity(FIRST + GROUPS);
        // The first one of each group, then the second one, and so on.
        let most = order.len() + FIRST;
        while order.len() < most && !groups.is_empty() {
            groups.retain(|group| {
                let next = self.take(*group, view, &start);
                order.extend(next.map(|(_, stream)| stream));
                kept.extend(next.map(|(key, stream)| (*group, (key, stream.id()))));
                next.is_some()
            });
        }
        for (group, entry) in kept {
            self.by_start[group].insert(entry);
        }
        order
    }

    /// Takes out the first stream of a group.
    fn take<'a>(
        &mut self,
        group: usize,
        view: &View<'a>,
        start: impl Fn(StreamId, usize) -> f64,
    ) -> Option<(u64, &'a Stream)> {
        // No piece starts before the group's own time, so a stream with a piece that starts now is
        // the first, no matter when it was last examined.
        let earliest = key_of(start(StreamId::MAX, group));
        while let Some((key, id)) = self.by_start[group].pop_first() {
            // A stream that cannot send is reported again once it can.
            let Some(stream) = view.stream(id).filter(|stream| can_send(stream, view)) else {
                continue;
            };
            let now = key_of(start(id, group_of(stream)));
            if group_of(stream) == group && (now == key || now == earliest) {
                return Some((now, stream));
            }
            self.by_start[group_of(stream)].insert((now, id));
        }
        None
    }

    fn refresh(&mut self, view: &View<'_>, start: impl Fn(StreamId, usize) -> f64) {
        let is_as_known =
            |(at, granted): (Instant, u64)| view.now < at + RENEWED && granted == view.granted;
        let enter = |stream: &Stream, this: &mut Self| {
            let group = group_of(stream);
            let key = key_of(start(stream.id(), group));
            this.by_start[group].insert((key, stream.id()));
            let wanted_at = stream.wanted_at().map(|at| (at, stream.id()));
            this.by_due.extend(wanted_at);
        };
        if self.renewed.is_some_and(is_as_known) {
            let fresh = std::mem::take(&mut self.fresh);
            let streams = fresh.iter().filter_map(|id| view.stream(*id));
            let streams = streams.filter(|stream| can_send(stream, view));
            streams.for_each(|stream| enter(stream, self));
        } else {
            *self = Self {
                renewed: Some((view.now, view.granted)),
                ..Self::default()
            };
            let streams = view.ready_streams();
            let streams = streams.filter(|stream| can_send(stream, view));
            streams.for_each(|stream| enter(stream, self));
        }
    }

    /// Streams that are about to miss a deadline, the earliest one first.
    fn urgent_streams<'a>(&mut self, path: &Path, view: &View<'a>) -> Vec<&'a Stream> {
        // Streams past their deadline get no preference.
        let late = Bound::Excluded((view.now, StreamId::MAX));
        let next = self.by_due.range((late, Bound::Unbounded));
        let next: Vec<_> = next.take(FIRST_DUE).copied().collect();
        let mut urgent_streams = Vec::new();
        for entry in next {
            let stream = view.stream(entry.1);
            let wanted_at = stream.and_then(Stream::wanted_at);
            if wanted_at != Some(entry.0) {
                self.by_due.remove(&entry);
                self.by_due.extend(wanted_at.map(|at| (at, entry.1)));
            }
            let in_danger = |s: &&Stream| can_send(s, view) && is_in_danger(s, path, view);
            urgent_streams.extend(stream.filter(in_danger));
        }
        urgent_streams.sort_by_key(|stream| stream.wanted_at());
        urgent_streams
    }
}
