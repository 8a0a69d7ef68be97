//! When a link may be given packets, so that they leave at its rate.

use std::time::Duration;

use sumlink_edge::Instant;

/// How far a link that was served late may catch up at once.
const CATCH_UP: Duration = Duration::from_millis(1);

/// A link sends so far ahead of its rate, so that packets leave several at a time.
const BURST: Duration = Duration::from_micros(200);

/// When the next packet may be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Bits per second.
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

    /// So many bytes were sent.
    pub(super) fn sent(&mut self, bytes: usize, now: Instant) {
        if let Some(rate) = self.rate {
            let from = self.ready.max(now.saturating_sub(CATCH_UP));
            let nanos = bytes as u128 * 8 * 1_000_000_000 / u128::from(rate.max(1));
            self.ready = from + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        }
    }

    pub(crate) fn is_ready(&self, now: Instant) -> bool {
        self.ready <= now
    }

    /// Whether packets that were begun with may be followed by another one.
    pub(super) fn has_burst(&self, now: Instant) -> bool {
        self.ready <= now + BURST
    }

    pub(crate) fn ready(&self) -> Instant {
        self.ready
    }
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
}
