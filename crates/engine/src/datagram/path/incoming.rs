//! What a receiver knows about a path: the newest time on the sender's clock that has arrived on
//! it, and its delay relative to the other paths.

use std::time::Duration;

use crate::Instant;
use crate::datagram::clock;

/// Weight of a new delay against the smoothed one.
const GAIN: i64 = 8;

/// Weight of its deviation.
const VARIATION_GAIN: i64 = 4;

/// A packet may be later than usual by this time ...
const SLACK: Duration = Duration::from_millis(3);

/// ... and by this time before [`EXPERIENCE`] packets have arrived. The first packets are probes,
/// which are smaller than those that carry data.
const YOUNG_SLACK: Duration = Duration::from_millis(25);

/// Packets after which the usual delay is known.
const EXPERIENCE: u32 = 32;

/// The sender's clock, extended beyond the range of its stamps.
#[derive(Debug, Default)]
pub(in crate::datagram) struct SenderClock {
    /// The newest time, its stamp, and when it arrived.
    newest: Option<(i64, u64, Instant)>,
}

impl SenderClock {
    /// The time of a stamp, in microseconds since an unknown moment.
    pub(in crate::datagram) fn extend(&mut self, stamp: u64, now: Instant) -> i64 {
        let Some((newest, newest_stamp, at)) = self.newest else {
            self.newest = Some((stamp as i64, stamp, now));
            return stamp as i64;
        };
        // After a pause the stamp is near the time that has passed here.
        let passed = clock::micros(now.saturating_sub(at));
        let expected = (newest_stamp as i64).saturating_add(passed);
        let ahead = clock::between(expected as u64, stamp);
        let time = newest.saturating_add(passed).saturating_add(ahead);
        if time > newest {
            self.newest = Some((time, stamp, now));
        }
        time
    }
}

/// Arrivals of one path as measurements.
#[derive(Debug, Default)]
pub(in crate::datagram) struct Incoming {
    /// When the newest packet was sent, on the sender's clock.
    pub(in crate::datagram) newest: Option<i64>,
    /// Time of arrival minus time of sending, smoothed, and its variation.
    delay: Option<(i64, i64)>,
    /// Number of packets that have arrived.
    count: u32,
}

impl Incoming {
    /// A packet that was sent at `sent_at` has arrived. Returns when the newest one was sent.
    pub(in crate::datagram) fn note(&mut self, sent_at: i64, now: Instant) -> i64 {
        let newest = self.newest.map_or(sent_at, |newest| newest.max(sent_at));
        self.newest = Some(newest);
        self.count = self.count.saturating_add(1);
        let delay = clock::micros(now).saturating_sub(sent_at);
        self.delay = Some(match self.delay {
            None => (delay, 0),
            Some((smooth, variation)) => {
                let off = delay.saturating_sub(smooth);
                let variation = variation + (off.saturating_abs() - variation) / VARIATION_GAIN;
                (smooth.saturating_add(off / GAIN), variation)
            }
        });
        newest
    }

    /// When a packet that was sent at `sent_at` arrives at the latest, by experience.
    pub(in crate::datagram) fn arrives_by(&self, sent_at: i64) -> Option<Instant> {
        let (delay, variation) = self.delay?;
        let slack = match self.count < EXPERIENCE {
            true => YOUNG_SLACK,
            false => SLACK,
        };
        let late = variation.saturating_mul(4).max(clock::micros(slack));
        let late = delay.saturating_add(late);
        let at = sent_at.saturating_add(late);
        Some(Duration::from_micros(at.max(0) as u64))
    }
}
