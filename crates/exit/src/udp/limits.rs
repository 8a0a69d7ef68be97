//! Limits that the sources of a client share: rate and memory.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// A token bucket.
#[derive(Debug)]
pub(super) struct Bucket {
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
    /// A full bucket of `most` tokens.
    pub(super) fn new(rate: f64, most: f64, now: Instant) -> Self {
        let level = most;
        Self {
            rate,
            most,
            level,
            at: now,
        }
    }

    /// A bucket for bytes.
    pub(super) fn of_bytes(rate: NonZeroU64, now: Instant) -> Self {
        let rate = rate.get() as f64;
        let burst = (rate * BURST.as_secs_f64()).max(MIN_BURST as f64);
        Self::new(rate, burst, now)
    }

    /// Takes this many tokens, if there are as many.
    pub(super) fn take(&mut self, tokens: usize, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = self.at.max(now);
        self.level = (self.level + passed * self.rate).min(self.most);
        let tokens = tokens as f64;
        let is_enough = self.level >= tokens;
        if is_enough {
            self.level -= tokens;
        }
        is_enough
    }
}

/// Bytes of memory that a client's sources may use.
#[derive(Debug)]
pub(super) struct Budget {
    most: usize,
    used: AtomicUsize,
}

impl Budget {
    pub(super) fn new(most: usize) -> Arc<Self> {
        let used = AtomicUsize::new(0);
        Arc::new(Self { most, used })
    }

    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

/// The part of a [`Budget`] that one source uses. It is returned when the source ends.
#[derive(Debug)]
pub(super) struct Account {
    budget: Arc<Budget>,
    charged: usize,
}

impl Account {
    pub(super) fn new(budget: &Arc<Budget>) -> Self {
        Self {
            budget: Arc::clone(budget),
            charged: 0,
        }
    }

    /// Takes the bytes, if the budget has them.
    pub(super) fn charge(&mut self, bytes: usize) -> bool {
        let most = self.budget.most;
        let used = &self.budget.used;
        let taken = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|sum| *sum <= most)
        });
        if taken.is_ok() {
            self.charged += bytes;
        }
        taken.is_ok()
    }

    pub(super) fn release(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.charged, "released more than was charged");
        let bytes = bytes.min(self.charged);
        self.charged -= bytes;
        self.budget.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.release(self.charged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
    fn accounts_share_a_budget_and_return_it() {
        let budget = Budget::new(100);
        let mut one = Account::new(&budget);
        let mut other = Account::new(&budget);
        assert!(one.charge(60) && !other.charge(41) && other.charge(40));
        one.release(10);
        assert!(other.charge(10) && !other.charge(usize::MAX));
        drop(other);
        assert_eq!(budget.used(), 50);
        drop(one);
        assert_eq!(budget.used(), 0);
    }
}
