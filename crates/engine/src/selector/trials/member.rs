//! The record of a path: its verdicts, and the time of its next trial.

use std::time::Duration;

use crate::Instant;
use crate::selector::{SeenPath, Selection};

/// Initial time between two trials of a path.
const FIRST: Duration = Duration::from_secs(5);

/// Longest time between two trials of a path.
pub const LONGEST: Duration = Duration::from_secs(300);

/// The record of a path.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) selection: Selection,
    pub(super) works: bool,
    /// Number of trials in a row that found that it hurts.
    pub(super) votes: u32,
    /// Earliest time of the next trial.
    pub(super) next_at: Instant,
    /// Time between two trials.
    pub(super) interval: Duration,
    /// It was parked while programs kept up.
    pub(super) for_delay: bool,
    /// Share of the goodput that the last trial with the parked path cost.
    pub(super) cost: f64,
    /// Round-trip time in seconds and rate at the last verdict.
    pub(super) known: (f64, f64),
}

impl Member {
    /// A path that has just joined; `works` as observed.
    pub(super) fn new(path: &SeenPath, now: Instant) -> Self {
        Self {
            selection: Selection::Active,
            works: path.works,
            votes: 0,
            next_at: now + FIRST,
            interval: FIRST,
            for_delay: false,
            cost: 0.0,
            known: of(path),
        }
    }

    /// Discards most of the earlier results.
    pub(super) fn start_over(&mut self, now: Instant) {
        (self.votes, self.interval) = (0, FIRST);
        self.next_at = self.next_at.min(now + FIRST);
    }

    /// Postpones the next trial, and doubles the interval for the one after it.
    pub(super) fn wait(&mut self, now: Instant) {
        self.next_at = now + self.interval;
        self.interval = (self.interval * 2).min(LONGEST);
    }

    /// Advances the next trial if the path has changed since it was judged.
    pub(super) fn follow(&mut self, path: &SeenPath, now: Instant) {
        let (rtt, rate) = of(path);
        let differs = |old: f64, new: f64| new > 2.0 * old || new < old / 2.0;
        let (old_rtt, old_rate) = self.known;
        // The capacity of a parked path is not measured.
        if differs(old_rtt, rtt) || !self.selection.rests() && differs(old_rate, rate) {
            self.known = (rtt, rate);
            self.interval = FIRST;
            self.next_at = self.next_at.min(now + FIRST);
        }
    }
}

/// The recorded properties of a path.
pub(super) fn of(path: &SeenPath) -> (f64, f64) {
    (path.srtt_s(), path.rate)
}
