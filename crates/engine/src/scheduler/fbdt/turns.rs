//! The order of streams: they share the paths by weight, and those that are about to miss a
//! deadline come first.
//!
//! Start-time fair queueing (Goyal, Vin and Cheng, "Start-time fair queueing: a scheduling
//! algorithm for integrated services packet switching networks", SIGCOMM 1996, section 2): a piece
//! starts when the previous one finished, or now if that is over. It finishes after its length
//! divided by the weight. The piece with the earliest start is served.
//!
//! Each stream then waits for at most one piece of every other, which would be long among hundreds
//! of streams. So the queueing has two levels (their section 3): among groups of streams with the
//! same weight, where a group has the sum of its streams' weights, and among the streams of a
//! group. Speech then waits for one piece of each other group, however many streams these have.
//!
//! The forward path has separate turns. If all paths shared them, turns would synchronize with the
//! paths. With two streams over two paths of the same rate, each path would always get the same
//! stream. The other path's stream would be sent from its end only, window after window, while its
//! reader waits. The other paths serve the stream with the least service over any path first.

use std::collections::BTreeMap;
use std::time::Duration;

use super::group::{GROUPS, can_send, group_of, is_in_danger, key_of, weight_of};
use super::sorted::SortedStreams;
use crate::StreamId;
use crate::path::Path;
use crate::scheduler::View;
use crate::stream::Stream;

/// Most streams that are compared for one piece; a larger number is kept sorted.
pub(super) const COMPARED: usize = 64;

/// The service that each stream has had.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Turns at the forward path, by the service over it.
    pub(super) forward: Queue,
    /// Turns at the other paths, by the service over any path.
    others: Queue,
    /// Number of streams of each weight that can send, as of the last order.
    streams: [usize; GROUPS],
    /// The sum of their weights.
    weights: f64,
}

/// The order of the next pieces.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The virtual time of the paths, in bytes at weight 1.
    clock: f64,
    groups: [Group; GROUPS],
    /// Group of each stream, and the time in the group at which the stream's last piece finishes.
    finished: BTreeMap<StreamId, (usize, f64)>,
    /// Sorted streams, if there are too many to compare each time.
    pub(super) sorted: Option<SortedStreams>,
}

/// The streams of one weight.
#[derive(Debug, Default)]
struct Group {
    /// Time of the paths at which the group's last piece finishes.
    finished: f64,
    /// The virtual time of its streams, in bytes of each.
    clock: f64,
}

impl Turns {
    /// The ready streams, or the first of them, in the order in which `path` should serve them;
    /// `is_forward` if it is the forward path.
    pub(super) fn order<'a>(
        &mut self,
        path: &Path,
        is_forward: bool,
        view: &View<'a>,
    ) -> Vec<&'a Stream> {
        let queue = if is_forward {
            &mut self.forward
        } else {
            &mut self.others
        };
        let order = queue.order(path, view, &mut self.streams);
        // Usually there is only one.
        if let [stream] = order[..] {
            self.weights = weight_of(group_of(stream));
        } else {
            let groups = self.streams.iter().enumerate();
            let weights = groups.map(|(group, streams)| weight_of(group) * *streams as f64);
            self.weights = weights.sum();
        }
        order
    }

    /// A piece of `stream` is sent, over the forward path or another one.
    pub(super) fn served(&mut self, stream: &Stream, bytes: u64, is_forward: bool) {
        let alike = self.streams[group_of(stream)].max(1);
        if is_forward {
            self.forward.served(stream, bytes, alike);
        }
        self.others.served(stream, bytes, alike);
        // Its next byte has another deadline.
        if stream.wanted_at().is_some() {
            self.stream_ready(stream.id());
        }
    }

    /// A stream has data to send again.
    pub(super) fn stream_ready(&mut self, stream: StreamId) {
        for queue in [&mut self.forward, &mut self.others] {
            if let Some(sorted) = &mut queue.sorted {
                sorted.note(stream);
            }
        }
    }

    /// A stream has ended.
    pub(super) fn stream_gone(&mut self, stream: StreamId) {
        self.forward.finished.remove(&stream);
        self.others.finished.remove(&stream);
    }

    /// Factor by which `stream` takes longer than alone, since others have their share.
    pub(super) fn slowdown(&self, stream: &Stream) -> f64 {
        (self.weights / weight_of(group_of(stream))).max(1.0)
    }
}

impl Queue {
    /// The streams in order; `counts` is set to the number of streams of each weight.
    fn order<'a>(
        &mut self,
        path: &Path,
        view: &View<'a>,
        counts: &mut [usize; GROUPS],
    ) -> Vec<&'a Stream> {
        if view.ready.len() > COMPARED {
            let mut sorted = self.sorted.take().unwrap_or_default();
            let start = |stream, group| self.start(stream, group);
            let order = sorted.order(path, view, start, |group| self.group_start(group));
            *counts = sorted.counts();
            self.sorted = Some(sorted);
            return order;
        }
        self.sorted = None;
        let ready = view.ready_streams();
        let mut order: Vec<_> = ready.filter(|stream| can_send(stream, view)).collect();
        // A single stream needs no comparison.
        if let [stream] = order[..] {
            counts[group_of(stream)] = 1;
            return order;
        }
        *counts = [0; GROUPS];
        let groups = order.iter().map(|stream| group_of(stream));
        groups.for_each(|group| counts[group] += 1);
        order.sort_by_cached_key(|stream| {
            let hurry = is_in_danger(stream, path, view).then(|| stream.wanted_at());
            let due = hurry.flatten().unwrap_or(Duration::MAX);
            let group = group_of(stream);
            let start = key_of(self.start(stream.id(), group));
            // Of two groups the more important one comes first.
            (due, key_of(self.group_start(group)), GROUPS - group, start)
        });
        order
    }

    /// A piece of `stream` is sent, which is one of `alike` streams of its weight.
    fn served(&mut self, stream: &Stream, bytes: u64, alike: usize) {
        let (index, bytes) = (group_of(stream), bytes as f64);
        let group_start = self.group_start(index);
        self.clock = group_start;
        let group = &mut self.groups[index];
        let finished = self.finished.entry(stream.id()).or_default();
        // Service in another group does not count in this one.
        let before = if finished.0 == index { finished.1 } else { 0.0 };
        group.clock = before.max(group.clock);
        *finished = (index, group.clock + bytes);
        let weight = weight_of(index) * alike as f64;
        group.finished = group_start + bytes / weight;
    }

    /// Start of the next piece of `stream` among those of its group.
    pub(super) fn start(&self, stream: StreamId, group: usize) -> f64 {
        let clock = self.groups[group].clock;
        match self.finished.get(&stream) {
            Some((at, finished)) if *at == group => finished.max(clock),
            _ => clock,
        }
    }

    /// Start of the group's next piece.
    fn group_start(&self, group: usize) -> f64 {
        self.groups[group].finished.max(self.clock)
    }
}
