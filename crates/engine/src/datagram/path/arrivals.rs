//! Packets received on a path, for the reports to their sender.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use crate::Instant;
use crate::PathId;
use crate::datagram::wire::{MAX_REPORT_RANGES, Report};
use crate::datagram::{clock, wire};

/// The packets that have arrived on one path.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// Ranges of received numbers, ascending; the highest ones if there are too many.
    ranges: VecDeque<RangeInclusive<u64>>,
    /// When the highest one arrived.
    largest_at: Instant,
}

impl Arrivals {
    /// A packet has arrived; false if it has arrived before or is too old to know.
    pub(crate) fn note(&mut self, number: u64, now: Instant) -> bool {
        let above = self
            .ranges
            .iter()
            .rposition(|range| *range.start() <= number);
        let at = above.map_or(0, |index| index + 1);
        if let Some(below) = above.map(|index| self.ranges[index].clone()) {
            if *below.end() >= number {
                return false;
            }
        } else if self.ranges.len() == MAX_REPORT_RANGES {
            return false;
        }
        if at == self.ranges.len() {
            self.largest_at = now;
        }
        let joins_below = at > 0 && *self.ranges[at - 1].end() + 1 == number;
        let joins_above = at < self.ranges.len() && *self.ranges[at].start() == number + 1;
        match (joins_below, joins_above) {
            (true, true) => {
                self.ranges[at - 1] = *self.ranges[at - 1].start()..=*self.ranges[at].end();
                self.ranges.remove(at);
            }
            (true, false) => self.ranges[at - 1] = *self.ranges[at - 1].start()..=number,
            (false, true) => self.ranges[at] = number..=*self.ranges[at].end(),
            (false, false) => {
                self.ranges.insert(at, number..=number);
                if self.ranges.len() > MAX_REPORT_RANGES {
                    self.ranges.pop_front();
                }
            }
        }
        true
    }

    /// The report; none before the first packet.
    pub(crate) fn report(&self, path: PathId) -> Option<wire::Report> {
        let ranges: Vec<_> = self.ranges.iter().rev().cloned().collect();
        (!ranges.is_empty()).then(|| Report {
            path: u64::from(path.0),
            received_at: clock::stamp(self.largest_at),
            ranges,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    use super::*;

    fn ranges(arrivals: &Arrivals) -> Vec<RangeInclusive<u64>> {
        arrivals
            .report(PathId(0))
            .map_or(Vec::new(), |report| report.ranges)
    }

    #[test]
    fn ranges_merge_and_repetitions_are_noticed() {
        let mut arrivals = Arrivals::default();
        for (number, is_new) in [
            (3, true),
            (5, true),
            (5, false),
            (4, true),
            (0, true),
            (3, false),
        ] {
            assert_eq!(arrivals.note(number, Instant::ZERO), is_new, "{number}");
        }
        assert_eq!(ranges(&arrivals), [3..=5, 0..=0]);
    }

    #[test]
    fn the_time_is_that_of_the_highest_number() {
        let mut arrivals = Arrivals::default();
        arrivals.note(7, Instant::from_micros(70));
        arrivals.note(2, Instant::from_micros(90));
        assert_eq!(arrivals.report(PathId(3)).unwrap().received_at, 70);
    }

    proptest! {
        #[test]
        fn the_ranges_are_those_of_a_set(numbers in proptest::collection::vec(0u64..60, 0..100)) {
            let (mut arrivals, mut set) = (Arrivals::default(), BTreeSet::new());
            for number in numbers {
                prop_assert_eq!(arrivals.note(number, Instant::ZERO), set.insert(number));
            }
            let listed: BTreeSet<u64> = ranges(&arrivals).into_iter().flatten().collect();
            prop_assert_eq!(listed, set);
        }

        #[test]
        fn memory_is_bounded(numbers in proptest::collection::vec(0u64..2000, 0..400)) {
            let mut arrivals = Arrivals::default();
            for number in numbers {
                arrivals.note(number, Instant::ZERO);
                prop_assert!(arrivals.ranges.len() <= MAX_REPORT_RANGES);
            }
            let listed = ranges(&arrivals);
            for two in listed.windows(2) {
                prop_assert!(two[0].start() > &(two[1].end() + 1));
            }
        }
    }
}
