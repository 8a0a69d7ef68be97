//! The token-bucket policer in front of the queue.

use core::time::Duration;

/// Nanoseconds per second; tokens are counted in bit-nanoseconds per second so that they stay
/// integers.
const NANOS: u128 = 1_000_000_000;

/// A token-bucket policer (RFC 2697, section 3, with one rate and one bucket): it drops each packet
/// for which it has too few tokens, and delays none.
///
/// In any interval of length `t` it passes at most `burst + rate * t / 8` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policer {
    /// Bits per second at which the bucket fills; 0 never fills it.
    pub rate: u64,
    /// Size of the bucket in bytes; it is full at first. A packet larger than this never passes.
    pub burst: u64,
}

/// The running bucket of a [`Policer`].
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    policer: Policer,
    /// Tokens at `at`, in bits * 10^9.
    tokens: u128,
    at: Duration,
}

impl Bucket {
    /// A full bucket.
    pub(crate) fn full(policer: Policer, now: Duration) -> Self {
        Self {
            policer,
            tokens: bits(policer.burst),
            at: now,
        }
    }

    /// Takes the tokens of a packet if there are enough.
    pub(crate) fn passes(&mut self, now: Duration, bytes: u64) -> bool {
        let elapsed = now.saturating_sub(self.at).as_nanos();
        let filled = u128::from(self.policer.rate).saturating_mul(elapsed);
        self.tokens = (self.tokens.saturating_add(filled)).min(bits(self.policer.burst));
        self.at = self.at.max(now);
        let Some(left) = self.tokens.checked_sub(bits(bytes)) else {
            return false;
        };
        self.tokens = left;
        true
    }
}

/// Bytes as tokens.
fn bits(bytes: u64) -> u128 {
    u128::from(bytes) * 8 * NANOS
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn bucket(rate: u64, burst: u64) -> Bucket {
        Bucket::full(Policer { rate, burst }, Duration::ZERO)
    }

    #[test]
    fn a_burst_passes_and_then_only_the_rate() {
        let mut bucket = bucket(12_000_000, 4_500); // 1500 bytes each ms
        let at_once = (0..10).filter(|_| bucket.passes(Duration::ZERO, 1_500));
        assert_eq!(at_once.count(), 3);
        let offered = (1..=1_000u32).flat_map(|quarter| [quarter; 2]);
        let passed = offered.filter(|quarter| bucket.passes(*quarter * MS / 4, 1_500));
        assert_eq!(passed.count(), 250);
    }

    #[test]
    fn the_bucket_never_holds_more_than_its_burst() {
        let mut bucket = bucket(12_000_000, 3_000);
        let late = Duration::from_secs(3_600);
        let passed = (0..10).filter(|_| bucket.passes(late, 1_500));
        assert_eq!(passed.count(), 2);
        assert!(
            !bucket.passes(Duration::MAX, 3_001),
            "larger than the bucket"
        );
        assert!(bucket.passes(Duration::MAX, 3_000));
    }

    #[test]
    fn a_rate_of_zero_passes_one_burst() {
        let mut bucket = bucket(0, 1_500);
        assert!(bucket.passes(MS, 1_500));
        assert!(!bucket.passes(Duration::from_secs(100), 1));
    }
}
