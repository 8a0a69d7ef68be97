//! The rate that a path sustains, as opposed to that of a burst.
//!
//! TCP measures its delivery rate over a round trip. A token bucket passes its burst at line rate.
//! Over a short round trip after a pause, the measurement is therefore many times the rate of the
//! link. Every value derived from it is wrong by the same factor: the send budget of a socket, the
//! expected arrival of a byte, the proof that TCP delivers.

use std::time::Duration;

use crate::Instant;

/// A rate counts as sustained if it was delivered for this long, or for a round trip if that is
/// longer.
const LONG: Duration = Duration::from_millis(100);

/// TCP's own measurement counts up to this multiple of the sustained rate: it is newer, and a link
/// may have become faster.
const AHEAD: f64 = 2.0;

/// The first slow start of a connection ends at the latest when this many windows have arrived.
/// Each has twice the rate of the one before, so a sustained rate says nothing about the path yet.
const FIRST_WINDOWS: u64 = 4;

/// Measures the delivery rate of a carrier's TCP over longer times than TCP does.
#[derive(Clone, Copy, Debug, Default)]
pub struct SustainedRate {
    /// Bytes per second; none before the first measurement.
    rate: Option<f64>,
    /// Start of the current measurement, and the bytes delivered by then.
    since: Option<(Instant, u64)>,
    /// Whether TCP has had data to send at every observation since then.
    is_backlogged: bool,
}

impl SustainedRate {
    /// Records that TCP has delivered `delivered` bytes since the connection began, including
    /// retransmissions. `is_backlogged` while more data waits in the socket, so that only the path
    /// limits the rate. `srtt` is the smoothed round-trip time.
    pub fn observe(&mut self, now: Instant, delivered: u64, is_backlogged: bool, srtt: Duration) {
        let Some((at, before)) = self.since else {
            self.begin(now, delivered, is_backlogged);
            return;
        };
        self.is_backlogged &= is_backlogged;
        let time = now.saturating_sub(at);
        if time < LONG.max(srtt) {
            return;
        }
        let measured = delivered.saturating_sub(before) as f64 / time.as_secs_f64();
        // A lower rate says nothing about the path unless the path limited it.
        self.rate = match self.rate {
            Some(known) if !self.is_backlogged => Some(known.max(measured)),
            _ if measured > 0.0 => Some(measured),
            known => known,
        };
        self.begin(now, delivered, is_backlogged);
    }

    /// Whether a connection is in its first slow start, judged by its threshold, its window and the
    /// delivered bytes. Rates are not bounded then.
    pub fn is_growing(ssthresh: Option<u64>, cwnd: u64, arrived: u64) -> bool {
        ssthresh.is_none() && arrived <= FIRST_WINDOWS * cwnd
    }

    /// The part of a delivery rate measured by TCP that counts, in bytes per second.
    pub fn bound(&self, measured: u64) -> u64 {
        match self.rate {
            Some(rate) => measured.min((AHEAD * rate).ceil() as u64),
            None => measured,
        }
    }

    fn begin(&mut self, now: Instant, delivered: u64, is_backlogged: bool) {
        self.since = Some((now, delivered));
        self.is_backlogged = is_backlogged;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Observes `delivered` every 10 ms, from `from` to `to` in milliseconds.
    fn watch(
        rate: &mut SustainedRate,
        [from, to]: [u32; 2],
        backlogged: bool,
        delivered: impl Fn(u32) -> u64,
    ) {
        for ms in (from..=to).step_by(10) {
            rate.observe(ms * MS, delivered(ms), backlogged, MS);
        }
    }

    #[test]
    fn a_burst_at_line_rate_is_not_the_sustained_rate() {
        let mut rate = SustainedRate::default();
        // 32 kB at once, then 1 MB/s: a token bucket.
        watch(&mut rate, [0, 500], true, |ms| {
            32_000 + 1_000 * u64::from(ms)
        });
        assert_eq!(rate.bound(100_000_000), 2_000_000);
        assert_eq!(rate.bound(900_000), 900_000);
    }

    #[test]
    fn only_a_backlogged_path_lowers_the_rate() {
        let mut rate = SustainedRate::default();
        watch(&mut rate, [0, 300], true, |ms| 1_000 * u64::from(ms));
        watch(&mut rate, [300, 900], false, |_| 300_000);
        assert_eq!(rate.bound(u64::MAX), 2_000_000);
        watch(&mut rate, [900, 1_200], true, |ms| {
            300_000 + 100 * u64::from(ms - 900)
        });
        assert_eq!(rate.bound(u64::MAX), 200_000);
        watch(&mut rate, [1_200, 1_400], false, |ms| {
            330_000 + 5_000 * u64::from(ms - 1_200)
        });
        assert_eq!(rate.bound(u64::MAX), 10_000_000);
    }

    #[test]
    fn rates_are_not_bounded_before_the_first_measurement() {
        let mut rate = SustainedRate::default();
        rate.observe(MS, 0, true, MS);
        assert_eq!(rate.bound(7), 7);
    }
}
