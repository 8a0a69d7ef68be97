//! Keeps a datagram carrier to its link's limit.

use std::time::{Duration, Instant};

/// A token bucket: a rate in bytes per second, and a burst of [`BURST`].
#[derive(Debug, Default)]
pub(super) struct Bucket {
    /// Bytes per second; none for no limit.
    rate: Option<u64>,
    /// Bytes that may leave now; negative after a packet larger than the rest.
    tokens: f64,
    filled: Option<Instant>,
    /// Bytes taken since [`Bucket::take_used`].
    used: u64,
}

/// Time for which tokens are saved.
const BURST: Duration = Duration::from_millis(20);

impl Bucket {
    /// Sets the rate in bytes per second.
    pub(super) fn limit(&mut self, rate: Option<u64>, now: Instant) {
        if self.rate != rate {
            self.fill(now);
            self.rate = rate;
        }
    }

    /// Whether a packet may leave now.
    pub(super) fn has_tokens(&mut self, now: Instant) -> bool {
        self.fill(now);
        self.rate.is_none() || self.tokens > 0.0
    }

    /// A packet has left.
    pub(super) fn take(&mut self, bytes: usize) {
        self.used += bytes as u64;
        if self.rate.is_some() {
            self.tokens -= bytes as f64;
        }
    }

    /// When the next packet may leave.
    pub(super) fn due(&self, now: Instant) -> Instant {
        let missing = (1.0 - self.tokens).max(0.0);
        match self.rate {
            Some(rate) if missing > 0.0 => {
                now + Duration::from_secs_f64((missing / rate.max(1) as f64).min(1.0))
            }
            _ => now,
        }
    }

    /// Bytes taken since the last call.
    pub(super) fn take_used(&mut self) -> u64 {
        std::mem::take(&mut self.used)
    }

    fn fill(&mut self, now: Instant) {
        let elapsed = self.filled.replace(now).map(|filled| now - filled);
        if let Some(rate) = self.rate {
            let rate = rate as f64;
            let most = rate * BURST.as_secs_f64();
            let gained = elapsed.map_or(most, |elapsed| rate * elapsed.as_secs_f64());
            self.tokens = (self.tokens + gained).min(most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limited_carrier_keeps_to_its_rate() {
        let begun = Instant::now();
        let (mut bucket, mut now, mut sent) = (Bucket::default(), begun, 0);
        bucket.limit(Some(100_000), now);
        while now < begun + Duration::from_secs(10) {
            while bucket.has_tokens(now) {
                bucket.take(1500);
                sent += 1500;
            }
            let due = bucket.due(now);
            assert!(due > now, "a timer that is due at once would spin");
            now = due;
        }
        assert!((1_000_000..1_010_000).contains(&sent), "{sent}");
        assert_eq!(bucket.take_used(), sent);
    }

    #[test]
    fn a_carrier_without_a_limit_never_waits() {
        let now = Instant::now();
        let mut bucket = Bucket::default();
        for _ in 0..1000 {
            assert!(bucket.has_tokens(now));
            bucket.take(65_000);
        }
        bucket.limit(Some(1000), now);
        bucket.take(30_000);
        assert!(!bucket.has_tokens(now));
        assert!(bucket.due(now) <= now + Duration::from_secs(1));
    }
}
