//! Pacing: when a link may take packets, so that they leave at its rate.

use std::time::Duration;

use sumlink_edge::Instant;

/// How much lost time a link that was served late may make up for.
const CATCH_UP: Duration = Duration::from_millis(1);

/// How far a link sends ahead of its rate, so that packets leave several at a time.
const BURST: Duration = Duration::from_micros(200);

/// Packets sent regardless of the rate (probes) delay others by at most this time.
const MAX_AHEAD: Duration = Duration::from_secs(1);

/// When the next packet may be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Bits per second; 0 pauses the link, `None` means unlimited.
    rate: Option<u64>,
    ready: Instant,
}

impl Pace {
    pub(super) fn new(rate: Option<u64>) -> Self {
        Self {
            rate,
            ready: Instant::ZERO,
        }
    }

    /// Sets the rate. Bytes sent ahead at the old rate are converted to time at the new one.
    pub(crate) fn set_rate(&mut self, rate: Option<u64>, now: Instant) {
        let ahead = self.ready.saturating_sub(now).as_nanos();
        self.ready = match (self.rate, rate) {
            (Some(old), Some(new)) if new > 0 => {
                now + nanos(ahead * u128::from(old) / u128::from(new))
            }
            _ => now,
        };
        self.rate = rate;
    }

    /// Bits per second.
    pub(crate) fn rate(&self) -> Option<u64> {
        self.rate
    }

    /// Records that `bytes` were sent.
    pub(super) fn sent(&mut self, bytes: usize, now: Instant) {
        // At a rate of 0 only unpaced packets are sent, which are not made up for later.
        if let Some(rate) = self.rate.filter(|rate| *rate > 0) {
            let from = self.ready.max(now.saturating_sub(CATCH_UP));
            let takes = nanos(bytes as u128 * 8 * 1_000_000_000 / u128::from(rate));
            self.ready = (from + takes)
                .min(now + MAX_AHEAD.max(takes))
                .max(self.ready);
        }
    }

    pub(crate) fn is_ready(&self, now: Instant) -> bool {
        self.ready() <= now
    }

    /// Whether another packet may join the current burst.
    pub(super) fn has_burst(&self, now: Instant) -> bool {
        self.ready() <= now + BURST
    }

    pub(crate) fn ready(&self) -> Instant {
        match self.rate {
            Some(0) => Instant::MAX,
            _ => self.ready,
        }
    }
}

fn nanos(count: u128) -> Duration {
    Duration::from_nanos(u64::try_from(count).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn packets_leave_at_the_rate_and_a_late_one_catches_up_a_little() {
        let mut pace = Pace::new(Some(8_000_000)); // 1000 bytes in a millisecond
        pace.sent(1000, Instant::ZERO);
        assert!(!pace.is_ready(MS - Duration::from_nanos(1)) && pace.is_ready(MS));
        // Two milliseconds late: one is made up for, the other is lost.
        pace.sent(1000, 3 * MS);
        assert_eq!(pace.ready(), 3 * MS);
        pace.sent(1000, 3 * MS);
        assert_eq!(pace.ready(), 4 * MS);
        assert!(!pace.has_burst(4 * MS - 2 * BURST) && pace.has_burst(4 * MS - BURST));
        let mut unpaced = Pace::new(None);
        unpaced.sent(1 << 30, Instant::ZERO);
        assert!(unpaced.is_ready(Instant::ZERO));
    }

    #[test]
    fn unpaced_bytes_do_not_accumulate() {
        let mut pace = Pace::new(Some(8)); // a byte in a second
        for _ in 0..1000 {
            pace.sent(1, Instant::ZERO);
        }
        assert_eq!(pace.ready(), 1000 * MS);
        pace.sent(10, Instant::ZERO);
        assert_eq!(pace.ready(), 10_000 * MS);
        pace.sent(1, 5000 * MS);
        assert_eq!(pace.ready(), 10_000 * MS);
    }

    #[test]
    fn a_new_rate_applies_to_bytes_sent_ahead_and_zero_stops_the_link() {
        let mut pace = Pace::new(Some(8_000_000));
        pace.sent(1000, Instant::ZERO);
        pace.set_rate(Some(4_000_000), Instant::ZERO);
        assert_eq!(pace.ready(), 2 * MS);
        pace.set_rate(Some(0), MS);
        assert!(!pace.is_ready(1000 * MS) && !pace.has_burst(1000 * MS));
        pace.sent(1000, MS);
        pace.set_rate(Some(8_000_000), 5 * MS);
        assert_eq!((pace.ready(), pace.rate()), (5 * MS, Some(8_000_000)));
        pace.sent(1000, 5 * MS);
        pace.set_rate(None, 5 * MS);
        assert!(pace.is_ready(5 * MS));
    }
}
