//! The part of a smoothed round trip that no longer applies because the path's own queue has
//! drained.
//!
//! TCP measures a round trip when it receives an acknowledgment. The last measurements of a large
//! transfer include the queue of its own last bytes. That queue is empty as soon as they have left,
//! but the smoothed value stays until the path is used again. A scheduler that uses it avoids the
//! fastest path, which then gets no new measurements: small objects after a large one took the
//! slower link for a second and more (docs/fbdt.md).

use std::time::Duration;

use super::{Path, PathSample};
use crate::Instant;

/// The weight of a new measurement in the smoothed round trip (RFC 6298, section 2).
const SMOOTHING: f64 = 1.0 / 8.0;

/// A receiver delays the acknowledgment of a small packet by up to this time in the hope of data to
/// send with it (TCP_DELACK_MIN of Linux). This much of a measurement need not come from a queue.
const DELAYED_ACK: Duration = Duration::from_millis(40);

/// A path's part of a download has ended when nothing has arrived for a round trip, or for this
/// time if that is shorter: records arrive in one piece.
const RECEIVING_FOR: Duration = Duration::from_millis(10);

/// After this many measurements nothing is left of the earlier value.
const MAX_MEASUREMENTS: u64 = 100;

/// Whether the session's own bytes form a queue, and the round trip to expect once it has drained.
#[derive(Debug, Default)]
pub(super) struct OwnQueue {
    /// An own queue has existed since the path was last empty.
    was_queueing: bool,
    /// Bytes received over the path at the last sample, and the last time that more than a packet's
    /// answer arrived.
    received: u64,
    received_at: Option<Instant>,
    /// Nothing that filled the path has been in flight since it was empty.
    is_empty: bool,
    /// The part of the smoothed round trip that is attributed to the own queue.
    drained: Duration,
    /// Excess over the lowest round trip when no own queue existed: the queue of others, or the
    /// delay of a radio.
    others: Duration,
    /// Another carrier of the session fills the queue of the same link.
    is_shared: bool,
}

impl Path {
    /// Likely time until a byte handed over now reaches the peer, for the choice of a path: like
    /// [`Path::delay`], but without the queue of the path's own bytes that has drained.
    ///
    /// The excess caused by others is assumed to equal that of the last time without an own queue.
    /// The first measurements after the own queue has drained correct it. Lateness is judged by the
    /// measured values.
    pub fn likely_delay(&self) -> Duration {
        self.delays.likely_delay
    }

    /// [`Path::likely_delay`] plus the current queue of the path's own bytes, as in
    /// [`Path::queued_delay`].
    pub fn likely_queued_delay(&self) -> Duration {
        self.delays.likely_queued_delay
    }

    /// The smoothed round trip, without the path's own queue if that has drained.
    pub(super) fn rtt_without_own_queue(&self) -> Duration {
        let srtt = self.srtt();
        if self.delays.own_queue.is_shared {
            return srtt;
        }
        let without = srtt.saturating_sub(self.delays.own_queue.drained);
        without.max(self.min_round_trip().min(srtt))
    }

    /// Whether the path's own bytes wait in its queue. Data in flight is counted in whole segments,
    /// so two segments are no queue.
    pub(crate) fn is_queueing(&self) -> bool {
        self.queued_bytes() > 2.0 * self.mss() as f64
    }

    /// Sets whether another carrier of the session fills the queue of the same link.
    pub(crate) fn share_queue(&mut self, is_shared: bool) {
        if self.delays.own_queue.is_shared != is_shared {
            self.delays.own_queue.is_shared = is_shared;
            self.update_delays();
        }
    }

    /// Whether even an unchanged sample would show that the peer's queue has drained.
    pub(crate) fn has_own_queue_ended(&self, now: Instant) -> bool {
        let own = &self.delays.own_queue;
        !own.is_empty && own.received_at.is_some() && self.is_unused() && !self.is_receiving(now)
    }

    fn is_unused(&self) -> bool {
        self.sample.in_flight == 0 && self.sample.unsent == 0
    }

    /// Whether the peer sends: acknowledgments then return through the queue of its data.
    fn is_receiving(&self, now: Instant) -> bool {
        let lasts = self.srtt().max(RECEIVING_FOR);
        let received_at = self.delays.own_queue.received_at;
        received_at.is_some_and(|at| now.saturating_sub(at) < lasts)
    }

