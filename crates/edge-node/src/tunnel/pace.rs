//! When a link may be given packets, so that they leave at its rate.

use std::time::Duration;

use sumlink_edge::Instant;

/// How far a link that was served late may catch up at once.
const CATCH_UP: Duration = Duration::from_millis(1);

/// A link sends so far ahead of its rate, so that packets leave several at a time.
const BURST: Duration = Duration::from_micros(200);

/// What is sent whatever the rate is (probes) holds up the rest for no longer than this.
const MOST_AHEAD: Duration = Duration::from_secs(1);

/// When the next packet may be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Bits per second; with 0 nothing may be sent, without one everything.
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

    /// What the link carries from now on. What was sent ahead of the old rate takes as long as the new one needs for it.
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

    /// So many bytes were sent.
    pub(super) fn sent(&mut self, bytes: usize, now: Instant) {
        // Without any rate only what waits for nothing is sent, which is not made up for later.
        if let Some(rate) = self.rate.filter(|rate| *rate > 0) {
            let from = self.ready.max(now.saturating_sub(CATCH_UP));
            let takes = nanos(bytes as u128 * 8 * 1_000_000_000 / u128::from(rate));
            self.ready = (from + takes)
                .min(now + MOST_AHEAD.max(takes))
                .max(self.ready);
        }
    }

    pub(crate) fn is_ready(&self, now: Instant) -> bool {
        self.ready() <= now
    }

    /// Whether packets that were begun with may be followed by another one.
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
        // Two milliseconds late: one of them is caught up, the other is lost.
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
    fn what_is_sent_whatever_the_rate_is_does_not_add_up() {
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
    fn a_new_rate_counts_for_what_was_sent_ahead_and_none_stops_the_link() {
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
