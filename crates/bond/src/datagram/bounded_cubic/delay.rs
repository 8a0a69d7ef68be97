//! Derives the state of the queue from the round trips: its length, the rate at which it is served,
//! and the bound.

use std::time::Duration;

use sumlink_congestion::Instant;

use super::Acked;

/// Measures the queue in periods.
#[derive(Clone, Debug, Default)]
pub(super) struct Delay {
    base: Option<Base>,
    period: Period,
    /// The last samples of the round trip, the newest at any place.
    recent: [Duration; SAMPLES],
    samples: usize,
}

/// The least round trip.
#[derive(Clone, Copy, Debug)]
struct Base {
    rtt: Duration,
    /// When it was last measured, about.
    at: Instant,
}

/// A period with a least round trip that is free of jitter: at least a round trip, [`MIN_PERIOD`]
/// and [`SAMPLES`].
#[derive(Clone, Copy, Debug, Default)]
struct Period {
    /// Packets sent before are ignored: their delay is the effect of a former window.
    valid_from: Instant,
    /// When the first valid packet was acknowledged.
    begun: Option<Instant>,
    least: Option<Duration>,
    samples: usize,
    /// Bytes acknowledged since.
    acked: u64,
    /// Whether the window limited the flow.
    is_limited: bool,
}

/// The bound on the standing queue: an eighth of the base round trip, within these limits.
const MIN_BOUND: Duration = Duration::from_millis(10);
const LARGEST_BOUND: Duration = Duration::from_millis(50);

/// Packets that always fit in the bound.
const BOUND_PACKETS: f64 = 3.0;

/// Number of samples of which the minimum shows a queue (RFC 9406, section 4.3: N_RTT_SAMPLE).
const SAMPLES: usize = 8;

/// Schedulers of radio links, and of busy machines, delay all packets of some tens of milliseconds
/// alike.
const MIN_PERIOD: Duration = Duration::from_millis(300);

/// How long the least round trip is valid.
const BASE_LIFETIME: Duration = Duration::from_secs(10);

/// Growth of the round trip within which it still counts as the least one.
const BASE_TOLERANCE: Duration = Duration::from_millis(1);

impl Delay {
    /// Takes the measurements of an acknowledgment; whether the window limited the flow before it.
    pub(super) fn count(&mut self, acked: &Acked, is_limited: bool) {
        let now = acked.now;
        let period = &mut self.period;
        let is_valid = acked.sent >= period.valid_from;
        if is_valid {
            match period.begun {
                Some(_) => period.acked += acked.bytes,
                None => period.begun = Some(now),
            }
            period.is_limited |= is_limited;
        }
        let Some(rtt) = acked.rtt else { return };
        if is_valid {
            period.least = Some(period.least.map_or(rtt, |least| least.min(rtt)));
            period.samples += 1;
        }
        self.recent[self.samples % SAMPLES] = rtt;
        self.samples = self.samples.wrapping_add(1);
        match &mut self.base {
            Some(base) if rtt < base.rtt => *base = Base { rtt, at: now },
            Some(base) if rtt <= base.rtt + BASE_TOLERANCE => base.at = now,
            Some(_) => {}
            None => self.base = Some(Base { rtt, at: now }),
        }
    }

    /// Whether this acknowledgment ends the period.
    pub(super) fn is_period_over(&self, acked: &Acked) -> bool {
        let begun = self.period.begun;
        let is_long =
            begun.is_some_and(|begun| acked.sent >= begun && acked.now >= begun + MIN_PERIOD);
        is_long && self.period.samples >= SAMPLES
    }

    /// Begins a period after a change of the window.
    pub(super) fn restart(&mut self, now: Instant) {
        self.period = Period {
            valid_from: now,
            ..Period::default()
        };
    }

    /// Begins a period with the same window.
    pub(super) fn proceed(&mut self) {
        self.restart(self.period.valid_from);
    }

    /// Whether the window limited the flow in this period.
    pub(super) fn is_limited(&self) -> bool {
        self.period.is_limited
    }

    /// The least round trip of this period.
    pub(super) fn least(&self) -> Option<Duration> {
        self.period.least
    }

    /// The least round trip; zero before the first sample.
    pub(super) fn base(&self) -> Duration {
        self.base.map_or(Duration::ZERO, |base| base.rtt)
    }

    /// Whether the base has to be measured again.
    pub(super) fn is_base_old(&self, now: Instant) -> bool {
        self.base.is_some_and(|base| now >= base.at + BASE_LIFETIME)
    }

    /// Replaces the base.
    pub(super) fn set_base(&mut self, rtt: Option<Duration>, now: Instant) {
        if let Some(rtt) = rtt {
            self.base = Some(Base { rtt, at: now });
        }
    }

    /// The delay that the queue has added in this period.
    pub(super) fn queue(&self) -> Duration {
        let least = self.period.least.unwrap_or_default();
        least.saturating_sub(self.base())
    }

    /// The delay that the queue adds now, according to the last few samples.
    pub(super) fn recent_queue(&self) -> Duration {
        match self.recent.iter().min() {
            Some(least) if self.samples >= SAMPLES => least.saturating_sub(self.base()),
            _ => Duration::ZERO,
        }
    }

    /// The bound on the queue, for packets of `packet` bytes.
    pub(super) fn bound(&self, packet: u16, now: Instant) -> Duration {
        let bound = (self.base() / 8).clamp(MIN_BOUND, LARGEST_BOUND);
        let few = Duration::try_from_secs_f64(BOUND_PACKETS * f64::from(packet) / self.rate(now));
        bound.max(few.unwrap_or(LARGEST_BOUND))
    }

    /// Bytes per second that were acknowledged in this period.
    pub(super) fn rate(&self, now: Instant) -> f64 {
        let begun = self.period.begun.unwrap_or(now);
        let elapsed = now.saturating_sub(begun).as_secs_f64();
        self.period.acked as f64 / elapsed.max(1e-6)
    }
}
