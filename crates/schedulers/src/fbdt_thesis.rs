//! FBDT as the thesis describes it, without the changes of the engine's `fbdt`.
//!
//! Source: the thesis in docs/algorithms.md, sections 4.2.2 and 4.2.3. One transmission window of
//! 64 KB is worked on at a time. The first path sends it from the front, each other path its
//! segment from the back (eq. 4.4, 4.5, algorithm 1). When all of it has been sent, a path with
//! everything acknowledged waits for a round trip of the others, sends what they have not had
//! acknowledged, and the next window begins. docs/notes/fbdt-thesis.md has what each of the rules
//! costs; [`Rules`] replaces them one by one.
//!
//! Where the thesis is silent: streams take turns, each with a window of its own; a path sends at
//! most 16 KiB at a time; the mapping is by the paths' numbers, the first link of a configuration
//! being the reliable one.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use sumlink_engine::scheduler::{Pick, RepeatLimit, Scheduler, View};
use sumlink_engine::{Instant, Path, PathId, RangeSet, Stream, StreamId};

/// Bytes that a path takes at once: approximately a TLS record.
const PIECE: u64 = 16 * 1024;

/// Length of a transmission window (section 4.2.2: 64 KB in all experiments).
const WINDOW: u64 = 64 * 1024;

/// The rules in which `fbdt` deviates from the thesis. The default is the thesis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// A window has two bandwidth-delay products, at least 64 KiB, instead of 64 KiB.
    pub large: bool,
    /// The next window begins when the present one has been sent, not when it is acknowledged or
    /// sent twice.
    pub overlap: bool,
    /// A path never sends bytes that another one has sent.
    pub once: bool,
}

/// FBDT by the letter.
#[derive(Debug, Default)]
pub struct FbdtThesis {
    rules: Rules,
    /// The open windows of each stream, lowest first: one, unless they overlap.
    windows: BTreeMap<StreamId, VecDeque<Window>>,
    /// Counts changes of the paths: older alignments are recomputed.
    generation: u64,
}

impl FbdtThesis {
    /// The scheduler with some rules replaced.
    pub fn with(rules: Rules) -> Self {
        Self {
            rules,
            ..Self::default()
        }
    }

    fn pick_in(&mut self, stream: &Stream, asking: &Path, most: u64, view: &View<'_>) -> Pick {
        let end = view.sendable_end(stream);
        let length = match self.rules.large {
            true => (2.0 * view.bandwidth_delay()).max(WINDOW as f64) as u64,
            false => WINDOW,
        };
        let windows = self.windows.entry(stream.id()).or_default();
        windows.retain(|window| !window.is_over(stream));
        // Bytes of a failed path may lie before the open windows.
        let unsent = stream.unsent().first().map(|range| range.start);
        let first = windows.front().map(|window| window.range.start);
        if let (Some(unsent), Some(first)) = (unsent, first)
            && unsent < first
        {
            windows.push_front(Window::new(unsent..first.min(unsent + length)));
        }
        let mut index = 0;
        loop {
            if index == windows.len() {
                let last = windows.back().map_or(0, |window| window.range.end);
                let Some(next) = stream.unsent().within(last..end.max(last)).next() else {
                    return Pick::Idle;
                };
                windows.push_back(Window::new(next.start..end.min(next.start + length)));
            }
            let window = &mut windows[index];
            if let Some(range) = window.next(stream, asking, most, end, self.generation, view) {
                return Pick::Send {
                    stream: stream.id(),
                    range,
                };
            }
            if !self.rules.once
                && let Some(range) = window.repetition(stream, asking, most, view)
            {
                return Pick::Repeat {
                    stream: stream.id(),
                    range,
                };
            }
            match window.is_over(stream) {
                true => drop(windows.remove(index)),
                false if self.rules.overlap => index += 1,
                false => return Pick::Idle,
            }
        }
    }
}

