//! The scoreboard: the sent and unacknowledged segments, and the state of each.
//!
//! The counters are those of Linux (`packets_out`, `sacked_out`, `lost_out`, `retrans_out`). So is
//! the number in flight: unacknowledged segments minus SACKed and lost ones, plus retransmitted
//! ones (RFC 6675's pipe).

use std::collections::{BTreeSet, VecDeque};

use crate::clock::Nanos;

/// A sent segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    /// Sequence number of its first byte.
    pub(super) seq: u64,
    pub(super) len: u32,
    /// Number of transmissions.
    pub(super) transmissions: u16,
    /// The receiver has it, beyond a gap.
    pub(super) sacked: bool,
    /// It is considered lost.
    pub(super) lost: bool,
    /// It was retransmitted after its last loss.
    pub(super) resent: bool,
    /// The program had no more data to send when it was sent.
    pub(super) app_limited: bool,
    /// Time of its last transmission.
    pub(super) sent: Nanos,
    /// State at its last transmission, for the delivery rate: number of delivered segments, time of
    /// the last delivery, and send time of the first segment of the flight.
    pub(super) delivered: u64,
    pub(super) delivered_at: Nanos,
    pub(super) first_sent: Nanos,
}

impl Segment {
    pub(super) fn end(&self) -> u64 {
        self.seq + u64::from(self.len)
    }
}

/// The segments in the order of their sequence numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct Scoreboard {
    segments: VecDeque<Segment>,
    /// Number of the first element of `segments`; segments are numbered consecutively.
    first: u64,
    /// All transmissions in order of time: segment, and count of its transmissions. Outdated
    /// entries are skipped.
    by_time: VecDeque<(u64, u16)>,
    /// Lost segments that have not been retransmitted.
    to_resend: BTreeSet<u64>,
    sacked: u32,
    lost: u32,
    resent: u32,
    /// The SACK blocks of the last acknowledgment, which need no second look.
    known: Vec<(u64, u64)>,
    /// End of the highest SACKed range.
    highest_sacked: u64,
}

impl Scoreboard {
    /// Number of unacknowledged segments.
    pub(super) fn len(&self) -> u32 {
        self.segments.len() as u32
    }

    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Number of SACKed segments.
    pub(super) fn sacked(&self) -> u32 {
        self.sacked
    }

    /// Number of lost segments.
    pub(super) fn lost(&self) -> u32 {
        self.lost
    }

    /// Number of segments in flight.
    pub(super) fn in_flight(&self) -> u32 {
        // Saturating: without SACK, duplicate acknowledgments are counted without their segments,
        // so the count may be too high.
        (self.len() + self.resent).saturating_sub(self.sacked + self.lost)
    }

    /// Counts a duplicate acknowledgment without SACK: an unknown segment arrived beyond a gap
    /// (Linux: tcp_add_reno_sack). The count is limited to the segments that are not lost.
    pub(super) fn count_duplicate(&mut self) {
        let most = self.len().saturating_sub(self.lost.max(1));
        self.sacked = (self.sacked + 1).min(most);
    }

    /// An acknowledgment of `segments` segments filled the gap. Returns how many of them had not
    /// been counted as duplicates (Linux: tcp_remove_reno_sacks).
    pub(super) fn settle_duplicates(&mut self, segments: u32) -> u32 {
        let uncounted = segments.saturating_sub(self.sacked).max(1);
        let most = self.len().saturating_sub(self.lost.max(1));
        self.sacked = self.sacked.saturating_sub(segments - 1).min(most);
        uncounted
    }

    /// Resets the count of duplicates.
    pub(super) fn forget_duplicates(&mut self) {
        self.sacked = 0;
    }

    /// Marks the oldest segment lost, unless it already is.
    pub(super) fn lose_head(&mut self) {
        if self.segments.front().is_some_and(|head| !head.lost) {
            self.lose(self.first);
        }
    }

    /// End of the highest range that the receiver has reported.
    pub(super) fn highest_sacked(&self) -> u64 {
        self.highest_sacked
    }

