//! The rate of delivery, as Linux measures it for TCP_INFO (`net/ipv4/tcp_rate.c`; draft-cheng-iccrg-delivery-rate-estimation).

use super::scoreboard::Segment;
use crate::clock::{Nanos, SECOND, scaled};

/// Counts what arrives and in what time.
#[derive(Clone, Debug, Default)]
pub(super) struct Delivery {
    /// Segments delivered so far.
    delivered: u64,
    /// When the last of them was.
    delivered_at: Nanos,
    /// When the first segment of the present flight was sent.
    first_sent: Nanos,
    /// Segments up to this count say less than the path can do; 0 for none.
    limited_until: u64,
    /// The sample that the present acknowledgement makes.
    sample: Option<Sample>,
    /// The last one that counts: segments and time.
    kept: (u64, Nanos),
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    delivered: u64,
    since: Nanos,
    sending: Nanos,
    is_limited: bool,
}

impl Delivery {
    /// Segments delivered so far.
    pub(super) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// A segment is sent; `idle` says that nothing was in flight.
    pub(super) fn send(&mut self, segment: &mut Segment, idle: bool, now: Nanos) {
        if idle {
            self.first_sent = now;
            self.delivered_at = now;
        }
        segment.first_sent = self.first_sent;
        segment.delivered_at = self.delivered_at;
        segment.delivered = self.delivered;
        segment.app_limited = self.limited_until > 0;
    }

    /// The program had nothing to send, with so many segments in flight.
    pub(super) fn limited_by_program(&mut self, in_flight: u32) {
        self.limited_until = (self.delivered + u64::from(in_flight)).max(1);
    }

    /// A segment was delivered.
    pub(super) fn deliver(&mut self, segment: &Segment) {
        self.delivered += 1;
        let newest = self
            .sample
            .is_none_or(|sample| segment.delivered >= sample.delivered);
        if newest {
            self.sample = Some(Sample {
                delivered: segment.delivered,
                since: segment.delivered_at,
                sending: segment.sent.saturating_sub(segment.first_sent),
                is_limited: segment.app_limited,
            });
            self.first_sent = segment.sent;
        }
    }

    /// The acknowledgement is over; `least` is the least round-trip time.
    pub(super) fn finish(&mut self, least: Nanos, now: Nanos) {
        if self.limited_until > 0 && self.delivered > self.limited_until {
            self.limited_until = 0;
        }
        let Some(sample) = self.sample.take() else {
            return;
        };
        self.delivered_at = now;
        let delivered = self.delivered - sample.delivered;
        let interval = sample.sending.max(now.saturating_sub(sample.since));
        // Shorter than a round trip: what was acknowledged was compressed on the way.
        if interval < least || interval == 0 {
            return;
        }
        let (kept, time) = self.kept;
        let is_faster = u128::from(delivered) * u128::from(time.max(1))
            >= u128::from(kept) * u128::from(interval);
        if !sample.is_limited || is_faster {
            self.kept = (delivered, interval);
        }
    }

    /// Bytes per second, of segments of `mss`; 0 before the first measurement.
    pub(super) fn rate(&self, mss: u32) -> u64 {
        let (delivered, interval) = self.kept;
        match interval {
            0 => 0,
            _ => scaled(delivered * u64::from(mss), SECOND, interval),
        }
    }
}
