//! The part of a smoothed round trip that is over.
//!
//! TCP measures a round trip when something is acknowledged. What a large transfer leaves behind is the round trip through the queue
//! that its own last bytes stood in; the queue is empty as soon as they have left, and the smoothed value stays until the path is used
//! again. Who chooses by it avoids the path that was the fastest, which is then not measured anew: small objects after a large one took
//! the way over the slower link for a second and more (docs/fbdt.md).

use std::time::Duration;

use super::Path;
use crate::Instant;

/// The weight of a new measurement in the smoothed round trip is one in so many (RFC 6298, section 2).
const SMOOTHING: u32 = 8;

/// A receiver keeps the acknowledgement of a small packet so long in the hope of something to send with it (TCP_DELACK_MIN of Linux):
/// so much of a measurement need not be anybody's queue.
const DELAYED_ACK: Duration = Duration::from_millis(40);

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
}

impl Path {
    /// The smoothed round trip, and where the path's own queue has drained without what was measured in it.
    ///
    /// What others add is taken to be what it was before; one measurement after the own queue is gone corrects that.
    pub fn rtt_without_own_queue(&self) -> Duration {
        self.rtt_without_own_queue
    }

    /// The same, after each sample.
    pub(super) fn work_out_rtt_without_own_queue(&self) -> Duration {
        let srtt = self.srtt();
        let without = srtt.saturating_sub(self.own_queue.over);
        without.max(self.least_rtt().min(srtt))
    }

    /// After a sample; the smoothed round trip was another one before.
    pub(super) fn note_own_queue(&mut self, before: Duration, now: Instant) {
        let (srtt, least) = (self.srtt(), self.least_rtt());
        let got = self.received.saturating_sub(self.own_queue.received);
        self.own_queue.received = self.received;
        if got > self.mss() {
            self.own_queue.fed_at = Some(now);
        }
        // Acknowledgements come back through the queue of what the peer sends.
        let fed_at = self.own_queue.fed_at;
        let is_fed = fed_at.is_some_and(|at| now.saturating_sub(at) < srtt);
        let is_queueing = is_fed || !self.present_queue().is_zero();
        let is_empty = self.sample.in_flight == 0 && self.sample.unsent == 0;
        let own = &mut self.own_queue;
        if is_queueing {
            (own.was_there, own.is_empty, own.over) = (true, false, Duration::ZERO);
        } else if is_empty && !own.is_empty {
            own.is_empty = true;
            if std::mem::take(&mut own.was_there) {
                own.over = srtt.saturating_sub(least + own.others);
            }
        } else if own.is_empty && srtt != before {
            // RFC 6298: srtt = 7/8 before + 1/8 of what was measured, so that what was wrong before is 7/8 of that now.
            let measured = (SMOOTHING * srtt).saturating_sub((SMOOTHING - 1) * before);
            let fades = own.over - own.over / SMOOTHING;
            let in_queues = measured.saturating_sub(DELAYED_ACK).max(least);
            own.over = fades.min(srtt.saturating_sub(in_queues));
            let without = srtt.saturating_sub(own.over);
            own.others = without.saturating_sub(least);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PathId;
    use crate::path::PathSample;

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
        assert_eq!((path.delay(), path.queued_delay()), (20 * MS, 20 * MS));
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
        change(&mut path, |sample| sample.srtt = 139_999 * MS / 1000);
        let rtt = path.rtt_without_own_queue();
        assert!((99 * MS..=100 * MS).contains(&rtt), "{rtt:?}");
        // It is expected to be there the next time.
        path.update(busy().sample, Instant::ZERO);
        assert_eq!(path.rtt_without_own_queue(), 140 * MS);
        drain(&mut path);
        assert_eq!(path.rtt_without_own_queue(), rtt);
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
            path.update(sample, ms * MS);
            assert_eq!(path.rtt_without_own_queue(), 240 * MS);
        }
        sample.in_flight = 0;
        path.update(sample, 439 * MS);
        assert_eq!(path.rtt_without_own_queue(), 240 * MS);
        path.received += 1000;
        path.update(sample, 440 * MS);
        assert_eq!(path.rtt_without_own_queue(), 40 * MS);
    }

    #[test]
    fn a_new_queue_is_part_of_the_round_trip_again() {
        let mut path = busy();
        drain(&mut path);
        path.sent += 140_000;
        change(&mut path, |sample| {
            (sample.in_flight, sample.srtt) = (140_000, 100 * MS)
        });
        assert_eq!(path.rtt_without_own_queue(), 100 * MS);
    }
}
