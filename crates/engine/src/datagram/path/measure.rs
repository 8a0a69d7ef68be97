//! Round trips and rates by the peer's reports.

use std::time::Duration;

use crate::Instant;

/// The time from a packet to its report, smoothed (RFC 6298, section 2).
#[derive(Debug, Default)]
pub(in crate::datagram) struct RoundTrip {
    srtt: Option<Duration>,
    variation: Duration,
}

impl RoundTrip {
    pub(in crate::datagram) fn note(&mut self, took: Duration) {
        match self.srtt {
            None => {
                self.srtt = Some(took);
                self.variation = took / 2;
            }
            Some(srtt) => {
                self.variation = (3 * self.variation + srtt.abs_diff(took)) / 4;
                self.srtt = Some((7 * srtt + took) / 8);
            }
        }
    }

    pub(in crate::datagram) fn srtt(&self) -> Option<Duration> {
        self.srtt
    }

    pub(in crate::datagram) fn variation(&self) -> Duration {
        self.variation
    }
}

/// Time for which a rate counts. The last and the current one count.
const WINDOW: Duration = Duration::from_secs(1);

/// Shortest interval over which a rate is measured, in microseconds.
const SHORTEST: i64 = 4_000;

/// The same for a steady rate, which neither bursts nor single losses disturb.
const STEADY: i64 = 50_000;

/// Weight of a steady rate against the smoothed one.
const STEADY_GAIN: f64 = 0.1;

/// The highest rate at which packets have recently arrived at the peer.
///
/// Most flows send less than their path carries, so only the highest of many measurements says
/// something about the path.
#[derive(Debug, Default)]
pub(in crate::datagram) struct Rate {
    /// Highest rates of the current and of the last window.
    best: [f64; 2],
    window: Instant,
    /// Start of the current measurement on the peer's clock, and bytes since then.
    from: Option<u64>,
    bytes: u64,
    /// The same of the current steady measurement, and the smoothed result.
    steady_from: Option<u64>,
    steady_bytes: u64,
    steady: f64,
}

impl Rate {
    /// `bytes` have arrived at the peer; the last of them at `at` on its clock.
    pub(in crate::datagram) fn note(&mut self, bytes: u64, at: u64, now: Instant) {
        self.note_steady(bytes, at);
        let Some(from) = self.from else {
            // The first bytes arrived before the interval began.
            (self.from, self.bytes) = (Some(at), 0);
            return;
        };
        self.bytes += bytes;
        let took = super::super::clock::between(from, at);
        if (0..SHORTEST).contains(&took) {
            return;
        }
        if took > 0 {
            self.roll(now);
            self.best[0] = self.best[0].max(self.bytes as f64 / (took as f64 / 1e6));
        }
        (self.from, self.bytes) = (Some(at), 0);
    }

    fn note_steady(&mut self, bytes: u64, at: u64) {
        let Some(from) = self.steady_from else {
            self.steady_from = Some(at);
            return;
        };
        self.steady_bytes += bytes;
        let took = super::super::clock::between(from, at);
        if (0..STEADY).contains(&took) {
            return;
        }
        if took > 0 {
            let rate = self.steady_bytes as f64 / (took as f64 / 1e6);
            self.steady = match self.steady > 0.0 {
                true => self.steady + STEADY_GAIN * (rate - self.steady),
                false => rate,
            };
        }
        (self.steady_from, self.steady_bytes) = (Some(at), 0);
    }

    /// Bytes per second over about the last half of a second; 0 if unknown.
    pub(in crate::datagram) fn steady(&self, now: Instant) -> f64 {
        match now.saturating_sub(self.window) < 2 * WINDOW {
            true => self.steady,
            false => 0.0,
        }
    }

    /// Bytes per second; 0 if unknown.
    pub(in crate::datagram) fn get(&self, now: Instant) -> f64 {
        match now.saturating_sub(self.window) < 2 * WINDOW {
            true => self.best[0].max(self.best[1]),
            false => 0.0,
        }
    }

    fn roll(&mut self, now: Instant) {
        let age = now.saturating_sub(self.window);
        if age >= WINDOW {
            self.best = match age < 2 * WINDOW {
                true => [0.0, self.best[0]],
                false => [0.0; 2],
            };
            self.window = now;
        }
    }
}

/// Time after which older losses are forgotten. The last and the current one count.
const LOSS_WINDOW: Duration = Duration::from_secs(10);

