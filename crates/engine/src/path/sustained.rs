//! The rate that a path sustains, as opposed to that of a burst.
//!
//! TCP measures its delivery rate over a round trip. A token bucket passes its burst at the speed of the line: over a short round
//! trip, after a pause, that measurement is many times what the link carries. Whatever is derived from it (how much may wait in
//! a socket, when a byte is expected, how much TCP would deliver if it delivered anything) is wrong by the same factor.

use std::time::Duration;

use crate::Instant;

/// A rate is sustained when it was delivered for this long, or for a round trip where that is longer.
const LONG: Duration = Duration::from_millis(100);

/// TCP's own measurement counts up to this many times the sustained rate: it is newer, and a link may have become faster.
const AHEAD: f64 = 2.0;

/// A connection is in its first slow start until so many windows have arrived, at the latest: each has twice the rate of the one before,
/// and what lasts says nothing about the path yet.
const FIRST_WINDOWS: u64 = 4;

/// Measures what a carrier's TCP delivers over longer times than TCP does.
#[derive(Clone, Copy, Debug, Default)]
pub struct SustainedRate {
    /// Bytes per second; nothing before the first measurement.
    rate: Option<f64>,
    /// When the present measurement began, and what had been delivered by then.
    since: Option<(Instant, u64)>,
    /// Whether TCP has had something to send at every look since.
    is_backlogged: bool,
}

impl SustainedRate {
    /// Takes note that TCP has delivered `delivered` bytes since the connection began, retransmissions included; `is_backlogged`
    /// while more waits in the socket, so that nothing but the path limits the rate. `srtt` is the smoothed round trip.
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
        // Less than before says nothing about the path unless the path was what limited it.
        self.rate = match self.rate {
            Some(known) if !self.is_backlogged => Some(known.max(measured)),
            _ if measured > 0.0 => Some(measured),
            known => known,
        };
        self.begin(now, delivered, is_backlogged);
    }

    /// Whether a connection is in its first slow start, by its threshold, its window and what has arrived, in bytes: then no rate is
    /// bounded.
    pub fn is_growing(ssthresh: Option<u64>, cwnd: u64, arrived: u64) -> bool {
        ssthresh.is_none() && arrived <= FIRST_WINDOWS * cwnd
    }

    /// What counts of a delivery rate that TCP has measured, in bytes per second.
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

    /// Looks once in 10 ms, from `from` to `to` in milliseconds, at what `delivered` says.
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
    fn a_burst_at_the_speed_of_the_line_is_not_what_the_link_carries() {
        let mut rate = SustainedRate::default();
        // 32 kB at once, then 1 MB/s: a token bucket.
        watch(&mut rate, [0, 500], true, |ms| {
            32_000 + 1_000 * u64::from(ms)
        });
        assert_eq!(rate.bound(100_000_000), 2_000_000);
        assert_eq!(rate.bound(900_000), 900_000);
    }

    #[test]
    fn little_to_send_does_not_make_a_path_slow_and_a_slow_path_does() {
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
    fn nothing_is_bounded_before_anything_was_measured() {
        let mut rate = SustainedRate::default();
        rate.observe(MS, 0, true, MS);
        assert_eq!(rate.bound(7), 7);
    }
}
