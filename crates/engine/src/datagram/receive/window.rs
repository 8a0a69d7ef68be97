//! The sequence numbers of a flow that have arrived, so that each datagram is delivered once.
//!
//! A bitmap slides along with the highest number, as in RFC 6479. Most flows see their numbers in
//! order and need no bitmap at all.

/// Words of the bitmap.
const WORDS: usize = 256;

/// Numbers below the highest one by this many are too old to be known.
pub(super) const SPAN: u64 = (WORDS as u64 - 1) * 64;

/// Whether a number is news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    New,
    Again,
    /// It may have arrived before, so it is not delivered.
    TooOld,
}

/// The numbers that have arrived.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// The number after the highest one.
    next: u64,
    /// A bit for each number, in a ring; without it, all numbers below `next` have arrived.
    bits: Option<Box<[u64; WORDS]>>,
}

impl Window {
    /// The number after the highest one that has arrived.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Whether a number is new, without recording it.
    pub(super) fn check(&self, number: u64) -> Seen {
        if number >= self.next {
            return Seen::New;
        }
        match &self.bits {
            None => Seen::Again,
            Some(_) if number + SPAN < self.next => Seen::TooOld,
            Some(bits) => match bits[word(number)] & bit(number) {
                0 => Seen::New,
                _ => Seen::Again,
            },
        }
    }

    /// Records a number that is new.
    pub(super) fn insert(&mut self, number: u64) {
        if number == self.next && self.bits.is_none() {
            self.next += 1;
            return;
        }
        let next = self.next;
        let bits = self.bits.get_or_insert_with(|| Box::new([u64::MAX; WORDS]));
        if number >= next {
            clear(bits, next, number);
            self.next = number + 1;
        }
        bits[word(number)] |= bit(number);
    }
}

/// Clears the bits from `next` up to and including `number`, and those of its word beyond it.
fn clear(bits: &mut [u64; WORDS], next: u64, number: u64) {
    if number - next >= SPAN {
        bits.fill(0);
        return;
    }
    let (first, last) = (next / 64, number / 64);
    bits[word(next)] &= bit(next).wrapping_sub(1);
    for index in first + 1..=last {
        bits[index as usize % WORDS] = 0;
    }
}

fn word(number: u64) -> usize {
    (number / 64) as usize % WORDS
}

fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn numbers_in_order_need_no_bitmap() {
        let mut window = Window::default();
        for number in 0..10_000 {
            assert_eq!(window.check(number), Seen::New);
            window.insert(number);
        }
        assert!(window.bits.is_none());
        assert_eq!(window.check(9_999), Seen::Again);
    }

    #[test]
    fn a_gap_can_be_filled_until_it_is_too_old() {
        let mut window = Window::default();
        window.insert(0);
        window.insert(2);
        assert_eq!((window.check(1), window.check(0)), (Seen::New, Seen::Again));
        window.insert(SPAN);
        assert_eq!(window.check(1), Seen::New);
        window.insert(SPAN + 1);
        assert_eq!(window.check(1), Seen::TooOld);
        window.insert(u64::MAX / 4);
        assert_eq!(window.check(SPAN + 2), Seen::TooOld);
        assert_eq!(window.check(u64::MAX / 4 - 1), Seen::New);
    }

    proptest! {
        #[test]
        fn the_window_is_a_set(steps in proptest::collection::vec((0u64..200, 0u64..400), 0..300)) {
            let (mut window, mut set, mut base) = (Window::default(), BTreeSet::new(), 0u64);
            for (step, ahead) in steps {
                base += step;
                let number = (base + ahead).saturating_sub(200);
                match window.check(number) {
                    Seen::New => prop_assert!(set.insert(number)),
                    Seen::Again => prop_assert!(set.contains(&number)),
                    Seen::TooOld => prop_assert!(number + SPAN < window.next()),
                }
                if window.check(number) == Seen::New {
                    window.insert(number);
                }
            }
        }
    }
}
