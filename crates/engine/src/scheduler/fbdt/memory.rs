//! The reorder memory that a receiver can be expected to need.

use std::time::Duration;

use crate::path::Path;
use crate::scheduler::View;

/// Reorder memory above which gaps are closed by duplicates, as a multiple of the bytes that all
/// paths carry in the longest round trip.
///
/// From 1 to 1.5 the peak of the reorder memory grows with this factor, and the duplicated bytes
/// decrease: docs/fbdt.md.
const REORDER_FACTOR: f64 = 1.25;

/// Lower bound of that memory in bytes: no receiver is short of this much, and the duplicates would
/// be a large part of everything that slow links carry.
const REORDER_MIN: f64 = 524_288.0;

/// Reorder memory in bytes above which a gap holds up the receiver.
pub(super) fn usual_memory(view: &View<'_>) -> u64 {
    let round_trips = view.active_paths().map(|path| round_trip(path, view));
    let longest = round_trips.max().unwrap_or_default().as_secs_f64();
    (REORDER_FACTOR * view.rate() * longest).max(REORDER_MIN) as u64
}

/// The round trip of `path`, or of a late path the one predicted when its oldest bytes were sent.
/// The round trip of a path that has slowed down grows with the data that waits on it and would
/// never elapse.
pub(super) fn round_trip(path: &Path, view: &View<'_>) -> Duration {
    let oldest = path.flights().next().filter(|_| path.is_late(view.now));
    let now = path.srtt();
    oldest.map_or(now, |oldest| now.min(oldest.round_trip))
}