impl Scheduler for FbdtThesis {
    fn name(&self) -> &'static str {
        "fbdt-thesis"
    }

    fn pick(&mut self, path: PathId, budget: u64, view: &View<'_>) -> Pick {
        let Some(asking) = view.path(path) else {
            return Pick::Idle;
        };
        let most = budget.clamp(1, PIECE);
        for stream in view.ready_streams() {
            let pick = self.pick_in(stream, asking, most, view);
            if pick != Pick::Idle {
                return pick;
            }
        }
        // Streams without unsent bytes have bytes to send twice.
        let open: Vec<StreamId> = self.windows.keys().copied().collect();
        for stream in open.into_iter().filter_map(|id| view.stream(id)) {
            if stream.unsent().is_empty() {
                let pick = self.pick_in(stream, asking, most, view);
                if pick != Pick::Idle {
                    return pick;
                }
            }
        }
        Pick::Idle
    }

    fn paths_changed(&mut self) {
        self.generation += 1;
    }

    fn stream_gone(&mut self, stream: StreamId) {
        self.windows.remove(&stream);
    }

    fn repeat_limit(&self) -> RepeatLimit {
        match self.rules.once {
            true => RepeatLimit::Nothing,
            false => RepeatLimit::OncePerPath,
        }
    }
}

/// A transmission window.
#[derive(Debug)]
struct Window {
    range: Range<u64>,
    /// The part of each path, ascending; the first one is the forward path's.
    segments: Vec<(PathId, Range<u64>)>,
    /// Number of changes of the paths at the alignment; none before the first one.
    generation: Option<u64>,
    /// The bytes that each path has sent.
    sent: BTreeMap<PathId, RangeSet>,
    /// The bytes that a second path has sent.
    repeated: RangeSet,
    /// When everything that the path has sent was found acknowledged, with nothing left to send.
    completed: BTreeMap<PathId, Instant>,
}

impl Window {
    fn new(range: Range<u64>) -> Self {
        Self {
            range,
            segments: Vec::new(),
            generation: None,
            sent: BTreeMap::new(),
            repeated: RangeSet::new(),
            completed: BTreeMap::new(),
        }
    }

    /// Whether the peer has acknowledged all bytes, or two paths carry those that it has not.
    fn is_over(&self, stream: &Stream) -> bool {
        let missing = stream.unacknowledged(self.range.clone());
        let mut missing = missing.into_iter();
        missing.all(|range| self.repeated.covers(range.clone()) && !is_unsent(stream, range))
    }

    /// The unsent bytes that the path sends next, at most `most`.
    fn next(
        &mut self,
        stream: &Stream,
        asking: &Path,
        most: u64,
        end: u64,
        generation: u64,
        view: &View<'_>,
    ) -> Option<Range<u64>> {
        let inside = self.range.start..self.range.end.min(end);
        if inside.is_empty() || !is_unsent(stream, inside.clone()) {
            return None;
        }
        let path = asking.id();
        let is_aligned = self.generation == Some(generation);
        // Algorithm 1, lines 7 to 9: a path without bytes in its segment realigns the window.
        let aligned = is_aligned.then(|| self.part_of(path, stream, &inside));
        let (is_forward, part) = aligned.flatten().or_else(|| {
            self.generation = Some(generation);
            self.align(stream, &inside, view);
            let is_forward = self.segments.first().is_some_and(|(id, _)| *id == path);
            let mut unsent = stream.unsent().within(inside.clone());
            let ends = match is_forward {
                true => unsent.next(),
                false => unsent.next_back(),
            };
            self.part_of(path, stream, &inside)
                .or(ends.map(|range| (is_forward, range)))
        })?;
        let range = match is_forward {
            true => part.start..part.end.min(part.start + most),
            false => part.start.max(part.end.saturating_sub(most))..part.end,
        };
        self.sent.entry(path).or_default().insert(range.clone());
        self.completed.remove(&path);
        Some(range)
    }

