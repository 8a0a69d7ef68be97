//! The receiving half of an end: reordering, selective acknowledgments and acknowledgment timing.
//!
//! Timing follows Linux (`net/ipv4/tcp_input.c`). An acknowledgment is sent for every second
//! segment or after 40 ms. It is sent at once for the first sixteen acknowledgments of a
//! connection, after a pause, and beyond a gap. From the fourth duplicate on, acknowledgments of a
//! gap are compressed (`tcp_comp_sack_*`).

use std::collections::VecDeque;

use super::packet::{MAX_SACKS, Packet};
use super::window::Window;
use crate::clock::{MILLISECOND, Nanos};

/// Longest wait of an acknowledgment for a second segment (TCP_DELACK_MIN).
const DELAY: Nanos = 40 * MILLISECOND;
/// Immediate acknowledgments at the start of a connection and after a pause (TCP_MAX_QUICKACKS).
const QUICK: u32 = 16;
/// Duplicate acknowledgments that are sent immediately (TCP_FASTRETRANS_THRESH).
const DUPLICATES: u32 = 3;
/// Most acknowledgments that are compressed into one (`tcp_comp_sack_nr`).
const COMPRESSED: u32 = 44;
/// Longest wait of compressed acknowledgments (`tcp_comp_sack_delay_ns`), or a twentieth of a
/// round trip if shorter.
const COMPRESSION: Nanos = MILLISECOND;
/// SACK blocks that are kept for the next acknowledgments.
const RECENT: usize = 4;

/// The state of a receiver.
#[derive(Clone, Debug)]
pub(super) struct Receiver {
    /// End of the bytes that have arrived in order.
    next: u64,
    /// End of the bytes that the program has read.
    read: u64,
    /// The receive window, and the end of the range that it has offered.
    window: Window,
    edge: u64,
    /// Ranges that arrived beyond a gap: disjoint, in order.
    ahead: VecDeque<(u64, u64)>,
    /// SACK blocks from `ahead`, the most recently changed first.
    recent: Vec<(u64, u64)>,
    /// End of the acknowledged bytes.
    acknowledged: u64,
    /// The timestamp to echo (RFC 7323, section 4.3).
    echo: Nanos,
    /// End of a segment that arrived twice since the last acknowledgment, or 0.
    duplicate: u64,
    /// An acknowledgment must be sent now.
    due: bool,
    /// Deadline of the delayed acknowledgment.
    delayed_until: Option<Nanos>,
    /// Deadline of the compressed acknowledgments.
    compressed_until: Option<Nanos>,
    compressed: u32,
    /// Duplicate acknowledgments sent for the current gap.
    duplicates: u32,
    /// Remaining immediate acknowledgments.
    quick: u32,
    last_arrival: Nanos,
    segment: u64,
    /// SACK was negotiated: ranges beyond a gap are reported, and their acknowledgments may be
    /// compressed.
    has_sack: bool,
    /// Bytes that arrived more than once.
    repeated: u64,
}

impl Receiver {
    /// Creates a receiver for segments of at most `mss` bytes.
    pub(super) fn new(buffer: u64, mss: u32) -> Self {
        Self {
            next: 0,
            read: 0,
            window: Window::new(buffer, u64::from(mss)),
            edge: 0,
            ahead: VecDeque::new(),
            recent: Vec::with_capacity(RECENT + 1),
            acknowledged: 0,
            echo: 0,
            duplicate: 0,
            due: false,
            delayed_until: None,
            compressed_until: None,
            compressed: 0,
            duplicates: 0,
            quick: QUICK,
            last_arrival: 0,
            segment: u64::from(mss),
            has_sack: true,
            repeated: 0,
        }
    }

    /// SACK was not negotiated.
    pub(super) fn disable_sack(&mut self) {
        self.has_sack = false;
    }

    /// Bytes that arrived more than once.
    pub(super) fn repeated(&self) -> u64 {
        self.repeated
    }

    /// Bytes received in order.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// The program has read all bytes before `offset`.
    pub(super) fn read(&mut self, offset: u64, now: Nanos) {
        let before = self.window();
        self.read = offset;
        self.window.read(offset, now);
        // The window was nearly closed, so the sender needs an update.
        if before < 2 * self.segment && self.window() >= 2 * self.segment {
            self.due = true;
        }
    }

