//! The packets of one flow that the user has not acknowledged, kept to be sent again from here.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::seq::Position;
use crate::{Instant, LinkId};

/// A packet that is kept.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Position behind its last byte.
    pub end: Position,
    /// The whole packet; empty where only its time is of interest.
    pub packet: Arc<[u8]>,
    /// The timestamp that it has here, which the user echoes.
    pub timestamp: Option<u32>,
    /// The timestamp that its far end last sent it with, which the far end wants to be echoed.
    pub theirs: Option<u32>,
    /// When it was last put into a link's queue, and which.
    pub sent: (Instant, LinkId),
    /// It was sent more than once: what an acknowledgement says of the time is ambiguous (Karn and Partridge, 1987).
    pub again: bool,
    /// How often it was sent again from here because its link had lost it.
    pub repaired: u32,
}

/// What an entry costs beside its packet, in bytes.
const OVERHEAD: usize = 96;

impl Kept {
    fn cost(&self) -> usize {
        self.packet.len() + OVERHEAD
    }
}

/// The packets of one flow by position. Whoever owns it keeps it within its bounds ([`Copies::bytes`]).
#[derive(Clone, Debug, Default)]
pub struct Copies {
    packets: BTreeMap<Position, Kept>,
    bytes: usize,
}

impl Copies {
    /// Bytes of memory, with what the entries cost beside their packets.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps a packet, unless what is there already has all of it; what it has all of goes. So ends ascend as starts do. Whether
    /// something else may take the place of what was there, who promised that knows.
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

    /// The packet that has the byte at `position`, and where it starts.
    pub fn holding(&self, position: Position) -> Option<(Position, &Kept)> {
        let (&start, kept) = self.packets.range(..=position).next_back()?;
        (kept.end > position).then_some((start, kept))
    }

    /// The packet that has the byte at `position`, or else the first one behind it.
    pub fn from(&self, position: Position) -> Option<&Kept> {
        let behind = || self.packets.range(position..).next().map(|(_, kept)| kept);
        self.holding(position).map(|(_, kept)| kept).or_else(behind)
    }

    /// The packets that start within a range, by position.
    pub fn within(&self, range: Range<Position>) -> impl Iterator<Item = (Position, &Kept)> {
        let packets = self.packets.range(range);
        packets.map(|(&position, kept)| (position, kept))
    }

    /// The packet that starts exactly here.
    pub fn at_mut(&mut self, position: Position) -> Option<&mut Kept> {
        self.packets.get_mut(&position)
    }

    /// All bytes from `position` to `end` are kept.
    pub fn cover(&self, mut position: Position, end: Position) -> bool {
        while position < end {
            match self.holding(position) {
                Some((_, kept)) => position = kept.end,
                None => return false,
            }
        }
        true
    }

    /// Drops what lies wholly before `position`; returns how many bytes of memory that gives back.
    pub fn release(&mut self, position: Position) -> usize {
        let before = self.bytes;
        while let Some(first) = self.packets.first_entry()
            && first.get().end <= position
        {
            self.bytes -= first.remove().cost();
        }
        before - self.bytes
    }

    /// Packets that were last sent over `link`, by position, and when they were.
    pub fn sent_over(&self, link: LinkId) -> impl Iterator<Item = (Position, (Instant, LinkId))> {
        self.packets
            .iter()
            .map(|(&position, kept)| (position, kept.sent))
            .filter(move |(_, sent)| sent.1 == link)
    }

    /// The time until packets that were last sent over `link` are acknowledged says nothing any more.
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
            again: false,
            repaired: 0,
        }
    }

    #[test]
    fn what_is_acknowledged_is_released_and_the_rest_found() {
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
    fn the_first_version_of_a_packet_stays() {
        let mut copies = Copies::default();
        copies.keep(100, kept(200, 140));
        copies.keep(100, kept(200, 7));
        assert_eq!(copies.holding(100).unwrap().1.packet.len(), 140);
        copies.keep(100, kept(300, 9));
        assert_eq!(
            (copies.bytes(), copies.holding(250).unwrap().0),
            (9 + OVERHEAD, 100),
            "a longer one has more to give"
        );
    }

    #[test]
    fn a_part_of_what_is_there_hides_nothing_of_it() {
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
