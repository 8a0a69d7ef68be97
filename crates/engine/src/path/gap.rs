//! A gap in the data that TCP delivers, and whether the path delivers data behind it.

use std::time::Duration;

use super::{LossState, PathSample, srtt_of};
use crate::Instant;

/// The patience for a path that delivers data behind a gap grows by this factor.
///
/// TCP may have lost thousands of packets at once, as BBR does before it has found a link's rate,
/// and some of its retransmissions with them. Each round of these takes a round trip.
const PATIENCE: u32 = 3;

/// The path counts as delivering behind the gap at this share of its previous rate, measured over
/// this many round trips: a window's retransmissions and its new data leave in bursts.
const DELIVERING_SHARE: f64 = 0.25;
const DELIVERING_TRIPS: u32 = 2;

/// A gap that TCP repairs, or has repaired without an acknowledgment of the peer yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    /// Rate before the gap, in bytes per second.
    rate: f64,
    /// Start of the byte count, and the bytes delivered by then.
    since: Instant,
    delivered: u64,
    /// Whether the path delivered behind the gap at the last count.
    delivers_behind: bool,
    /// TCP has repaired all of it.
    is_repaired: bool,
}

impl Gap {
    /// The gap according to the new `sample`, given the previous gap and the sample `before`.
    pub(super) fn of(
        known: Option<Self>,
        before: &PathSample,
        sample: &PathSample,
        now: Instant,
    ) -> Option<Self> {
        let is_repaired = sample.loss == LossState::Open;
        match known {
            Some(mut gap) if !gap.is_repaired => {
                gap.is_repaired = is_repaired;
                gap.count_behind(sample, now);
                Some(gap)
            }
            known if is_repaired => known,
            _ => Some(Self {
                rate: before.delivery_rate as f64,
                since: now,
                delivered: sample.delivered,
                delivers_behind: false,
                is_repaired,
            }),
        }
    }

    fn count_behind(&mut self, sample: &PathSample, now: Instant) {
        let time = now.saturating_sub(self.since);
        if self.is_repaired || time < DELIVERING_TRIPS * srtt_of(sample) {
            return;
        }
        let segments = sample.delivered.saturating_sub(self.delivered);
        let bytes = (segments * u64::from(sample.mss)) as f64;
        let rate = bytes / time.as_secs_f64();
        self.delivers_behind = rate > 0.0 && rate >= DELIVERING_SHARE * self.rate;
        (self.since, self.delivered) = (now, sample.delivered);
    }

    /// Whether TCP has repaired all of it.
    pub(super) fn is_repaired(&self) -> bool {
        self.is_repaired
    }

    /// Additional patience for a path with this gap: `patience` once more, and longer if the path
    /// delivers behind the gap, up to `most`.
    pub(super) fn patience(&self, patience: Duration, most: Duration) -> Duration {
        match self.delivers_behind {
            true => patience.max((PATIENCE * patience).min(most)),
            false => patience,
        }
    }
}
