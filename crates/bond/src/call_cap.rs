//! Keeps a link's queue short while a call shares the link with bulk data.
//!
//! A loss-based congestion control fills the queue in front of a link. Packets of a call then wait
//! in it for 50 ms and more, and some are dropped when it overflows. The call's own carrier cannot
//! prevent that. So while a call uses a link, the TCP carriers of that link send at most at a rate
//! at which the queue stays near [`TARGET`]. TCP paces at that rate (`SO_MAX_PACING_RATE`),
//! whatever its congestion control does.
//!
//! While data stands in the queue, TCP delivers at the rate that the link has for it. The cap is
//! that rate, less the share that drains the excess within a few round trips:
//!
//! ```text
//! cap = delivered x (1 - (queue - TARGET) / horizon)
//! ```
//!
//! The queue therefore approaches the target exponentially, and the link stays full. Below the
//! target, the cap grows, in order to find capacity that was not there before.
//!
//! The queue may belong to competing traffic. It then stays although this carrier sends less, and
//! the competitors take the freed rate. So the cap never falls below half of the carrier's former
//! rate. If a deep cut does not help within about a second, the cap is given up for some time.
//! Jitter and a longer route look the same, and end the same way.
//!
//! [`CallCap`] has no socket and no clock; each end of a carrier has one, for the data that it
//! sends.

mod measure;
#[cfg(test)]
mod tests;

use std::time::Duration;

use sumlink_engine::Session;

use crate::{Instant, TcpInfo};
use measure::{Finding, Measure};

/// The queue that the cap leaves: enough to keep the link busy between two corrections.
const TARGET: Duration = Duration::from_millis(5);

/// The queue of a slow link always holds this many packets.
const TARGET_PACKETS: f64 = 2.0;

/// The excess over the target is drained within this time, or within [`HORIZON_TRIPS`] if that is
/// longer: a correction shows after a round trip, and faster ones would make the queue oscillate.
const HORIZON: Duration = Duration::from_millis(100);
const HORIZON_TRIPS: u32 = 3;

/// Growth of the cap per second without any queue, and at most in a round trip.
const GROWTH: f64 = 2.0;
const GROWTH_PER_TRIP: f64 = 0.05;

/// The part of the carrier's former rate that it always keeps. The session's carriers on the link
/// share it: each of them may have had the whole link before.
const KEPT: f64 = 0.5;

/// The least cap, in bytes per second: about a packet in 90 ms.
const MIN_CAP: f64 = 16_000.0;

/// The former rate follows a higher one within about this time, because acknowledgments that were
/// held up arrive faster than the link delivers, and is forgotten with this half-life.
const REFERENCE_RISE: Duration = Duration::from_millis(250);
const REFERENCE_HALF_LIFE: Duration = Duration::from_secs(10);

/// A cap of at most this part of the former rate is a deep cut, likewise.
const DEEP: f64 = 0.75;

/// Time of deep cuts with a queue above the target after which the cap is given up, at least this
/// many round trips. Time without counts [`FORGIVEN`] of it back.
const PATIENCE: Duration = Duration::from_secs(1);
const PATIENCE_TRIPS: u32 = 10;
const FORGIVEN: f64 = 0.25;

/// A queue that has shrunk to this part under a deep cut shows that the cut helps.
const HELPED: f64 = 0.8;

/// The cap is also given up if the queue was longer than twice the target all this time, or this
/// many times the patience.
const STANDING: Duration = Duration::from_secs(4);
const STANDING_PARTS: u32 = 4;

/// The link has become slower if the carrier delivers less than this part of its cap, for this time
/// or this many round trips, and the rest stands in the queue. That is assumed at most once in
/// [`SLOWER_PAUSE`], because traffic that pushes the carrier aside looks similar.
const SLOWER: f64 = 0.85;
const SLOWER_TIME: Duration = Duration::from_millis(250);
const SLOWER_TRIPS: u32 = 2;
const SLOWER_PAUSE: Duration = Duration::from_secs(2);

/// Pause after the cap was given up; doubles each time up to the second value.
const PAUSE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(160));

/// A cap that has lasted this long without a deep cut has proved itself.
const PROVEN: Duration = Duration::from_secs(5);

