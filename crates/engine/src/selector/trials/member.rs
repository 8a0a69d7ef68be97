//! What is remembered of a path: how it was judged, and when it is looked at again.

use std::time::Duration;

use crate::Instant;
use crate::selector::{SeenPath, Selection};

/// Time from one trial of a path to the next at first.
const FIRST: Duration = Duration::from_secs(5);

/// The same at most.
pub const LONGEST: Duration = Duration::from_secs(300);

/// See the module.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) selection: Selection,
    pub(super) works: bool,
    /// Trials in a row that said that it hurts.
    pub(super) votes: u32,
    /// No trial before.
    pub(super) next_at: Instant,
    /// From one trial to the next.
    pub(super) interval: Duration,
    /// It was parked while programs kept up.
    pub(super) for_delay: bool,
    /// The part of the goodput that letting it in has cost the last time.
    pub(super) cost: f64,
    /// Round-trip time in seconds and rate when it was last judged.
    pub(super) known: (f64, f64),
}

impl Member {
    /// One that has just come; it works as it is seen to.
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

    /// What was found out before is worth little.
    pub(super) fn look_anew(&mut self, now: Instant) {
        (self.votes, self.interval) = (0, FIRST);
        self.next_at = self.next_at.min(now + FIRST);
    }

    /// Puts off the next trial, and the one after it further.
    pub(super) fn wait(&mut self, now: Instant) {
        self.next_at = now + self.interval;
        self.interval = (self.interval * 2).min(LONGEST);
    }

    /// A path that is not what it was when it was judged is not waited for long.
    pub(super) fn follow(&mut self, path: &SeenPath, now: Instant) {
        let (rtt, rate) = of(path);
        let differs = |old: f64, new: f64| new > 2.0 * old || new < old / 2.0;
        let (old_rtt, old_rate) = self.known;
        // What a parked path could carry is not measured.
        if differs(old_rtt, rtt) || !self.selection.rests() && differs(old_rate, rate) {
            self.known = (rtt, rate);
            self.interval = FIRST;
            self.next_at = self.next_at.min(now + FIRST);
        }
    }
}

/// What is remembered of a path.
pub(super) fn of(path: &SeenPath) -> (f64, f64) {
    (path.srtt_s(), path.rate)
}
