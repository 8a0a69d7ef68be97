//! A transmission window and its division among the paths.

use std::ops::Range;

use crate::PathId;
use crate::path::Path;
use crate::scheduler::View;
use crate::stream::Stream;

/// A contiguous range of a stream that the paths work on at once.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) range: Range<u64>,
    /// Each path's share of the unsent bytes at the time of the alignment, ascending; the first one
    /// is forward.
    pub(super) segments: Vec<(PathId, Range<u64>)>,
    /// Change count of the paths at the alignment; none before the first one.
    generation: Option<u64>,
}

impl Window {
    /// A window that no path has worked on.
    pub(super) fn new(range: Range<u64>) -> Self {
        Self {
            range,
            segments: Vec::new(),
            generation: None,
        }
    }

    /// The bytes that `path` takes next, at most `piece`. If it has nothing left to do, the window
    /// is realigned.
    #[expect(
        clippy::too_many_arguments,
        reason = "one call site, which has all of it"
    )]
    pub(super) fn take(
        &mut self,
        path: &Path,
        piece: u64,
        stream: &Stream,
        inside: &Range<u64>,
        forward: Option<PathId>,
        generation: u64,
        view: &View<'_>,
    ) -> Option<Range<u64>> {
        let is_forward = forward == Some(path.id());
        let aligned = (self.generation == Some(generation))
            .then(|| self.part_of(path, stream, inside))
            .flatten();
        let part = aligned.or_else(|| {
            self.generation = Some(generation);
            self.align(stream, forward, inside, view);
            let at_end = || stream.unsent().within(inside.clone()).next_back();
            self.part_of(path, stream, inside).or_else(at_end)
        })?;
        // A share of less than a piece is extended into its neighbors. Otherwise many paths would
        // cut a window into tiny pieces, and the last path that works on one would halve it down to
        // single bytes.
        let fill = piece.saturating_sub(part.end - part.start);
        if fill == 0 {
            return Some(if is_forward {
                part.start..part.start + piece
            } else {
                part.end - piece..part.end
            });
        }
        let mut around = stream.unsent().within(inside.clone());
        let around = around.find(|range| range.end >= part.end)?;
        // First in the path's direction; the rest comes from the other side.
        Some(if is_forward {
            let end = (part.end + fill).min(around.end);
            end.saturating_sub(piece).clamp(around.start, part.start)..end
        } else {
            let start = part.start.saturating_sub(fill).max(around.start);
            start..(start + piece).clamp(part.end, around.end)
        })
    }

    /// Divides the unsent bytes among the active paths, in proportion to their rates.
    fn align(
        &mut self,
        stream: &Stream,
        forward: Option<PathId>,
        inside: &Range<u64>,
        view: &View<'_>,
    ) {
        let mut order: Vec<&Path> = view.active_paths().collect();
        order.sort_by_key(|path| (Some(path.id()) != forward, path.srtt(), path.id()));
        let all_rates: f64 = order.iter().map(|path| path.rate()).sum();
        let unsent: Vec<Range<u64>> = stream.unsent().within(inside.clone()).collect();
        let total: u64 = unsent.iter().map(|range| range.end - range.start).sum();
        // thesis eq. 4.4: a segment is the path's share of the rate times the bytes to be sent.
        // thesis eq. 4.5: its offset is the sum of the segments before it.
        let mut share = 0.0;
        let mut offset = inside.start;
        let last = order.len().saturating_sub(1);
        self.segments.clear();
        for (index, path) in order.iter().enumerate() {
            share += path.rate() / all_rates;
            let end = if index == last {
                inside.end
            } else {
                nth(&unsent, (share * total as f64) as u64)
            };
            let end = end.max(offset);
            self.segments.push((path.id(), offset..end));
            offset = end;
        }
    }

    /// The piece of unsent bytes on which `path` works: the first of its segment for the forward
    /// path, the last for the others.
    fn part_of(&self, path: &Path, stream: &Stream, inside: &Range<u64>) -> Option<Range<u64>> {
        let (index, (_, segment)) = self
            .segments
            .iter()
            .enumerate()
            .find(|(_, (id, _))| *id == path.id())?;
        let segment = segment.start..segment.end.min(inside.end);
        let mut parts = stream.unsent().within(segment);
        if index == 0 {
            parts.next()
        } else {
            parts.next_back()
        }
    }
}

/// The offset below which `count` bytes of `ranges` lie.
fn nth(ranges: &[Range<u64>], mut count: u64) -> u64 {
    for range in ranges {
        let len = range.end - range.start;
        if count < len {
            return range.start + count;
        }
        count -= len;
    }
    ranges.last().map_or(0, |range| range.end)
}
