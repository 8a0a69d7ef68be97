//! Predictions: when bytes handed to a path now are at the peer, and whether they had better go over others.

use std::cmp::Ordering;
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

/// Two ways to work out the same moment differ by so much of it at most.
const ROUNDING: f64 = 1e-6;

/// What a path takes at once.
///
/// By the rate that [`Trip::arrival`] goes by: of two paths the faster one then has the larger piece. So among paths that
/// each ask for a piece of their own there is always one that has its piece there first; else all could leave the same
/// bytes to each other for ever.
pub(super) fn piece(path: &Path) -> u64 {
    let by_time = path.shown_rate() * PIECE_TIME.as_secs_f64();
    (by_time as u64).clamp(PIECE.start, PIECE.end)
}

/// When bytes that a path is asked to take would be at the peer over it, and over the others. It is asked for many
/// pieces and windows at one moment, so what holds for all of them is worked out once.
#[derive(Debug)]
pub(super) struct Forecast {
    asking: Trip,
    /// The other delivering paths.
    others: Vec<Trip>,
    /// Bytes that the asking path has been handed at this moment and does not know of yet.
    handed: u64,
}

impl Forecast {
    /// What is known at this moment.
    pub(super) fn new(path: &Path, view: &View<'_>) -> Self {
        let mut others = Vec::with_capacity(view.paths.len());
        let active = view.active_paths().filter(|other| other.id() != path.id());
        others.extend(active.map(|other| Trip::new(other, view)));
        Self {
            asking: Trip::new(path, view),
            others,
            handed: view.handed(),
        }
    }

    /// Whether the asking path may be welcome to some piece of up to `most` bytes, with `backlog` bytes or fewer up to the
    /// end of their window. If not there is no need to look for it.
    pub(super) fn may_be_welcome(&self, most: u64, backlog: f64) -> bool {
        self.is_welcome(1, backlog) || self.may_be_first(most)
    }

    /// Whether the asking path is the first to have some piece of 1 to `most` bytes there. A path of less delay and less
    /// rate is sooner with a small piece, one of more delay and more rate with a large one: there may be one in between.
    fn may_be_first(&self, most: u64) -> bool {
        let (mut least, mut greatest) = (1.0, most as f64);
        let start = self.asking.arrival(self.handed);
        for other in &self.others {
            // start + piece / rate <= delay of the other + piece / rate of the other
            let behind = start - other.delay;
            let gain = 1.0 / other.shown_rate - 1.0 / self.asking.shown_rate;
            match gain.total_cmp(&0.0) {
                Ordering::Greater => least = f64::max(least, behind / gain),
                Ordering::Less => greatest = f64::min(greatest, behind / gain),
                Ordering::Equal if behind > 0.0 => return false,
                Ordering::Equal => {}
            }
        }
        least <= greatest * (1.0 + ROUNDING)
    }

    /// Whether `piece` bytes on the asking path arrive no later than the `backlog` up to the end of their window would
    /// if the other paths carried it all: only then the path brings delivery forward.
    pub(super) fn is_welcome(&self, piece: u64, backlog: f64) -> bool {
        let here = self.asking.arrival(piece + self.handed);
        // Bytes travel in pieces: without this, equal paths would leave the last piece to each other for ever.
        let is_first = || {
            let mut others = self.others.iter();
            others.all(|other| here <= other.arrival(piece))
        };
        // The others have the backlog there at the least T at which the sum of rate * (T - delay) reaches it. That T is
        // no sooner than `here` if the sum at `here` does not exceed the backlog; no need to find it.
        let by_then = |rate: &dyn Fn(&Trip) -> f64| -> f64 {
            let carried = |other: &Trip| (here - other.delay).max(0.0) * rate(other);
            self.others.iter().map(carried).sum()
        };
        // No path becomes slower while it carries the backlog, so most often the logarithms are not needed.
        is_first()
            || by_then(&|other| other.rate) <= backlog
                && by_then(&|other| other.mean_rate(backlog)) <= backlog
    }
}

/// What a path makes of bytes.
#[derive(Debug)]
struct Trip {
    /// Seconds until a byte handed over now is at the peer.
    delay: f64,
    /// Bytes per second.
    rate: f64,
    shown_rate: f64,
    /// The window in bytes, of a path that is still in slow start.
    first_window: Option<f64>,
}

impl Trip {
    fn new(path: &Path, view: &View<'_>) -> Self {
        let rate = path.rate();
        Self {
            delay: delay(path, view).as_secs_f64(),
            rate,
            shown_rate: path.shown_rate(),
            first_window: path.is_new().then(|| rate * path.srtt().as_secs_f64()),
        }
    }

    /// Seconds until `piece` bytes handed over now are at the peer.
    ///
    /// By the rate that was measured, if there is one, also where the path has carried too little to show all it can: a
    /// small object is not for trying that out.
    fn arrival(&self, piece: u64) -> f64 {
        self.delay + piece as f64 / self.shown_rate
    }

    /// The mean rate while the path carries `backlog`.
    ///
    /// In slow start a window leaves at once, and the next one, twice as large, a round trip later (RFC 5681, section
    /// 3.1): n bytes leave within log2(1 + n / window) - 1 round trips, not n / window. A path that was measured is past
    /// it, as far as anybody knows.
    fn mean_rate(&self, backlog: f64) -> f64 {
        let Some(window) = self.first_window else {
            return self.rate;
        };
        let windows = backlog / window;
        let round_trips = (1.0 + windows).log2() - 1.0;
        let growth = if windows < MOST_GROWTH * round_trips {
            (windows / round_trips).max(1.0)
        } else {
            MOST_GROWTH
        };
        growth * self.rate
    }
}

/// Time until a byte handed to `path` now is at the peer. What is late holds up what comes behind it; and a path that has
/// never delivered anything may be dead, so that its bytes come after that has been noticed.
pub(super) fn delay(path: &Path, view: &View<'_>) -> Duration {
    let doubt = if path.is_proven() {
        Duration::ZERO
    } else {
        UNPROVEN + 2 * path.srtt()
    };
    path.likely_queued_delay() + path.overdue(view.now) + doubt
}

/// Seconds until `piece` bytes handed to `path` now are at the peer.
pub(super) fn arrival(path: &Path, piece: u64, view: &View<'_>) -> f64 {
    Trip::new(path, view).arrival(piece)
}
