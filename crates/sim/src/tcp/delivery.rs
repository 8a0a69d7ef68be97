//! The delivery rate, as Linux measures it for BBR and TCP_INFO (`net/ipv4/tcp_rate.c`;
//! draft-cheng-iccrg-delivery-rate-estimation, section 3.3).

use super::scoreboard::Segment;
use crate::clock::{Nanos, SECOND, duration, scaled};

/// Counts deliveries and their times.
#[derive(Clone, Debug, Default)]
pub(super) struct Delivery {
    /// Segments delivered so far.
    delivered: u64,
    /// Time of the last delivery.
    delivered_at: Nanos,
    /// Send time of the first segment of the current flight.
    first_sent: Nanos,
    /// Delivery count up to which samples are limited by the program, and so underestimate the
    /// path; 0 for none.
    limited_until: u64,
    /// The sample of the current acknowledgment.
    sample: Option<Sample>,
    /// The last valid sample: segments and time.
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

    /// A segment is sent; `idle` means that nothing was in flight before.
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

    /// The program had nothing to send, with `in_flight` segments in flight.
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

    /// Ends the count of an acknowledgment, and returns its sample if it is valid. `least` is the
    /// minimum round-trip time.
    pub(super) fn finish(
        &mut self,
        least: Nanos,
        now: Nanos,
    ) -> Option<sumlink_congestion::Delivery> {
        if self.limited_until > 0 && self.delivered > self.limited_until {
            self.limited_until = 0;
        }
        let sample = self.sample.take()?;
        self.delivered_at = now;
        let delivered = self.delivered - sample.delivered;
        let interval = sample.sending.max(now.saturating_sub(sample.since));
        // Shorter than a round trip: the acknowledgments were compressed on the way.
        if interval < least || interval == 0 {
            return None;
        }
        let (kept, time) = self.kept;
        let is_faster = u128::from(delivered) * u128::from(time.max(1))
            >= u128::from(kept) * u128::from(interval);
        if !sample.is_limited || is_faster {
            self.kept = (delivered, interval);
        }
        Some(sumlink_congestion::Delivery {
            before: sample.delivered,
            until: self.delivered,
            interval: duration(interval),
            is_limited: sample.is_limited,
        })
    }

    /// Delivery rate in bytes per second, for segments of `mss` bytes; 0 before the first
    /// measurement.
    pub(super) fn rate(&self, mss: u32) -> u64 {
        let (delivered, interval) = self.kept;
        match interval {
            0 => 0,
            _ => scaled(delivered * u64::from(mss), SECOND, interval),
        }
    }
}