/// Limits a carrier's rate so that calls over the same link do not wait in its queue.
#[derive(Clone, Debug)]
pub struct CallCap {
    measure: Measure,
    capped: Option<Capped>,
    /// Carriers of the session over the link.
    carriers: f64,
    /// The highest rate that the carrier has recently had, in bytes per second.
    reference: f64,
    /// Time for which it has delivered less than its cap into a queue, and when the reference was
    /// last lowered because of that.
    slower_for: Duration,
    lowered: Option<Instant>,
    /// Time for which the queue has been long.
    long_for: Duration,
    /// Time of deep cuts that did not help.
    in_vain: Duration,
    /// The shortest queue under them.
    shortest: Duration,
    /// No cap before.
    not_before: Instant,
    pause: Duration,
}

/// A cap in force.
#[derive(Clone, Copy, Debug)]
struct Capped {
    /// In bytes per second.
    rate: f64,
    since: Instant,
    /// The queue at the last decision.
    queue: Duration,
}

/// The current state of a [`CallCap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallCapState {
    /// No call uses the link, or its queue is short without a cap.
    Off,
    /// The carrier is capped.
    Capped {
        /// Bytes per second.
        rate: u64,
        /// Delay by the link's queue.
        queue: Duration,
    },
    /// The cap did not shorten the queue, so it was given up until this time.
    GivenUp {
        /// When it is tried again.
        until: Instant,
    },
}

impl Default for CallCap {
    fn default() -> Self {
        Self {
            measure: Measure::default(),
            capped: None,
            carriers: 1.0,
            reference: 0.0,
            slower_for: Duration::ZERO,
            lowered: None,
            long_for: Duration::ZERO,
            in_vain: Duration::ZERO,
            shortest: Duration::MAX,
            not_before: Instant::ZERO,
            pause: PAUSE.0,
        }
    }
}

impl CallCap {
    /// Takes a sample of the carrier while a call uses its link, over which the session has this
    /// many carriers. Samples should not be further apart than a few milliseconds while the carrier
    /// sends.
    pub fn observe(&mut self, info: &TcpInfo, carriers: u32, now: Instant) {
        if let Some(finding) = self.measure.observe(info, now) {
            self.carriers = f64::from(carriers.max(1));
            self.decide(&finding, now);
        }
    }

    /// No call uses the link any more.
    pub fn release(&mut self) {
        *self = Self {
            not_before: self.not_before,
            pause: self.pause,
            ..Self::default()
        };
    }

    /// The highest rate at which the carrier may send, in bytes per second; `None` for no limit.
    pub fn rate(&self) -> Option<u64> {
        self.capped.map(|capped| capped.rate as u64)
    }

    /// The current state.
    pub fn state(&self, now: Instant) -> CallCapState {
        match self.capped {
            Some(capped) => CallCapState::Capped {
                rate: capped.rate as u64,
                queue: capped.queue,
            },
            None if now < self.not_before => CallCapState::GivenUp {
                until: self.not_before,
            },
            None => CallCapState::Off,
        }
    }

    fn decide(&mut self, finding: &Finding, now: Instant) {
        if now < self.not_before {
            return;
        }
        let target = target(finding);
        self.refer(finding, target, now);
        let is_above = finding.queue > target;
        let rate = match (self.capped, is_above) {
            (None, false) => return,
            (_, true) => drained(finding, target),
            (Some(capped), false) => grown(capped.rate, finding, target),
        };
        let capped = Capped {
            rate: rate.max(self.reference * KEPT / self.carriers).max(MIN_CAP),
            since: self.capped.map_or(now, |capped| capped.since),
            queue: finding.queue,
        };
        self.capped = Some(capped);
        self.judge(&capped, finding, now);
    }

