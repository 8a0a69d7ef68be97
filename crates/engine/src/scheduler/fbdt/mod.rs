//! Forward and backward data transmission (FBDT).
//!
//! Source: the thesis in docs/algorithms.md, chapter 4. A stream is cut into transmission windows.
//! One path, the most reliable of the fast ones, takes a window's bytes from the front upwards;
//! every other path takes the bytes of its segment from the back downwards. The ends move towards
//! each other and meet wherever the paths' real rates let them meet: the split needs no prediction.
//! Predictions only place the segments (eq. 4.4 and 4.5) and keep a path from taking bytes that
//! would arrive sooner without it.
//!
//! Decisions where the text is silent: when a path has nothing to take in the open windows, the
//! next window opens, as far as credit permits, so that no path idles while data is waiting. The
//! size of a window follows the stream's class ([`WindowRule`]).

mod arrival;
mod config;
mod coupling;
mod forward;
mod gap;
mod group;
mod memory;
mod repeat;
mod sorted;
#[cfg(test)]
mod tests;
mod turns;
mod window;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use crate::path::Path;
use crate::scheduler::{Pick, Scheduler, View};
use crate::stream::Stream;
use crate::{PathId, StreamId};

use arrival::{Caution, Forecast, piece};
pub use config::{FbdtConfig, WindowRule};
pub use coupling::Coupling;
use forward::ForwardRole;
use gap::Gaps;
use group::is_in_danger;
use repeat::{Repeats, is_unreliable};
use turns::Turns;
use window::Window;

/// Forward and backward data transmission.
#[derive(Debug, Default)]
pub struct Fbdt {
    /// The open windows of each stream, oldest first.
    windows: BTreeMap<StreamId, VecDeque<Window>>,
    forward: ForwardRole,
    /// Counts changes of the paths: segments with an older count are recomputed.
    generation: u64,
    repeats: Repeats,
    gaps: Gaps,
    turns: Turns,
}

impl Scheduler for Fbdt {
    fn name(&self) -> &'static str {
        "fbdt"
    }

    fn pick(&mut self, path: PathId, budget: u64, view: &View<'_>) -> Pick {
        let Some(asking) = view.path(path) else {
            return Pick::Idle;
        };
        if self.forward.choose(view) {
            self.generation += 1;
        }
        let forward = self.forward.path();
        if !view.fbdt.coupling.lets_send(asking, forward, view) {
            return Pick::Idle;
        }
        if let Some((stream, range)) = self.repeats.race(asking, view) {
            return Pick::Race { stream, range };
        }
        if let Some(late) = self.repeats.late(asking, true, view) {
            return late;
        }
        if let Some(gap) = self.gaps.close(asking, view) {
            self.repeats.repeated(path, view);
            return gap;
        }
        let mut forecast = None;
        let is_forward = forward == Some(path);
        for stream in self.turns.order(asking, is_forward, view) {
            let forecast = forecast.get_or_insert_with(|| Forecast::new(asking, view));
            if let Some(range) = self.pick_in(stream, asking, forecast, budget, view) {
                let race = is_unreliable(asking, view) && view.fbdt.is_raced(stream)
                    || stream.hints().duplicate
                    || is_in_danger(stream, asking, view);
                self.turns
                    .served(stream, range.end - range.start, is_forward);
                self.repeats.sent(path, stream.id(), &range, race, view);
                return Pick::Send {
                    stream: stream.id(),
                    range,
                };
            }
        }
        let repeats = &mut self.repeats;
        let last = repeats
            .late(asking, false, view)
            .or_else(|| repeats.probe(asking, view));
        last.unwrap_or(Pick::Idle)
    }

    fn paths_changed(&mut self) {
        self.generation += 1;
        self.repeats.paths_changed();
        self.gaps.paths_changed();
    }

    fn stream_ready(&mut self, stream: StreamId) {
        self.turns.stream_ready(stream);
    }

    fn stream_gone(&mut self, stream: StreamId) {
        self.windows.remove(&stream);
        self.repeats.stream_gone(stream);
        self.turns.stream_gone(stream);
    }
}

/// Where in a stream a path may take bytes.
#[derive(Clone, Copy, Debug)]
struct Place {
    caution: Caution,
    /// Unsent bytes that must precede the end of the place's window.
    after: u64,
}

impl Place {
    /// The first place that suits the path.
    const FIRST: Self = Self {
        caution: Caution::No,
        after: 0,
    };

