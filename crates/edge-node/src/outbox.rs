//! Datagrams that are to leave by one socket, in order. Neighbours of one size leave together: the kernel takes them at once and
//! cuts them below its own network stack (UDP_SEGMENT), which then looks at all of them once.

use std::collections::VecDeque;

/// The most bytes of one run: what fits into a UDP datagram, which a run is until it is cut.
const MOST: usize = 65_000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// What waits, one datagram behind the other, from `start` on.
    bytes: Vec<u8>,
    start: usize,
    /// Their lengths.
    lengths: VecDeque<usize>,
}

/// Datagrams of one size, of which the last one may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run<'a> {
    /// All of them.
    pub(crate) bytes: &'a [u8],
    /// The size of each.
    pub(crate) size: usize,
    /// How many there are.
    pub(crate) count: usize,
}

impl Outbox {
    /// Adds the datagram that `write` appends.
    pub(crate) fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> usize {
        let before = self.bytes.len();
        write(&mut self.bytes);
        let len = self.bytes.len() - before;
        self.lengths.push_back(len);
        len
    }

    /// Bytes that wait.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// The first datagrams that can leave together, `most` of them at the most; nothing when nothing waits.
    pub(crate) fn run(&self, most: usize) -> Option<Run<'_>> {
        let size = *self.lengths.front()?;
        let (mut len, mut count) = (0, 0);
        for &next in &self.lengths {
            if count > 0 && (next > size || len + next > MOST) || count == most.max(1) {
                break;
            }
            len += next;
            count += 1;
            if next < size {
                break;
            }
        }
        Some(Run {
            bytes: &self.bytes[self.start..self.start + len],
            size,
            count,
        })
    }

    /// So many datagrams have left.
    pub(crate) fn remove(&mut self, count: usize) {
        let gone: usize = self.lengths.drain(..count).sum();
        self.start += gone;
        if self.lengths.is_empty() {
            self.clear();
        }
    }

    /// Drops all of them.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.lengths.clear();
        self.start = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filled(lengths: &[usize]) -> Outbox {
        let mut outbox = Outbox::default();
        for (number, &len) in lengths.iter().enumerate() {
            outbox.push(|out| out.resize(out.len() + len, number as u8));
        }
        outbox
    }

    fn counts(lengths: &[usize], most: usize) -> Vec<usize> {
        let mut outbox = filled(lengths);
        let mut counts = Vec::new();
        while let Some(run) = outbox.run(most) {
            let count = run.count;
            counts.push(count);
            outbox.remove(count);
        }
        counts
    }

    #[test]
    fn neighbours_of_one_size_leave_together_and_a_shorter_one_ends_it() {
        assert_eq!(counts(&[9, 9, 9], 64), [3]);
        assert_eq!(counts(&[9, 9, 4, 9], 64), [3, 1]);
        assert_eq!(counts(&[4, 9, 9], 64), [1, 2], "a longer one begins anew");
        assert_eq!(counts(&[9; 5], 2), [2, 2, 1]);
        assert_eq!(counts(&[9; 3], 1), [1, 1, 1], "a kernel that cuts nothing");
        assert_eq!(counts(&[30_000; 5], 64), [2, 2, 1]);
        assert_eq!(counts(&[], 64), [0; 0]);
    }

    proptest! {
        #[test]
        fn everything_leaves_once_and_in_order(
            lengths in prop::collection::vec(1..70_000usize, 0..20),
            most in 1..70usize,
        ) {
            let mut outbox = filled(&lengths);
            let (mut left, mut bytes) = (0, Vec::new());
            while let Some(run) = outbox.run(most) {
                prop_assert!(run.count >= 1 && run.count <= most);
                prop_assert!(run.count == 1 || run.bytes.len() <= MOST);
                let sizes = &lengths[left..left + run.count];
                let (last, whole) = sizes.split_last().unwrap();
                prop_assert!(whole.iter().all(|size| *size == run.size) && *last <= run.size);
                left += run.count;
                bytes.extend_from_slice(run.bytes);
                let count = run.count;
                outbox.remove(count);
            }
            prop_assert_eq!(left, lengths.len());
            let all = filled(&lengths).bytes;
            prop_assert_eq!(bytes, all);
            prop_assert_eq!(outbox.len(), 0);
        }
    }
}
