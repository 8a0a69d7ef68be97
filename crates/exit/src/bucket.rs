//! A token bucket: how often, or how fast, a peer may do something.

use std::num::NonZeroU64;
use std::time::Duration;

use tokio::time::Instant;

/// A token bucket. It is full at first.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// Tokens per second.
    rate: f64,
    most: f64,
    level: f64,
    at: Instant,
}

/// Traffic that a byte rate permits at once, as time at that rate.
const BURST: Duration = Duration::from_millis(100);

/// Least burst of a byte rate: two of the longest datagrams.
const MIN_BURST: u64 = 2 * 65_536;

impl Bucket {
    /// A full bucket of `most` tokens, which gets `rate` tokens per second.
    pub fn new(rate: f64, most: f64, now: Instant) -> Self {
        let level = most;
        Self {
            rate,
            most,
            level,
            at: now,
        }
    }

    /// A bucket for bytes of datagrams, at a rate in bytes per second.
    pub(crate) fn of_bytes(rate: NonZeroU64, now: Instant) -> Self {
        let rate = rate.get() as f64;
        let burst = (rate * BURST.as_secs_f64()).max(MIN_BURST as f64);
        Self::new(rate, burst, now)
    }

    /// Takes this many tokens, if there are as many.
    pub fn take(&mut self, tokens: usize, now: Instant) -> bool {
        self.fill(now);
        let tokens = tokens as f64;
        let is_enough = self.level >= tokens;
        if is_enough {
            self.level -= tokens;
        }
        is_enough
    }

    /// Whether it has no trace of earlier takes.
    pub fn is_full(&mut self, now: Instant) -> bool {
        self.fill(now);
        self.level >= self.most
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = self.at.max(now);
        self.level = (self.level + passed * self.rate).min(self.most);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_bucket_never_gives_more_than_its_burst_and_its_rate(
            rate in 1..10_000_000u64,
            steps in proptest::collection::vec((0..70_000usize, 0..2_000u64), 1..200),
        ) {
            let start = Instant::now();
            let mut bucket = Bucket::of_bytes(NonZeroU64::new(rate).unwrap(), start);
            let (mut now, mut given) = (start, 0.0);
            for (bytes, pause) in steps {
                now += Duration::from_millis(pause);
                if bucket.take(bytes, now) {
                    given += bytes as f64;
                }
                let most = bucket.most + rate as f64 * (now - start).as_secs_f64();
                prop_assert!(given <= most * 1.000_001, "{given} of {most}");
            }
        }
    }

    #[test]
    fn a_bucket_is_full_again_after_the_time_for_all_tokens_taken() {
        let start = Instant::now();
        let mut bucket = Bucket::new(2.0, 10.0, start);
        assert!(bucket.is_full(start));
        assert!(bucket.take(10, start) && !bucket.take(1, start));
        let later = start + Duration::from_secs(2);
        assert!(!bucket.is_full(later));
        assert!(bucket.take(4, later) && !bucket.take(1, later));
        assert!(bucket.is_full(later + Duration::from_secs(5)));
        // A clock that is read out of order gives nothing.
        assert!(bucket.take(10, later + Duration::from_secs(5)));
        assert!(!bucket.take(1, start));
    }
}
