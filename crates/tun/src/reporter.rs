//! ICMP errors to programs, at a limited rate.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::packet::icmp::{self, Problem};
use crate::sink::Sink;
use crate::stats::Counters;

/// Most errors in a burst (RFC 4443, section 2.4 (f)).
const BURST: u32 = 100;

/// The time for which one more error may be sent.
const INTERVAL: Duration = Duration::from_millis(2);

/// Sends errors into a sink.
pub(crate) struct Reporter<S> {
    sink: Arc<S>,
    bucket: Mutex<Bucket>,
    counters: Arc<Counters>,
}

/// A token bucket.
#[derive(Debug)]
struct Bucket {
    tokens: u32,
    filled: Instant,
}

impl<S: Sink> Reporter<S> {
    pub(crate) fn new(sink: Arc<S>, counters: Arc<Counters>) -> Self {
        Self {
            sink,
            bucket: Mutex::new(Bucket {
                tokens: BURST,
                filled: Instant::now(),
            }),
            counters,
        }
    }

    /// Reports a problem with the packet that `quote` begins, to its source.
    pub(crate) fn report(&self, problem: Problem, reporter: IpAddr, quote: &[u8]) {
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        if !bucket.take(Instant::now()) {
            return;
        }
        drop(bucket);
        if let Some(packet) = icmp::error(problem, reporter, quote) {
            self.counters.traffic.errors_sent.increment();
            self.sink.packet(&packet);
        }
    }
}

impl Bucket {
    fn take(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.filled);
        let more = passed.as_nanos() / INTERVAL.as_nanos();
        if more > 0 {
            let more = u32::try_from(more).unwrap_or(BURST);
            self.tokens = self.tokens.saturating_add(more).min(BURST);
            self.filled = now;
        }
        let is_there = self.tokens > 0;
        self.tokens = self.tokens.saturating_sub(1);
        is_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_come_in_bursts_and_then_at_the_rate() {
        let start = Instant::now();
        let mut bucket = Bucket {
            tokens: BURST,
            filled: start,
        };
        let burst = std::iter::repeat_with(|| bucket.take(start)).take_while(|taken| *taken);
        assert_eq!(burst.count() as u32, BURST);
        let later = start + 3 * INTERVAL;
        let rest = std::iter::repeat_with(|| bucket.take(later)).take_while(|taken| *taken);
        assert_eq!(rest.count(), 3);
    }
}
