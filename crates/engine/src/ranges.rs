//! A set of disjoint, half-open ranges of offsets.

use std::collections::BTreeMap;
use std::ops::Range;

/// Disjoint ranges in ascending order; ranges that touch are merged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// Start of each range, and its end.
    ends: BTreeMap<u64, u64>,
    /// Sum of all lengths.
    total: u64,
}

impl RangeSet {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Number of separate ranges.
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// Sum of the lengths of all ranges.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The lowest range.
    pub fn first(&self) -> Option<Range<u64>> {
        self.ends.first_key_value().map(|(&start, &end)| start..end)
    }

    /// The highest range.
    pub fn last(&self) -> Option<Range<u64>> {
        self.ends.last_key_value().map(|(&start, &end)| start..end)
    }

    /// All ranges, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range<u64>> + '_ {
        self.ends.iter().map(|(&start, &end)| start..end)
    }

    /// The parts of the set inside `window`, ascending.
    pub fn within(&self, window: Range<u64>) -> impl DoubleEndedIterator<Item = Range<u64>> + '_ {
        let from = self
            .starting_before(window.start)
            .map_or(window.start, |r| r.start);
        // A range with its end before its start would make BTreeMap::range panic.
        let to = window.end.max(from);
        self.ends.range(from..to).filter_map(move |(&start, &end)| {
            let part = start.max(window.start)..end.min(window.end);
            (part.start < part.end).then_some(part)
        })
    }

    /// Number of bytes of the set inside `window`.
    pub fn total_within(&self, window: Range<u64>) -> u64 {
        self.within(window).map(|r| r.end - r.start).sum()
    }

    /// Whether all of `range` is in the set.
    pub fn covers(&self, range: Range<u64>) -> bool {
        range.is_empty()
            || self
                .ends
                .range(..=range.start)
                .next_back()
                .is_some_and(|(_, &end)| end >= range.end)
    }

    /// Adds `range`; returns how many of its bytes were not in the set before.
    pub fn insert(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let Range { mut start, mut end } = range;
        let mut merged = 0;
        if let Some((&s, &e)) = self.ends.range(..=start).next_back()
            && e >= start
        {
            if e >= end {
                return 0;
            }
            merged += e - s;
            start = s;
            self.ends.remove(&s);
        }
        while let Some((&s, &e)) = self.ends.range(start..=end).next() {
            merged += e - s;
            end = end.max(e);
            self.ends.remove(&s);
        }
        self.ends.insert(start, end);
        let added = end - start - merged;
        self.total += added;
        added
    }

    /// Removes `range`; returns how many bytes of it were in the set.
    pub fn remove(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let mut removed = 0;
        if let Some(Range { start, end }) = self.starting_before(range.start)
            && end > range.start
        {
            self.ends.insert(start, range.start);
            if end > range.end {
                self.ends.insert(range.end, end);
            }
            removed += end.min(range.end) - range.start;
        }
        while let Some((&start, &end)) = self.ends.range(range.clone()).next() {
            self.ends.remove(&start);
            if end > range.end {
                self.ends.insert(range.end, end);
            }
            removed += end.min(range.end) - start;
        }
        self.total -= removed;
        removed
    }

    fn starting_before(&self, offset: u64) -> Option<Range<u64>> {
        self.ends
            .range(..offset)
            .next_back()
            .map(|(&start, &end)| start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn touching_ranges_merge_and_gaps_split() {
        let mut set = RangeSet::new();
        assert_eq!(set.insert(0..10), 10);
        assert_eq!(set.insert(20..30), 10);
        assert_eq!(set.insert(10..20), 10);
        assert_eq!((set.count(), set.first()), (1, Some(0..30)));
        assert_eq!(set.remove(5..25), 20);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0..5, 25..30]);
        assert_eq!(set.within(3..27).collect::<Vec<_>>(), [3..5, 25..27]);
        assert!(set.covers(26..30) && !set.covers(4..6));
    }

    proptest! {
        #[test]
        fn behaves_like_a_set_of_integers(
            ops in proptest::collection::vec((any::<bool>(), 0u64..64, 0u64..24), 0..60),
            probe in (0u64..64, 0u64..64),
        ) {
            let mut set = RangeSet::new();
            let mut model = std::collections::BTreeSet::new();
            for (insert, start, len) in ops {
                let range = start..start + len;
                let changed = if insert {
                    let new = range.clone().filter(|x| !model.contains(x)).count() as u64;
                    prop_assert_eq!(set.insert(range.clone()), new);
                    range.for_each(|x| { model.insert(x); });
                    0
                } else {
                    let expected = range.clone().filter(|x| model.contains(x)).count() as u64;
                    range.clone().for_each(|x| { model.remove(&x); });
                    set.remove(range) - expected
                };
                prop_assert_eq!(changed, 0);
                prop_assert_eq!(set.total(), model.len() as u64);
                let expected: Vec<_> = model.iter().copied().collect();
                prop_assert_eq!(set.iter().flatten().collect::<Vec<_>>(), expected);
                let all: Vec<_> = set.iter().collect();
                prop_assert!(all.windows(2).all(|w| w[0].end < w[1].start));
            }
            let window = probe.0..probe.1;
            let inside: Vec<u64> = model.iter().copied().filter(|x| window.contains(x)).collect();
            prop_assert_eq!(set.total_within(window.clone()), inside.len() as u64);
            prop_assert_eq!(set.within(window.clone()).flatten().collect::<Vec<_>>(), inside);
            prop_assert_eq!(set.covers(window.clone()), window.clone().all(|x| model.contains(&x)));
        }
    }
}