/// A path is lossy if it has lost this many packets in the windows that count, and more than this
/// share of them: a program that takes random loss for congestion would use a fraction of the
/// path's rate.
const LOSSY_COUNT: u64 = 3;
const LOSSY_SHARE: f64 = 0.001;

/// Packets that were delivered and lost.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    delivered: u64,
    lost: u64,
}

/// The recent losses of a path.
#[derive(Debug, Default)]
pub(in crate::datagram) struct Losses {
    current: Tally,
    last: Tally,
    window: Instant,
}

impl Losses {
    /// A report shows this many packets as delivered and as lost.
    pub(in crate::datagram) fn note(&mut self, delivered: u64, lost: u64, now: Instant) {
        let age = now.saturating_sub(self.window);
        if age >= LOSS_WINDOW {
            self.last = match age < 2 * LOSS_WINDOW {
                true => self.current,
                false => Tally::default(),
            };
            (self.current, self.window) = (Tally::default(), now);
        }
        self.current.delivered += delivered;
        self.current.lost += lost;
    }

    /// Whether the path has recently lost more than a few packets.
    pub(in crate::datagram) fn is_lossy(&self, now: Instant) -> bool {
        let age = now.saturating_sub(self.window);
        let last = if age < LOSS_WINDOW {
            self.last
        } else {
            Tally::default()
        };
        let lost = self.current.lost + last.lost;
        let all = lost + self.current.delivered + last.delivered;
        age < 2 * LOSS_WINDOW && lost >= LOSSY_COUNT && lost as f64 > LOSSY_SHARE * all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_stream_has_its_rate() {
        let mut rate = Rate::default();
        for ms in 0..3000u64 {
            rate.note(1250, ms * 1000, Instant::from_millis(ms + 10));
        }
        let now = Instant::from_secs(3);
        assert!((1.1e6..1.4e6).contains(&rate.get(now)), "{}", rate.get(now));
        assert_eq!(rate.get(now + 3 * WINDOW), 0.0);
    }

    #[test]
    fn a_steady_rate_is_the_mean_of_bursts() {
        let mut rate = Rate::default();
        let at = |ms: u64| (ms * 1000, Instant::from_millis(ms + 10));
        for ms in 0..1000 {
            // 10 kB at once, every 10 ms.
            let bytes = if ms % 10 == 0 { 10_000 } else { 0 };
            rate.note(bytes, at(ms).0, at(ms).1);
        }
        let now = Instant::from_secs(1);
        assert!((0.9e6..1.1e6).contains(&rate.steady(now)));
        assert!(rate.get(now) > 2e6, "{}", rate.get(now));
        // A tenth of the rate.
        for ms in 1000..3000 {
            let bytes = if ms % 10 == 0 { 1_000 } else { 0 };
            rate.note(bytes, at(ms).0, at(ms).1);
        }
        let now = Instant::from_secs(3);
        assert!(rate.steady(now) < 0.2e6, "{}", rate.steady(now));
        assert_eq!(rate.steady(now + 3 * WINDOW), 0.0);
    }

    #[test]
    fn a_path_is_lossy_between_rare_losses_and_not_after_single_ones() {
        let at = |seconds| Instant::from_secs(seconds);
        let mut losses = Losses::default();
        for second in 0..8 {
            losses.note(200, u64::from(second % 4 == 0), at(second));
        }
        assert!(!losses.is_lossy(at(8)), "two losses");
        losses.note(200, 1, at(8));
        assert!(losses.is_lossy(at(8)));
        losses.note(200, 0, at(16));
        assert!(losses.is_lossy(at(19)), "a long gap");
        losses.note(200, 0, at(27));
        assert!(!losses.is_lossy(at(27)), "for 19 s nothing was lost");
        for second in 30..60 {
            losses.note(10_000, u64::from(second % 2 == 0), at(second));
        }
        assert!(!losses.is_lossy(at(60)), "1 of 20,000");
    }

    #[test]
    fn round_trips_follow_the_standard() {
        let mut trip = RoundTrip::default();
        trip.note(Duration::from_millis(100));
        assert_eq!(trip.variation(), Duration::from_millis(50));
        for _ in 0..100 {
            trip.note(Duration::from_millis(40));
        }
        assert_eq!(trip.srtt().map(|trip| trip.as_millis()), Some(40));
        assert!(trip.variation() < Duration::from_millis(1));
    }
}
