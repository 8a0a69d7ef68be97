//! Counts datagrams with copies on several links: such a datagram is sent with its first copy, and
//! dropped with its last one if none was sent.

use std::collections::BTreeMap;

/// See the module. It has an entry for each datagram with copies that wait, so it is bounded like
/// their queues.
#[derive(Debug, Default)]
pub(crate) struct Fates(BTreeMap<u64, Fate>);

#[derive(Clone, Copy, Debug)]
struct Fate {
    waiting: usize,
    has_left: bool,
}

impl Fates {
    /// A datagram has this many copies, all of which wait.
    pub(crate) fn expect(&mut self, sequence: u64, copies: usize) {
        let fate = Fate {
            waiting: copies,
            has_left: false,
        };
        self.0.insert(sequence, fate);
    }

    /// A copy is sent; returns whether it is the datagram's first one.
    pub(crate) fn leave(&mut self, sequence: u64) -> bool {
        self.end_copy(sequence, true)
    }

    /// A copy is dropped; returns whether the datagram is lost with it.
    pub(crate) fn drop(&mut self, sequence: u64) -> bool {
        self.end_copy(sequence, false)
    }

    fn end_copy(&mut self, sequence: u64, leaves: bool) -> bool {
        let Some(fate) = self.0.get_mut(&sequence) else {
            return false;
        };
        let has_left = fate.has_left;
        fate.waiting = fate.waiting.saturating_sub(1);
        fate.has_left |= leaves;
        let is_last = fate.waiting == 0;
        if is_last {
            self.0.remove(&sequence);
        }
        !has_left && (leaves || is_last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_is_sent_once_or_dropped_once() {
        let mut fates = Fates::default();
        for sequence in 1..=3 {
            fates.expect(sequence, 2);
        }
        assert_eq!([fates.leave(1), fates.leave(1)], [true, false]);
        assert_eq!([fates.drop(2), fates.leave(2)], [false, true]);
        assert_eq!([fates.drop(3), fates.drop(3)], [false, true]);
        assert!(fates.0.is_empty());
        assert!(!fates.leave(3) && !fates.drop(4));
    }
}
