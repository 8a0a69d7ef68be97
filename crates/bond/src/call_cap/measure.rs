//! Measures a link's queue and the rate of a carrier over it, in intervals of half a round trip.

use std::collections::VecDeque;
use std::time::Duration;

use crate::{Instant, TcpInfo};

/// Shortest and longest interval.
const INTERVAL: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(200));

/// The rate is measured over this time and this many segments, or over a round trip if that is
/// longer: acknowledgments come in bursts.
const RATE_WINDOW: Duration = Duration::from_millis(40);
const RATE_SEGMENTS: u64 = 16;

/// It is measured over at most this time if a round trip is shorter.
const RATE_MAX_WINDOW: Duration = Duration::from_secs(1);

/// Most intervals over which it is measured.
const MAX_MARKS: usize = 256;

/// An interval that took this many times longer than planned contains a pause.
const PAUSED: u32 = 4;

/// The measurement of an interval in which the carrier had data to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finding {
    /// Delay by the queue all through the interval.
    pub(super) queue: Duration,
    /// Smoothed round trip.
    pub(super) trip: Duration,
    /// Bytes per second that TCP has delivered.
    pub(super) rate: f64,
    /// Bytes of a segment.
    pub(super) segment: f64,
    /// Length of the interval.
    pub(super) took: Duration,
}

/// The present interval, and the deliveries before it.
#[derive(Clone, Debug, Default)]
pub(super) struct Measure {
    since: Option<Instant>,
    /// The lowest smoothed round trip of the interval, without the least one of the path. Jitter
    /// raises single round trips, a queue all of them.
    least: Option<Duration>,
    /// Samples of the interval, and those in which data waited for TCP to send it.
    samples: u32,
    backlogged: u32,
    /// Bytes delivered by the end of each interval, as far as the rate needs them.
    marks: VecDeque<(Instant, u64)>,
}

impl Measure {
    /// Takes a sample; returns the interval's finding if the sample ends it.
    pub(super) fn observe(&mut self, info: &TcpInfo, now: Instant) -> Option<Finding> {
        let base = info.min_rtt.filter(|_| !info.srtt.is_zero())?;
        let delivered = u64::from(info.delivered) * u64::from(info.snd_mss);
        let since = *self.since.get_or_insert(now);
        if self.marks.is_empty() {
            self.marks.push_back((now, delivered));
        }
        let queue = info.srtt.saturating_sub(base);
        self.least = Some(self.least.map_or(queue, |least| least.min(queue)));
        self.samples += 1;
        self.backlogged += u32::from(info.notsent_bytes > 0);
        let planned = (info.srtt / 2).clamp(INTERVAL.0, INTERVAL.1);
        let took = now.saturating_sub(since);
        if took < planned {
            return None;
        }
        let is_busy = 2 * self.backlogged >= self.samples && took < PAUSED * planned;
        let queue = self.least.unwrap_or_default();
        (self.since, self.least) = (Some(now), None);
        (self.samples, self.backlogged) = (0, 0);
        if !is_busy {
            // The rate was not that of the link.
            self.marks.clear();
            self.marks.push_back((now, delivered));
            return None;
        }
        let rate = self.rate(delivered, info, now);
        self.marks.push_back((now, delivered));
        if self.marks.len() > MAX_MARKS {
            self.marks.pop_front();
        }
        Some(Finding {
            queue,
            trip: info.srtt,
            rate: rate.filter(|rate| *rate > 0.0)?,
            segment: f64::from(info.snd_mss),
            took,
        })
    }

    /// The rate over the latest part of the connection; `None` if that began only now.
    fn rate(&mut self, delivered: u64, info: &TcpInfo, now: Instant) -> Option<f64> {
        let window = RATE_WINDOW.max(info.srtt);
        let bytes = RATE_SEGMENTS * u64::from(info.snd_mss);
        let is_enough = |mark: &(Instant, u64)| {
            let age = now.saturating_sub(mark.0);
            let has_bytes = delivered.saturating_sub(mark.1) >= bytes;
            age >= window && (has_bytes || age >= RATE_MAX_WINDOW)
        };
        while self.marks.get(1).is_some_and(is_enough) {
            self.marks.pop_front();
        }
        let (at, before) = *self.marks.front().filter(|mark| is_enough(mark))?;
        let bytes = delivered.saturating_sub(before);
        Some(bytes as f64 / now.saturating_sub(at).as_secs_f64())
    }
}