    /// Divides the unsent bytes among the paths.
    fn align(&mut self, stream: &Stream, inside: &Range<u64>, view: &View<'_>) {
        let mut paths: Vec<&Path> = view.active_paths().collect();
        paths.sort_by_key(|path| path.id());
        let unsent: Vec<Range<u64>> = stream.unsent().within(inside.clone()).collect();
        let total: u64 = unsent.iter().map(|range| range.end - range.start).sum();
        let all: f64 = paths.iter().map(|path| throughput(path)).sum();
        self.segments.clear();
        let (mut share, mut offset) = (0.0, inside.start);
        let last = paths.len().saturating_sub(1);
        for (index, path) in paths.into_iter().enumerate() {
            // thesis eq. 4.4, with the sum over all paths; eq. 4.5
            share += throughput(path) / all;
            let end = match index == last {
                true => inside.end,
                false => nth(&unsent, (share * total as f64) as u64).max(offset),
            };
            self.segments.push((path.id(), offset..end));
            offset = end;
        }
    }

    /// Whether the path is the forward one, and the unsent bytes in its segment that it has to
    /// send next: the first ones forward, the last ones backward.
    fn part_of(
        &self,
        path: PathId,
        stream: &Stream,
        inside: &Range<u64>,
    ) -> Option<(bool, Range<u64>)> {
        let index = self.segments.iter().position(|(id, _)| *id == path)?;
        let segment = &self.segments[index].1;
        let segment = segment.start..segment.end.min(inside.end).max(segment.start);
        let mut unsent = stream.unsent().within(segment);
        let part = match index == 0 {
            true => unsent.next(),
            false => unsent.next_back(),
        };
        part.map(|range| (index == 0, range))
    }

    /// Bytes of other paths that the path sends as well (section 4.2.2, "In-Order Delivery Across
    /// FBDT Transmission Window"): its own are acknowledged, and it has waited for a round trip of
    /// the others.
    fn repetition(
        &mut self,
        stream: &Stream,
        asking: &Path,
        most: u64,
        view: &View<'_>,
    ) -> Option<Range<u64>> {
        let path = asking.id();
        let mut missing = RangeSet::new();
        for range in stream.unacknowledged(self.range.clone()) {
            missing.insert(range);
        }
        for range in self.repeated.iter() {
            missing.remove(range);
        }
        let carries = |sent: &RangeSet| missing.iter().any(|of| sent.within(of).next().is_some());
        if missing.is_empty() || self.sent.get(&path).is_some_and(carries) {
            self.completed.remove(&path);
            return None;
        }
        let carriers = self.sent.iter().filter(|(_, sent)| carries(sent));
        let round_trips = carriers
            .filter_map(|(id, _)| view.path(*id))
            .map(Path::srtt);
        let wait: Duration = round_trips.max().unwrap_or_default();
        let since = *self.completed.entry(path).or_insert(view.now);
        if view.now < since + wait {
            return None;
        }
        let first = missing.first()?;
        let range = first.start..first.end.min(first.start + most);
        self.repeated.insert(range.clone());
        Some(range)
    }
}

/// thesis eq. 4.2: a path's throughput is its window per round trip.
fn throughput(path: &Path) -> f64 {
    let round_trip = path.srtt().max(Duration::from_millis(1));
    path.cwnd().max(path.mss()) as f64 / round_trip.as_secs_f64()
}

fn is_unsent(stream: &Stream, range: Range<u64>) -> bool {
    stream.unsent().within(range).next().is_some()
}

/// Offset before which `count` of the bytes in `ranges` lie.
fn nth(ranges: &[Range<u64>], mut count: u64) -> u64 {
    for range in ranges {
        let length = range.end - range.start;
        if count <= length {
            return range.start + count;
        }
        count -= length;
    }
    ranges.last().map_or(0, |range| range.end)
}

#[cfg(test)]
mod tests;
