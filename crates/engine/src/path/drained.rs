//! The part of a smoothed round trip that is over.
//!
//! TCP measures a round trip when something is acknowledged. What a large transfer leaves behind is the round trip through the queue
//! that its own last bytes stood in; the queue is empty as soon as they have left, and the smoothed value stays until the path is used
//! again. Who chooses by it avoids the path that was the fastest, which is then not measured anew: small objects after a large one took
//! the way over the slower link for a second and more (docs/fbdt.md).

use std::time::Duration;

use super::{Path, PathSample};
use crate::Instant;

/// The weight of a new measurement in the smoothed round trip (RFC 6298, section 2).
const SMOOTHING: f64 = 1.0 / 8.0;

/// A receiver keeps the acknowledgement of a small packet so long in the hope of something to send with it (TCP_DELACK_MIN of Linux):
/// so much of a measurement need not be anybody's queue.
const DELAYED_ACK: Duration = Duration::from_millis(40);

/// A path's part of a download is over when nothing has come for a round trip, and for so long where that is shorter: records come in
/// one piece.
const FED_FOR: Duration = Duration::from_millis(10);

/// So many measurements leave nothing of what was before.
const MOST_MEASUREMENTS: u64 = 100;

/// Whether the session's own bytes make a queue, and what is to be thought of the round trip when it is gone.
#[derive(Debug, Default)]
pub(super) struct OwnQueue {
    /// There was one since the path was last empty.
    was_there: bool,
    /// What had been received over the path at the last sample, and when that last was more than an answer of a packet.
    received: u64,
    fed_at: Option<Instant>,
    /// Nothing that filled the path has been under way since it was empty.
    is_empty: bool,
    /// The part of the smoothed round trip that is taken for the own queue's.
    over: Duration,
    /// What the round trip was beyond the least one when no own queue was in it: the queue of others, or what a radio adds.
    others: Duration,
    /// Another carrier of the session fills the queue of the same link.
    is_shared: bool,
}

impl Path {
    /// Time until a byte handed over now is likely to be at the peer, for whoever chooses a path: as [`Path::delay`], but without the
    /// queue that the path's own bytes had made and that has drained.
    ///
    /// What others add is taken to be what it was when there was no own queue the last time; the first measurements after the own one
    /// is gone correct that. What is late is judged by what was measured.
    pub fn likely_delay(&self) -> Duration {
        self.likely_delay
    }

    /// The same with the queue that the path's own bytes make now, as [`Path::queued_delay`].
    pub fn likely_queued_delay(&self) -> Duration {
        self.likely_queued_delay
    }

    /// The smoothed round trip, and where the path's own queue has drained without what was measured in it.
    pub(super) fn rtt_without_own_queue(&self) -> Duration {
        let srtt = self.srtt();
        if self.own_queue.is_shared {
            return srtt;
        }
        let without = srtt.saturating_sub(self.own_queue.over);
        without.max(self.least_rtt().min(srtt))
    }

    /// Whether the path's own bytes stand in its queue; what is under way is counted in whole segments, so that two are none.
    pub(crate) fn is_queueing(&self) -> bool {
        self.queued_bytes() > 2.0 * self.mss() as f64
    }

    /// Says whether another carrier of the session fills the queue of the same link.
    pub(crate) fn share_queue(&mut self, is_shared: bool) {
        if self.own_queue.is_shared != is_shared {
            self.own_queue.is_shared = is_shared;
            self.work_out_delays();
        }
    }

    /// Whether a sample that tells nothing new would tell that the peer's queue has drained.
    pub(crate) fn has_own_queue_ended(&self, now: Instant) -> bool {
        let own = &self.own_queue;
        !own.is_empty && own.fed_at.is_some() && self.is_unused() && !self.is_fed(now)
    }

    fn is_unused(&self) -> bool {
        self.sample.in_flight == 0 && self.sample.unsent == 0
    }

    /// Whether the peer sends: acknowledgements come back through the queue of that.
    fn is_fed(&self, now: Instant) -> bool {
        let lasts = self.srtt().max(FED_FOR);
        let fed_at = self.own_queue.fed_at;
        fed_at.is_some_and(|at| now.saturating_sub(at) < lasts)
    }