    /// Updates the rate that the carrier has without a cap.
    fn refer(&mut self, finding: &Finding, target: Duration, now: Instant) {
        let took = finding.took.as_secs_f64();
        let ahead = finding.rate - self.reference;
        if self.reference == 0.0 {
            self.reference = finding.rate;
        } else if ahead > 0.0 {
            self.reference += ahead * (took / REFERENCE_RISE.as_secs_f64()).min(1.0);
        } else {
            let halves = took / REFERENCE_HALF_LIFE.as_secs_f64();
            self.reference = finding.rate.max(self.reference * 0.5_f64.powf(halves));
        }
        let is_slower = self
            .capped
            .is_some_and(|capped| finding.queue > target && finding.rate < capped.rate * SLOWER);
        self.slower_for = match is_slower {
            true => self.slower_for + finding.took,
            false => Duration::ZERO,
        };
        let is_due = |at| now.saturating_sub(at) >= SLOWER_PAUSE;
        let long = SLOWER_TIME.max(SLOWER_TRIPS * finding.trip);
        if self.slower_for >= long && self.lowered.is_none_or(is_due) {
            self.reference = finding.rate;
            self.lowered = Some(now);
            self.in_vain = Duration::ZERO;
        }
    }

    /// Gives the cap up if it does not help.
    fn judge(&mut self, capped: &Capped, finding: &Finding, now: Instant) {
        let target = target(finding);
        let is_deep =
            finding.queue > target && capped.rate <= self.reference * DEEP / self.carriers;
        if !is_deep {
            self.in_vain = self.in_vain.saturating_sub(finding.took.mul_f64(FORGIVEN));
            if self.in_vain.is_zero() {
                self.shortest = Duration::MAX;
            }
        } else if finding.queue.as_secs_f64() < HELPED * self.shortest.as_secs_f64() {
            (self.in_vain, self.shortest) = (Duration::ZERO, finding.queue);
        } else {
            self.in_vain += finding.took;
        }
        self.long_for = match finding.queue > 2 * target {
            true => self.long_for + finding.took,
            false => Duration::ZERO,
        };
        let patience = PATIENCE.max(PATIENCE_TRIPS * finding.trip);
        if self.in_vain >= patience || self.long_for >= STANDING.max(STANDING_PARTS * patience) {
            let pause = (2 * self.pause).min(PAUSE.1);
            *self = Self {
                measure: std::mem::take(&mut self.measure),
                not_before: now + self.pause,
                pause,
                ..Self::default()
            };
        } else if self.in_vain.is_zero() && now.saturating_sub(capped.since) >= PROVEN {
            self.pause = PAUSE.0;
        }
    }
}

/// For each carrier of a session, in the order of `links`, which yields the number of each one's
/// link: how many of the carriers use that link, if it carries a call of this side. Empty if no
/// link does.
pub fn beside_calls(
    session: &Session,
    links: impl Iterator<Item = u64>,
    now: Instant,
) -> Vec<Option<u32>> {
    if !session.has_calls(now) {
        return Vec::new();
    }
    let links: Vec<u64> = links.collect();
    let beside = |link: &u64| {
        let count = || links.iter().filter(|other| *other == link).count();
        (session.carries_call(*link, now)).then(|| count() as u32)
    };
    links.iter().map(beside).collect()
}

/// The queue to be left.
fn target(finding: &Finding) -> Duration {
    let packets = TARGET_PACKETS * finding.segment / finding.rate.max(MIN_CAP);
    TARGET.max(Duration::from_secs_f64(packets.min(1.0)))
}

/// The rate at which a queue above the target shrinks to it.
fn drained(finding: &Finding, target: Duration) -> f64 {
    let horizon = HORIZON.max(HORIZON_TRIPS * finding.trip);
    let excess = finding.queue.saturating_sub(target);
    let part = excess.as_secs_f64() / horizon.as_secs_f64();
    finding.rate * (1.0 - part).max(0.0)
}

/// The cap after an interval with a queue below the target.
fn grown(cap: f64, finding: &Finding, target: Duration) -> f64 {
    // A cap that is not used says nothing about the link.
    if finding.rate < cap / 2.0 {
        return cap;
    }
    let took = finding.took.as_secs_f64();
    let trips = took / finding.trip.as_secs_f64().max(1e-3);
    let most = (took * GROWTH).min(trips * GROWTH_PER_TRIP);
    let room = 1.0 - finding.queue.as_secs_f64() / target.as_secs_f64();
    (cap * (1.0 + most * room)).max(finding.rate)
}
