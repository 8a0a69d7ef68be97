//! Groups of streams with the same weight, and what puts a stream before others.

use super::arrival::arrival;
use crate::Class;
use crate::path::Path;
use crate::scheduler::View;
use crate::stream::Stream;

/// A deadline is in danger when the remaining time is less than this many times the time for the
/// bytes (docs/fbdt.md, "Other constants").
const DEADLINE_MARGIN: f64 = 4.0;

/// Largest step of priority in either direction.
const PRIORITIES: i8 = 7;

/// Number of different weights: powers of two from the least important bulk to the most important
/// speech.
pub(super) const GROUPS: usize = 21;

/// A key with the same order as the time, which is not negative.
pub(super) fn key_of(start: f64) -> u64 {
    start.to_bits()
}

/// The group of streams with the same weight. A stream's share of the forward path is its weight
/// divided by the sum of all weights; so is its share of all paths if all streams may be sent over
/// all of them. The weight is 64, 16, 8 or 1 by class, doubled for each step of priority.
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

pub(super) fn weight_of(group: usize) -> f64 {
    f64::from(1_u32 << group) / f64::from(1_u32 << PRIORITIES)
}

/// Whether credit permits `stream` to send anything. Many streams without a reader may wait for
/// credit.
pub(super) fn can_send(stream: &Stream, view: &View<'_>) -> bool {
    let first = stream.unsent().first();
    first.is_some_and(|first| first.start < view.sendable_end(stream))
}

/// Whether the next bytes of `stream` can only just meet their deadline.
pub(super) fn is_in_danger(stream: &Stream, path: &Path, view: &View<'_>) -> bool {
    stream.wanted_at().is_some_and(|wanted| {
        let takes = arrival(path, stream.unsent().total(), view);
        let left = wanted.saturating_sub(view.now).as_secs_f64();
        left > 0.0 && left < DEADLINE_MARGIN * takes
    })
}
