//! Predictions: when bytes handed to a path now are at the peer, and whether they had better go over others.

use std::ops::Range;
use std::time::Duration;

use crate::path::Path;
use crate::scheduler::View;

/// Smallest and largest piece that a path takes at once: small enough that the ends meet closely and that a slow path
/// holds up little, large enough that a fast path fills its records and offload batches.
const PIECE: Range<u64> = 4 * 1024..64 * 1024;

/// A piece lasts about this long on its path.
const PIECE_TIME: Duration = Duration::from_millis(2);

/// It takes two round trips and this to notice that a path is dead.
const UNPROVEN: Duration = Duration::from_millis(150);

/// No path is taken for so many times faster than it is now, since nobody knows where its window will end.
const MOST_GROWTH: f64 = 16.0;

/// What a path takes at once.
pub(super) fn piece(path: &Path) -> u64 {
    let by_time = path.rate() * PIECE_TIME.as_secs_f64();
    (by_time as u64).clamp(PIECE.start, PIECE.end)
}

/// Whether `piece` bytes on `path` arrive no later than the `backlog` up to the end of their window would if the
/// other paths carried it all: only then the path brings delivery forward.
pub(super) fn is_welcome(path: &Path, piece: u64, backlog: f64, view: &View<'_>) -> bool {
    let here = arrival(path, piece + view.handed(), view);
    arrival_without(path, piece, backlog, view).is_none_or(|there| here <= there)
}

/// How many times faster than now `path` is on average while it carries `backlog`.
///
/// In slow start a window leaves at once, and the next one, twice as large, a round trip later (RFC 5681, section
/// 3.1): n bytes leave within log2(1 + n / window) - 1 round trips, not n / window. A path that was measured is past
/// it, as far as anybody knows.
fn growth(path: &Path, backlog: f64) -> f64 {
    if !path.is_new() {
        return 1.0;
    }
    let windows = backlog / (path.rate() * path.srtt().as_secs_f64());
    let round_trips = (1.0 + windows).log2() - 1.0;
    if windows < MOST_GROWTH * round_trips {
        (windows / round_trips).max(1.0)
    } else {
        MOST_GROWTH
    }
}

/// Time until a byte handed to `path` now is at the peer. What is late holds up what comes behind it; and a path that has
/// never delivered anything may be dead, so that its bytes come after that has been noticed.
fn delay(path: &Path, view: &View<'_>) -> Duration {
    let doubt = if path.is_proven() {
        Duration::ZERO
    } else {
        UNPROVEN + 2 * path.srtt()
    };
    path.delay() + path.overdue(view.now) + doubt
}

/// Seconds until `piece` bytes handed to `path` now are at the peer.
///
/// By the rate that was measured, if there is one, also where the path has carried too little to show all it can: a
/// small object is not for trying that out.
pub(super) fn arrival(path: &Path, piece: u64, view: &View<'_>) -> f64 {
    delay(path, view).as_secs_f64() + piece as f64 / path.shown_rate()
}

/// Seconds until all paths but `path` together have delivered `backlog` bytes; nothing if there are no others.
///
/// The least T at which the sum of rate * (T - delay) over the others reaches the backlog. Bytes travel in pieces, so
/// it is no sooner than the soonest whole piece: without that bound equal paths would leave the last piece to each
/// other for ever.
fn arrival_without(path: &Path, piece: u64, backlog: f64, view: &View<'_>) -> Option<f64> {
    let others = || view.active_paths().filter(|other| other.id() != path.id());
    let soonest_piece = others()
        .map(|other| arrival(other, piece, view))
        .min_by(f64::total_cmp)?;
    let (mut rate, mut weighted, mut together) = (0.0, 0.0, f64::INFINITY);
    let mut before = None;
    // In ascending order of delay, each path once; there are few, and this is asked for every piece.
    while let Some((next, other)) = others()
        .map(|other| ((delay(other, view), other.id()), other))
        .filter(|(key, _)| before < Some(*key))
        .min_by_key(|(key, _)| *key)
    {
        before = Some(next);
        let delay = next.0.as_secs_f64();
        if delay >= together {
            break;
        }
        let grown = growth(other, backlog) * other.rate();
        rate += grown;
        weighted += grown * delay;
        together = (backlog + weighted) / rate;
    }
    Some(together.max(soonest_piece))
}
