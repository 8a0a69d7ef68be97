//! Datagrams that wait for one socket, in order. Consecutive datagrams of equal size are passed to
//! the kernel together, which splits them below its network stack (UDP_SEGMENT) and so processes
//! them once.

use std::collections::VecDeque;

/// Most bytes of a run: it is one UDP datagram until the kernel splits it.
const MAX: usize = 65_000;

/// Datagrams that wait for one socket.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// Queued datagrams, one after another, from `start` on.
    bytes: Vec<u8>,
    start: usize,
    /// Their lengths.
    lengths: VecDeque<usize>,
}

/// Consecutive datagrams of equal size; the last one may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run<'a> {
    /// Their bytes.
    pub(crate) bytes: &'a [u8],
    /// Size of each.
    pub(crate) size: usize,
    /// Number of datagrams.
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

    /// Number of queued bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// The first datagrams that can leave together, at most `most`; `None` if none are queued.
    pub(crate) fn run(&self, most: usize) -> Option<Run<'_>> {
        let size = *self.lengths.front()?;
        let (mut len, mut count) = (0, 0);
        for &next in &self.lengths {
            if count > 0 && (next > size || len + next > MAX) || count == most.max(1) {
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

    /// Removes the first `count` datagrams.
    pub(crate) fn remove(&mut self, count: usize) {
        let gone: usize = self.lengths.drain(..count).sum();
        self.start += gone;
        if self.lengths.is_empty() {
            self.clear();
        }
    }

    /// Drops all datagrams.
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
    fn datagrams_of_one_size_leave_together_and_a_shorter_one_ends_the_run() {
        assert_eq!(counts(&[9, 9, 9], 64), [3]);
        assert_eq!(counts(&[9, 9, 4, 9], 64), [3, 1]);
        assert_eq!(
            counts(&[4, 9, 9], 64),
            [1, 2],
            "a longer one starts a new run"
        );
        assert_eq!(counts(&[9; 5], 2), [2, 2, 1]);
        assert_eq!(counts(&[9; 3], 1), [1, 1, 1], "a kernel that cannot split");
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
                prop_assert!(run.count == 1 || run.bytes.len() <= MAX);
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
