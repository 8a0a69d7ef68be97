//! Predicted delay of a byte that is handed to a path now.

use std::time::Duration;

use super::{Path, REPORT_SLACK};
use crate::Instant;

/// Longest prediction in seconds.
const LONGEST: f64 = 60.0;

/// In slow start each window is twice the one before, and the measurements are of the window before
/// that.
const GROWTH: f64 = 4.0;

/// Share of a path's segments that TCP sends again, above which repairs are lost as well. It is a
/// mean of about a thousand segments; random loss of two percent does not reach it.
const HEAVY_LOSS: f64 = 0.04;

/// Least ratio of the pacing rate to the delivery rate in BBR's startup, where it is 2.89.
const STARTUP_GAIN: f64 = 1.8;

impl Path {
    /// Time until a byte handed over now reaches the peer: half a round trip, or more if the peer's
    /// reports show it ([`Path::beyond_half`]), plus the time for the bytes that wait before it.
    pub fn delay(&self) -> Duration {
        self.delays.delay
    }

    /// [`Path::delay`] plus the queue of the path's own bytes: the bytes in flight beyond those
    /// that fill the path wait in its queue and leave at the path's rate (Little's law). Never less
    /// than [`Path::delay`].
    ///
    /// While a window doubles in every round trip it may carry four times the measured amount
    /// without any queue.
    ///
    /// A smoothed round-trip time shows a queue one round trip after it has begun to grow. If paths
    /// were chosen by it alone, each in turn would get all data for that long. Queues would then
    /// fill and empty in turn although all paths together could carry more than the load.
    pub fn queued_delay(&self) -> Duration {
        self.delays.queued_delay
    }

    /// What slow start and repairs of losses may add to the delay of a byte handed over now, beyond
    /// what measurements show.
    ///
    /// - A window that doubles beyond the path's capacity waits behind its other half, and its end
    ///   is often a loss that takes a round trip to repair (RFC 5681, sections 3.1 and 3.2).
    ///   Measurements are a round trip old and show neither.
    /// - After many losses repairs are lost, too: bytes take up to two round trips longer.
    pub(crate) fn lateness_allowance(&self) -> Duration {
        let round_trips = if self.progress.loss >= HEAVY_LOSS {
            2
        } else if self.is_doubling() || self.is_in_startup() {
            1
        } else {
            0
        };
        round_trips * self.srtt()
    }

    /// Whether TCP sends much faster than it delivers, to find the path's rate: BBR does in its
    /// startup (2.89 times as fast), and otherwise sends at most a quarter faster.
    fn is_in_startup(&self) -> bool {
        let delivered = self.sample.delivery_rate as f64;
        self.sample.ssthresh.is_none() && self.sample.pacing_rate as f64 > STARTUP_GAIN * delivered
    }

    /// Lowest round-trip time; the smoothed one if TCP does not report it.
    pub(crate) fn min_round_trip(&self) -> Duration {
        if self.sample.min_rtt.is_zero() {
            self.srtt()
        } else {
            self.sample.min_rtt
        }
    }

    /// Recomputes the delays after each sample.
    pub(super) fn update_delays(&mut self) {
        let sample = &self.sample;
        let waiting = (sample.unsent + sample.local_queue) as f64 / self.shown_rate();
        let waiting = Duration::from_secs_f64(waiting.min(LONGEST));
        let more = self.beyond_half() + waiting;
        let queued = self.min_round_trip() / 2 + self.present_queue() + more;
        self.delays.delay = self.srtt() / 2 + more;
        self.delays.queued_delay = self.delays.delay.max(queued);
        self.delays.likely_delay = self.rtt_without_own_queue() / 2 + more;
        self.delays.likely_queued_delay = self.delays.likely_delay.max(queued);
    }

    /// How long the bytes in flight beyond those that fill the path wait in its queue.
    fn present_queue(&self) -> Duration {
        let queue = self.queued_bytes() / self.draining_rate();
        Duration::from_secs_f64(queue.clamp(0.0, LONGEST))
    }

    /// Bytes in flight beyond those that fill the path; negative if it is not full.
    pub(super) fn queued_bytes(&self) -> f64 {
        self.sample.in_flight as f64 - self.draining_rate() * self.min_round_trip().as_secs_f64()
    }

