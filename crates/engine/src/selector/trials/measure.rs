//! Measures a period: its goodput, and the delivery delay of bytes.

use std::time::Duration;

use crate::Instant;
use crate::selector::Seen;

/// Smallest number of delays for a median.
const MIN_DELAYS: usize = 4;

/// Most delays that are kept.
const MAX_DELAYS: usize = 4096;

/// A program with waiting bytes in this share of the observations is ahead of the paths.
const GREEDY: f64 = 0.8;

/// Fewer bytes are not significant.
const MIN_BYTES: u64 = 16 << 10;

/// A period under observation.
#[derive(Clone, Debug)]
pub(super) struct Window {
    begun: Instant,
    delivered: u64,
    delays: Vec<Duration>,
    looks: u32,
    waited: u32,
}

/// The measurement of a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// Bytes per second that reached the peer in order.
    pub(super) goodput: f64,
    /// Median of the delays between a write and its delivery, of streams that keep up; none if
    /// there were few.
    pub(super) delay: Option<Duration>,
    /// The programs offered more than the paths took.
    pub(super) greedy: bool,
    /// The traffic was large enough for a result.
    pub(super) is_significant: bool,
}

impl Window {
    pub(super) fn begin(seen: &Seen<'_>) -> Self {
        Self {
            begun: seen.now,
            delivered: seen.delivered,
            delays: Vec::new(),
            looks: 0,
            waited: 0,
        }
    }

    pub(super) fn note(&mut self, seen: &Seen<'_>) {
        self.looks += 1;
        self.waited += u32::from(seen.waiting);
        let room = MAX_DELAYS - self.delays.len();
        self.delays.extend(seen.delays.iter().take(room));
    }

    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_sub(self.begun)
    }

    pub(super) fn end(mut self, seen: &Seen<'_>) -> Sample {
        let bytes = seen.delivered.saturating_sub(self.delivered);
        let time = self.age(seen.now).as_secs_f64().max(1e-3);
        self.delays.sort_unstable();
        let count = self.delays.len();
        let delay = (count >= MIN_DELAYS).then(|| self.delays[(count - 1) / 2]);
        Sample {
            goodput: bytes as f64 / time,
            delay,
            greedy: f64::from(self.waited) >= GREEDY * f64::from(self.looks.max(1)),
            is_significant: bytes >= MIN_BYTES || delay.is_some(),
        }
    }
}
