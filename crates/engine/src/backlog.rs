//! Bounds the data that a stream may buffer, as time at the rate that the session sustains.
//!
//! A token bucket passes its burst at the speed of the line, and the smoothed round-trip time
//! contains the queue that the sender fills. A send buffer in proportion to both of them accepts
//! minutes of data on a slow link, and the program cannot notice that it is ahead. So the bound
//! uses the rate over some seconds and the minimum round-trip time.
//!
//! docs/classes.md lists the bound of each class.

use std::time::Duration;

use crate::{Class, Instant};

/// Lower limit of the bound of a stream that is not in the background, in bytes.
pub(crate) const MINIMUM: u64 = 64 * 1024;

/// Bound of such a stream while the rate is unknown, in bytes.
const INITIAL: u64 = 256 * 1024;

/// Lower limit of the bound of a stream in the background, or of a class that is not learned yet,
/// in bytes.
pub(crate) const BULK_MINIMUM: u64 = 128 * 1024;

/// Upper limit of the bound of such a stream while the sustained rate is unknown, in bytes.
const BULK_INITIAL: u64 = 2 << 20;

/// Lowest rate from which that bound follows, in bytes per second: 20 Mbit/s. The first windows of
/// paths with long round trips show less than these paths deliver.
const INITIAL_RATE: f64 = 2.5e6;

/// Bytes that are acknowledged until the initial bound of such a stream has no effect. It falls by
/// half of them: a program that has filled it on a slow link is not blocked until it has drained.
const INITIAL_LASTS: u64 = 2 * BULK_LIMIT;

/// Time at the sustained rate that a stream in the background may buffer. Rates that change within
/// seconds, and windows that grow, need more than the other classes have.
const BULK_TIME: Duration = Duration::from_millis(400);

/// Round trips of data that a stream may buffer, if these take longer than the time of its class:
/// the data in flight, and as much again to send while the acknowledgment returns.
const ROUNDS: f64 = 2.0;

/// The same for a stream in the background: two for the transmission windows of FBDT, and four for
/// the next windows, which open while the data of the slowest path is still in flight.
const BULK_ROUNDS: f64 = 6.0;

/// Shortest time over which the rate is measured.
const INTERVAL: Duration = Duration::from_millis(250);

/// Longest time for which one measurement counts: one outage does not erase the rate.
const LONGEST: Duration = Duration::from_secs(1);

/// Time constant with which the rate falls. It rises at once: a session in slow start doubles its
/// rate in each round trip.
const FALL: Duration = Duration::from_secs(3);

/// Lowest value of [`Bounds::bulk`], in bytes.
pub(crate) const BULK_LIMIT: u64 = 1 << 20;

/// What the latest measurements of a session's paths say about send buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Upper limit of any send buffer, in bytes.
    pub(crate) bulk: u64,
    /// Minimum round-trip time of the slowest path that delivers.
    pub(crate) min_rtt: Duration,
    /// Sum of the latest rates of these paths, in bytes per second.
    pub(crate) latest_rate: f64,
    /// Sum of the congestion windows of the paths in their first slow start, in bytes.
    pub(crate) growing: u64,
}

impl Bounds {
    /// Bytes that a stream in the background needs for its first round trips. A burst at the speed
    /// of the line adds little, because it is counted for some minimum round trips only.
    fn first(&self) -> u64 {
        let rate = self.latest_rate.max(INITIAL_RATE);
        (BULK_ROUNDS * rate * self.min_rtt.as_secs_f64()) as u64
    }
}

/// The rate that a session sustains, over several seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backlog {
    /// Bytes per second; `None` before the first measurement.
    rate: Option<f64>,
    /// Bytes per second that the session has reached with less to send than its paths deliver.
    reached: f64,
    /// Start of the present measurement.
    since: Option<Instant>,
    /// Bytes acknowledged since then.
    acknowledged: u64,
    /// The session has had more to send at each acknowledgment since then.
    is_backlogged: bool,
    /// Bytes acknowledged since the rate is known, up to [`INITIAL_LASTS`].
    since_rate: u64,
}