    /// Rate at which the path's queue drains.
    fn draining_rate(&self) -> f64 {
        match self.is_doubling() {
            true => (self.rate()).max(self.window_rate().min(GROWTH * self.shown_rate())),
            false => self.rate(),
        }
    }

    /// Postpones the expected arrival of bytes that still wait in the socket to one trip from now
    /// at the earliest: they leave when TCP's window opens, and are not late because of that. Bytes
    /// that have waited for a round trip or longer wait for something else. A short wait makes
    /// nothing late.
    pub(crate) fn postpone_unsent(&mut self, now: Instant) {
        let round_trip = self.min_round_trip();
        if round_trip < REPORT_SLACK {
            return;
        }
        let left = self.outbound.sent.saturating_sub(self.sample.unsent);
        let way = round_trip / 2 + self.beyond_half();
        let waiting = self.outbound.flights.iter_mut().rev();
        for flight in waiting.take_while(|flight| flight.record_end > left) {
            let leaves_at = now.min(flight.sent_at + round_trip);
            flight.expected_at = flight.expected_at.max(leaves_at + way);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PathId;
    use crate::path::{Flight, PathSample};

    const MS: Duration = Duration::from_millis(1);

    /// A path of 1 MB/s with a lowest round trip of 40 ms, so that 40 kB fill it.
    fn path(in_flight: u64, srtt: Duration) -> Path {
        let mut path = Path::new(PathId(0), Instant::ZERO);
        path.outbound.sent = 1_000_000;
        let sample = PathSample {
            srtt,
            min_rtt: 40 * MS,
            in_flight,
            delivery_rate: 1_000_000,
            ..PathSample::default()
        };
        path.update(sample, Instant::ZERO);
        path
    }

    #[test]
    fn only_bytes_beyond_those_that_fill_the_path_queue() {
        for (in_flight, ms) in [(0, 20), (40_000, 20), (60_000, 40), (140_000, 120)] {
            let path = path(in_flight, 40 * MS);
            assert_eq!(path.delay(), 20 * MS);
            assert_eq!(path.queued_delay(), ms * MS, "{in_flight}");
        }
    }

    /// A path in its first slow start, with `arrived` bytes delivered and its window in flight, at
    /// the rate of the previous window.
    fn in_slow_start(arrived: u64, window: u64) -> Path {
        let mut path = Path::new(PathId(0), Instant::ZERO);
        path.outbound.sent = arrived + window;
        let sample = PathSample {
            srtt: 40 * MS,
            min_rtt: 40 * MS,
            cwnd: window,
            in_flight: window,
            delivery_rate: window / 2 * 25,
            ..PathSample::default()
        };
        path.update(sample, Instant::ZERO);
        path
    }

    #[test]
    fn a_doubled_window_is_no_queue() {
        assert_eq!(in_slow_start(100_000, 100_000).queued_delay(), 20 * MS);
    }

    #[test]
    fn a_path_that_was_given_less_is_still_in_slow_start() {
        assert_eq!(in_slow_start(300_000, 100_000).queued_delay(), 20 * MS);
    }

    #[test]
    fn a_window_far_above_the_measured_rate_does_not_hide_a_queue() {
        let mut path = in_slow_start(0, 100_000);
        let sample = PathSample {
            cwnd: 1_000_000,
            in_flight: 400_000,
            ..path.sample
        };
        path.update(sample, Instant::ZERO);
        // 400 kB leave in 80 ms at four times the 1.25 MB/s that were measured.
        assert_eq!(path.queued_delay(), 60 * MS);
    }

    #[test]
    fn a_path_past_slow_start_queues_bytes_beyond_its_capacity() {
        assert_eq!(in_slow_start(500_000, 100_000).queued_delay(), 60 * MS);
    }

    #[test]
    fn a_queue_that_others_make_counts_as_it_was_measured() {
        let path = path(10_000, 140 * MS);
        assert_eq!((path.delay(), path.queued_delay()), (70 * MS, 70 * MS));
    }

    #[test]
    fn both_delays_are_equal_before_the_first_measurement() {
        let path = Path::new(PathId(0), Instant::ZERO);
        assert_eq!(path.delay(), path.queued_delay());
    }

    #[test]
    fn bytes_in_the_socket_add_to_both_delays() {
        let mut path = path(60_000, 40 * MS);
        let waits = PathSample {
            unsent: 5_000,
            ..path.sample
        };
        path.update(waits, Instant::ZERO);
        assert_eq!((path.delay(), path.queued_delay()), (25 * MS, 45 * MS));
    }

    #[test]
    fn slow_start_may_cost_a_round_trip() {
        let path = in_slow_start(100_000, 100_000);
        assert_eq!(path.lateness_allowance(), 40 * MS);
        let path = in_slow_start(500_000, 100_000);
        assert_eq!(path.lateness_allowance(), Duration::ZERO);
    }

    #[test]
    fn repairs_after_many_losses_may_cost_two() {
        let mut path = path(40_000, 40 * MS);
        let mut sample = path.sample;
        let mut carry = |lost: u64| {
            sample.segments += 100;
            sample.retransmitted += lost;
            path.update(sample, Instant::ZERO);
            path.lateness_allowance()
        };
        // Random loss.
        assert!((0..100).all(|_| carry(2).is_zero()));
        // The end of a slow start.
        let burst: Vec<Duration> = (0..4).map(|_| carry(30)).collect();
        assert_eq!(burst.last(), Some(&(80 * MS)));
        // A thousand segments later, less of it counts.
        assert!(
            (0..30)
                .map(|_| carry(0))
                .any(|allowance| allowance.is_zero())
        );
    }

    #[test]
    fn the_startup_of_bbr_may_cost_a_round_trip() {
        let mut path = in_slow_start(500_000, 100_000);
        for (gain, expected) in [(289, 40 * MS), (125, Duration::ZERO), (0, Duration::ZERO)] {
            let sample = PathSample {
                pacing_rate: path.sample.delivery_rate * gain / 100,
                ..path.sample
            };
            path.update(sample, Instant::ZERO);
            assert_eq!(path.lateness_allowance(), expected, "{gain}");
        }
    }

    /// Bytes handed over together at time 0, in records of which the first ends at 2000 bytes.
    fn flight(range: std::ops::Range<u64>, record_end: u64) -> Flight {
        Flight {
            stream: 0,
            path_end: range.end,
            record_end,
            range,
            sent_at: Instant::ZERO,
            expected_at: Instant::ZERO + 50 * MS,
            patience: Duration::ZERO,
            round_trip: 100 * MS,
            repeated: false,
        }
    }

    #[test]
    fn bytes_in_the_socket_and_their_record_are_not_late_for_waiting() {
        let mut path = Path::new(PathId(0), Instant::ZERO);
        path.outbound.sent = 4000;
        path.outbound.flights.push_back(flight(0..1000, 1000));
        path.outbound.flights.push_back(flight(1000..1500, 2000));
        path.outbound.flights.push_back(flight(1500..2000, 2000));
        path.outbound.flights.push_back(flight(2000..4000, 4000));
        let sample = |unsent| PathSample {
            srtt: 100 * MS,
            min_rtt: 100 * MS,
            unsent,
            ..PathSample::default()
        };
        let expected = |path: &Path| -> Vec<Duration> {
            path.flights()
                .map(|f| f.expected_at - Instant::ZERO)
                .collect()
        };
        path.update(sample(2200), Instant::ZERO);
        path.postpone_unsent(Instant::ZERO + 30 * MS);
        assert_eq!(expected(&path), [50 * MS, 80 * MS, 80 * MS, 80 * MS]);
        path.update(sample(1), Instant::ZERO);
        path.postpone_unsent(Instant::ZERO + 40 * MS);
        assert_eq!(expected(&path), [50 * MS, 80 * MS, 80 * MS, 90 * MS]);
        // Only for as long as a window may take to open.
        path.postpone_unsent(Instant::ZERO + 300 * MS);
        assert_eq!(expected(&path), [50 * MS, 80 * MS, 80 * MS, 150 * MS]);
        path.update(sample(0), Instant::ZERO);
        path.postpone_unsent(Instant::ZERO + 90 * MS);
        assert_eq!(expected(&path), [50 * MS, 80 * MS, 80 * MS, 150 * MS]);
        // Bytes that wait longer for their window stall as early as without the wait.
        let mut patience = path.flights().map(Flight::stall_patience);
        assert!(patience.all(|patience| patience == 100 * MS));
    }
}
