//! When packets left a queue, and how long their acknowledgments took from there.

use std::collections::VecDeque;
use std::time::Duration;

use crate::Instant;

/// Most departures remembered: more packets than are on their way over a link of 1 Gbit/s and
/// 10 ms.
const MAX_DEPARTURES: usize = 1024;

/// Weights of a new sample (RFC 6298, section 2.3).
const MEAN_GAIN: f64 = 0.125;
const DEVIATION_GAIN: f64 = 0.25;

/// Departures from a first-in, first-out queue, and the time from there to the acknowledgment.
#[derive(Clone, Debug, Default)]
pub(super) struct Departures {
    /// Entry into the queue and departure from it, both in ascending order.
    times: VecDeque<(Instant, Instant)>,
    /// Mean time from the departure to the acknowledgment, and its mean deviation.
    flight: Option<(Duration, Duration)>,
}

impl Departures {
    /// A packet that entered the queue at `entered` has left it.
    pub(super) fn push(&mut self, entered: Instant, now: Instant) {
        if let Some((last, departed)) = self.times.back_mut()
            && *last >= entered
        {
            *departed = now;
            return;
        }
        if self.times.len() >= MAX_DEPARTURES {
            self.times.pop_front();
        }
        self.times.push_back((entered, now));
    }

    /// The latest time at which a packet that entered at `entered`, and that waits no more, can
    /// have left.
    pub(super) fn of(&self, entered: Instant) -> Instant {
        let after = self.times.partition_point(|(time, _)| *time <= entered);
        let found = after.checked_sub(1).and_then(|index| self.times.get(index));
        // A forgotten departure was not after the first that is remembered.
        let found = found.or(self.times.front());
        found.map_or(entered, |(_, departed)| (*departed).max(entered))
    }

    /// A packet was acknowledged this long after its departure.
    pub(super) fn sample(&mut self, flight: Duration) {
        self.flight = Some(match self.flight {
            // The time in the queue, which varies most, is no part of it.
            None => (flight, flight / 4),
            Some((mean, deviation)) => {
                let off = flight.abs_diff(mean);
                (
                    mean.mul_f64(1.0 - MEAN_GAIN) + flight.mul_f64(MEAN_GAIN),
                    deviation.mul_f64(1.0 - DEVIATION_GAIN) + off.mul_f64(DEVIATION_GAIN),
                )
            }
        });
    }

    /// Within this time after its departure nearly every delivered packet is acknowledged: the mean
    /// and four deviations (RFC 6298), but at least `least` more than the mean.
    pub(super) fn longest_flight(&self, least: Duration) -> Option<Duration> {
        let (mean, deviation) = self.flight?;
        Some(mean + (deviation * 4).max(least))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn a_packet_left_with_those_that_entered_with_it() {
        let mut departures = Departures::default();
        assert_eq!(departures.of(ms(5)), ms(5));
        departures.push(ms(10), ms(20));
        departures.push(ms(10), ms(21));
        departures.push(ms(12), ms(22));
        assert_eq!(departures.of(ms(10)), ms(21));
        assert_eq!(departures.of(ms(11)), ms(21));
        assert_eq!(departures.of(ms(12)), ms(22));
        assert_eq!(
            departures.of(ms(30)),
            ms(30),
            "an empty queue was passed at once"
        );
        assert_eq!(
            departures.of(ms(1)),
            ms(21),
            "not after the first known one"
        );
    }

    #[test]
    fn steady_flights_are_expected_and_unsteady_ones_waited_for() {
        let mut departures = Departures::default();
        assert_eq!(departures.longest_flight(ms(5)), None);
        (0..100).for_each(|_| departures.sample(ms(30)));
        let steady = departures.longest_flight(ms(5)).unwrap();
        assert!(steady.abs_diff(ms(35)) < ms(1), "{steady:?}");
        (0..100).for_each(|n| departures.sample(ms(if n % 2 == 0 { 10 } else { 50 })));
        assert!(departures.longest_flight(ms(5)).unwrap() > ms(90));
    }

    proptest! {
        /// Of any first-in, first-out queue: never earlier than the departure.
        #[test]
        fn no_departure_is_dated_back(
            steps in proptest::collection::vec((0u64..4, 0u64..9), 1..3000),
        ) {
            let mut departures = Departures::default();
            let (mut entered, mut left) = (0, 0);
            let mut all = Vec::new();
            for (pause, wait) in steps {
                entered += pause;
                left = left.max(entered) + wait;
                departures.push(ms(entered), ms(left));
                all.push((ms(entered), ms(left)));
            }
            for (entered, left) in all {
                prop_assert!(departures.of(entered) >= left);
            }
        }
    }
}
