//! What is under way: the segments that were sent and not acknowledged, and what is known of each.
//!
//! The counts are those of Linux (`packets_out`, `sacked_out`, `lost_out`, `retrans_out`), and so is what is in flight:
//! everything but what was received or is lost, and once more what was sent again (RFC 6675's pipe).

use std::collections::{BTreeSet, VecDeque};

use crate::clock::Nanos;

/// A segment that was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    /// Number of its first byte.
    pub(super) seq: u64,
    pub(super) len: u32,
    /// How often it was sent.
    pub(super) transmissions: u16,
    /// The receiver has it, behind a gap.
    pub(super) sacked: bool,
    /// It is taken for lost.
    pub(super) lost: bool,
    /// It was sent again since it was lost.
    pub(super) resent: bool,
    /// It went out while the program had nothing more to send.
    pub(super) app_limited: bool,
    /// When it was last sent.
    pub(super) sent: Nanos,
    /// Segments that had been delivered by then, when the last one was, and when the first one of the flight was sent:
    /// for the rate of delivery.
    pub(super) delivered: u64,
    pub(super) delivered_at: Nanos,
    pub(super) first_sent: Nanos,
}

impl Segment {
    pub(super) fn end(&self) -> u64 {
        self.seq + u64::from(self.len)
    }
}

/// Segments in the order of their numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Scoreboard {
    segments: VecDeque<Segment>,
    /// Number of the first of `segments`; each has the next one.
    first: u64,
    /// Every transmission in the order of time: the segment, and which transmission of it. What has been overtaken by
    /// events is passed over.
    by_time: VecDeque<(u64, u16)>,
    /// Lost segments that were not sent again.
    to_resend: BTreeSet<u64>,
    sacked: u32,
    lost: u32,
    resent: u32,
    /// The blocks of the last acknowledgement, which need not be looked at again.
    known: Vec<(u64, u64)>,
    /// The highest byte that the receiver is known to have.
    highest_sacked: u64,
}

impl Scoreboard {
    /// Segments sent and not acknowledged.
    pub(super) fn len(&self) -> u32 {
        self.segments.len() as u32
    }

    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Of those the ones that the receiver has.
    pub(super) fn sacked(&self) -> u32 {
        self.sacked
    }

    /// And the ones that are lost.
    pub(super) fn lost(&self) -> u32 {
        self.lost
    }

    /// Segments that are in the network.
    pub(super) fn in_flight(&self) -> u32 {
        // Duplicates that are only counted say nothing of which segments they stand for, so they may be too many.
        (self.len() + self.resent).saturating_sub(self.sacked + self.lost)
    }

    /// An acknowledgement says that something has arrived behind a gap, and not what (Linux: tcp_add_reno_sack). It counts for
    /// no more than there is beside the holes.
    pub(super) fn count_duplicate(&mut self) {
        let most = self.len().saturating_sub(self.lost.max(1));
        self.sacked = (self.sacked + 1).min(most);
    }

    /// The hole was filled by an acknowledgement of so many segments; says how many of them nobody had counted (Linux:
    /// tcp_remove_reno_sacks).
    pub(super) fn settle_duplicates(&mut self, segments: u32) -> u32 {
        let uncounted = segments.saturating_sub(self.sacked).max(1);
        let most = self.len().saturating_sub(self.lost.max(1));
        self.sacked = self.sacked.saturating_sub(segments - 1).min(most);
        uncounted
    }

    /// What was counted of duplicates is over.
    pub(super) fn forget_duplicates(&mut self) {
        self.sacked = 0;
    }

    /// Takes the oldest segment for lost, unless it is already.
    pub(super) fn lose_head(&mut self) {
        if self.segments.front().is_some_and(|head| !head.lost) {
            self.lose(self.first);
        }
    }

    /// Everything that the receiver has is below this, as far as it told.
    pub(super) fn highest_sacked(&self) -> u64 {
        self.highest_sacked
    }

    /// A segment is sent for the first time.
    pub(super) fn push(&mut self, segment: Segment) {
        self.by_time
            .push_back((self.first + self.segments.len() as u64, 1));
        self.segments.push_back(segment);
    }