    /// The receive window: bytes accepted from `next` on.
    pub(super) fn window(&self) -> u64 {
        let free = self.window.offered().saturating_sub(self.next - self.read);
        // The right edge of an offered window never moves back.
        free.max(self.edge.saturating_sub(self.next))
    }

    /// Whether data was sent before the newest data in order, by more than the one tick that Linux
    /// permits. Such data is dropped (PAWS; RFC 7323, section 5.3).
    pub(super) fn is_outdated(&self, packet: &Packet) -> bool {
        let tick = |time: Nanos| time / MILLISECOND;
        tick(packet.sent) + 1 < tick(self.echo)
    }

    /// Takes the timestamp of any packet: it is echoed if the packet is the next one expected (RFC
    /// 7323, section 4.3). A packet wholly before the last acknowledgment is outside the window,
    /// and its timestamp is ignored (appendix D; `tcp_sequence` in Linux).
    pub(super) fn note_time(&mut self, packet: &Packet) {
        let end = packet.seq + u64::from(packet.len);
        if packet.seq <= self.acknowledged && self.acknowledged <= end {
            self.echo = self.echo.max(packet.sent);
        }
    }

    /// A data segment arrived; `rtt` is the round-trip time and `timeout` the RTO as far as this
    /// end knows them.
    pub(super) fn arrive(&mut self, packet: &Packet, rtt: Nanos, timeout: Nanos, now: Nanos) {
        let (start, end) = (packet.seq, packet.seq + u64::from(packet.len));
        if now.saturating_sub(self.last_arrival) > timeout {
            self.quick = QUICK;
        }
        self.last_arrival = now;
        self.window.arrive(u64::from(packet.len), packet.echo, now);
        if end <= self.next {
            self.repeated += u64::from(packet.len);
            self.duplicate = end;
            self.due = true;
        } else if start <= self.next {
            self.advance(end, now);
        } else if end > self.next + self.window() {
            // Beyond the window: dropped, and an acknowledgment repeats the window to the sender
            // (RFC 9293, section 3.10.7.4).
            self.due = true;
        } else {
            self.keep_ahead(start, end);
            self.acknowledge_gap(rtt, now);
        }
    }

    fn advance(&mut self, end: u64, now: Nanos) {
        let had_gap = !self.ahead.is_empty();
        self.next = end;
        while let Some(&(_, end)) = self.ahead.front().filter(|(start, _)| *start <= self.next) {
            self.next = self.next.max(end);
            self.ahead.pop_front();
        }
        let next = self.next;
        self.recent.retain(|(_, end)| *end > next);
        self.duplicates = 0;
        let unacknowledged = self.next - self.acknowledged;
        if had_gap || unacknowledged > self.segment || self.quick > 0 {
            self.due = true;
        } else if self.delayed_until.is_none() {
            self.delayed_until = Some(now + DELAY);
        }
    }

    fn keep_ahead(&mut self, start: u64, end: u64) {
        let first = self.ahead.partition_point(|(_, e)| *e < start);
        let (mut from, mut to) = (start, end);
        let mut last = first;
        while let Some(&(s, e)) = self.ahead.get(last).filter(|(s, _)| *s <= end) {
            if s <= start && end <= e {
                self.repeated += end - start;
                self.duplicate = end;
            }
            (from, to) = (from.min(s), to.max(e));
            last += 1;
        }
        match last - first {
            0 => self.ahead.insert(first, (from, to)),
            1 => self.ahead[first] = (from, to),
            _ => {
                self.ahead[first] = (from, to);
                self.ahead.drain(first + 1..last);
            }
        }
        self.recent.retain(|(s, e)| *e < from || to < *s);
        self.recent.insert(0, (from, to));
        self.recent.truncate(RECENT);
    }

    fn acknowledge_gap(&mut self, rtt: Nanos, now: Nanos) {
        // Linux: __tcp_ack_snd_check compresses only if SACK was negotiated.
        if self.duplicates < DUPLICATES || !self.has_sack {
            self.duplicates += 1;
            self.due = true;
            return;
        }
        self.compressed += 1;
        if self.compressed >= COMPRESSED {
            self.due = true;
        } else if self.compressed_until.is_none() {
            self.compressed_until = Some(now + COMPRESSION.min(rtt / 20));
        }
    }

    /// Whether an acknowledgment must be sent now.
    pub(super) fn is_due(&self) -> bool {
        self.due
    }