impl Backlog {
    /// Records that the peer has acknowledged `bytes` for the first time. `is_backlogged` says
    /// that more data waits for the paths, or a program waits for room in a send buffer.
    pub(crate) fn acknowledged(&mut self, bytes: u64, is_backlogged: bool, now: Instant) {
        let Some(since) = self.since else {
            // These bytes took an unknown time.
            self.begin(is_backlogged, now);
            return;
        };
        self.acknowledged += bytes;
        if self.rate.is_some() {
            self.since_rate = (self.since_rate + bytes).min(INITIAL_LASTS);
        }
        self.is_backlogged &= is_backlogged;
        let time = now.saturating_sub(since);
        if time >= INTERVAL {
            self.measure(self.acknowledged as f64 / time.as_secs_f64(), time);
            self.begin(is_backlogged, now);
        }
    }

    fn begin(&mut self, is_backlogged: bool, now: Instant) {
        self.since = Some(now);
        self.acknowledged = 0;
        self.is_backlogged = is_backlogged;
    }

    fn measure(&mut self, measured: f64, time: Duration) {
        let Some(rate) = self.rate else {
            // A session that had little to send has shown only the least that its paths deliver.
            match self.is_backlogged {
                true => self.rate = Some(measured),
                false => self.reached = self.reached.max(measured),
            }
            return;
        };
        if measured >= rate {
            self.rate = Some(measured);
        } else if self.is_backlogged {
            let time = time.min(LONGEST).as_secs_f64();
            let weight = 1.0 - (-time / FALL.as_secs_f64()).exp();
            self.rate = Some(rate + weight * (measured - rate));
        }
    }

    /// Bytes that a stream of `class` may have buffered on such paths.
    pub(crate) fn bound(&self, class: Class, on: &Bounds) -> u64 {
        // A path in slow start doubles its window if the stream has as much again to send.
        let growing = on.growing.saturating_mul(2);
        self.in_time(class, on).max(growing).min(on.bulk)
    }

    /// The same, without the windows of slow start.
    fn in_time(&self, class: Class, on: &Bounds) -> u64 {
        let is_bulk = class == Class::Background;
        let rounds = if is_bulk { BULK_ROUNDS } else { ROUNDS };
        let time = time_of(class).as_secs_f64();
        let time = time.max(rounds * on.min_rtt.as_secs_f64());
        let sustained = (self.rate.unwrap_or(self.reached) * time) as u64;
        let minimum = match (self.rate, is_bulk) {
            (None, false) => INITIAL,
            (None, true) => on.first().clamp(BULK_MINIMUM, BULK_INITIAL),
            (Some(_), false) => MINIMUM,
            (Some(_), true) => {
                let falling = BULK_LIMIT - self.since_rate / 2;
                on.first().min(falling).max(BULK_MINIMUM)
            }
        };
        minimum.max(sustained)
    }
}

