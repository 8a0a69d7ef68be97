//! Whose turn it is: streams share the paths by weight, and those that are about to miss a deadline come first.
//!
//! Start-time fair queueing (Goyal, Vin and Cheng, "Start-time fair queueing: a scheduling algorithm for integrated
//! services packet switching networks", SIGCOMM 1996, section 2): a piece starts at the time at which the stream's
//! last one finished, or now if that is over; it finishes after its length divided by the stream's weight; the least
//! start is served. A stream that begins is served next and keeps its share, however long others have been sending.

use std::collections::BTreeMap;
use std::time::Duration;

use super::arrival::arrival;
use crate::path::Path;
use crate::scheduler::View;
use crate::stream::Stream;
use crate::{Class, StreamId};

/// Streams that are compared for one piece; where more have something to send, the others' turn comes with the next.
const COMPARED: usize = 64;

/// Deadlines are in danger when what is left of them is less than so many times what the bytes take.
const HASTE: f64 = 2.0;

/// The virtual time of the paths, in bytes at weight 1.
#[derive(Debug, Default)]
pub(super) struct Turns {
    clock: f64,
    /// When each stream's last piece finishes.
    finished: BTreeMap<StreamId, f64>,
}

impl Turns {
    /// The streams that have something to send, in the order in which `path` should serve them.
    pub(super) fn order<'a>(&self, path: &Path, view: &View<'a>) -> Vec<&'a Stream> {
        let mut order: Vec<_> = view
            .ready_streams()
            .filter(|stream| can_send(stream, view))
            .take(COMPARED)
            .map(|stream| {
                let hurry = is_in_danger(stream, path, view).then(|| stream.wanted_at());
                let due = hurry.flatten().unwrap_or(Duration::MAX);
                (due, self.start(stream.id()), stream)
            })
            .collect();
        // Most often there is one.
        order.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        order.into_iter().map(|(.., stream)| stream).collect()
    }

    /// A piece of `stream` is sent.
    pub(super) fn served(&mut self, stream: &Stream, bytes: u64) {
        let start = self.start(stream.id());
        self.clock = self.clock.max(start);
        let finish = start + bytes as f64 / weight(stream);
        self.finished.insert(stream.id(), finish);
    }

    /// A stream is gone.
    pub(super) fn stream_gone(&mut self, stream: StreamId) {
        self.finished.remove(&stream);
    }

    fn start(&self, stream: StreamId) -> f64 {
        let finished = self.finished.get(&stream);
        finished.map_or(self.clock, |finished| finished.max(self.clock))
    }
}

/// A stream's share of the paths is its weight divided by the sum of all weights.
pub(super) fn weight(stream: &Stream) -> f64 {
    let class = match stream.class() {
        Class::Conversational => 64.0,
        Class::Streaming => 16.0,
        Class::Interactive => 8.0,
        Class::Background => 1.0,
    };
    class * 2f64.powi(stream.hints().priority.clamp(-7, 7).into())
}

/// How many times as long as alone `stream` takes, since others have their share.
pub(super) fn slowdown(stream: &Stream, view: &View<'_>) -> f64 {
    if view.ready_count() <= 1 {
        return 1.0;
    }
    let compared = view.ready_streams().filter(|stream| can_send(stream, view));
    let all: f64 = compared.take(COMPARED).map(weight).sum();
    (all / weight(stream)).max(1.0)
}

/// Whether credit lets `stream` send anything. Streams that nobody reads may wait for it in great number.
fn can_send(stream: &Stream, view: &View<'_>) -> bool {
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