    /// Deadline of the next acknowledgment if nothing else arrives.
    pub(super) fn deadline(&self) -> Option<Nanos> {
        self.delayed_until
            .into_iter()
            .chain(self.compressed_until)
            .min()
    }

    /// Handles expired deadlines.
    pub(super) fn on_time(&mut self, now: Nanos) {
        self.due |= self.deadline().is_some_and(|at| at <= now);
    }

    /// Schedules an acknowledgment after the usual delay.
    pub(super) fn acknowledge_later(&mut self, now: Nanos) {
        self.delayed_until.get_or_insert(now + DELAY);
    }

    /// Sends a delayed acknowledgment now, if one is pending (TCP_QUICKACK).
    pub(super) fn acknowledge_waiting(&mut self) {
        self.due |= self.delayed_until.is_some();
    }

    /// Requests an immediate acknowledgment.
    pub(super) fn acknowledge_now(&mut self) {
        self.due = true;
    }

    /// Writes the acknowledgment into a packet that is sent now.
    pub(super) fn acknowledge(&mut self, packet: &mut Packet) {
        packet.ack = self.next;
        packet.window = u32::try_from(self.window()).unwrap_or(u32::MAX);
        self.edge = self.edge.max(self.next + u64::from(packet.window));
        packet.echo = self.echo;
        packet.duplicate = std::mem::take(&mut self.duplicate);
        let most = match self.has_sack {
            true => MAX_SACKS - usize::from(packet.duplicate > 0),
            false => 0,
        };
        if !self.has_sack {
            packet.duplicate = 0;
        }
        for (slot, (start, end)) in packet.sacks.iter_mut().zip(self.recent.iter().take(most)) {
            let offset = |at: u64| u32::try_from(at - self.next).unwrap_or(u32::MAX);
            *slot = (offset(*start), offset(*end));
            packet.sack_count += 1;
        }
        self.acknowledged = self.next;
        self.quick = self.quick.saturating_sub(u32::from(self.due));
        self.due = false;
        self.delayed_until = None;
        self.compressed_until = None;
        self.compressed = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::packet::{Kind, Side};

    const MSS: u32 = 1000;

    fn segment(number: u64) -> Packet {
        Packet {
            connection: 0,
            to: Side::Client,
            kind: Kind::Data,
            duplicate: 0,
            sack_count: 0,
            options: 0,
            sack_permitted: true,
            data_ack: 0,
            len: MSS,
            seq: number * u64::from(MSS),
            ack: 0,
            window: 0,
            sacks: [(0, 0); MAX_SACKS],
            sent: number + 1,
            echo: 0,
        }
    }

    fn arrive(receiver: &mut Receiver, number: u64, now: Nanos) {
        let segment = segment(number);
        receiver.note_time(&segment);
        receiver.arrive(&segment, 20 * MILLISECOND, 220 * MILLISECOND, now);
    }

    /// Acknowledged end and SACK blocks, in units of segments, and whether a duplicate is reported.
    type Answer = (u64, Vec<(u64, u64)>, bool);

    /// Returns the acknowledgment if one is due.
    fn answer(receiver: &mut Receiver) -> Option<Answer> {
        receiver.is_due().then(|| {
            let mut packet = Packet {
                len: 0,
                ..segment(0)
            };
            receiver.acknowledge(&mut packet);
            let mss = u64::from(MSS);
            let blocks = packet.sacks().map(|(s, e)| (s / mss, e / mss)).collect();
            (packet.ack / mss, blocks, packet.duplicate > 0)
        })
    }

    fn settled() -> Receiver {
        let mut receiver = Receiver::new(1 << 20, MSS);
        receiver.quick = 0;
        receiver
    }

    #[test]
    fn the_first_segments_are_acknowledged_at_once_and_then_every_second() {
        let mut receiver = Receiver::new(1 << 20, MSS);
        for number in 0..16 {
            arrive(&mut receiver, number, 0);
            assert_eq!(answer(&mut receiver), Some((number + 1, vec![], false)));
        }
        for number in (16..32).step_by(2) {
            arrive(&mut receiver, number, 0);
            assert_eq!(answer(&mut receiver), None);
            arrive(&mut receiver, number + 1, 0);
            assert_eq!(answer(&mut receiver), Some((number + 2, vec![], false)));
        }
        arrive(&mut receiver, 32, MILLISECOND);
        assert_eq!(receiver.deadline(), Some(41 * MILLISECOND));
        receiver.on_time(41 * MILLISECOND);
        assert_eq!(answer(&mut receiver), Some((33, vec![], false)));
        assert_eq!(receiver.deadline(), None);
    }

    #[test]
    fn a_delayed_acknowledgment_is_sent_on_request_only() {
        let mut receiver = settled();
        receiver.acknowledge_waiting();
        assert_eq!(answer(&mut receiver), None, "nothing has arrived");
        arrive(&mut receiver, 0, 0);
        assert_eq!(answer(&mut receiver), None);
        receiver.acknowledge_waiting();
        assert_eq!(answer(&mut receiver), Some((1, vec![], false)));
        receiver.acknowledge_waiting();
        assert_eq!(answer(&mut receiver), None);
        arrive(&mut receiver, 1, 0);
        assert_eq!(answer(&mut receiver), None, "the kernel forgets it");
    }

    #[test]
    fn gaps_are_reported_newest_first_and_compressed() {
        let mut receiver = settled();
        for (number, blocks) in [
            (1, vec![(1, 2)]),
            (3, vec![(3, 4), (1, 2)]),
            (5, vec![(5, 6), (3, 4), (1, 2)]),
        ] {
            arrive(&mut receiver, number, 0);
            assert_eq!(answer(&mut receiver), Some((0, blocks, false)));
        }
        arrive(&mut receiver, 6, 0);
        assert_eq!(answer(&mut receiver), None);
        assert_eq!(receiver.deadline(), Some(MILLISECOND));
        arrive(&mut receiver, 2, 0);
        receiver.on_time(MILLISECOND);
        let blocks = vec![(1, 4), (5, 7)];
        assert_eq!(answer(&mut receiver), Some((0, blocks, false)));
        arrive(&mut receiver, 0, MILLISECOND);
        assert_eq!(answer(&mut receiver), Some((4, vec![(5, 7)], false)));
        arrive(&mut receiver, 4, MILLISECOND);
        assert_eq!(answer(&mut receiver), Some((7, vec![], false)));
        assert_eq!(receiver.next(), 7 * u64::from(MSS));
    }

    #[test]
    fn duplicates_are_reported() {
        let mut receiver = settled();
        arrive(&mut receiver, 0, 0);
        arrive(&mut receiver, 0, 0);
        assert_eq!(answer(&mut receiver), Some((1, vec![], true)));
        arrive(&mut receiver, 2, 0);
        arrive(&mut receiver, 2, 0);
        assert_eq!(answer(&mut receiver), Some((1, vec![(2, 3)], true)));
        assert_eq!(receiver.next(), u64::from(MSS));
    }

    /// A retransmission overtakes segments sent before it, whose timestamps are then older than
    /// that of the newest data.
    #[test]
    fn outdated_segments_are_dropped() {
        let at = |number, ms| Packet {
            sent: ms * MILLISECOND,
            ..segment(number)
        };
        let mut receiver = settled();
        arrive(&mut receiver, 0, 0);
        receiver.acknowledge_now();
        answer(&mut receiver);
        // Timestamps beyond a gap are ignored.
        receiver.note_time(&at(3, 30));
        assert!(!receiver.is_outdated(&at(2, 10)));
        receiver.note_time(&at(1, 20));
        assert!(receiver.is_outdated(&at(2, 10)));
        assert!(!receiver.is_outdated(&at(2, 19)), "a tick is permitted");
        // So are those before the last acknowledgment.
        arrive(&mut receiver, 1, 0);
        arrive(&mut receiver, 2, 0);
        answer(&mut receiver);
        receiver.note_time(&at(1, 90));
        assert!(!receiver.is_outdated(&at(4, 25)));
        receiver.note_time(&at(3, 90));
        assert!(receiver.is_outdated(&at(4, 25)));
    }

    #[test]
    fn unread_data_closes_the_window() {
        let mut receiver = Receiver::new(3 * u64::from(MSS), MSS);
        (0..3).for_each(|number| arrive(&mut receiver, number, 0));
        assert_eq!(receiver.window(), 0);
        answer(&mut receiver);
        arrive(&mut receiver, 4, 0);
        assert_eq!(
            answer(&mut receiver),
            Some((3, vec![], false)),
            "the data is dropped"
        );
        receiver.read(3 * u64::from(MSS), 0);
        assert_eq!(receiver.window(), 3 * u64::from(MSS));
        assert_eq!(
            answer(&mut receiver),
            Some((3, vec![], false)),
            "the window update"
        );
    }
}
