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
use crate::seq::{self, Position};

/// The reordering window is no shorter.
const LEAST_WINDOW: Duration = Duration::from_millis(5);

/// Separate ranges that are remembered; a user with more holes is helped with the first only.
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
    /// There was too much to remember: nothing is taken for lost before the user has acknowledged all that was sent by then.
    blind_until: Position,
}

impl Losses {
    /// Ranges that are remembered.
    pub(super) fn ranges(&self) -> usize {
        self.sacked.count()
    }

    /// Forgets what the user has, and looks for no losses until it has everything up to `highest`.
    pub(super) fn give_up(&mut self, highest: Position) {
        self.sacked = RangeSet::new();
        (self.is_new, self.blind_until) = (false, highest);
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

    /// What is lost behind `first`, the missing packet that the user asks for.
    fn lost(&self, first: Position, copies: &Copies, window: Duration) -> Vec<Position> {
        let end = self.sacked.last().map_or(first, |last| last.start);
        let brought = |link: u8| {
            self.brought
                .get(usize::from(link))
                .copied()
                .unwrap_or_default()
        };
        let behind = copies.within(first + 1..end.max(first + 1));
        let lost = behind.filter(|(position, kept)| {
            kept.sent.0 + window < brought(kept.sent.1.0)
                && !self.sacked.covers(*position..kept.end)
        });
        lost.map(|(position, _)| position).collect()
    }
}

impl Edge {
    /// Takes what an acknowledgement says of what has arrived beyond it, and sends again what is lost there.
    pub(super) fn repair_behind(&mut self, tracked: &mut Tracked, segment: &Segment, now: Instant) {
        let (Some(acked), highest) = (tracked.flow.acked(), tracked.flow.highest()) else {
            return;
        };
        if tracked.flow.outstanding() == 0 {
            tracked.losses = None;
            return;
        }
        if segment.options.sack.is_empty() {
            return;
        }
        let losses = tracked.losses.get_or_insert_default();
        losses.sacked.remove(0..acked);
        if acked < losses.blind_until {
            return;
        }
        for (left, right) in segment.options.sack.iter() {
            let (left, right) = (seq::near(acked, left), seq::near(acked, right));
            if acked < left && left < right && right <= highest {
                losses.learn(left..right, &tracked.copies);
            }
        }
        if losses.ranges() > MOST_RANGES {
            return losses.give_up(highest);
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
        let lost = losses.lost(acked, &tracked.copies, window);
        for position in lost {
            if !self.send_again(tracked, position, now) {
                return; // the rest with a later acknowledgement
            }
            self.counters.repaired += 1;
        }
        if let Some(losses) = &mut tracked.losses {
            losses.is_new = false;
        }
    }
}
