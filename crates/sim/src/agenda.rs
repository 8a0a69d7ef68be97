//! The event queue: a heap ordered by time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::clock::Nanos;

/// Events in order of time; simultaneous events stay in the order in which they were scheduled.
#[derive(Clone, Debug)]
pub(crate) struct Agenda<E> {
    heap: BinaryHeap<Entry<E>>,
    /// Number of events scheduled so far.
    planned: u64,
}

#[derive(Clone, Debug)]
struct Entry<E> {
    at: Nanos,
    sequence: u64,
    event: E,
}

impl<E> Agenda<E> {
    pub(crate) fn new() -> Self {
        Self {
            heap: BinaryHeap::new(),
            planned: 0,
        }
    }

    /// Schedules an event.
    pub(crate) fn plan(&mut self, at: Nanos, event: E) {
        let sequence = self.planned;
        self.planned += 1;
        self.heap.push(Entry {
            at,
            sequence,
            event,
        });
    }

    /// Time of the next event.
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.heap.peek().map(|entry| entry.at)
    }

    /// Removes and returns the next event if it is due.
    pub(crate) fn pop(&mut self, now: Nanos) -> Option<E> {
        self.next().filter(|at| *at <= now)?;
        self.heap.pop().map(|entry| entry.event)
    }
}

impl<E> Ord for Entry<E> {
    /// Reversed: the heap returns its greatest element first, so the earliest event compares
    /// greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Entry<E> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_ordered_by_time_then_by_scheduling() {
        let mut agenda = Agenda::new();
        for (at, event) in [(7, "c"), (5, "a"), (7, "d"), (5, "b")] {
            agenda.plan(at, event);
        }
        assert_eq!(agenda.pop(4), None);
        let order: Vec<_> = std::iter::from_fn(|| agenda.pop(7)).collect();
        assert_eq!(order, ["a", "b", "c", "d"]);
    }
}