    /// Updates the state after a sample; `before` is the previous one.
    pub(super) fn note_own_queue(&mut self, before: &PathSample, now: Instant) {
        let got = self
            .inbound
            .received
            .saturating_sub(self.delays.own_queue.received);
        self.delays.own_queue.received = self.inbound.received;
        if got > self.mss() {
            self.delays.own_queue.received_at = Some(now);
        }
        let is_queueing = self.is_queueing() || self.is_receiving(now);
        let (is_unused, srtt, least) = (self.is_unused(), self.srtt(), self.min_round_trip());
        // One acknowledgment covers two segments if that many are in flight (RFC 5681, section
        // 4.2).
        let measurements = match self.sample.delivered {
            0 => u64::from(srtt != before.srtt),
            delivered => delivered.saturating_sub(before.delivered).div_ceil(2),
        };
        // RFC 6298: srtt = 7/8 of the previous value + 1/8 of the measurement, each time.
        let kept = (1.0 - SMOOTHING).powi(measurements.min(MAX_MEASUREMENTS) as i32);
        let own = &mut self.delays.own_queue;
        own.drained = own.drained.mul_f64(kept);
        if is_queueing {
            (own.was_queueing, own.is_empty) = (true, false);
        } else if is_unused && !own.is_empty {
            own.is_empty = true;
            if std::mem::take(&mut own.was_queueing) {
                own.drained = srtt.saturating_sub(least + own.others);
            }
        } else if own.is_empty && measurements > 0 {
            let before = before.srtt.as_secs_f64();
            let measured = before + (srtt.as_secs_f64() - before) / (1.0 - kept);
            let measured = Duration::from_secs_f64(measured.max(0.0));
            let in_queues = measured.saturating_sub(DELAYED_ACK).max(least);
            own.drained = own.drained.min(srtt.saturating_sub(in_queues));
            own.others = (srtt - own.drained).saturating_sub(least);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PathId;

    const MS: Duration = Duration::from_millis(1);

    /// A path of 1 MB/s with a lowest round trip of 40 ms, in whose queue its own bytes have waited
    /// for 100 ms.
    fn busy() -> Path {
        let mut path = Path::new(PathId(0), Instant::ZERO);
        path.outbound.sent = 1_000_000;
        let sample = PathSample {
            srtt: 140 * MS,
            min_rtt: 40 * MS,
            in_flight: 140_000,
            delivery_rate: 1_000_000,
            ..PathSample::default()
        };
        path.update(sample, Instant::ZERO);
        path
    }

    fn change(path: &mut Path, change: impl FnOnce(&mut PathSample)) {
        let mut sample = path.sample;
        change(&mut sample);
        path.update(sample, Instant::ZERO);
    }

    /// The data in flight arrives bit by bit, each part with the round trip of the last one.
    fn drain(path: &mut Path) {
        for in_flight in [path.sample.in_flight / 2, 5000, 0] {
            change(path, |sample| sample.in_flight = in_flight);
        }
    }

    #[test]
    fn a_queue_has_drained_when_its_bytes_have_left() {
        let mut path = busy();
        assert_eq!(path.rtt_without_own_queue(), 140 * MS);
        change(&mut path, |sample| sample.in_flight = 50_000);
        assert_eq!(path.rtt_without_own_queue(), 140 * MS);
        drain(&mut path);
        assert_eq!(path.rtt_without_own_queue(), 40 * MS);
        assert_eq!(path.likely_delay(), 20 * MS);
        assert_eq!(path.likely_queued_delay(), 20 * MS);
        // Lateness is judged by the measured values.
        assert_eq!((path.delay(), path.queued_delay()), (70 * MS, 70 * MS));
    }

    #[test]
    fn later_bytes_do_not_see_the_drained_queue() {
        let mut path = busy();
        drain(&mut path);
        path.outbound.sent += 1000;
        change(&mut path, |sample| sample.in_flight = 1000);
        assert_eq!(path.rtt_without_own_queue(), 40 * MS);
        // The measurement is 40 ms.
        change(&mut path, |sample| {
            (sample.in_flight, sample.srtt) = (0, 127_500 * MS / 1000)
        });
        assert_eq!(path.rtt_without_own_queue(), 40 * MS);
    }

    #[test]
    fn a_queue_of_others_is_detected_with_one_measurement() {
        let mut path = busy();
        drain(&mut path);
        // 140 ms again, of which 40 ms may be a delayed acknowledgment.
        change(&mut path, |sample| sample.delivered = 1);
        let rtt = path.rtt_without_own_queue();
        assert_eq!(rtt, 100 * MS);
        // The excess is expected the next time, too.
        change(&mut path, |sample| {
            (sample.delivered, sample.in_flight) = (200, 140_000);
        });
        let busy = path.rtt_without_own_queue();
        assert!((139 * MS..=140 * MS).contains(&busy), "{busy:?}");
        drain(&mut path);
        assert_eq!(path.rtt_without_own_queue(), rtt);
    }

    #[test]
    fn several_measurements_at_once_count_as_several() {
        let mut path = busy();
        path.sample.delivered = 1000;
        drain(&mut path);
        // Three measurements of 120 ms.
        change(&mut path, |sample| {
            sample.delivered += 6;
            sample.srtt = Duration::from_secs_f64(0.120 + 0.020 * 0.875f64.powi(3));
        });
        let rtt = path.rtt_without_own_queue();
        assert!((79 * MS..=81 * MS).contains(&rtt), "{rtt:?}");
        // A permanently longer round trip is detected after some more measurements.
        for _ in 0..20 {
            change(&mut path, |sample| {
                (sample.delivered, sample.srtt) = (sample.delivered + 1, 120 * MS)
            });
        }
        let rtt = path.rtt_without_own_queue();
        assert!((112 * MS..=120 * MS).contains(&rtt), "{rtt:?}");
    }

    #[test]
    fn bytes_in_the_socket_count_as_in_flight() {
        let mut path = busy();
        change(&mut path, |sample| {
            (sample.in_flight, sample.unsent) = (0, 1000)
        });
        assert_eq!(path.rtt_without_own_queue(), 140 * MS);
        change(&mut path, |sample| sample.unsent = 0);
        assert_eq!(path.rtt_without_own_queue(), 40 * MS);
    }

    #[test]
    fn it_is_never_below_the_lowest_round_trip() {
        let mut path = busy();
        drain(&mut path);
        change(&mut path, |sample| sample.min_rtt = 60 * MS);
        assert_eq!(path.rtt_without_own_queue(), 60 * MS);
    }

    #[test]
    fn two_segments_are_no_queue() {
        let mut path = busy();
        drain(&mut path);
        change(&mut path, |sample| {
            (sample.delivery_rate, sample.in_flight) = (10_000, 2896)
        });
        assert_eq!(path.rtt_without_own_queue(), 40 * MS);
    }

    #[test]
    fn a_queue_that_another_carrier_fills_counts() {
        let mut path = busy();
        drain(&mut path);
        path.share_queue(true);
        assert_eq!(path.likely_delay(), 70 * MS);
        path.share_queue(false);
        assert_eq!(path.likely_delay(), 20 * MS);
    }

    #[test]
    fn a_delayed_acknowledgment_is_no_queue() {
        let mut path = busy();
        drain(&mut path);
        // A measurement of 80 ms.
        change(&mut path, |sample| sample.srtt = 132_500 * MS / 1000);
        assert_eq!(path.rtt_without_own_queue(), 45 * MS);
    }

    #[test]
    fn without_an_own_queue_the_round_trip_is_unchanged() {
        let mut path = busy();
        drain(&mut path);
        for _ in 0..50 {
            path.outbound.sent += 1000;
            change(&mut path, |sample| sample.in_flight = 1000);
            // Measurements of 90 ms.
            change(&mut path, |sample| {
                let srtt = (7 * sample.srtt + 90 * MS) / 8;
                (sample.in_flight, sample.srtt) = (0, srtt);
            });
        }
        let rtt = path.rtt_without_own_queue();
        assert!((89 * MS..91 * MS).contains(&rtt), "{rtt:?}");
        path.outbound.sent += 10_000;
        change(&mut path, |sample| sample.in_flight = 10_000);
        drain(&mut path);
        assert_eq!(path.rtt_without_own_queue(), rtt);
    }

    #[test]
    fn the_queue_of_the_peer_has_drained_when_nothing_more_arrives() {
        let mut path = busy();
        drain(&mut path);
        let mut sample = path.sample;
        for ms in 1..=200 {
            path.inbound.received += 2000;
            (sample.srtt, sample.in_flight) = (240 * MS, u64::from(ms % 2) * 100);
            sample.delivered += 1;
            path.update(sample, ms * MS);
        }
        sample.in_flight = 0;
        path.update(sample, 439 * MS);
        let fed = path.rtt_without_own_queue();
        assert!((239 * MS..=240 * MS).contains(&fed), "{fed:?}");
        assert!(!path.has_own_queue_ended(439 * MS) && path.has_own_queue_ended(440 * MS));
        path.inbound.received += 1000;
        path.update(sample, 440 * MS);
        assert_eq!(path.rtt_without_own_queue(), 40 * MS);
        assert!(!path.has_own_queue_ended(441 * MS));
    }

    #[test]
    fn a_new_queue_is_part_of_the_round_trip_again() {
        let mut path = busy();
        drain(&mut path);
        path.outbound.sent += 140_000;
        change(&mut path, |sample| {
            (sample.in_flight, sample.srtt) = (140_000, 100 * MS)
        });
        // Immediately from the data in flight, and in the same amount once it is measured.
        assert_eq!(path.likely_queued_delay(), 120 * MS);
        change(&mut path, |sample| sample.delivered = 100);
        let measured = path.rtt_without_own_queue();
        assert!((99 * MS..=100 * MS).contains(&measured), "{measured:?}");
    }
}
