//! The receiver: delivers packets in the order of their sequence numbers (3GPP TS 36.323, section
//! 5.1.2.1.4).
//!
//! State variables are those of the standard: `next` is Next_PDCP_RX_SN, `submitted` is
//! Last_Submitted_PDCP_RX_SN plus one, and `waiting_for` is Reordering_PDCP_RX_COUNT. All are
//! COUNTs, sequence numbers that do not wrap around. This reduces the standard's cases for HFN and
//! SN to one comparison.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::{Header, SequenceBits};
use crate::Instant;

/// Configuration of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReorderConfig {
    /// Length of a sequence number; must match the sender's.
    pub bits: SequenceBits,
    /// t-Reordering: how long to wait for a gap. 3GPP TS 36.331 has 0 to 3 s.
    pub timer: Duration,
    /// Most bytes stored; beyond that, the receiver skips the lowest gap.
    pub bytes: usize,
}

impl Default for ReorderConfig {
    fn default() -> Self {
        Self {
            bits: SequenceBits::Eighteen,
            timer: Duration::from_millis(100),
            bytes: 8 << 20,
        }
    }
}

/// Counters of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
pub struct ReorderStats {
    /// Packets delivered.
    pub delivered: u64,
    /// Of those, packets that had to wait for others.
    pub reordered: u64,
    /// Packets received a second time.
    pub duplicates: u64,
    /// Packets received after their gap was skipped.
    pub late: u64,
    /// Sequence numbers that did not arrive in time.
    pub missing: u64,
    /// Expiries of the timer.
    pub timeouts: u64,
    /// PDUs that could not be parsed.
    pub malformed: u64,
}

/// A receiver. After every `handle_*`, call [`Reorder::poll`] until it returns nothing and arm a
/// timer for [`Reorder::poll_timeout`].
#[derive(Clone, Debug)]
pub struct Reorder {
    config: ReorderConfig,
    /// COUNT after the highest one received.
    next: u64,
    /// COUNT to deliver next.
    submitted: u64,
    /// While the timer runs: the COUNT up to which it waits for gaps, and its expiry.
    timer: Option<(u64, Instant)>,
    /// When the last PDU arrived that was not late.
    last_arrival: Option<Instant>,
    /// COUNT at which this receiver began; lower ones may have been delivered by an earlier
    /// receiver.
    first: u64,
    stored: BTreeMap<u64, Vec<u8>>,
    stored_bytes: usize,
    ready: VecDeque<Vec<u8>>,
    stats: ReorderStats,
}

impl Reorder {
    /// A receiver that expects sequence number 0, or the first number received if it is far from 0.
    pub fn new(config: ReorderConfig) -> Self {
        Self {
            config,
            next: 0,
            submitted: 0,
            timer: None,
            last_arrival: None,
            first: 0,
            stored: BTreeMap::new(),
            stored_bytes: 0,
            ready: VecDeque::new(),
            stats: ReorderStats::default(),
        }
    }

    /// Handles a PDU received over any link.
    pub fn handle_pdu(&mut self, pdu: &[u8], now: Instant) {
        let Some((header, packet)) = Header::read(self.config.bits, pdu) else {
            self.stats.malformed += 1;
            return;
        };
        let Some(count) = self.place(header.sequence, now) else {
            self.stats.late += 1;
            return;
        };
        self.last_arrival = Some(now);
        self.next = self.next.max(count + 1);
        if self.stored.contains_key(&count) {
            self.stats.duplicates += 1;
            return;
        }
        self.stored_bytes += packet.len();
        self.stored.insert(count, packet.to_vec());
        self.stats.reordered += u64::from(count != self.submitted);
        self.submit();
        let furthest = self.modulus() * 3 / 8;
        while (self.stored_bytes > self.config.bytes || self.next - self.submitted > furthest)
            && let Some((&lowest, _)) = self.stored.first_key_value()
        {
            self.skip_to(lowest);
        }
        self.run_timer(now);
    }

    /// Bytes stored.
    pub fn stored_bytes(&self) -> usize {
        self.stored_bytes
    }

    /// Changes the bound on stored bytes, from the next PDU on.
    pub fn set_bytes(&mut self, bytes: usize) {
        self.config.bytes = bytes;
    }