    /// After a sample, of which the one before is given.
    pub(super) fn note_own_queue(&mut self, before: &PathSample, now: Instant) {
        let got = self.received.saturating_sub(self.own_queue.received);
        self.own_queue.received = self.received;
        if got > self.mss() {
            self.own_queue.fed_at = Some(now);
        }
        let is_queueing = self.is_queueing() || self.is_fed(now);
        let (is_unused, srtt, least) = (self.is_unused(), self.srtt(), self.least_rtt());
        // An acknowledgement is for two segments where there are so many (RFC 5681, section 4.2).
        let measurements = match self.sample.delivered {
            0 => u64::from(srtt != before.srtt),
            delivered => delivered.saturating_sub(before.delivered).div_ceil(2),
        };
        // RFC 6298: srtt = 7/8 before + 1/8 of what was measured, each time.
        let kept = (1.0 - SMOOTHING).powi(measurements.min(MOST_MEASUREMENTS) as i32);
        let own = &mut self.own_queue;
        own.over = own.over.mul_f64(kept);
        if is_queueing {
            (own.was_there, own.is_empty) = (true, false);
        } else if is_unused && !own.is_empty {
            own.is_empty = true;
            if std::mem::take(&mut own.was_there) {
                own.over = srtt.saturating_sub(least + own.others);
            }
        } else if own.is_empty && measurements > 0 {
            let before = before.srtt.as_secs_f64();
            let measured = before + (srtt.as_secs_f64() - before) / (1.0 - kept);
            let measured = Duration::from_secs_f64(measured.max(0.0));
            let in_queues = measured.saturating_sub(DELAYED_ACK).max(least);
            own.over = own.over.min(srtt.saturating_sub(in_queues));
            own.others = (srtt - own.over).saturating_sub(least);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PathId;

    const MS: Duration = Duration::from_millis(1);

    /// A path of 1 MB/s and a least round trip of 40 ms, in whose queue its own bytes have waited for 100 ms.
    fn busy() -> Path {
        let mut path = Path::new(PathId(0), Instant::ZERO);
        path.sent = 1_000_000;
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

    /// What was under way arrives bit by bit, each with the round trip of the last one.
    fn drain(path: &mut Path) {
        for in_flight in [path.sample.in_flight / 2, 5000, 0] {
            change(path, |sample| sample.in_flight = in_flight);
        }
    }

    #[test]
    fn a_queue_is_gone_when_its_bytes_are() {
        let mut path = busy();
        assert_eq!(path.rtt_without_own_queue(), 140 * MS);
        change(&mut path, |sample| sample.in_flight = 50_000);
        assert_eq!(path.rtt_without_own_queue(), 140 * MS);
        drain(&mut path);
        assert_eq!(path.rtt_without_own_queue(), 40 * MS);
        assert_eq!(path.likely_delay(), 20 * MS);
        assert_eq!(path.likely_queued_delay(), 20 * MS);
        // What is late is judged by what was measured.
        assert_eq!((path.delay(), path.queued_delay()), (70 * MS, 70 * MS));
    }

    #[test]
    fn what_is_sent_then_is_under_way_without_it() {
        let mut path = busy();
        drain(&mut path);
        path.sent += 1000;
        change(&mut path, |sample| sample.in_flight = 1000);
        assert_eq!(path.rtt_without_own_queue(), 40 * MS);
        // It took 40 ms.
        change(&mut path, |sample| {
            (sample.in_flight, sample.srtt) = (0, 127_500 * MS / 1000)
        });
        assert_eq!(path.rtt_without_own_queue(), 40 * MS);
    }

    #[test]
    fn a_queue_that_others_keep_is_known_after_one_measurement() {
        let mut path = busy();
        drain(&mut path);
        // 140 ms again, of which 40 may be a delayed acknowledgement.
        change(&mut path, |sample| sample.delivered = 1);
        let rtt = path.rtt_without_own_queue();
        assert_eq!(rtt, 100 * MS);
        // It is expected to be there the next time.
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
        // Three of 120 ms.
        change(&mut path, |sample| {
            sample.delivered += 6;
            sample.srtt = Duration::from_secs_f64(0.120 + 0.020 * 0.875f64.powi(3));
        });
        let rtt = path.rtt_without_own_queue();
        assert!((79 * MS..=81 * MS).contains(&rtt), "{rtt:?}");
        // A round trip that has become longer for good is known after some more.
        for _ in 0..20 {
            change(&mut path, |sample| {
                (sample.delivered, sample.srtt) = (sample.delivered + 1, 120 * MS)
            });
        }
        let rtt = path.rtt_without_own_queue();
        assert!((112 * MS..=120 * MS).contains(&rtt), "{rtt:?}");
    }

    #[test]
    fn what_waits_in_the_socket_is_under_way_still() {
        let mut path = busy();
        change(&mut path, |sample| {
            (sample.in_flight, sample.unsent) = (0, 1000)
        });
        assert_eq!(path.rtt_without_own_queue(), 140 * MS);
        change(&mut path, |sample| sample.unsent = 0);
        assert_eq!(path.rtt_without_own_queue(), 40 * MS);
    }

    #[test]
    fn it_is_never_less_than_the_least() {
        let mut path = busy();
        drain(&mut path);
        change(&mut path, |sample| sample.min_rtt = 60 * MS);
        assert_eq!(path.rtt_without_own_queue(), 60 * MS);
    }

    #[test]
    fn two_segments_make_no_queue() {
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
    fn a_delayed_acknowledgement_is_no_queue() {
        let mut path = busy();
        drain(&mut path);
        // 80 ms.
        change(&mut path, |sample| sample.srtt = 132_500 * MS / 1000);
        assert_eq!(path.rtt_without_own_queue(), 45 * MS);
    }

    #[test]
    fn where_there_was_no_own_queue_the_round_trip_is_what_it_is() {
        let mut path = busy();
        drain(&mut path);
        for _ in 0..50 {
            path.sent += 1000;
            change(&mut path, |sample| sample.in_flight = 1000);
            // 90 ms each time.
            change(&mut path, |sample| {
                let srtt = (7 * sample.srtt + 90 * MS) / 8;
                (sample.in_flight, sample.srtt) = (0, srtt);
            });
        }
        let rtt = path.rtt_without_own_queue();
        assert!((89 * MS..91 * MS).contains(&rtt), "{rtt:?}");
        path.sent += 10_000;
        change(&mut path, |sample| sample.in_flight = 10_000);
        drain(&mut path);
        assert_eq!(path.rtt_without_own_queue(), rtt);
    }

    #[test]
    fn a_queue_of_what_the_peer_sends_is_gone_when_nothing_comes_any_more() {
        let mut path = busy();
        drain(&mut path);
        let mut sample = path.sample;
        for ms in 1..=200 {
            path.received += 2000;
            (sample.srtt, sample.in_flight) = (240 * MS, u64::from(ms % 2) * 100);
            sample.delivered += 1;
            path.update(sample, ms * MS);
        }
        sample.in_flight = 0;
        path.update(sample, 439 * MS);
        let fed = path.rtt_without_own_queue();
        assert!((239 * MS..=240 * MS).contains(&fed), "{fed:?}");
        assert!(!path.has_own_queue_ended(439 * MS) && path.has_own_queue_ended(440 * MS));
        path.received += 1000;
        path.update(sample, 440 * MS);
        assert_eq!(path.rtt_without_own_queue(), 40 * MS);
        assert!(!path.has_own_queue_ended(441 * MS));
    }

    #[test]
    fn a_new_queue_is_part_of_the_round_trip_again() {
        let mut path = busy();
        drain(&mut path);
        path.sent += 140_000;
        change(&mut path, |sample| {
            (sample.in_flight, sample.srtt) = (140_000, 100 * MS)
        });
        // At once, by what is under way; and as it is measured.
        assert_eq!(path.likely_queued_delay(), 120 * MS);
        change(&mut path, |sample| sample.delivered = 100);
        let measured = path.rtt_without_own_queue();
        assert!((99 * MS..=100 * MS).contains(&measured), "{measured:?}");
    }
}
