//! Whose turn it is where many streams have something to send: they are kept in order, so that a piece costs the same
//! however many there are.

use std::array;
use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::Duration;

use super::turns::{GROUPS, can_send, group_of, is_in_danger, key_of};
use crate::path::Path;
use crate::scheduler::View;
use crate::stream::Stream;
use crate::{Instant, StreamId};

/// After this time all streams are looked at again: a class may have changed, or credit have come in a way of which nobody
/// tells.
const RENEWED: Duration = Duration::from_millis(100);

/// So many streams are told of for one piece, beside those in a hurry: a path that is not welcome in one may be in another.
const FIRST: usize = 16;

/// So many deadlines are looked at for one piece: of some nothing may be sent, and others are in no danger.
const FIRST_DUE: usize = 4 * FIRST;

/// Beyond so many changes all streams are looked at again.
const MOST_FRESH: usize = 4096;

/// The streams that have something to send, in order.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    /// For each group when each stream's next piece starts, as it was when the stream was last looked at; it has only grown
    /// since.
    by_start: [BTreeSet<(u64, StreamId)>; GROUPS],
    /// When the next byte of each one with a deadline is wanted, likewise.
    by_due: BTreeSet<(Instant, StreamId)>,
    /// What has changed since.
    fresh: Vec<StreamId>,
    /// When all streams were last looked at, and what the peer had granted the session by then.
    renewed: Option<(Instant, u64)>,
}

impl Crowd {
    /// `stream` may have to be put elsewhere.
    pub(super) fn note(&mut self, stream: StreamId) {
        if self.fresh.len() < MOST_FRESH {
            self.fresh.push(stream);
        } else {
            self.renewed = None;
        }
    }

    /// How many streams each group has, about.
    pub(super) fn counts(&self) -> [usize; GROUPS] {
        array::from_fn(|group| self.by_start[group].len())
    }

    /// The first streams in the order in which `path` should serve them, by when their pieces start in their groups, and
    /// those of the groups.
    pub(super) fn order<'a>(
        &mut self,
        path: &Path,
        view: &View<'a>,
        start: impl Fn(StreamId, usize) -> f64,
        group_start: impl Fn(usize) -> f64,
    ) -> Vec<&'a Stream> {
        self.refresh(view, &start);
        let mut order = self.hurried(path, view);
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
        // Nothing starts before the group's own time: what does so now is the first, however long ago it was looked at.
        let earliest = key_of(start(StreamId::MAX, group));
        while let Some((key, id)) = self.by_start[group].pop_first() {
            // Who cannot send any more is told of when it can.
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

    /// Those that are about to miss a deadline, the earliest one first.
    fn hurried<'a>(&mut self, path: &Path, view: &View<'a>) -> Vec<&'a Stream> {
        // What is late already has no claim.
        let late = Bound::Excluded((view.now, StreamId::MAX));
        let next = self.by_due.range((late, Bound::Unbounded));
        let next: Vec<_> = next.take(FIRST_DUE).copied().collect();
        let mut hurried = Vec::new();
        for entry in next {
            let stream = view.stream(entry.1);
            let wanted_at = stream.and_then(Stream::wanted_at);
            if wanted_at != Some(entry.0) {
                self.by_due.remove(&entry);
                self.by_due.extend(wanted_at.map(|at| (at, entry.1)));
            }
            let in_danger = |s: &&Stream| can_send(s, view) && is_in_danger(s, path, view);
            hurried.extend(stream.filter(in_danger));
        }
        hurried.sort_by_key(|stream| stream.wanted_at());
        hurried
    }
}
