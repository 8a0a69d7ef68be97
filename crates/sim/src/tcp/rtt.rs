//! Round-trip times and the retransmission timeout: RFC 6298 as Linux computes it.
//!
//! Linux (`tcp_rtt_estimator` in `net/ipv4/tcp_input.c`) differs from the RFC in two points. The
//! variation in the timeout is the largest of a round trip, and at least 200 ms. A sample below the
//! mean raises the variation by only an eighth as much as one above.

use super::timer::TICK;
use crate::clock::{MILLISECOND, Nanos, SECOND};

/// Minimum of the variation in the RTO, unless the socket sets another one (TCP_RTO_MIN).
pub(crate) const RTO_MIN: Nanos = 200 * MILLISECOND;
/// The longest RTO (TCP_RTO_MAX).
const RTO_MAX: Nanos = 120 * SECOND;
/// The RTO before the first sample (TCP_TIMEOUT_INIT; RFC 6298, section 2.1).
pub(crate) const RTO_INITIAL: Nanos = SECOND;
/// Period of the minimum round-trip time (`net.ipv4.tcp_min_rtt_wlen`).
const MIN_RTT_WINDOW: Nanos = 300 * SECOND;

/// Estimates of a path's round-trip time.
#[derive(Clone, Debug)]
pub(crate) struct RoundTrip {
    /// Minimum of the variation in the RTO.
    floor: Nanos,
    /// Smoothed round-trip time; 0 before the first sample.
    srtt: Nanos,
    /// Mean deviation, times four.
    mdev: Nanos,
    /// The largest `mdev` of this round trip.
    mdev_max: Nanos,
    /// Variation that the RTO adds to `srtt`.
    rttvar: Nanos,
    /// The round trip of `mdev_max` ends when this byte is acknowledged.
    ends_at: u64,
    /// The minima of the two halves of the window, with their times.
    least: [(Nanos, Nanos); 2],
    /// Consecutive timeouts.
    backoff: u32,
}

impl RoundTrip {
    /// Creates an estimator without samples; the RTO will be at least a round trip plus `floor`.
    pub(crate) fn new(floor: Nanos) -> Self {
        Self {
            floor,
            srtt: 0,
            mdev: 0,
            mdev_max: 0,
            rttvar: 0,
            ends_at: 0,
            least: [(0, 0); 2],
            backoff: 0,
        }
    }

    /// Minimum of the variation in the RTO.
    pub(crate) fn floor(&self) -> Nanos {
        self.floor
    }

    /// Takes a sample; `acked` and `next` are the first unacknowledged and the first unsent byte.
    pub(crate) fn sample(&mut self, rtt: Nanos, acked: u64, next: u64) {
        let rtt = rtt.max(1);
        if self.srtt == 0 {
            self.srtt = rtt;
            self.mdev = rtt * 2;
            self.mdev_max = self.mdev.max(self.floor);
            self.rttvar = self.mdev_max;
            self.ends_at = next;
            return;
        }
        let error = rtt as i64 - self.srtt as i64;
        self.srtt = (self.srtt as i64 + error / 8).max(1) as Nanos;
        let change = error.abs() - (self.mdev / 4) as i64;
        // A decreasing round-trip time is no reason for a longer RTO.
        let change = if error < 0 && change > 0 {
            change / 8
        } else {
            change
        };
        self.mdev = (self.mdev as i64 + change).max(0) as Nanos;
        if self.mdev > self.mdev_max {
            self.mdev_max = self.mdev;
            self.rttvar = self.rttvar.max(self.mdev_max);
        }
        if acked > self.ends_at {
            if self.mdev_max < self.rttvar {
                self.rttvar -= (self.rttvar - self.mdev_max) / 4;
            }
            self.ends_at = next;
            self.mdev_max = self.floor;
        }
    }