    /// Takes out what is acknowledged up to `ack`, oldest first.
    pub(super) fn acknowledge(&mut self, ack: u64) -> Option<Segment> {
        let segment = *self.segments.front().filter(|head| head.end() <= ack)?;
        self.segments.pop_front();
        self.sacked -= u32::from(segment.sacked);
        self.lost -= u32::from(segment.lost);
        self.resent -= u32::from(segment.resent);
        if segment.lost && !segment.resent {
            self.to_resend.remove(&self.first);
        }
        self.first += 1;
        if self.segments.is_empty() {
            self.by_time.clear();
            self.known.clear();
        }
        Some(segment)
    }

    /// Notes the blocks of an acknowledgement; `news` is given each segment that the receiver was not known to have.
    pub(super) fn sack(
        &mut self,
        blocks: impl Iterator<Item = (u64, u64)>,
        mut news: impl FnMut(&Segment),
    ) {
        let mut all = Vec::with_capacity(4);
        for block in blocks {
            let mut pieces = vec![block];
            for known in &self.known {
                pieces = pieces
                    .into_iter()
                    .flat_map(|piece| without(piece, *known))
                    .collect();
            }
            for (start, end) in pieces {
                self.sack_range(start, end, &mut news);
            }
            all.push(block);
        }
        self.known = all;
    }

    fn sack_range(&mut self, start: u64, end: u64, news: &mut impl FnMut(&Segment)) {
        self.highest_sacked = self.highest_sacked.max(end);
        let mut index = self.segments.partition_point(|segment| segment.seq < start);
        while let Some(segment) = self.segments.get_mut(index).filter(|s| s.end() <= end) {
            if !segment.sacked {
                news(segment);
                if segment.lost && !segment.resent {
                    self.to_resend.remove(&(self.first + index as u64));
                }
                self.lost -= u32::from(segment.lost);
                self.resent -= u32::from(segment.resent);
                self.sacked += 1;
                segment.sacked = true;
                segment.lost = false;
                segment.resent = false;
            }
            index += 1;
        }
    }

    /// The transmission that has been under way for longest, if anything is.
    pub(super) fn oldest(&mut self) -> Option<(u64, Segment)> {
        while let Some(&(id, transmission)) = self.by_time.front() {
            if let Some(segment) = self.get(id)
                && segment.transmissions == transmission
                && !segment.sacked
                && (!segment.lost || segment.resent)
            {
                return Some((id, *segment));
            }
            self.by_time.pop_front();
        }
        None
    }

    /// Takes a segment for lost; also once more, when what was sent again is lost as well.
    pub(super) fn lose(&mut self, id: u64) {
        let first = self.first;
        let Some(segment) = self.segments.get_mut((id - first) as usize) else {
            return;
        };
        if segment.sacked {
            return;
        }
        self.lost += u32::from(!segment.lost);
        self.resent -= u32::from(segment.resent);
        segment.lost = true;
        segment.resent = false;
        self.to_resend.insert(id);
    }

    /// Whether a segment is still under way.
    pub(super) fn holds(&self, id: u64) -> bool {
        self.get(id).is_some_and(|segment| !segment.sacked)
    }

    /// Number of the oldest segment.
    pub(super) fn head_id(&self) -> Option<u64> {
        (!self.segments.is_empty()).then_some(self.first)
    }

    /// Number of the newest segment.
    pub(super) fn tail_id(&self) -> Option<u64> {
        let after = self.first + self.segments.len() as u64;
        (!self.segments.is_empty()).then(|| after - 1)
    }

    /// The first lost segment that was not sent again.
    pub(super) fn next_to_resend(&self) -> Option<u64> {
        self.to_resend.first().copied()
    }

    /// A segment is sent again; `renew` writes what is new about it.
    pub(super) fn resend(&mut self, id: u64, renew: impl FnOnce(&mut Segment)) -> Option<Segment> {
        let segment = self.segments.get_mut((id - self.first) as usize)?;
        renew(segment);
        segment.transmissions = segment.transmissions.wrapping_add(1);
        if segment.lost && !segment.resent {
            segment.resent = true;
            self.resent += 1;
        }
        self.to_resend.remove(&id);
        self.by_time.push_back((id, segment.transmissions));
        Some(*segment)
    }

    /// Nothing was lost after all.
    pub(super) fn unlose(&mut self) {
        for segment in &mut self.segments {
            segment.lost = false;
            segment.resent = false;
        }
        (self.lost, self.resent) = (0, 0);
        self.to_resend.clear();
        // What was lost is no longer among the transmissions.
        let (first, segments) = (self.first, &self.segments);
        let mut all: Vec<(Nanos, u64, u16)> = (first..)
            .zip(segments)
            .filter(|(_, segment)| !segment.sacked)
            .map(|(id, segment)| (segment.sent, id, segment.transmissions))
            .collect();
        all.sort_unstable();
        self.by_time = all.into_iter().map(|(_, id, n)| (id, n)).collect();
    }

