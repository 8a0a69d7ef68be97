//! The data that TCP still has in flight, as opposed to data that has reached the peer's host but
//! is not acknowledged by its process.

use std::collections::VecDeque;

use super::overdue::RECORD;
use super::{Flight, Path, Sent};
use crate::Instant;

impl Path {
    /// Whether TCP has received acknowledgments for everything before that count of the path's
    /// bytes, as far as it reports.
    pub(crate) fn has_acknowledged(&self, path_end: u64) -> bool {
        let left = self.sample.in_flight + self.sample.unsent;
        self.progress.proof.is_some() && path_end + left <= self.outbound.sent
    }

    /// The oldest bytes that TCP has in flight; if it does not report them, the oldest
    /// unacknowledged ones.
    pub(crate) fn first_in_flight(&self) -> Option<&Flight> {
        first_not(&self.outbound.flights, |flight| {
            self.has_acknowledged(flight.record_end)
        })
    }

    /// The oldest control frame that TCP has in flight.
    pub(super) fn first_control_in_flight(&self) -> Option<&Sent> {
        first_not(&self.outbound.control, |sent| {
            self.has_acknowledged(self.record_end(sent))
        })
    }

    /// The oldest unacknowledged bytes, and the oldest that TCP has in flight if these are
    /// different.
    pub(super) fn oldest_flights(&self) -> impl Iterator<Item = &Flight> {
        let oldest = self.outbound.flights.front();
        let is_there = oldest.is_some_and(|flight| self.has_acknowledged(flight.record_end));
        let next = is_there.then(|| self.first_in_flight()).flatten();
        oldest.into_iter().chain(next)
    }

    /// The oldest bytes that are late.
    pub(crate) fn late_flight(&self, now: Instant) -> Option<&Flight> {
        let mut oldest = self.oldest_flights();
        oldest.find(|flight| self.late_at(flight) <= now)
    }

    /// Upper bound for the end of the record that contains a control frame, in the path's byte
    /// count.
    pub(super) fn record_end(&self, sent: &Sent) -> u64 {
        self.outbound.sent.min(sent.path_end + RECORD)
    }
}

/// The first element for which `is_there` is false; all elements before it have arrived.
fn first_not<T>(queue: &VecDeque<T>, is_there: impl Fn(&T) -> bool) -> Option<&T> {
    match queue.front() {
        Some(oldest) if is_there(oldest) => queue.get(queue.partition_point(is_there)),
        oldest => oldest,
    }
}
