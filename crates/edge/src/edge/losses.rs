//! What links have lost behind the first hole, as the user's SACK blocks show it.
//!
//! Algorithm 1 knows one hole at a time. Where a whole window is lost, because a link was away for less than it takes to notice or the
//! user's end was started anew, that is a repair for each packet of it, one behind the other; and the far end, which is told of the holes
//! by nobody, waits for its own timer, which grows with the round-trip times that it measures meanwhile. So the node looks further.
//!
//! A link gives its packets out in the order in which it took them. What was put into its queue before something that has arrived by the
//! same link is lost, then: this is RACK for each link by itself (RFC 8985, section 6.2), with its reordering window of a quarter of the
//! time that the way takes. The first hole stays algorithm 1's.

use std::ops::Range;
use std::time::Duration;

use sumlink_engine::RangeSet;

use super::{Edge, Tracked};
use crate::Instant;
use crate::flow::Copies;
use crate::packet::Segment;
use crate::queue::LinkQueue;
use crate::seq::{self, Position};

/// The reordering window is no shorter.
const LEAST_WINDOW: Duration = Duration::from_millis(5);

/// Separate ranges that are remembered; a user with more holes is helped with the first only, until it has all that was sent by then.
const MOST_RANGES: usize = 128;

/// What is known of one flow.
#[derive(Clone, Debug, Default)]
pub(super) struct Losses {
    /// What the user has beyond its acknowledgement.
    sacked: RangeSet,
    /// Of what each link has brought, when the last was put into its queue; 0 where it has brought nothing.
    brought: Vec<Instant>,
    /// Something was brought since this was looked through, which was at that time.
    is_new: bool,
    looked: Instant,
    /// There was too much to remember: nothing is taken for lost before the user has acknowledged all that it has told of meanwhile.
    blind_until: Position,
}

impl Losses {
    /// Ranges that are remembered.
    pub(super) fn ranges(&self) -> usize {
        self.sacked.count()
    }

    /// Forgets what the user has, and looks for no losses until it has all of that.
    pub(super) fn give_up(&mut self) {
        let told = self.sacked.last().map_or(0, |last| last.end);
        self.blind_until = self.blind_until.max(told);
        self.sacked = RangeSet::new();
        self.is_new = false;
    }

    /// The user has this. Only what was sent once tells which link has brought it.
    fn learn(&mut self, block: Range<Position>, copies: &Copies) {
        // Of the blocks of an acknowledgement all but one say what was said before.
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
                if self.brought.len() <= link {
                    self.brought.resize(link + 1, Instant::ZERO);
                }
                if sent > self.brought[link] {
                    self.brought[link] = sent;
                    self.is_new = true;
                }
            }
        }
        self.sacked.insert(block);
    }

    /// What is lost behind `first`, the missing packet that the user asks for, and was sent again less than `most` times.
    fn lost(&self, first: Position, copies: &Copies, window: Duration, most: u32) -> Vec<Position> {
        let end = self.sacked.last().map_or(first, |last| last.start);
        let brought = |link: u8| {
            self.brought
                .get(usize::from(link))
                .copied()
                .unwrap_or_default()
        };
        let behind = copies.within(first + 1..end.max(first + 1));
        let lost = behind.filter(|(position, kept)| {
            kept.repaired < most
                && kept.sent.0 + window < brought(kept.sent.1.0)
                && !self.sacked.covers(*position..kept.end)
        });
        lost.map(|(position, _)| position).collect()
    }
}

impl Edge {
    /// Takes what an acknowledgement says of what has arrived beyond it, and sends again what is lost there.
    /// `moved`: its number is another one than before.
    pub(super) fn repair_behind(
        &mut self,
        tracked: &mut Tracked,
        segment: &Segment,
        moved: bool,
        now: Instant,
    ) {
        let (Some(acked), highest) = (tracked.flow.acked(), tracked.flow.highest()) else {
            return;
        };
        if segment.options.sack.is_empty() {
            // Who acknowledges more and names no block has nothing beyond it any more (RFC 2018, section 8).
            tracked.losses.take_if(|_| moved);
            return;
        }
        let losses = tracked.losses.get_or_insert_default();
        losses.sacked.remove(0..acked);
        let is_blind = acked < losses.blind_until;
        for (left, right) in segment.options.sack.iter() {
            let (left, right) = (seq::near(acked, left), seq::near(acked, right));
            if !(acked < left && left < right && right <= highest) {
                continue;
            }
            match is_blind {
                true => losses.blind_until = losses.blind_until.max(right),
                false => losses.learn(left..right, &tracked.copies),
            }
        }
        if losses.ranges() > MOST_RANGES {
            losses.give_up();
        }
        let trip = self.trips().max().unwrap_or_default();
        let window = (trip / 4).max(LEAST_WINDOW);
        // Looking through all copies for each acknowledgement would cost more than a packet does.
        if !losses.is_new || now.saturating_sub(losses.looked) < window {
            return;
        }
        losses.looked = now;
        if self.free() <= self.config.visible.least_free {
            return;
        }
        let most = self.config.visible.most_retransmissions;
        for position in losses.lost(acked, &tracked.copies, window, most) {
            if !self.send_again(tracked, position, now, LinkQueue::has_spare_urgent_room) {
                return; // the rest with a later acknowledgement
            }
            if let Some(kept) = tracked.copies.at_mut(position) {
                kept.repaired += 1;
            }
            self.counters.repaired_behind += 1;
        }
        if let Some(losses) = &mut tracked.losses {
            losses.is_new = false;
        }
    }
}
