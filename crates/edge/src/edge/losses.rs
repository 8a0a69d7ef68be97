//! Detects losses behind the first gap from the user's SACK blocks.
//!
//! Algorithm 1 handles one gap at a time. A whole window can be lost, because a link was away for
//! less than the detection time or because the user's end restarted. Algorithm 1 would then repair
//! its packets one after another. The far end receives no report of the gaps and waits for its own
//! timer, which grows with the round-trip times that it measures meanwhile. So the node looks
//! further.
//!
//! A link delivers packets in the order in which it took them. A packet is therefore lost if it was
//! queued before a packet that the same link has delivered. This is RACK, applied per link (RFC
//! 8985, section 6.2), with a reordering window of a sixteenth of the trip time: a link reorders
//! little. For the first gap, algorithm 1 asks for this proof (`proof.rs`).

use std::ops::Range;
use std::time::Duration;

use sumlink_engine::RangeSet;

use super::{Edge, Tracked};
use crate::flow::{Copies, Kept};
use crate::packet::Segment;
use crate::queue::LinkQueue;
use crate::seq::{self, Position};
use crate::{Instant, LinkId};

/// Lower bound of the reordering window.
const MIN_WINDOW: Duration = Duration::from_millis(2);

/// Most separate ranges tracked. For a user with more gaps, only the first ones are repaired until
/// the user has received all data sent by then.
const MAX_RANGES: usize = 128;

/// Loss detection state of one flow.
#[derive(Clone, Debug, Default)]
pub(super) struct Losses {
    /// Data that the user has received beyond its acknowledgment.
    sacked: RangeSet,
    /// For each link, the latest queueing time among its delivered packets; 0 if it has delivered
    /// none.
    delivered_by: Vec<Instant>,
    /// Whether a link has delivered a packet since the last check for losses, and the time of that
    /// check.
    is_new: bool,
    looked: Instant,
    /// Tracking overflowed: no packet counts as lost until the user's acknowledgment reaches this
    /// position.
    paused_until: Position,
}

impl Losses {
    /// Number of tracked ranges.
    pub(super) fn ranges(&self) -> usize {
        self.sacked.count()
    }

    /// Forgets the received ranges, and pauses loss detection until the user has acknowledged them.
    pub(super) fn give_up(&mut self) {
        let end = self.sacked.last().map_or(0, |last| last.end);
        self.paused_until = self.paused_until.max(end);
        self.sacked = RangeSet::new();
        self.is_new = false;
    }

    /// Records a block that the user has received. Only packets sent exactly once identify the link
    /// that delivered them.
    fn learn(&mut self, block: Range<Position>, copies: &Copies) {
        // All but one block of an acknowledgment usually repeat earlier reports.
        if self.sacked.covers(block.clone()) {
            return;
        }
        let mut news = RangeSet::new();
        news.insert(block.clone());
        for known in self.sacked.within(block.clone()) {
            news.remove(known);
        }
        for range in news.iter() {
            let whole = copies
                .within(range.clone())
                .filter(|(_, kept)| kept.end <= block.end);
            for (_, kept) in whole.filter(|(_, kept)| !kept.again) {
                let (sent, link) = (kept.sent.0, usize::from(kept.sent.1.0));
                if self.delivered_by.len() <= link {
                    self.delivered_by.resize(link + 1, Instant::ZERO);
                }
                if sent > self.delivered_by[link] {
                    self.delivered_by[link] = sent;
                    self.is_new = true;
                }
            }
        }
        self.sacked.insert(block);
    }

    /// Whether the packet's link has delivered a packet that it took later by more than `window`.
    pub(super) fn is_overtaken(&self, kept: &Kept, window: Duration) -> bool {
        let (sent, LinkId(link)) = kept.sent;
        let delivered = self.delivered_by.get(usize::from(link));
        delivered.is_some_and(|delivered| sent + window < *delivered)
    }

    /// Lost packets behind `first`, the missing packet that the user requests, that were sent again
    /// fewer than `most` times.
    fn lost(&self, first: Position, copies: &Copies, window: Duration, most: u32) -> Vec<Position> {
        let end = self.sacked.last().map_or(first, |last| last.start);
        let behind = copies.within(first + 1..end.max(first + 1));
        let lost = behind.filter(|(position, kept)| {
            kept.repaired < most
                && self.is_overtaken(kept, window)
                && !self.sacked.covers(*position..kept.end)
        });
        lost.map(|(position, _)| position).collect()
    }
}

impl Edge {
    /// Processes the SACK blocks of an acknowledgment. `moved`: the acknowledgment number differs
    /// from the previous one.
    pub(super) fn learn_blocks(&self, tracked: &mut Tracked, segment: &Segment, moved: bool) {
        let (Some(acked), highest) = (tracked.flow.acked(), tracked.flow.highest()) else {
            return;
        };
        if segment.options.sack.is_empty() {
            // An acknowledgment that advances without SACK blocks shows that no data beyond it has
            // arrived (RFC 2018, section 8).
            tracked.losses.take_if(|_| moved);
            return;
        }
        let losses = tracked.losses.get_or_insert_default();
        losses.sacked.remove(0..acked);
        let is_blind = acked < losses.paused_until;
        for (left, right) in segment.options.sack.iter() {
            let (left, right) = (seq::near(acked, left), seq::near(acked, right));
            if !(acked < left && left < right && right <= highest) {
                continue;
            }
            match is_blind {
                true => losses.paused_until = losses.paused_until.max(right),
                false => losses.learn(left..right, &tracked.copies),
            }
        }
        if losses.ranges() > MAX_RANGES {
            losses.give_up();
        }
    }

    /// A link's packet counts as lost only if the link took a delivered one later by more than
    /// this.
    pub(super) fn reordering_window(&self) -> Duration {
        let trip = self.trips().max().unwrap_or_default();
        (trip / 16).max(MIN_WINDOW)
    }

    /// Sends the lost packets behind the first gap again.
    pub(super) fn repair_behind(&mut self, tracked: &mut Tracked, now: Instant) {
        let (Some(acked), Some(losses)) = (tracked.flow.acked(), &mut tracked.losses) else {
            return;
        };
        let window = self.reordering_window();
        // Scanning all copies for each acknowledgment would cost more than forwarding a packet.
        if !losses.is_new || now.saturating_sub(losses.looked) < window {
            return;
        }
        losses.looked = now;
        if !self.config.visible.proof && self.free() <= self.config.visible.min_free {
            return;
        }
        let most = self.config.visible.max_retransmissions;
        for position in losses.lost(acked, &tracked.copies, window, most) {
            if !self.repair(tracked, position, now, LinkQueue::has_spare_urgent_room) {
                return; // later acknowledgments repair the rest
            }
            self.counters.repaired_behind += 1;
        }
        if let Some(losses) = &mut tracked.losses {
            losses.is_new = false;
        }
    }
}
