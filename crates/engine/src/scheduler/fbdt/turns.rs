//! Whose turn it is: streams share the paths by weight, and those that are about to miss a deadline come first.
//!
//! Start-time fair queueing (Goyal, Vin and Cheng, "Start-time fair queueing: a scheduling algorithm for integrated
//! services packet switching networks", SIGCOMM 1996, section 2): a piece starts at the time at which the last one
//! finished, or now if that is over; it finishes after its length divided by the weight; the least start is served.
//!
//! With that, each waits for a piece of every other at most: among hundreds of streams that would be long. So it is done
//! twice (their section 3): among groups of streams of the same weight, a group weighing what its streams do together, and
//! among the streams of a group. Speech then waits for a piece of each other group, however many streams these have.
//!
//! The forward path has turns of its own. If all paths had the same, these would fall into step with the paths: of two streams over two
//! paths of one rate each path would always meet the same one, and the other path's would be sent from its end only, window
//! after window, while its reader waits. The other paths give first to whoever has had least over any.

use std::collections::BTreeMap;
use std::time::Duration;

use super::arrival::arrival;
use super::crowd::Crowd;
use crate::path::Path;
use crate::scheduler::View;
use crate::stream::Stream;
use crate::{Class, StreamId};

/// Streams that are compared for one piece; where more have something to send, they are kept in order.
pub(super) const COMPARED: usize = 64;

/// Deadlines are in danger when what is left of them is less than so many times what the bytes take (docs/fbdt.md, "Other
/// constants").
const HASTE: f64 = 4.0;

/// The largest step of priority either way.
const PRIORITIES: i8 = 7;

/// Weights that streams may have: powers of two from the least important bulk to the most important speech.
pub(super) const GROUPS: usize = 21;

/// Who has had how much.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Turns at the forward path, by what that has had.
    pub(super) forward: Queue,
    /// Turns at the others, by what any path has had.
    others: Queue,
    /// How many streams of each weight can send, as of the last order.
    streams: [usize; GROUPS],
    /// The sum of their weights.
    weights: f64,
}

/// Who is next.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The virtual time of the paths, in bytes at weight 1.
    clock: f64,
    groups: [Group; GROUPS],
    /// When each stream's last piece finishes in the time of its group, and which that is.
    finished: BTreeMap<StreamId, (usize, f64)>,
    /// Where there are more than can be compared each time.
    pub(super) crowd: Option<Crowd>,
}

/// The streams of one weight.
#[derive(Debug, Default)]
struct Group {
    /// When its last piece finishes, in the time of the paths.
    finished: f64,
    /// The virtual time of its streams, in bytes of each.
    clock: f64,
}

impl Turns {
    /// The streams that have something to send, or the first of them, in the order in which `path` should serve them, which is
    /// the forward one or not.
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
        // Most often there is one.
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
        // What it has next is wanted at another time.
        if stream.wanted_at().is_some() {
            self.stream_ready(stream.id());
        }
    }

    /// A stream has something to send again.
    pub(super) fn stream_ready(&mut self, stream: StreamId) {
        for queue in [&mut self.forward, &mut self.others] {
            if let Some(crowd) = &mut queue.crowd {
                crowd.note(stream);
            }
        }
    }

    /// A stream is gone.
    pub(super) fn stream_gone(&mut self, stream: StreamId) {
        self.forward.finished.remove(&stream);
        self.others.finished.remove(&stream);
    }

    /// How many times as long as alone `stream` takes, since others have their share.
    pub(super) fn slowdown(&self, stream: &Stream) -> f64 {
        (self.weights / weight_of(group_of(stream))).max(1.0)
    }
}

impl Queue {
    /// The streams in order; `counts` becomes how many of each weight there are.
    fn order<'a>(
        &mut self,
        path: &Path,
        view: &View<'a>,
        counts: &mut [usize; GROUPS],
    ) -> Vec<&'a Stream> {
        if view.ready.len() > COMPARED {
            let mut crowd = self.crowd.take().unwrap_or_default();
            let start = |stream, group| self.start(stream, group);
            let order = crowd.order(path, view, start, |group| self.group_start(group));
            *counts = crowd.counts();
            self.crowd = Some(crowd);
            return order;
        }
        self.crowd = None;
        let ready = view.ready_streams();
        let mut order: Vec<_> = ready.filter(|stream| can_send(stream, view)).collect();
        // Nobody is compared with a single one.
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
            // Of two groups the more important one.
            (due, key_of(self.group_start(group)), GROUPS - group, start)
        });
        order
    }

    /// A piece of `stream`, which is one of so many `alike`, is sent.
    fn served(&mut self, stream: &Stream, bytes: u64, alike: usize) {
        let (index, bytes) = (group_of(stream), bytes as f64);
        let group_start = self.group_start(index);
        self.clock = group_start;
        let group = &mut self.groups[index];
        let finished = self.finished.entry(stream.id()).or_default();
        // What it had in another group counts for nothing in this one.
        let before = if finished.0 == index { finished.1 } else { 0.0 };
        group.clock = before.max(group.clock);
        *finished = (index, group.clock + bytes);
        let weight = weight_of(index) * alike as f64;
        group.finished = group_start + bytes / weight;
    }

    /// When the next piece of `stream` starts among those of its group.
    pub(super) fn start(&self, stream: StreamId, group: usize) -> f64 {
        let clock = self.groups[group].clock;
        match self.finished.get(&stream) {
            Some((at, finished)) if *at == group => finished.max(clock),
            _ => clock,
        }
    }

    /// When the next piece of the group starts.
    fn group_start(&self, group: usize) -> f64 {
        self.groups[group].finished.max(self.clock)
    }
}

/// Orders as the time does, which is not negative.
pub(super) fn key_of(start: f64) -> u64 {
    start.to_bits()
}

/// The group of streams that weigh the same. A stream's share of the forward path, and of all paths where all streams may be
/// sent over all of them, is its weight divided by the sum of all weights: 64, 16, 8 or 1 by its class, and twice as much for
/// each step of its priority.
pub(super) fn group_of(stream: &Stream) -> usize {
    let class = match stream.class() {
        Class::Conversational => 6,
        Class::Streaming => 4,
        Class::Interactive => 3,
        Class::Background => 0,
    };
    let priority = stream.hints().priority.clamp(-PRIORITIES, PRIORITIES);
    (class + priority + PRIORITIES) as usize
}

fn weight_of(group: usize) -> f64 {
    f64::from(1_u32 << group) / f64::from(1_u32 << PRIORITIES)
}

/// Whether credit lets `stream` send anything. Streams that nobody reads may wait for it in great number.
pub(super) fn can_send(stream: &Stream, view: &View<'_>) -> bool {
    let first = stream.unsent().first();
    first.is_some_and(|first| first.start < view.sendable_end(stream))
}

/// Whether the next bytes of `stream` can still be in time, but hardly.
pub(super) fn is_in_danger(stream: &Stream, path: &Path, view: &View<'_>) -> bool {
    stream.wanted_at().is_some_and(|wanted| {
        let takes = arrival(path, stream.unsent().total(), view);
        let left = wanted.saturating_sub(view.now).as_secs_f64();
        left > 0.0 && left < HASTE * takes
    })
}
