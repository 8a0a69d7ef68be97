//! The receiver: packets in the order of their sequence numbers (3GPP TS 36.323, section 5.1.2.1.4).
//!
//! State variables are the standard's: `next` is Next_PDCP_RX_SN, `submitted` is one more than Last_Submitted_PDCP_RX_SN, and
//! `waiting_for` is Reordering_PDCP_RX_COUNT. All are COUNTs, sequence numbers that do not wrap around, so that the
//! standard's cases for HFN and SN become one comparison.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::{Header, SequenceBits};
use crate::Instant;

/// What a receiver is told before it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReorderConfig {
    /// Bits of a sequence number; the sender's.
    pub bits: SequenceBits,
    /// t-Reordering: how long a gap is waited for. 3GPP TS 36.331 has 0 to 3 s.
    pub timer: Duration,
    /// Bytes that are stored at the most; beyond that the lowest gap is not waited for.
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

/// What a receiver has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
pub struct ReorderStats {
    /// Packets given out.
    pub delivered: u64,
    /// Of them, those that had to wait for others.
    pub reordered: u64,
    /// Packets that came a second time.
    pub duplicates: u64,
    /// Packets that came when they were not waited for any more.
    pub late: u64,
    /// Sequence numbers that never came in time.
    pub missing: u64,
    /// Times that the timer ran out.
    pub timeouts: u64,
    /// PDUs that could not be read.
    pub malformed: u64,
}

/// A receiver. After every `handle_*` take [`Reorder::poll`] until it is empty and arm a timer for
/// [`Reorder::poll_timeout`].
#[derive(Clone, Debug)]
pub struct Reorder {
    config: ReorderConfig,
    /// COUNT behind the highest one received.
    next: u64,
    /// COUNT that is given out next.
    submitted: u64,
    /// While the timer runs: the COUNT before which everything is waited for, and when that ends.
    timer: Option<(u64, Instant)>,
    /// When something came that was not late.
    heard: Option<Instant>,
    /// COUNT of the number that it began at; what lies before it may have been given to a receiver of before.
    first: u64,
    stored: BTreeMap<u64, Vec<u8>>,
    stored_bytes: usize,
    ready: VecDeque<Vec<u8>>,
    stats: ReorderStats,
}

impl Reorder {
    /// A receiver that expects sequence number 0, or whatever comes first if that is far from it.
    pub fn new(config: ReorderConfig) -> Self {
        Self {
            config,
            next: 0,
            submitted: 0,
            timer: None,
            heard: None,
            first: 0,
            stored: BTreeMap::new(),
            stored_bytes: 0,
            ready: VecDeque::new(),
            stats: ReorderStats::default(),
        }
    }

    /// A PDU has come, over whichever link.
    pub fn handle_pdu(&mut self, pdu: &[u8], now: Instant) {
        let Some((header, packet)) = Header::read(self.config.bits, pdu) else {
            self.stats.malformed += 1;
            return;
        };
        let Some(count) = self.place(header.sequence, now) else {
            self.stats.late += 1;
            return;
        };
        self.heard = Some(now);
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

    /// Bytes that are stored.
    pub fn stored_bytes(&self) -> usize {
        self.stored_bytes
    }

    /// Other bounds of what is stored; they hold from the next PDU on.
    pub fn set_bytes(&mut self, bytes: usize) {
        self.config.bytes = bytes;
    }

    /// The timer of [`Reorder::poll_timeout`] has fired; too early it does nothing.
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

    /// What it has seen.
    pub fn stats(&self) -> ReorderStats {
        self.stats
    }

    /// Where a number belongs; `None` for one that comes late.
    ///
    /// A receiver that is younger than its sender begins at the number that it hears first, as sidelink's does (3GPP TS 38.323,
    /// section 7.1). And where for the time of the timer nothing came that was not late, and then something by more than an eighth
    /// of the numbers, the sender has gone on by more than half of them: should it really be so late, those behind it wait once,
    /// no more.
    fn place(&mut self, sequence: u32, now: Instant) -> Option<u64> {
        let count = self.count(sequence);
        let late_by = self.submitted.wrapping_sub(sequence.into()) & (self.modulus() - 1);
        let behind = self.modulus() / 4;
        let lost_track = match self.heard {
            None => u64::from(sequence) >= behind,
            Some(heard) => {
                count.is_none()
                    && late_by > self.modulus() / 8
                    && now.saturating_sub(heard) > self.config.timer
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

    /// The COUNT of a sequence number: the one in the window of half the numbers from what is given out next. `None` for
    /// one that lies before it.
    fn count(&self, sequence: u32) -> Option<u64> {
        let ahead = u64::from(sequence).wrapping_sub(self.submitted) & (self.modulus() - 1);
        (ahead < self.modulus() / 2).then(|| self.submitted + ahead)
    }

    /// Gives out what is in order.
    fn submit(&mut self) {
        while let Some(packet) = self.stored.remove(&self.submitted) {
            self.stored_bytes -= packet.len();
            self.submitted += 1;
            self.stats.delivered += 1;
            self.ready.push_back(packet);
        }
    }

    /// Gives out everything before `count`, and what follows it without a gap: the rest is not waited for.
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

    /// The timer stops when what it was started for has come, and starts while something is stored.
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

    /// A packet that says its number.
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
    fn a_gap_is_given_up_when_the_timer_runs_out_and_a_later_one_has_its_own_time() {
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
    fn a_receiver_that_starts_later_than_its_sender_begins_where_that_one_is() {
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
    fn after_a_gap_of_more_than_half_of_the_numbers_it_goes_on() {
        let mut receiver = receiver(SequenceBits::Twelve);
        assert_eq!(give(&mut receiver, &[0, 1], 0), [0, 1]);
        // 3000 were lost while no link was there; for a number of before nothing says otherwise at once.
        assert_eq!(give(&mut receiver, &[3002], 60), []);
        assert_eq!(receiver.stats().late, 1);
        assert_eq!(give(&mut receiver, &[3003, 3004], 101), []);
        let at = receiver.poll_timeout().unwrap();
        receiver.handle_timeout(at);
        assert_eq!(out(&mut receiver), [3003, 3004]);
        assert_eq!(give(&mut receiver, &[3005], 250), [3005]);
    }

    #[test]
    fn faster_than_the_timer_lets_wait_a_gap_is_given_up_before_numbers_are_ambiguous() {
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
        /// Any order within an eighth of the numbers, with losses and repetitions: everything comes out once and ascending, and after the last timer nothing is
        /// left.
        #[test]
        fn what_comes_out_ascends(numbers in proptest::collection::vec((0u64..512, 0u64..30), 0..300), twelve: bool) {
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
        fn nothing_that_arrives_can_panic(pdus in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..8), 0..50)) {
            let mut receiver = receiver(SequenceBits::Twelve);
            for pdu in pdus {
                receiver.handle_pdu(&pdu, Duration::ZERO);
            }
        }
    }
}
