//! A hole in what TCP delivers, and whether the path carries on behind it.

use std::time::Duration;

use super::{LossState, PathSample, srtt_of};
use crate::Instant;

/// A path that carries on behind a hole is waited for so many times as long again.
///
/// TCP may have lost thousands of packets at once, as BBR does before it has found a link's rate, and some of its repetitions
/// with them: each round of these takes a round trip.
const PATIENCE: u32 = 3;

/// It does when it gets through so much of what it did before the hole, in so many round trips: a window's repetitions and what is
/// new leave in bursts.
const CARRIES: f64 = 0.25;
const CARRIES_IN: u32 = 2;

/// What TCP repairs, or has repaired and the peer has not yet confirmed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hole {
    /// Bytes per second, as measured before it.
    rate: f64,
    /// From when on bytes are counted, and what had been delivered by then.
    since: Instant,
    delivered: u64,
    /// Whether the path carried on when they were counted last.
    carries: bool,
    /// TCP has nothing more to repair.
    is_repaired: bool,
}

impl Hole {
    /// The hole that there is now that TCP says `sample`, after the one that there was when it said `before`.
    pub(super) fn of(
        known: Option<Self>,
        before: &PathSample,
        sample: &PathSample,
        now: Instant,
    ) -> Option<Self> {
        let is_repaired = sample.loss == LossState::Open;
        match known {
            Some(mut hole) if !hole.is_repaired => {
                hole.is_repaired = is_repaired;
                hole.look_behind(sample, now);
                Some(hole)
            }
            known if is_repaired => known,
            _ => Some(Self {
                rate: before.delivery_rate as f64,
                since: now,
                delivered: sample.delivered,
                carries: false,
                is_repaired,
            }),
        }
    }

    fn look_behind(&mut self, sample: &PathSample, now: Instant) {
        let time = now.saturating_sub(self.since);
        if self.is_repaired || time < CARRIES_IN * srtt_of(sample) {
            return;
        }
        let segments = sample.delivered.saturating_sub(self.delivered);
        let bytes = (segments * u64::from(sample.mss)) as f64;
        let rate = bytes / time.as_secs_f64();
        self.carries = rate > 0.0 && rate >= CARRIES * self.rate;
        (self.since, self.delivered) = (now, sample.delivered);
    }

    /// Whether TCP has nothing more to repair.
    pub(super) fn is_repaired(&self) -> bool {
        self.is_repaired
    }

    /// For how long beyond `patience` a path with this hole is waited for: as long again, and where it carries on longer, `most` at the most.
    pub(super) fn patience(&self, patience: Duration, most: Duration) -> Duration {
        match self.carries {
            true => patience.max((PATIENCE * patience).min(most)),
            false => patience,
        }
    }
}