    /// Every segment that is neither received nor lost, with its number.
    pub(super) fn unsettled(&self) -> impl Iterator<Item = (u64, &Segment)> {
        (self.first..)
            .zip(&self.segments)
            .filter(|(_, segment)| !segment.sacked && (!segment.lost || segment.resent))
    }

    fn get(&self, id: u64) -> Option<&Segment> {
        self.segments.get(id.checked_sub(self.first)? as usize)
    }
}

/// A range without what lies in another one.
fn without(range: (u64, u64), hole: (u64, u64)) -> impl Iterator<Item = (u64, u64)> {
    let before = (range.0, range.1.min(hole.0));
    let after = (range.0.max(hole.1), range.1);
    [before, after]
        .into_iter()
        .filter(|(start, end)| start < end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u64 = 1000;

    fn board(count: u64) -> Scoreboard {
        let mut board = Scoreboard::default();
        for number in 0..count {
            board.push(Segment {
                seq: number * MSS,
                len: MSS as u32,
                transmissions: 1,
                sacked: false,
                lost: false,
                resent: false,
                app_limited: false,
                sent: number,
                delivered: 0,
                delivered_at: 0,
                first_sent: 0,
            });
        }
        board
    }

    /// Numbers of the segments that the blocks, in segments, are news about.
    fn sack(board: &mut Scoreboard, blocks: &[(u64, u64)]) -> Vec<u64> {
        let mut news = Vec::new();
        let blocks = blocks.iter().map(|(s, e)| (s * MSS, e * MSS));
        board.sack(blocks, |segment| news.push(segment.seq / MSS));
        news
    }

    #[test]
    fn blocks_are_news_once() {
        let mut board = board(10);
        assert_eq!(sack(&mut board, &[(3, 5)]), [3, 4]);
        assert_eq!(sack(&mut board, &[(3, 6), (8, 9)]), [5, 8]);
        assert_eq!(sack(&mut board, &[(1, 9)]), [1, 2, 6, 7]);
        assert_eq!((board.sacked(), board.in_flight()), (8, 2));
        assert_eq!(board.highest_sacked(), 9 * MSS);
    }

    #[test]
    fn what_is_lost_is_sent_again_in_order_and_counted() {
        let mut board = board(6);
        sack(&mut board, &[(4, 6)]);
        [2, 0].into_iter().for_each(|id| board.lose(id));
        assert_eq!((board.lost(), board.in_flight()), (2, 2));
        assert_eq!(board.next_to_resend(), Some(0));
        board.resend(0, |segment| segment.sent = 100);
        assert_eq!(board.next_to_resend(), Some(2));
        assert_eq!((board.lost(), board.in_flight()), (2, 3));
        // In the order of time, what was sent again comes last.
        let mut order = Vec::new();
        while let Some((id, _)) = board.oldest() {
            order.push(id);
            board.lose(id);
        }
        assert_eq!(order, [1, 3, 0]);
        assert_eq!((board.lost(), board.in_flight()), (4, 0));
    }

    #[test]
    fn acknowledged_segments_take_their_counts_along() {
        let mut board = board(5);
        sack(&mut board, &[(1, 2)]);
        board.lose(0);
        board.resend(0, |_| {});
        board.lose(2);
        let acknowledged = std::iter::from_fn(|| board.acknowledge(3 * MSS + 1)).count();
        assert_eq!(acknowledged, 3);
        assert_eq!((board.len(), board.in_flight()), (2, 2));
        assert_eq!((board.lost(), board.sacked()), (0, 0));
        assert_eq!(board.next_to_resend(), None);
        assert_eq!(board.oldest().map(|(id, _)| id), Some(3));
    }

    #[test]
    fn losses_can_be_taken_back() {
        let mut board = board(4);
        sack(&mut board, &[(3, 4)]);
        (0..3).for_each(|id| board.lose(id));
        board.resend(1, |segment| segment.sent = 50);
        board.unlose();
        assert_eq!((board.lost(), board.in_flight()), (0, 3));
        let order: Vec<_> = std::iter::from_fn(|| {
            let (id, _) = board.oldest()?;
            board.lose(id);
            Some(id)
        })
        .collect();
        assert_eq!(order, [0, 2, 1]);
    }
}
