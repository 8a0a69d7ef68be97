//! Proof that a packet is lost, and not merely late.
//!
//! A link delivers packets in the order in which it took them. So a packet is lost if its link has
//! delivered one that it took later, as SACK blocks show (`losses.rs`), or if its time is over: the
//! link took it long ago compared with the packets whose acknowledgments came back. That time does
//! not depend on the other links, on which packets overtake it.

use std::time::Duration;

use super::{Edge, Tracked};
use crate::Instant;
use crate::flow::Kept;
use crate::seq::Position;

/// Least time that a link may take longer than usual before its packet counts as lost.
const MIN_SLACK: Duration = Duration::from_millis(10);

/// A gap is held at most this much longer than the longest trip time. A sender's timer adds at
/// least 200 ms to its round trip (Linux).
const MAX_HOLD: Duration = Duration::from_millis(150);

impl Edge {
    /// When the copy counts as lost if nothing is heard of it; `None` while it may still wait in
    /// the node's queue.
    pub(super) fn overdue_at(&self, kept: &Kept) -> Option<Instant> {
        let (entered, link) = kept.sent;
        let queue = self.link(link)?;
        let departed = queue.departed(entered, kept.urgent)?;
        let flight = queue.longest_flight(MIN_SLACK);
        Some(departed + flight.unwrap_or_else(|| self.repair_wait()))
    }

    /// When the gap that is known since `since` counts as lost if nothing is heard of its packet:
    /// when it is overdue, at the latest after the longest hold.
    pub(super) fn lost_at(&self, kept: &Kept, since: Instant) -> Instant {
        let last = since.max(kept.sent.0) + self.longest_hold();
        self.overdue_at(kept).map_or(last, |at| at.min(last))
    }

    /// Whether the missing packet at `position` is lost.
    pub(super) fn is_lost(&self, tracked: &Tracked, position: Position, now: Instant) -> bool {
        let Some((_, kept)) = tracked.copies.holding(position) else {
            return false;
        };
        let losses = tracked.losses.as_ref();
        losses.is_some_and(|losses| losses.is_overtaken(kept, self.reordering_window()))
            || self.lost_at(kept, known_since(tracked, position, now)) <= now
    }

    /// How long a gap without proof is held: `repair_after` trip times, but less than a sender's
    /// timer.
    pub(super) fn longest_hold(&self) -> Duration {
        let longest = self.trips().max().unwrap_or_default();
        self.repair_wait().min(longest + MAX_HOLD)
    }

    /// The user waits for the next packet now. It is checked if data behind it has arrived, or if
    /// it is overdue: the user may have reported the data behind it when it waited for another one.
    pub(super) fn await_next(&self, tracked: &mut Tracked, now: Instant) {
        let behind = tracked.visible.duplicates() > 0
            || (tracked.losses.as_ref()).is_some_and(|losses| losses.ranges() > 0);
        let missing = tracked
            .flow
            .acked()
            .and_then(|at| tracked.copies.holding(at));
        let overdue = missing.and_then(|(_, kept)| self.overdue_at(kept));
        if missing.is_some() && (behind || overdue.is_some_and(|at| at <= now)) {
            self.await_proof(tracked, now);
        }
    }

    /// Checks the gap when its packet is overdue, at the latest after the longest hold.
    pub(super) fn await_proof(&self, tracked: &mut Tracked, now: Instant) {
        let Some(acked) = tracked.flow.acked() else {
            return;
        };
        let Some((_, kept)) = tracked.copies.holding(acked) else {
            return;
        };
        let at = self
            .lost_at(kept, known_since(tracked, acked, now))
            .max(now);
        self.repair_later(tracked, Duration::ZERO, now);
        if let Some(repair) = &mut tracked.repair {
            repair.at = at;
        }
    }
}

/// Since when the gap at `position` is known.
fn known_since(tracked: &Tracked, position: Position, now: Instant) -> Instant {
    let repair = tracked.repair.filter(|repair| repair.position == position);
    repair.map_or(now, |repair| repair.since)
}