    /// Handles the timer of [`Reorder::poll_timeout`]; a call that comes too early does nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some((waiting_for, at)) = self.timer
            && at <= now
        {
            self.stats.timeouts += 1;
            self.timer = None;
            self.skip_to(waiting_for);
            self.run_timer(now);
        }
    }

    /// The next packet in order.
    pub fn poll(&mut self) -> Option<Vec<u8>> {
        self.ready.pop_front()
    }

    /// When to call [`Reorder::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timer.map(|(_, at)| at)
    }

    /// Counters since the start.
    pub fn stats(&self) -> ReorderStats {
        self.stats
    }

    /// The COUNT of a sequence number; `None` for one that is late.
    ///
    /// A receiver that started after its sender begins at the first number that it receives, as in
    /// sidelink (3GPP TS 38.323, section 7.1). After a pause, a number that seems late by more than
    /// an eighth of the number space means that the sender advanced by more than half of it. A
    /// pause is one timer period without a PDU that was not late. If the number really was that
    /// late, the packets behind it wait for the timer once, no more.
    fn place(&mut self, sequence: u32, now: Instant) -> Option<u64> {
        let count = self.count(sequence);
        let late_by = self.submitted.wrapping_sub(sequence.into()) & (self.modulus() - 1);
        let behind = self.modulus() / 4;
        let lost_track = match self.last_arrival {
            None => u64::from(sequence) >= behind,
            Some(last_arrival) => {
                count.is_none()
                    && late_by > self.modulus() / 8
                    && now.saturating_sub(last_arrival) > self.config.timer
            }
        };
        if !lost_track {
            return count;
        }
        self.skip_to(self.next);
        let least = self.next + behind;
        let ahead = u64::from(sequence).wrapping_sub(least) & (self.modulus() - 1);
        self.first = least + ahead;
        self.submitted = self.first - behind;
        self.next = self.submitted;
        self.timer = None;
        Some(self.first)
    }

    fn modulus(&self) -> u64 {
        1 << self.config.bits.bits()
    }

    /// The COUNT of a sequence number within half the number space from `submitted`. `None` for one
    /// before it.
    fn count(&self, sequence: u32) -> Option<u64> {
        let ahead = u64::from(sequence).wrapping_sub(self.submitted) & (self.modulus() - 1);
        (ahead < self.modulus() / 2).then(|| self.submitted + ahead)
    }

    /// Delivers the packets that are in order.
    fn submit(&mut self) {
        while let Some(packet) = self.stored.remove(&self.submitted) {
            self.stored_bytes -= packet.len();
            self.submitted += 1;
            self.stats.delivered += 1;
            self.ready.push_back(packet);
        }
    }

    /// Skips gaps before `count`: delivers all packets before it, and those that follow it without
    /// a gap.
    fn skip_to(&mut self, count: u64) {
        while self.submitted < count {
            let lowest = self
                .stored
                .first_key_value()
                .map_or(count, |(&lowest, _)| lowest.min(count));
            self.stats.missing += lowest.saturating_sub(self.submitted.max(self.first));
            self.submitted = self.submitted.max(lowest);
            self.submit();
        }
    }

    /// Stops the timer when the gap that started it is closed, and starts it while packets are
    /// stored.
    fn run_timer(&mut self, now: Instant) {
        if self
            .timer
            .is_some_and(|(waiting_for, _)| self.submitted >= waiting_for)
        {
            self.timer = None;
        }
        if self.timer.is_none() && !self.stored.is_empty() {
            self.timer = Some((self.next, now + self.config.timer));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIMER: Duration = Duration::from_millis(100);

    fn receiver(bits: SequenceBits) -> Reorder {
        Reorder::new(ReorderConfig {
            bits,
            timer: TIMER,
            bytes: 10_000,
        })
    }

    /// A PDU with its number as payload.
    fn pdu(bits: SequenceBits, number: u64) -> Vec<u8> {
        Header {
            sequence: number as u32,
        }
        .write(bits, &number.to_be_bytes())
    }

    fn out(receiver: &mut Reorder) -> Vec<u64> {
        std::iter::from_fn(|| receiver.poll())
            .map(|p| u64::from_be_bytes(p.try_into().unwrap()))
            .collect()
    }

    fn give(receiver: &mut Reorder, numbers: &[u64], now: u64) -> Vec<u64> {
        for &number in numbers {
            let bits = receiver.config.bits;
            receiver.handle_pdu(&pdu(bits, number), Duration::from_millis(now));
        }
        out(receiver)
    }

    #[test]
    fn packets_wait_for_those_before_them() {
        let mut receiver = receiver(SequenceBits::Eighteen);
        assert_eq!(give(&mut receiver, &[0, 2, 3], 0), [0]);
        assert_eq!(receiver.poll_timeout(), Some(TIMER));
        assert_eq!(give(&mut receiver, &[2, 1], 50), [1, 2, 3]);
        assert_eq!(receiver.poll_timeout(), None);
        assert_eq!(
            (receiver.stats().duplicates, receiver.stats().reordered),
            (1, 2)
        );
    }

    #[test]
    fn each_gap_has_its_own_timer() {
        let mut receiver = receiver(SequenceBits::Eighteen);
        assert_eq!(give(&mut receiver, &[1], 0), []);
        assert_eq!(give(&mut receiver, &[3], 60), []);
        receiver.handle_timeout(TIMER - Duration::from_nanos(1));
        assert_eq!(out(&mut receiver), []);
        receiver.handle_timeout(TIMER);
        assert_eq!(out(&mut receiver), [1]);
        assert_eq!(receiver.poll_timeout(), Some(2 * TIMER));
        assert_eq!(give(&mut receiver, &[0], 120), [], "too late");
        receiver.handle_timeout(2 * TIMER);
        assert_eq!(out(&mut receiver), [3]);
        let ReorderStats {
            missing,
            late,
            timeouts,
            ..
        } = receiver.stats();
        assert_eq!((missing, late, timeouts), (2, 1, 2));
    }

    #[test]
    fn a_late_receiver_starts_at_the_senders_position() {
        for start in [1024, 2047, 2048, 4000, 4095, 8191] {
            let mut receiver = receiver(SequenceBits::Twelve);
            let one_overtook = [start, start - 1, start + 1];
            assert_eq!(give(&mut receiver, &one_overtook, 0), []);
            receiver.handle_timeout(TIMER);
            assert_eq!(out(&mut receiver), [start - 1, start, start + 1]);
            assert_eq!(
                give(&mut receiver, &[start + 3, start + 2], 110),
                [start + 2, start + 3]
            );
            assert_eq!((receiver.stats().late, receiver.stats().missing), (0, 0));
        }
    }

    #[test]
    fn delivery_continues_after_a_gap_of_more_than_half_the_numbers() {
        let mut receiver = receiver(SequenceBits::Twelve);
        assert_eq!(give(&mut receiver, &[0, 1], 0), [0, 1]);
        // 3000 packets were lost during an outage; the receiver cannot distinguish that from an old
        // number at once.
        assert_eq!(give(&mut receiver, &[3002], 60), []);
        assert_eq!(receiver.stats().late, 1);
        assert_eq!(give(&mut receiver, &[3003, 3004], 101), []);
        let at = receiver.poll_timeout().unwrap();
        receiver.handle_timeout(at);
        assert_eq!(out(&mut receiver), [3003, 3004]);
        assert_eq!(give(&mut receiver, &[3005], 250), [3005]);
    }

    #[test]
    fn a_gap_is_skipped_before_numbers_become_ambiguous() {
        let mut receiver = Reorder::new(ReorderConfig {
            bits: SequenceBits::Twelve,
            timer: TIMER,
            bytes: 1 << 20,
        });
        let numbers: Vec<u64> = (1..6000).collect();
        assert_eq!(give(&mut receiver, &numbers, 0), numbers);
        assert_eq!((receiver.stats().missing, receiver.stats().late), (1, 0));
    }

    #[test]
    fn numbers_wrap_around() {
        let mut receiver = receiver(SequenceBits::Twelve);
        let numbers: Vec<u64> = (0..10_000).flat_map(|n| [2 * n + 1, 2 * n]).collect();
        assert_eq!(
            give(&mut receiver, &numbers, 0),
            (0..20_000).collect::<Vec<_>>()
        );
    }

    #[test]
    fn memory_is_bounded_even_if_the_timer_never_runs() {
        let mut receiver = receiver(SequenceBits::Eighteen);
        let numbers: Vec<u64> = (0..5000).map(|n| 2 * n + 1).collect();
        give(&mut receiver, &numbers, 0);
        assert!(receiver.stored_bytes <= 10_000);
        assert!(receiver.stats().delivered > 3000);
    }

    proptest! {
        /// Reorders by up to an eighth of the number space, with losses and duplicates. Every
        /// packet is delivered once and in order, and none is left after the last timer.
        #[test]
        fn delivered_numbers_ascend(
            numbers in proptest::collection::vec((0u64..512, 0u64..30), 0..300),
            twelve: bool,
        ) {
            let bits = if twelve { SequenceBits::Twelve } else { SequenceBits::Eighteen };
            let mut receiver = receiver(bits);
            let (mut now, mut given) = (Duration::ZERO, Vec::new());
            for (number, wait) in numbers {
                now += Duration::from_millis(wait);
                if receiver.poll_timeout().is_some_and(|at| at <= now) {
                    receiver.handle_timeout(now);
                }
                receiver.handle_pdu(&pdu(bits, number), now);
                given.extend(out(&mut receiver));
            }
            while let Some(at) = receiver.poll_timeout() {
                receiver.handle_timeout(at);
                given.extend(out(&mut receiver));
            }
            prop_assert!(given.is_sorted_by(|a, b| a < b), "{given:?}");
            prop_assert!(receiver.stored.is_empty() && receiver.stored_bytes == 0);
            prop_assert_eq!(receiver.stats().delivered, given.len() as u64);
        }

        #[test]
        fn no_input_panics(
            pdus in proptest::collection::vec(
                proptest::collection::vec(any::<u8>(), 0..8), 0..50),
        ) {
            let mut receiver = receiver(SequenceBits::Twelve);
            for pdu in pdus {
                receiver.handle_pdu(&pdu, Duration::ZERO);
            }
        }
    }
}