    /// Takes a sample for the minimum round-trip time; it must not be shortened by a
    /// retransmission.
    pub(crate) fn note_min(&mut self, rtt: Nanos, now: Nanos) {
        let rtt = rtt.max(1);
        let [first, second] = &mut self.least;
        if first.0 == 0 || rtt <= first.0 {
            *first = (rtt, now);
            *second = (rtt, now);
        } else if now.saturating_sub(first.1) > MIN_RTT_WINDOW {
            *first = *second;
            *second = (rtt, now);
        } else if rtt <= second.0 || now.saturating_sub(second.1) > MIN_RTT_WINDOW / 2 {
            *second = (rtt, now);
        }
    }

    /// Smoothed round-trip time; 0 before the first sample.
    pub(crate) fn srtt(&self) -> Nanos {
        self.srtt
    }

    /// Its mean deviation.
    pub(crate) fn deviation(&self) -> Nanos {
        self.mdev / 4
    }

    /// The least of the last minutes; 0 before the first sample.
    pub(crate) fn least(&self) -> Nanos {
        self.least[0].0
    }

    /// The RTO, doubled for each consecutive timeout.
    pub(crate) fn timeout(&self) -> Nanos {
        let base = match self.srtt {
            0 => RTO_INITIAL,
            // The kernel stores the RTO in ticks, rounded up (__tcp_set_rto), and doubles that
            // value.
            srtt => (srtt + self.rttvar).next_multiple_of(TICK),
        };
        base.saturating_mul(1 << self.backoff.min(20)).min(RTO_MAX)
    }

    /// A timeout expired.
    pub(crate) fn back_off(&mut self) {
        self.backoff += 1;
    }

    /// Consecutive timeouts.
    pub(crate) fn backoff(&self) -> u32 {
        self.backoff
    }

    /// New data was acknowledged.
    pub(crate) fn forget_backoff(&mut self) {
        self.backoff = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sample_is_the_mean_and_the_rto_has_a_minimum() {
        let mut rtt = RoundTrip::new(RTO_MIN);
        assert_eq!(rtt.timeout(), SECOND);
        rtt.sample(40 * MILLISECOND, 0, 10);
        assert_eq!(rtt.srtt(), 40 * MILLISECOND);
        assert_eq!(rtt.deviation(), 20 * MILLISECOND);
        assert_eq!(rtt.timeout(), 240 * MILLISECOND);
    }

    #[test]
    fn steady_samples_keep_the_minimum_and_varying_ones_raise_it() {
        let mut rtt = RoundTrip::new(RTO_MIN);
        for i in 0..100 {
            rtt.sample(40 * MILLISECOND, i * 10 + 1, i * 10 + 10);
        }
        assert_eq!(rtt.srtt(), 40 * MILLISECOND);
        assert!(rtt.deviation() < MILLISECOND);
        assert_eq!(rtt.timeout(), 240 * MILLISECOND);
        for i in 100..120 {
            let wild = if i % 2 == 0 { 40 } else { 600 };
            rtt.sample(wild * MILLISECOND, i * 10 + 1, i * 10 + 10);
        }
        assert!(rtt.timeout() > 800 * MILLISECOND, "{}", rtt.timeout());
    }

    #[test]
    fn timeouts_double_up_to_two_minutes() {
        let mut rtt = RoundTrip::new(RTO_MIN);
        rtt.sample(100 * MILLISECOND, 0, 1);
        let first = rtt.timeout();
        rtt.back_off();
        assert_eq!(rtt.timeout(), 2 * first);
        (0..30).for_each(|_| rtt.back_off());
        assert_eq!(rtt.timeout(), 120 * SECOND);
        rtt.forget_backoff();
        assert_eq!(rtt.timeout(), first);
    }

    #[test]
    fn the_minimum_expires_after_five_minutes() {
        let mut rtt = RoundTrip::new(RTO_MIN);
        rtt.note_min(10 * MILLISECOND, 0);
        rtt.note_min(30 * MILLISECOND, 200 * SECOND);
        assert_eq!(rtt.least(), 10 * MILLISECOND);
        rtt.note_min(30 * MILLISECOND, 301 * SECOND);
        assert_eq!(rtt.least(), 30 * MILLISECOND);
    }
}