    /// A segment is sent for the first time.
    pub(super) fn push(&mut self, segment: Segment) {
        self.by_time
            .push_back((self.first + self.segments.len() as u64, 1));
        self.segments.push_back(segment);
    }

    /// Removes and returns the oldest segment that is acknowledged by `ack`.
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

    /// Processes the SACK blocks of an acknowledgment; `news` is called for each segment that is
    /// SACKed for the first time.
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

    /// The oldest transmission that is still in flight.
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

    /// Marks a segment lost; again, if its retransmission is lost as well.
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

    /// Whether a segment is still unacknowledged.
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

    /// The first lost segment that has not been retransmitted.
    pub(super) fn next_to_resend(&self) -> Option<u64> {
        self.to_resend.first().copied()
    }

    /// Retransmits a segment; `renew` updates its state.
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

    /// Clears all loss marks, after a spurious detection.
    pub(super) fn unlose(&mut self) {
        for segment in &mut self.segments {
            segment.lost = false;
            segment.resent = false;
        }
        (self.lost, self.resent) = (0, 0);
        self.to_resend.clear();
        // `by_time` has no entries of lost segments, so it is rebuilt.
        let (first, segments) = (self.first, &self.segments);
        let mut all: Vec<(Nanos, u64, u16)> = (first..)
            .zip(segments)
            .filter(|(_, segment)| !segment.sacked)
            .map(|(id, segment)| (segment.sent, id, segment.transmissions))
            .collect();
        all.sort_unstable();
        self.by_time = all.into_iter().map(|(_, id, n)| (id, n)).collect();
    }

    /// All segments that are neither SACKed nor lost, with their numbers.
    pub(super) fn unsettled(&self) -> impl Iterator<Item = (u64, &Segment)> {
        (self.first..)
            .zip(&self.segments)
            .filter(|(_, segment)| !segment.sacked && (!segment.lost || segment.resent))
    }

    fn get(&self, id: u64) -> Option<&Segment> {
        self.segments.get(id.checked_sub(self.first)? as usize)
    }
}

/// The parts of a range outside another one.
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

    /// Applies blocks, in units of segments, and returns the numbers of the newly SACKed segments.
    fn sack(board: &mut Scoreboard, blocks: &[(u64, u64)]) -> Vec<u64> {
        let mut news = Vec::new();
        let blocks = blocks.iter().map(|(s, e)| (s * MSS, e * MSS));
        board.sack(blocks, |segment| news.push(segment.seq / MSS));
        news
    }

    #[test]
    fn blocks_are_reported_once() {
        let mut board = board(10);
        assert_eq!(sack(&mut board, &[(3, 5)]), [3, 4]);
        assert_eq!(sack(&mut board, &[(3, 6), (8, 9)]), [5, 8]);
        assert_eq!(sack(&mut board, &[(1, 9)]), [1, 2, 6, 7]);
        assert_eq!((board.sacked(), board.in_flight()), (8, 2));
        assert_eq!(board.highest_sacked(), 9 * MSS);
    }

    #[test]
    fn lost_segments_are_retransmitted_in_order_and_counted() {
        let mut board = board(6);
        sack(&mut board, &[(4, 6)]);
        [2, 0].into_iter().for_each(|id| board.lose(id));
        assert_eq!((board.lost(), board.in_flight()), (2, 2));
        assert_eq!(board.next_to_resend(), Some(0));
        board.resend(0, |segment| segment.sent = 100);
        assert_eq!(board.next_to_resend(), Some(2));
        assert_eq!((board.lost(), board.in_flight()), (2, 3));
        // In order of time, a retransmission comes last.
        let mut order = Vec::new();
        while let Some((id, _)) = board.oldest() {
            order.push(id);
            board.lose(id);
        }
        assert_eq!(order, [1, 3, 0]);
        assert_eq!((board.lost(), board.in_flight()), (4, 0));
    }

    #[test]
    fn acknowledged_segments_leave_the_counters() {
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
    fn losses_can_be_undone() {
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