    /// The first place that suits the path even if its bytes are as late as they may be.
    const CAUTIOUS: Self = Self {
        caution: Caution::Yes,
        after: 0,
    };

    /// The last place, behind `after` bytes.
    fn last(after: u64) -> Self {
        Self {
            caution: Caution::No,
            after,
        }
    }
}

impl Fbdt {
    /// The bytes of `stream` that `path` should take, if any.
    fn pick_in(
        &mut self,
        stream: &Stream,
        path: &Path,
        forecast: &Forecast,
        budget: u64,
        view: &View<'_>,
    ) -> Option<Range<u64>> {
        let end = view.sendable_end(stream);
        // Whether a path is useful must not depend on its momentary budget: a fast path with little
        // space and a slow one with much could each leave the last bytes to the other.
        let whole = piece(path);
        let piece = whole.min(budget).max(1);
        let windows = self.windows.entry(stream.id()).or_default();
        // A window closes when the peer has all of it: until then a failed path may return bytes to
        // it.
        while windows
            .front()
            .is_some_and(|window| window.range.end <= stream.acknowledged())
        {
            windows.pop_front();
        }
        // Streams share the paths, so this one gets its share of the others' rate.
        let slowdown = self.turns.slowdown(stream);
        // Most paths that ask are useful nowhere. The check at the end of all unsent bytes detects
        // that without examining every window.
        let all = stream.unsent().total_within(0..end);
        let backlog = all as f64 * slowdown;
        if all == 0 || !forecast.may_be_useful(whole.min(all), backlog) {
            return None;
        }
        // While the reader waits for bytes that are later than predicted, all paths stand still.
        // So a path in slow start takes bytes further ahead, or the last ones if more will follow.
        // At the end of an object, the plain prediction decides.
        let has_more = end < stream.send.written || view.is_ahead(stream);
        let (cautious, plain) = match forecast.needs_caution() {
            true if has_more => (true, Place::last(all.saturating_sub(whole))),
            true => (forecast.may_be_cautious(backlog), Place::FIRST),
            false => (false, Place::FIRST),
        };
        let cautious = cautious.then_some(Place::CAUTIOUS);
        let mut places = cautious.into_iter().chain([plain]);
        let pieces = (whole, piece);
        places.find_map(|place| self.pick_at(stream, path, forecast, place, pieces, view))
    }

    /// The bytes of the first window in which `path` is useful: at most the second of the `pieces`,
    /// as the first would be.
    fn pick_at(
        &mut self,
        stream: &Stream,
        path: &Path,
        forecast: &Forecast,
        place: Place,
        (whole, piece): (u64, u64),
        view: &View<'_>,
    ) -> Option<Range<u64>> {
        let end = view.sendable_end(stream);
        let forward = self.forward.path();
        let slowdown = self.turns.slowdown(stream);
        let windows = self.windows.entry(stream.id()).or_default();
        let first = stream.unsent().first().map_or(end, |range| range.start);
        let mut unsent = stream.unsent().within(first..end).peekable();
        let mut left_to_others = 0;
        let mut index = windows.partition_point(|window| window.range.end <= first);
        loop {
            if index == windows.len() {
                let from = windows
                    .back()
                    .map_or(stream.acknowledged(), |window| window.range.end);
                if from >= end {
                    return None;
                }
                let to = end.min(from.saturating_add(view.fbdt.window(stream, view)));
                windows.push_back(Window::new(from..to));
            }
            let window = &mut windows[index];
            let inside = window.range.start..window.range.end.min(end);
            let before = left_to_others;
            // Windows and unsent bytes are traversed in parallel: both may be numerous.
            while let Some(range) = unsent.peek_mut() {
                let to = range.end.min(inside.end);
                left_to_others += to.saturating_sub(range.start);
                if range.end > inside.end {
                    range.start = range.start.max(inside.end);
                    break;
                }
                unsent.next();
            }
            let here = left_to_others - before;
            let backlog = left_to_others as f64 * slowdown;
            let is_useful = |caution| forecast.is_useful(whole.min(here), backlog, caution);
            if here > 0
                && left_to_others >= place.after
                && is_useful(Caution::No)
                && is_useful(place.caution)
            {
                return window.take(path, piece, stream, &inside, forward, self.generation, view);
            }
            index += 1;
        }
    }
}
