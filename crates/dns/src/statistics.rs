//! Counters of the forwarder, for a status.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// Buckets of a histogram per doubling of the time.
const STEPS: u32 = 4;

/// Buckets of a histogram: up to 2^26 microseconds, more than a minute.
const BUCKETS: usize = 26 * STEPS as usize;

/// Figures of a forwarder since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Statistics {
    /// Questions of clients.
    pub queries: u64,
    /// Those answered from the cache.
    pub cached: u64,
    /// Those answered with expired data, because no upstream answered in time.
    pub stale: u64,
    /// Those that waited for the same question of another client.
    pub merged: u64,
    /// Those answered without an upstream: special names, and addresses of a family that is off.
    pub local: u64,
    /// Those answered with NXDOMAIN because of a rule.
    pub blocked: u64,
    /// Those with a private address in the answer.
    pub rebinding: u64,
    /// Those that got an error, because no upstream answered or too many were open.
    pub failed: u64,
    /// Messages that were not questions.
    pub malformed: u64,
    /// Answers that were too long for UDP.
    pub truncated: u64,
    /// Messages and connections from networks that are not served.
    pub strangers: u64,
    /// Messages and connections beyond the limits of a client.
    pub limited: u64,
    /// Answers in the cache.
    pub cache_entries: u64,
    /// Memory of the cache in bytes.
    pub cache_bytes: u64,
    /// The upstreams, those for all names first.
    pub upstreams: Vec<UpstreamStatistics>,
}

/// Figures of one upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct UpstreamStatistics {
    /// Its address.
    pub address: String,
    /// Questions to it.
    pub queries: u64,
    /// Those that it did not answer in a usable way, or not within a second when the question was
    /// given up.
    pub failed: u64,
    /// The median time until its answer, in microseconds, rounded up by at most a quarter; `None`
    /// without an answer.
    pub p50_us: Option<u64>,
    /// The 95th percentile of that time.
    pub p95_us: Option<u64>,
}

/// Counters of a forwarder.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) queries: Counter,
    pub(crate) cached: Counter,
    pub(crate) stale: Counter,
    pub(crate) merged: Counter,
    pub(crate) local: Counter,
    pub(crate) blocked: Counter,
    pub(crate) rebinding: Counter,
    pub(crate) failed: Counter,
    pub(crate) malformed: Counter,
    pub(crate) truncated: Counter,
    pub(crate) strangers: Counter,
    pub(crate) limited: Counter,
}

/// Time after which a question that is given up counts as unanswered.
const GIVEN_UP: Duration = Duration::from_secs(1);

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters of one upstream.
#[derive(Debug)]
pub(crate) struct UpstreamCounters {
    queries: Counter,
    failed: Counter,
    times: [AtomicU64; BUCKETS],
}

/// A question in flight to an upstream.
pub(crate) struct Pending<'a> {
    counters: &'a UpstreamCounters,
    begin: Instant,
    has_ended: bool,
}

impl Default for UpstreamCounters {
    fn default() -> Self {
        Self {
            queries: Counter::default(),
            failed: Counter::default(),
            times: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl UpstreamCounters {
    pub(crate) fn begin(&self) -> Pending<'_> {
        self.queries.count();
        Pending {
            counters: self,
            begin: Instant::now(),
            has_ended: false,
        }
    }

    pub(crate) fn read(&self, address: String) -> UpstreamStatistics {
        let times: Vec<u64> = self
            .times
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .collect();
        UpstreamStatistics {
            address,
            queries: self.queries.read(),
            failed: self.failed.read(),
            p50_us: percentile(&times, 50),
            p95_us: percentile(&times, 95),
        }
    }
}

impl Pending<'_> {
    pub(crate) fn end(mut self, is_answered: bool) {
        self.has_ended = true;
        if is_answered {
            let bucket = bucket(self.begin.elapsed());
            self.counters.times[bucket].fetch_add(1, Ordering::Relaxed);
        } else {
            self.counters.failed.count();
        }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.has_ended && self.begin.elapsed() >= GIVEN_UP {
            self.counters.failed.count();
        }
    }
}

/// The bucket of a time: each power of two of microseconds has [`STEPS`] buckets of equal width.
fn bucket(time: Duration) -> usize {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
    let exponent = micros.ilog2();
    let within = (u128::from(micros) * u128::from(STEPS)) >> exponent;
    // `within` is in STEPS..2 * STEPS.
    let step = within as usize - STEPS as usize;
    (exponent as usize * STEPS as usize + step).min(BUCKETS - 1)
}

/// The upper end of a bucket, in microseconds.
fn upper_end(bucket: usize) -> u64 {
    let (exponent, step) = (bucket as u32 / STEPS, bucket as u64 % u64::from(STEPS));
    let step_end = u64::from(STEPS) + step + 1;
    (step_end << exponent)
        .div_ceil(u64::from(STEPS))
        .saturating_sub(1)
        .max(1)
}

fn percentile(times: &[u64], percent: u64) -> Option<u64> {
    let total: u64 = times.iter().sum();
    let rank = (total * percent).div_ceil(100).max(1);
    let mut seen = 0;
    let place = times.iter().position(|count| {
        seen += count;
        seen >= rank
    })?;
    Some(upper_end(place))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn percentiles_are_within_a_quarter_of_the_times() {
        let counters = UpstreamCounters::default();
        assert_eq!(counters.read(String::new()).p50_us, None);
        for millis in 1..=100 {
            let bucket = bucket(Duration::from_millis(millis));
            counters.times[bucket].fetch_add(1, Ordering::Relaxed);
        }
        let read = counters.read(String::new());
        assert!((50_000..62_500).contains(&read.p50_us.unwrap()), "{read:?}");
        assert!(
            (95_000..119_000).contains(&read.p95_us.unwrap()),
            "{read:?}"
        );
    }

    proptest! {
        #[test]
        fn a_time_is_below_the_end_of_its_bucket_and_not_far(micros in 1..1u64 << 26) {
            let end = upper_end(bucket(Duration::from_micros(micros)));
            prop_assert!(micros <= end, "{} {}", micros, end);
            prop_assert!(end <= micros + micros / 4 + 1, "{} {}", micros, end);
        }

        #[test]
        fn every_time_has_a_bucket(micros in any::<u64>()) {
            prop_assert!(bucket(Duration::from_micros(micros)) < BUCKETS);
        }
    }
}
