//! Predictions of the arrival time of bytes handed to a path now, and whether other paths should
//! carry them instead.

use std::cmp::Ordering;
use std::ops::Range;
use std::time::Duration;

use crate::path::Path;
use crate::scheduler::View;

/// Smallest and largest piece that a path takes at once: small enough that the ends meet closely
/// and a slow path delays little, large enough that a fast path fills its records and offload
/// batches.
const PIECE: Range<u64> = 4 * 1024..64 * 1024;

/// Target duration of a piece on its path.
const PIECE_TIME: Duration = Duration::from_millis(2);

/// Time in addition to two round trips until a dead path is detected.
const UNPROVEN: Duration = Duration::from_millis(150);

/// Upper bound for the predicted growth of a path's rate, since the final size of its window is
/// unknown.
const MAX_GROWTH: f64 = 16.0;

/// Largest relative difference between two computations of the same time.
const ROUNDING: f64 = 1e-6;

/// Bytes that a path takes at once.
///
/// Derived from the rate that [`Trip::arrival`] uses: of two paths the faster one then has the
/// larger piece. So among paths that each ask for a piece of their own, one always has the earliest
/// arrival; otherwise all could leave the same bytes to each other forever.
pub(super) fn piece(path: &Path) -> u64 {
    let by_time = path.shown_rate() * PIECE_TIME.as_secs_f64();
    (by_time as u64).clamp(PIECE.start, PIECE.end)
}

/// Predicted arrival of bytes over the asking path and over the others. It is used for many pieces
/// and windows at once, so the values common to all of them are computed once.
#[derive(Debug)]
pub(super) struct Forecast {
    asking: Trip,
    /// The other delivering paths.
    others: Vec<Trip>,
    /// Bytes that the asking path has been handed since its sample was taken.
    handed: u64,
}

impl Forecast {
    /// Computes the values for the current time.
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

    /// Whether the asking path may be useful for some piece of up to `most` bytes, with at most
    /// `backlog` bytes up to the end of their window. If not, no such piece needs to be searched
    /// for.
    pub(super) fn may_be_useful(&self, most: u64, backlog: f64) -> bool {
        self.is_useful(1, backlog, Caution::No) || self.may_be_first(most)
    }

    /// Whether bytes of the asking path may be later than predicted.
    pub(super) fn needs_caution(&self) -> bool {
        self.asking.caution > 0.0
    }

    /// Whether a place within the next `backlog` bytes suits the asking path even if its bytes are
    /// as late as they may be. At the end of an object there may be none.
    pub(super) fn may_be_cautious(&self, backlog: f64) -> bool {
        self.is_useful(1, backlog, Caution::Yes)
    }

    /// Whether the asking path is the first to deliver some piece of 1 to `most` bytes. A path with
    /// less delay and a lower rate is faster with a small piece, one with more delay and a higher
    /// rate with a large one. The answer may be a size in between.
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

    /// Whether `piece` bytes on the asking path arrive no later than the whole `backlog` up to the
    /// end of their window would over the other paths: only then does the path bring delivery
    /// forward. With caution, even if they are as late as they may be.
    pub(super) fn is_useful(&self, piece: u64, backlog: f64, caution: Caution) -> bool {
        let here = self.asking.arrival(piece + self.handed) + self.asking.caution(caution);
        // Bytes travel in pieces: without this, equal paths would leave the last piece to each
        // other forever.
        let is_first = || {
            let mut others = self.others.iter();
            others.all(|other| here <= other.arrival(piece) + other.caution(caution))
        };
        // The others have delivered the backlog at the earliest T at which the sum of rate * (T -
        // delay) reaches it. That T is no sooner than `here` if the sum at `here` does not exceed
        // the backlog, so it need not be computed.
        let by_then = |rate: &dyn Fn(&Trip) -> f64| -> f64 {
            let carried =
                |other: &Trip| (here - other.delay - other.caution(caution)).max(0.0) * rate(other);
            self.others.iter().map(carried).sum()
        };
        // No path becomes slower while it carries the backlog, so the logarithms are rarely needed.
        is_first()
            || by_then(&|other| other.rate) <= backlog
                && by_then(&|other| other.mean_rate(backlog)) <= backlog
    }
}

/// Whether a place must suit bytes that are as late as they may be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Caution {
    Yes,
    No,
}

/// The predicted transmission over a path.
#[derive(Debug)]
struct Trip {
    /// Seconds until a byte handed over now reaches the peer.
    delay: f64,
    /// Seconds by which it may be later, unseen by measurements: in slow start, or for a repair.
    caution: f64,
    /// Bytes per second.
    rate: f64,
    shown_rate: f64,
    /// Window in bytes, for a path that is still in slow start.
    first_window: Option<f64>,
}

impl Trip {
    fn new(path: &Path, view: &View<'_>) -> Self {
        let rate = path.rate();
        Self {
            delay: delay(path, view).as_secs_f64(),
            caution: path.lateness_allowance().as_secs_f64(),
            rate,
            shown_rate: path.shown_rate(),
            first_window: path.is_new().then(|| rate * path.srtt().as_secs_f64()),
        }
    }

    /// Seconds until `piece` bytes handed over now reach the peer.
    ///
    /// Uses the measured rate, if any, even if the path has carried too little to reach its
    /// capacity: a small object is not the place to explore it.
    fn arrival(&self, piece: u64) -> f64 {
        self.delay + piece as f64 / self.shown_rate
    }

    /// Seconds by which bytes may be later, if that counts.
    fn caution(&self, caution: Caution) -> f64 {
        match caution {
            Caution::Yes => self.caution,
            Caution::No => 0.0,
        }
    }

    /// The mean rate while the path carries `backlog`.
    ///
    /// In slow start a window leaves at once, and the next one, twice as large, a round trip later
    /// (RFC 5681, section 3.1): n bytes leave within log2(1 + n / window) - 1 round trips, not n /
    /// window. A path with measurements is assumed to have left slow start.
    fn mean_rate(&self, backlog: f64) -> f64 {
        let Some(window) = self.first_window else {
            return self.rate;
        };
        let windows = backlog / window;
        let round_trips = (1.0 + windows).log2() - 1.0;
        let growth = if windows < MAX_GROWTH * round_trips {
            (windows / round_trips).max(1.0)
        } else {
            MAX_GROWTH
        };
        growth * self.rate
    }
}

/// Time until a byte handed to `path` now reaches the peer. Late data delays the data behind it. A
/// path that has never delivered anything may be dead, so its bytes arrive only after that has been
/// detected.
pub(super) fn delay(path: &Path, view: &View<'_>) -> Duration {
    let detection = if path.is_proven() {
        Duration::ZERO
    } else {
        UNPROVEN + 2 * path.srtt()
    };
    path.likely_queued_delay() + path.overdue(view.now) + detection
}

/// Seconds until `piece` bytes handed to `path` now reach the peer.
pub(super) fn arrival(path: &Path, piece: u64, view: &View<'_>) -> f64 {
    Trip::new(path, view).arrival(piece)
}