/// Time at the sustained rate that a stream of `class` may buffer.
fn time_of(class: Class) -> Duration {
    match class {
        Class::Conversational => Duration::from_millis(80),
        Class::Interactive => Duration::from_millis(160),
        Class::Streaming => Duration::from_millis(200),
        Class::Background => BULK_TIME,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const RTT: Duration = Duration::from_millis(10);
    const ON: Bounds = Bounds {
        bulk: u64::MAX,
        min_rtt: RTT,
        latest_rate: 1e9,
        growing: 0,
    };
    const CLASSES: [Class; 4] = [
        Class::Conversational,
        Class::Interactive,
        Class::Streaming,
        Class::Background,
    ];

    /// Acknowledges `rate` bytes per second in steps of 10 ms from `now` on.
    fn run(backlog: &mut Backlog, now: &mut Instant, rate: u64, time: Duration, more: bool) {
        let end = *now + time;
        while *now < end {
            *now += 10 * MS;
            backlog.acknowledged(rate / 100, more, *now);
        }
    }

    fn steady(rate: u64) -> (Backlog, Instant) {
        let (mut backlog, mut now) = (Backlog::default(), Instant::from_secs(1));
        run(&mut backlog, &mut now, rate, 10_000 * MS, true);
        (backlog, now)
    }

    #[test]
    fn each_class_buffers_its_time_at_the_sustained_rate() {
        let (backlog, _) = steady(10_000_000);
        let bounds = CLASSES.map(|class| backlog.in_time(class, &ON));
        for (bound, ms) in bounds.into_iter().zip([80, 160, 200, 400]) {
            let expected = ms * 10_000;
            assert!(bound.abs_diff(expected) < expected / 100, "{bounds:?}");
        }
    }

    #[test]
    fn round_trips_longer_than_the_time_of_the_class_raise_the_bound() {
        let (backlog, _) = steady(10_000_000);
        let on = Bounds {
            min_rtt: 300 * MS,
            ..ON
        };
        let bounds = CLASSES.map(|class| backlog.in_time(class, &on));
        for (bound, ms) in bounds.into_iter().zip([600, 600, 600, 1800]) {
            let expected = ms * 10_000;
            assert!(bound.abs_diff(expected) < expected / 100, "{bounds:?}");
        }
    }

    #[test]
    fn before_the_first_measurement_the_bound_is_the_initial_one() {
        let mut backlog = Backlog::default();
        assert_eq!(backlog.in_time(Class::Streaming, &ON), INITIAL);
        assert_eq!(backlog.in_time(Class::Background, &ON), BULK_INITIAL);
        let mut now = Instant::from_secs(1);
        run(&mut backlog, &mut now, 1000, 5000 * MS, false);
        assert_eq!(backlog.in_time(Class::Streaming, &ON), INITIAL);
    }

    #[test]
    fn the_initial_bound_of_bulk_follows_round_trips_and_rates() {
        let backlog = Backlog::default();
        let bound = |ms, latest_rate| {
            let min_rtt = ms * MS;
            let on = Bounds {
                min_rtt,
                latest_rate,
                ..ON
            };
            backlog.in_time(Class::Background, &on)
        };
        assert_eq!(bound(1, 300_000.0), BULK_MINIMUM);
        assert_eq!(bound(10, 300_000.0), 150_000, "20 Mbit/s");
        assert_eq!(bound(10, 5e6), 300_000);
        assert_eq!(bound(200, 1e6), BULK_INITIAL);
    }

    /// A program that is never blocked, because the pipe before the engine limits it.
    #[test]
    fn a_rate_reached_with_little_to_send_raises_the_initial_bound() {
        let (mut backlog, mut now) = (Backlog::default(), Instant::from_secs(1));
        let on = Bounds {
            min_rtt: MS,
            latest_rate: 0.0,
            ..ON
        };
        run(&mut backlog, &mut now, 100_000_000, 600 * MS, false);
        let bound = backlog.in_time(Class::Background, &on);
        assert!(bound.abs_diff(40_000_000) < 2_000_000, "{bound}");
        run(&mut backlog, &mut now, 1000, 5000 * MS, false);
        assert_eq!(backlog.in_time(Class::Background, &on), bound);
    }

    #[test]
    fn slow_start_raises_the_bound_and_the_latest_measurements_limit_it() {
        let (backlog, _) = steady(10_000_000);
        let bound = |bulk, growing| {
            let on = Bounds {
                bulk,
                growing,
                ..ON
            };
            backlog.bound(Class::Streaming, &on)
        };
        assert!(bound(u64::MAX, 0).abs_diff(2_000_000) < 20_000);
        assert_eq!(bound(u64::MAX, 3_000_000), 6_000_000);
        assert_eq!(bound(1_500_000, 3_000_000), 1_500_000);
    }

    #[test]
    fn the_burst_of_a_token_bucket_is_forgotten_within_seconds() {
        let (mut backlog, mut now) = (Backlog::default(), Instant::from_secs(1));
        // 250 kB within 10 ms, then 250 kB/s.
        run(&mut backlog, &mut now, 25_000_000, 20 * MS, true);
        run(&mut backlog, &mut now, 250_000, 10_000 * MS, true);
        assert_eq!(backlog.in_time(Class::Streaming, &ON), MINIMUM);
    }

    #[test]
    fn little_to_send_does_not_lower_the_bound_and_a_slow_path_does() {
        let (mut backlog, mut now) = steady(10_000_000);
        let before = backlog.in_time(Class::Streaming, &ON);
        run(&mut backlog, &mut now, 100_000, 20_000 * MS, false);
        assert!(backlog.in_time(Class::Streaming, &ON) >= before);
        run(&mut backlog, &mut now, 1_000_000, 15_000 * MS, true);
        let after = backlog.in_time(Class::Streaming, &ON);
        assert!((195_000..290_000).contains(&after), "{after}");
    }

    #[test]
    fn an_outage_of_half_a_minute_leaves_more_than_half_of_the_bound() {
        let (mut backlog, mut now) = steady(10_000_000);
        let before = backlog.in_time(Class::Streaming, &ON);
        now += 30_000 * MS;
        backlog.acknowledged(10_000, true, now);
        assert!(backlog.in_time(Class::Streaming, &ON) > before / 2);
    }

    #[test]
    fn the_initial_bound_falls_by_half_of_the_acknowledged_bytes() {
        // 3 Mbit/s.
        let (mut backlog, mut now) = (Backlog::default(), Instant::from_secs(1));
        run(&mut backlog, &mut now, 375_000, 300 * MS, true);
        let mut before = backlog.in_time(Class::Background, &ON);
        assert!(before >= 1_000_000, "{before}");
        for _ in 0..20 {
            run(&mut backlog, &mut now, 375_000, 250 * MS, true);
            let bound = backlog.in_time(Class::Background, &ON);
            let acknowledged = 375_000 / 4 + 3750;
            assert!(before - bound <= acknowledged / 2, "{before} {bound}");
            before = bound;
        }
        run(&mut backlog, &mut now, 375_000, 2000 * MS, true);
        let bound = backlog.in_time(Class::Background, &ON);
        assert!(bound <= 190_000, "{bound}");
    }

    proptest! {
        /// Whatever is acknowledged, the bound is between its minimum and what the fastest
        /// interval allows, and classes keep their order.
        #[test]
        fn the_bound_stays_within_its_limits(
            steps in prop::collection::vec(
                (0..3_000_u32, 0..10_000_000_u64, any::<bool>()), 1..200),
            rtt in 0..1_000_u32,
        ) {
            let (mut backlog, mut now) = (Backlog::default(), Instant::from_secs(1));
            let most: u64 = steps.iter().map(|(_, bytes, _)| bytes).sum();
            for (ms, bytes, more) in steps {
                now += ms * MS;
                backlog.acknowledged(bytes, more, now);
                let on = Bounds { min_rtt: rtt * MS, ..ON };
                let bounds = CLASSES.map(|class| backlog.in_time(class, &on));
                prop_assert!(bounds.is_sorted(), "{bounds:?}");
                prop_assert!(bounds[0] >= MINIMUM && bounds[3] >= BULK_MINIMUM);
                // All bytes within the shortest interval, for the longest time.
                let seconds = (BULK_ROUNDS * f64::from(rtt) / 1e3).max(0.5);
                let limit = most as f64 / INTERVAL.as_secs_f64() * seconds;
                prop_assert!(bounds[3] as f64 <= limit.max(BULK_INITIAL as f64), "{bounds:?}");
            }
        }

        /// From any history, some seconds at a constant rate decide the bound.
        #[test]
        fn the_bound_follows_the_rate(
            steps in prop::collection::vec(
                (0..1_000_u32, 0..1_000_000_u64, any::<bool>()), 0..50),
            rate in 1_000_000..50_000_000_u64,
        ) {
            let (mut backlog, mut now) = (Backlog::default(), Instant::from_secs(1));
            for (ms, bytes, more) in steps {
                now += ms * MS;
                backlog.acknowledged(bytes, more, now);
            }
            run(&mut backlog, &mut now, rate, 60_000 * MS, true);
            let (bound, expected) = (backlog.in_time(Class::Streaming, &ON), rate / 5);
            prop_assert!(bound.abs_diff(expected.max(MINIMUM)) <= expected / 20, "{bound}");
        }
    }
}
