//! Sending again from here, and what happens when time passes.

use super::{Edge, Event, Repair, Reset, Tracked, Waiting};
use crate::flow::{FlowId, Phase};
use crate::packet;
use crate::queue::LinkQueue;
use crate::seq::{self, Position};
use crate::{Instant, LinkId};

/// Backing off stops at this exponent: 64 times the first wait.
const MOST_BACKOFF: u32 = 6;

/// Ranges that are remembered of what was sent again.
const MOST_REPAIRED: usize = 64;

impl Edge {
    /// A timer of [`Edge::poll_timeout`] has fired; too early it does nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.timers.first()
            && at <= now
        {
            let used = self.flows.get(id).map_or(now, |tracked| tracked.used);
            let due = self
                .flows
                .get(id)
                .and_then(|tracked| tracked.repair)
                .filter(|repair| repair.at <= now);
            if due.is_some() {
                let over = self.with(id, used, |edge, tracked| edge.repair_now(tracked, now));
                if over == Some(true) {
                    self.reset(id, Reset::Undeliverable);
                }
            } else {
                self.forget(id);
            }
        }
        while let Some(id) = self.idle_for_long(now) {
            self.forget(id);
        }
    }

    /// A flow whose time is over.
    fn idle_for_long(&self, now: Instant) -> Option<FlowId> {
        let (id, used, _) = self.flows.idle().next()?;
        (used + self.config.idle <= now).then_some(id)
    }

    /// The hole is looked at again after some link trip times, if nothing is heard of it until then.
    pub(super) fn repair_later(&self, tracked: &mut Tracked, now: Instant) {
        let Some(position) = tracked.flow.acked() else {
            return;
        };
        if tracked
            .repair
            .is_some_and(|repair| repair.position == position)
        {
            return;
        }
        let at = now + self.repair_wait();
        tracked.repair = Some(Repair {
            position,
            since: now,
            at,
            attempts: 0,
        });
    }

    fn repair_wait(&self) -> Instant {
        let longest = self.trips().max().unwrap_or_default();
        longest
            .mul_f64(self.config.visible.repair_after)
            .max(self.config.visible.least_repair)
    }

    /// Sends the missing packet again. What the far end was told of is sent until it arrives; anything else the sender can
    /// do itself. Returns whether the flow has to be given up.
    fn repair_now(&mut self, tracked: &mut Tracked, now: Instant) -> bool {
        let Some(mut repair) = tracked.repair else {
            return false;
        };
        let owed = tracked.flow.owed() > 0;
        if owed && now.saturating_sub(repair.since) >= self.config.visible.give_up {
            return true;
        }
        if !owed
            && (repair.attempts >= self.config.visible.most_retransmissions
                || tracked.flow.outstanding() == 0)
        {
            tracked.repair = None;
            return false;
        }
        self.counters.repaired_late += u64::from(self.send_again(tracked, repair.position, now));
        repair.attempts += 1;
        repair.at = now + self.repair_wait() * (1 << repair.attempts.min(MOST_BACKOFF));
        tracked.repair = Some(repair);
        false
    }

    /// Sends the packet at `position` again, over the link where it will be through first. Returns whether it could.
    pub(super) fn send_again(
        &mut self,
        tracked: &mut Tracked,
        position: Position,
        now: Instant,
    ) -> bool {
        let Some((start, end)) = tracked
            .copies
            .holding(position)
            .map(|(start, kept)| (start, kept.end))
        else {
            return false;
        };
        let time = |link: &LinkQueue| {
            let rate = link.rate().unwrap_or(1e6).max(1.0);
            link.trip().unwrap_or_default().as_secs_f64() + link.bytes() as f64 / rate
        };
        let up = self
            .links
            .iter_mut()
            .enumerate()
            .filter(|(_, link)| link.is_up());
        let Some((n, link)) = up.min_by(|a, b| time(a.1).total_cmp(&time(b.1))) else {
            return false;
        };
        let Some(kept) = tracked.copies.at_mut(start) else {
            return false;
        };
        tracked.times.renew(kept);
        if link.push_urgent(kept.packet.clone()).is_err() {
            return false;
        }
        kept.sent = (now, LinkId(n as u8));
        kept.again = true;
        tracked.repaired.insert(start..end);
        while tracked.repaired.count() > MOST_REPAIRED
            && let Some(first) = tracked.repaired.first()
        {
            tracked.repaired.remove(first);
        }
        true
    }

    /// Sends again what a dead link had been given and nobody has acknowledged, but for what still waits for it.
    pub(super) fn send_again_from(&mut self, link: LinkId, waiting: &Waiting, now: Instant) {
        if !self.visible() {
            return;
        }
        let ids: Vec<FlowId> = self
            .flows
            .idle()
            .filter(|(_, _, tracked)| tracked.copies.bytes() > 0)
            .map(|(id, ..)| id)
            .collect();
        for id in ids {
            let used = self.flows.get(id).map_or(now, |tracked| tracked.used);
            self.with(id, used, |edge, tracked| {
                let lost = tracked.copies.sent_over(link);
                let lost: Vec<Position> = lost
                    .filter(|&position| !waiting.contains(&(id, position)))
                    .collect();
                for position in lost {
                    if !edge.send_again(tracked, position, now) {
                        break;
                    }
                    edge.counters.repaired_late += 1;
                }
            });
        }
    }

    /// A flow whose far end was told, by a node before this one, of bytes that nobody has any more is reset.
    pub(super) fn end_if_orphaned(&mut self, id: FlowId, now: Instant) {
        let since = self.flows.get(id).and_then(|tracked| tracked.orphaned);
        if since.is_some_and(|since| now.saturating_sub(since) >= self.config.orphaned) {
            self.reset(id, Reset::Orphaned);
        }
    }

    /// Sends both ends a reset, each with the number that it expects, and forgets the flow.
    fn reset(&mut self, id: FlowId, reason: Reset) {
        let (Some(flow), Some(tracked)) = (self.flows.key(id), self.flows.get(id)) else {
            return;
        };
        let state = &tracked.flow;
        let lowest = state.acked().unwrap_or(state.highest());
        let owed = match reason {
            Reset::Undeliverable => state.owed(),
            Reset::Orphaned => state.orphaned().map_or(0, |position| position - lowest),
        };
        let (user_next, told) = (state.user_next().unwrap_or(0), seq::wrapped(state.told()));
        debug_assert_ne!(state.phase(), Phase::Closed);
        if let Some(packet) = packet::reset(flow.far, flow.user, seq::wrapped(lowest), user_next) {
            let up = self.links.iter_mut().filter(|link| link.is_up());
            if let Some(link) = up.min_by_key(|link| link.len()) {
                // A queue full of repairs has no room for it; then the far end, reset itself, answers the user's next segment.
                let _ = link.push_urgent(packet.into());
            }
        }
        self.far
            .extend(packet::reset(flow.user, flow.far, user_next, told));
        self.counters.resets += 1;
        self.event(Event::FlowReset {
            flow,
            reason,
            undelivered: owed,
        });
        self.forget(id);
    }
}
