//! Hybrid slow start of Linux' CUBIC: ends slow start when acknowledgments arrive without a pause
//! for half a round trip, or when the delay grows.
//!
//! Source: `hystart_update` in `net/ipv4/tcp_cubic.c`; Ha and Rhee, "Taming the elephants: New TCP
//! slow start", Computer Networks 55(9), 2011. It belongs to the model of Linux, not to the
//! algorithm: RFC 9438 leaves slow start open, and `sumlink-congestion` implements its HyStart++
//! (RFC 9406).

use crate::clock::{MICROSECOND, MILLISECOND, Nanos};

/// Least window in packets at which it is active (`hystart_low_window`).
const MIN_WINDOW: f64 = 16.0;
/// Acknowledgments closer together belong to one train (`hystart_ack_delta_us`).
const CLOSE: Nanos = 2 * MILLISECOND;
/// Samples of a round before its delay is judged (HYSTART_MIN_SAMPLES).
const SAMPLES: u32 = 8;
/// Bounds of the delay growth that ends slow start (HYSTART_DELAY_MIN, HYSTART_DELAY_MAX).
const DELAY: std::ops::RangeInclusive<Nanos> = 4 * MILLISECOND..=16 * MILLISECOND;
/// Allowance for aggregation on the path (`hystart_ack_delay`).
const AGGREGATION: Nanos = MILLISECOND;

/// State of a slow start.
#[derive(Clone, Debug, Default)]
pub(super) struct Hystart {
    found: bool,
    /// The round ends when this byte is acknowledged.
    end: u64,
    begun: Nanos,
    last: Nanos,
    /// Minimum delay of the round; then its number of samples.
    current: Nanos,
    samples: u32,
    /// Minimum delay of the connection.
    least: Nanos,
    /// Packets are paced, so only a train of a whole round trip indicates a full link.
    pub(super) is_paced: bool,
}

impl Hystart {
    /// Takes an acknowledgment in slow start, with its round-trip time and a window of `cwnd`
    /// packets; `acked` and `next` are the first unacknowledged and the first unsent byte. Returns
    /// whether slow start ends.
    pub(super) fn ends(
        &mut self,
        rtt: Nanos,
        cwnd: f64,
        acked: u64,
        next: u64,
        now: Nanos,
    ) -> bool {
        let rtt = rtt.max(MICROSECOND);
        if self.least == 0 || rtt < self.least {
            self.least = rtt;
        }
        if acked > self.end {
            (self.begun, self.last, self.end) = (now, now, next);
            (self.current, self.samples) = (Nanos::MAX, 0);
        }
        if self.found || cwnd < MIN_WINDOW {
            return false;
        }
        if now - self.last <= CLOSE {
            self.last = now;
            // Half a round trip without pacing.
            let train = (self.least + AGGREGATION) / if self.is_paced { 1 } else { 2 };
            self.found |= now - self.begun > train;
        }
        self.current = self.current.min(rtt);
        if self.samples < SAMPLES {
            self.samples += 1;
        } else {
            let growth = (self.least / 8).clamp(*DELAY.start(), *DELAY.end());
            self.found |= self.current > self.least + growth;
        }
        self.found
    }

    /// Restarts with the slow start after a timeout.
    pub(super) fn begin_again(&mut self, next: u64, now: Nanos) {
        *self = Self {
            end: next,
            begun: now,
            last: now,
            least: self.least,
            is_paced: self.is_paced,
            current: Nanos::MAX,
            ..Self::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ack_train_of_half_a_round_trip_ends_slow_start() {
        let mut hystart = Hystart::default();
        let rtt = 40 * MILLISECOND;
        let ends: Vec<bool> = (0..30)
            .map(|n| hystart.ends(rtt, 20.0, 1 + n, 1000, 100 * MILLISECOND + n * MILLISECOND))
            .collect();
        assert_eq!(ends.iter().position(|end| *end), Some(21));
    }

    #[test]
    fn a_delay_increase_of_an_eighth_ends_slow_start() {
        let after = |later: Nanos| {
            let mut hystart = Hystart::default();
            let mut now = 0;
            (0..30).any(|n| {
                now += 5 * MILLISECOND;
                let rtt = if n < 9 { 80 } else { 80 + later };
                hystart.ends(rtt * MILLISECOND, 20.0, n * 9 + 1, (n / 10) * 90 + 90, now)
            })
        };
        assert!(!after(8) && after(12));
    }

    #[test]
    fn small_windows_are_exempt() {
        let mut hystart = Hystart::default();
        assert!((0..100).all(|n| !hystart.ends(MILLISECOND, 15.0, n, 1, n * MILLISECOND)));
    }
}
