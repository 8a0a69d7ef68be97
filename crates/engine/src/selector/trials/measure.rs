//! What a stretch of time was worth: goodput, and how long bytes took.

use std::time::Duration;

use crate::Instant;
use crate::selector::Seen;

/// So many delays make a median.
const LEAST_DELAYS: usize = 4;

/// More of them are not kept.
const MOST_DELAYS: usize = 4096;

/// A program that had bytes waiting in this part of the looks is ahead of the paths.
const GREEDY: f64 = 0.8;

/// Fewer bytes say nothing.
const LEAST_BYTES: u64 = 16 << 10;

/// A stretch of time that is being looked at.
#[derive(Clone, Debug)]
pub(super) struct Window {
    begun: Instant,
    delivered: u64,
    delays: Vec<Duration>,
    looks: u32,
    waited: u32,
}

/// What it was worth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// Bytes per second that the peer got in order.
    pub(super) goodput: f64,
    /// Median of the delays between a write and its delivery, of streams that keep up; nothing where there were few.
    pub(super) delay: Option<Duration>,
    /// The programs had more than the paths took.
    pub(super) greedy: bool,
    /// There was enough to say anything at all.
    pub(super) says_something: bool,
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
        let room = MOST_DELAYS - self.delays.len();
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
        let delay = (count >= LEAST_DELAYS).then(|| self.delays[(count - 1) / 2]);
        Sample {
            goodput: bytes as f64 / time,
            delay,
            greedy: f64::from(self.waited) >= GREEDY * f64::from(self.looks.max(1)),
            says_something: bytes >= LEAST_BYTES || delay.is_some(),
        }
    }
}
