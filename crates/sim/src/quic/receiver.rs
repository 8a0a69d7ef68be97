//! The packets that have arrived, and when they are acknowledged (RFC 9000, section 13.2, and
//! draft-ietf-quic-ack-frequency).

use std::ops::Range;
use std::time::Duration;

use sumlink_bond::datagram::quic::{ACK_DELAY, ACK_EVERY, ACK_REORDERING};
use sumlink_engine::RangeSet;

use super::packet::Ack;
use crate::clock::{Nanos, nanos};

/// Most ranges of an acknowledgment; lower packets are no longer reported.
const RANGES: usize = 32;

/// When packets are acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckRules {
    /// After this number of them, ...
    pub(crate) every: u32,
    /// ... or this time, ...
    pub(crate) delay: Duration,
    /// ... or at once behind a gap of this many numbers.
    pub(crate) reordering: u32,
}

impl AckRules {
    /// Those of a datagram carrier.
    pub(super) const CARRIER: Self = Self {
        every: ACK_EVERY,
        delay: ACK_DELAY,
        reordering: ACK_REORDERING,
    };
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Receiver {
    rules: AckRules,
    arrived: RangeSet,
    /// Packets below count as arrived.
    floor: u64,
    /// The highest packet, and when it arrived.
    highest: Option<(u64, Nanos)>,
    /// Packets that ask for an acknowledgment and have none.
    waiting: u32,
    /// When they are acknowledged.
    due: Option<Nanos>,
    /// Missing packets below have been reported.
    missed: u64,
}

impl Receiver {
    pub(crate) fn new(rules: AckRules) -> Self {
        Self {
            rules,
            arrived: RangeSet::default(),
            floor: 0,
            highest: None,
            waiting: 0,
            due: None,
            missed: 0,
        }
    }

    /// A packet has arrived; returns whether it is new.
    pub(crate) fn arrive(&mut self, number: u64, asks: bool, at_once: bool, now: Nanos) -> bool {
        if number < self.floor || self.arrived.covers(number..number + 1) {
            return false;
        }
        self.arrived.insert(number..number + 1);
        while self.arrived.count() > RANGES {
            let lowest = self.arrived.first().unwrap_or_default();
            self.floor = lowest.end;
            self.arrived.remove(lowest);
        }
        if self.highest.is_none_or(|(highest, _)| number > highest) {
            self.highest = Some((number, now));
        }
        if asks {
            self.waiting += 1;
            let misses = self.misses_another();
            let due = match at_once || misses || self.waiting >= self.rules.every {
                true => now,
                false => now + nanos(self.rules.delay),
            };
            self.due = Some(self.due.map_or(due, |known| known.min(due)));
        }
        true
    }

    /// Whether a missing packet is lower than the highest by enough to seem lost, and
    /// that has not been reported as missing.
    fn misses_another(&mut self) -> bool {
        let Some((highest, _)) = self.highest else {
            return false;
        };
        let end = (highest + 1).saturating_sub(u64::from(self.rules.reordering));
        let window = self.missed.max(self.floor)..end;
        if window.is_empty() {
            return false;
        }
        let arrived = self.arrived.total_within(window.clone());
        let misses = arrived < window.end - window.start;
        self.missed = window.end;
        misses
    }

    /// When an acknowledgment is due.
    pub(crate) fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// Bytes of the next acknowledgment, if packets wait for one.
    pub(crate) fn waits(&self) -> bool {
        self.waiting > 0
    }

    /// The acknowledgment of everything that has arrived.
    pub(crate) fn ack(&self, now: Nanos) -> Option<Ack> {
        let (_, arrived) = self.highest?;
        let ranges: Vec<Range<u64>> = self.arrived.iter().rev().collect();
        let delay = now - arrived;
        (!ranges.is_empty()).then_some(Ack { ranges, delay })
    }

    /// The acknowledgment leaves.
    pub(crate) fn acknowledged(&mut self) {
        self.waiting = 0;
        self.due = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::MILLISECOND;

    #[test]
    fn packets_are_acknowledged_after_ten_of_them_or_a_few_milliseconds() {
        let mut receiver = Receiver::new(AckRules::CARRIER);
        for number in 0..9 {
            assert!(receiver.arrive(number, true, false, number));
        }
        assert_eq!(receiver.due(), Some(5 * MILLISECOND));
        assert!(!receiver.arrive(3, true, false, 10));
        receiver.arrive(9, true, false, 10);
        assert_eq!(receiver.due(), Some(10));
        let ack = receiver.ack(12).unwrap();
        assert_eq!(
            (ack.ranges.len(), ack.ranges[0].clone(), ack.delay),
            (1, 0..10, 2)
        );
        receiver.acknowledged();
        assert_eq!(receiver.due(), None);
        // An acknowledgment alone asks for none.
        receiver.arrive(10, false, false, 20);
        assert_eq!(receiver.due(), None);
    }

    #[test]
    fn a_gap_is_reported_once_and_at_once() {
        let mut receiver = Receiver::new(AckRules::CARRIER);
        let mut due = |number: u64| {
            receiver.arrive(number, true, false, 0);
            let due = receiver.due();
            receiver.acknowledged();
            due == Some(0)
        };
        // Packet 1 is missing.
        assert_eq!(
            [0, 2, 3, 4, 5].map(&mut due),
            [false, false, true, false, false]
        );
    }

    #[test]
    fn the_memory_of_many_gaps_is_bounded() {
        let mut receiver = Receiver::new(AckRules::CARRIER);
        for number in 0..1000 {
            receiver.arrive(2 * number, true, false, 0);
        }
        assert_eq!(receiver.ack(0).unwrap().ranges.len(), RANGES);
        assert!(!receiver.arrive(1, true, false, 0), "it may be known");
    }
}
