//! Copies of a flow's unacknowledged packets, kept for retransmission from the node.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::seq::Position;
use crate::{Instant, LinkId};

/// A copy of a packet.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Position after its last byte.
    pub end: Position,
    /// The whole packet; empty if only its send time matters.
    pub packet: Arc<[u8]>,
    /// The timestamp that the node sends it with, which the user echoes.
    pub timestamp: Option<u32>,
    /// The timestamp that the far end last sent it with, and expects in the echo.
    pub theirs: Option<u32>,
    /// When it was last queued, and for which link.
    pub sent: (Instant, LinkId),
    /// It was last queued ahead of the regular packets.
    pub urgent: bool,
    /// It was sent more than once, so the time of its acknowledgment is ambiguous (Karn and
    /// Partridge, 1987).
    pub again: bool,
    /// The far end has sent it more than once: it recovers from the loss of this packet.
    pub repeated: bool,
    /// How often the node sent it again because it was lost.
    pub repaired: u32,
    /// No queue had room for it; the node sends it once the far end has slowed down.
    pub waits: bool,
}

/// Memory of an entry besides its packet, in bytes.
const OVERHEAD: usize = 96;

impl Kept {
    fn cost(&self) -> usize {
        self.packet.len() + OVERHEAD
    }
}

/// The copies of one flow by position. The owner enforces the memory bound ([`Copies::bytes`]).
#[derive(Clone, Debug, Default)]
pub struct Copies {
    packets: BTreeMap<Position, Kept>,
    bytes: usize,
}

impl Copies {
    /// Bytes of memory, including the overhead of the entries.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a copy unless an existing one covers it, and removes those that it covers. So ends
    /// ascend as starts do. The caller decides whether acknowledged data may be replaced.
    pub fn keep(&mut self, position: Position, kept: Kept) {
        let before = self.packets.range(..=position).next_back();
        if before.is_some_and(|(_, before)| before.end >= kept.end) {
            return;
        }
        while let Some((&start, behind)) = self.packets.range(position..).next()
            && behind.end <= kept.end
        {
            self.bytes -= behind.cost();
            self.packets.remove(&start);
        }
        self.bytes += kept.cost();
        self.packets.insert(position, kept);
    }

    /// The copy that contains the byte at `position`, and its start.
    pub fn holding(&self, position: Position) -> Option<(Position, &Kept)> {
        let (&start, kept) = self.packets.range(..=position).next_back()?;
        (kept.end > position).then_some((start, kept))
    }

    /// The copy that contains the byte at `position`, or else the first one after it.
    pub fn from(&self, position: Position) -> Option<&Kept> {
        let behind = || self.packets.range(position..).next().map(|(_, kept)| kept);
        self.holding(position).map(|(_, kept)| kept).or_else(behind)
    }

    /// The copies that start within a range, by position.
    pub fn within(&self, range: Range<Position>) -> impl Iterator<Item = (Position, &Kept)> {
        let packets = self.packets.range(range);
        packets.map(|(&position, kept)| (position, kept))
    }

    /// The copy that starts exactly at `position`.
    pub fn at_mut(&mut self, position: Position) -> Option<&mut Kept> {
        self.packets.get_mut(&position)
    }

    /// Whether copies cover all bytes from `position` to `end`.
    pub fn cover(&self, mut position: Position, end: Position) -> bool {
        while position < end {
            match self.holding(position) {
                Some((_, kept)) => position = kept.end,
                None => return false,
            }
        }
        true
    }

    /// Drops copies that end at or before `position`; returns the bytes of memory freed.
    pub fn release(&mut self, position: Position) -> usize {
        let before = self.bytes;
        while let Some(first) = self.packets.first_entry()
            && first.get().end <= position
        {
            self.bytes -= first.remove().cost();
        }
        before - self.bytes
    }

    /// Packets last sent over `link`, by position, and their send times.
    pub fn sent_over(&self, link: LinkId) -> impl Iterator<Item = (Position, (Instant, LinkId))> {
        self.packets
            .iter()
            .map(|(&position, kept)| (position, kept.sent))
            .filter(move |(_, sent)| sent.1 == link)
    }

    /// Takes the packets that wait for the far end to slow down, by position, with their time of
    /// arrival; they wait no more.
    pub fn take_waiting(&mut self) -> Vec<(Position, (Instant, LinkId))> {
        let waiting = self.packets.iter_mut().filter(|(_, kept)| kept.waits);
        waiting
            .map(|(&position, kept)| {
                kept.waits = false;
                (position, kept.sent)
            })
            .collect()
    }

    /// Marks the trip times of packets last sent over `link` as ambiguous.
    pub fn blur(&mut self, link: LinkId) {
        let sent = self.packets.values_mut();
        for kept in sent.filter(|kept| kept.sent.1 == link) {
            kept.again = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(end: Position, bytes: usize) -> Kept {
        let sent = (Instant::ZERO, LinkId(0));
        Kept {
            end,
            packet: vec![bytes as u8; bytes].into(),
            timestamp: None,
            theirs: None,
            sent,
            urgent: false,
            again: false,
            repeated: false,
            repaired: 0,
            waits: false,
        }
    }

    #[test]
    fn acknowledged_copies_are_released() {
        let mut copies = Copies::default();
        copies.keep(100, kept(200, 140));
        copies.keep(200, kept(300, 140));
        copies.keep(400, kept(500, 140));
        assert!(copies.cover(120, 300));
        assert!(!copies.cover(120, 301));
        assert_eq!(copies.holding(250).map(|(start, _)| start), Some(200));
        assert!(copies.holding(350).is_none());
        assert_eq!(copies.release(250), 140 + OVERHEAD);
        assert_eq!(copies.bytes(), 2 * (140 + OVERHEAD));
        assert_eq!(copies.release(1000), 2 * (140 + OVERHEAD));
        assert_eq!(copies.bytes(), 0);
    }

    #[test]
    fn the_first_copy_of_a_packet_is_kept() {
        let mut copies = Copies::default();
        copies.keep(100, kept(200, 140));
        copies.keep(100, kept(200, 7));
        assert_eq!(copies.holding(100).unwrap().1.packet.len(), 140);
        copies.keep(100, kept(300, 9));
        assert_eq!(
            (copies.bytes(), copies.holding(250).unwrap().0),
            (9 + OVERHEAD, 100),
            "the longer copy wins"
        );
    }

    #[test]
    fn a_partial_copy_does_not_replace_a_longer_one() {
        let mut copies = Copies::default();
        copies.keep(100, kept(200, 100));
        copies.keep(130, kept(150, 20));
        assert_eq!(copies.holding(170).map(|(start, _)| start), Some(100));
        assert!(copies.cover(160, 200));
        copies.keep(200, kept(220, 20));
        copies.keep(240, kept(260, 20));
        copies.keep(150, kept(250, 100));
        assert!(copies.cover(100, 260));
        assert_eq!(copies.bytes(), 100 + 100 + 20 + 3 * OVERHEAD);
    }
}
