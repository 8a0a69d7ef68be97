//! Sending again from here, and what happens when time passes.

use std::time::Duration;

use super::tracked::{Repair, Tracked};
use super::{Edge, Event, MOST_FAREWELLS, Reset, Waiting};
use crate::flow::{FlowId, Phase};
use crate::packet;
use crate::queue::LinkQueue;
use crate::seq::{self, Position};
use crate::{Instant, LinkId};

/// Backing off stops at this exponent: 64 times the first wait.
const MOST_BACKOFF: u32 = 6;

/// Ranges that are remembered of what was sent again.
const MOST_REPAIRED: usize = 256;

impl Edge {
    /// A timer of [`Edge::poll_timeout`] has fired; too early it does nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.expire_busy(now);
        while let Some(&(at, id)) = self.timers.first()
            && at <= now
        {
            let due = self
                .flows
                .get(id)
                .and_then(|tracked| tracked.repair)
                .filter(|repair| repair.at <= now);
            if due.is_some() {
                let over = self.in_passing(id, |edge, tracked| edge.repair_now(tracked, now));
                if over == Some(true) {
                    self.reset(id, Reset::Undeliverable);
                }
            } else {
                self.forget(id);
            }
        }
        while let Some(id) = self.idle_for_long(now) {
            // Repairs end before that; but a debt is never just forgotten.
            match self.flows.get(id).map_or(0, |tracked| tracked.flow.owed()) {
                0 => self.forget(id),
                _ => self.reset(id, Reset::Undeliverable),
            }
        }
    }

    /// A flow whose time is over.
    fn idle_for_long(&self, now: Instant) -> Option<FlowId> {
        let (id, used, _) = self.flows.idle().next()?;
        (used + self.config.idle <= now).then_some(id)
    }

    /// The hole is looked at again after some link trip times, if nothing is heard of it until then.
    pub(super) fn repair_later(&self, tracked: &mut Tracked, wait: Duration, now: Instant) {
        let Some(position) = tracked.flow.acked() else {
            return;
        };
        if tracked
            .repair
            .is_some_and(|repair| repair.position == position)
        {
            return;
        }
        let at = now + wait;
        tracked.repair = Some(Repair {
            position,
            since: now,
            at,
            attempts: 0,
        });
    }

    pub(super) fn repair_wait(&self) -> Duration {
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
        let sent = self.send_again(tracked, repair.position, now, LinkQueue::has_urgent_room);
        self.counters.repaired_late += u64::from(sent);
        repair.attempts += 1;
        repair.at = now + self.repair_wait() * (1 << repair.attempts.min(MOST_BACKOFF));
        tracked.repair = Some(repair);
        false
    }

    /// A user still asks for what it is owed, so that it is there and the last copy has not come: nobody else can send another one, and
    /// the timer may have backed off far while the user was not there. RT^max is the sender's turn, and does not count here.
    pub(super) fn repair_debt(&mut self, tracked: &mut Tracked, now: Instant) {
        let wait = self.repair_wait();
        let Some(position) = tracked.flow.acked().filter(|_| tracked.flow.owed() > 0) else {
            return;
        };
        let copy = tracked.copies.holding(position);
        if copy.is_none_or(|(_, kept)| kept.sent.0 + wait > now) {
            return;
        }
        if self.send_again(tracked, position, now, LinkQueue::has_urgent_room) {
            self.counters.repaired += 1;
            if let Some(repair) = &mut tracked.repair {
                (repair.at, repair.attempts) = (now + wait, 0);
            }
        }
    }

    /// A link is back. What timers have sent while it was away may have had no way to the user: they begin anew.
    pub(super) fn hurry_repairs(&mut self, now: Instant) {
        let at = now + self.repair_wait();
        for id in self.with_copies() {
            self.in_passing(id, |_, tracked| {
                if let Some(repair) = tracked.repair.as_mut().filter(|repair| repair.at > at) {
                    (repair.at, repair.attempts) = (at, 0);
                }
            });
        }
    }

    /// Sends the packet at `position` again, over the link where it will be through first, of those that have room for it. Returns
    /// whether it could.
    pub(super) fn send_again(
        &mut self,
        tracked: &mut Tracked,
        position: Position,
        now: Instant,
        has_room: fn(&LinkQueue) -> bool,
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
        let able = self
            .links
            .iter_mut()
            .enumerate()
            .filter(|(_, link)| link.is_up() && has_room(link));
        let Some((n, link)) = able.min_by(|a, b| time(a.1).total_cmp(&time(b.1))) else {
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
        tracked.again = Some(now);
        tracked.repaired.insert(start..end);
        while tracked.repaired.count() > MOST_REPAIRED
            && let Some(first) = tracked.repaired.first()
        {
            tracked.repaired.remove(first);
        }
        true
    }

    /// Sends again what a dead link had been given and nobody has acknowledged, but for what still waits for it: as much as there
    /// is room for, and the rest as room comes.
    pub(super) fn send_again_from(&mut self, link: LinkId, waiting: &Waiting, now: Instant) {
        if !self.visible() {
            return;
        }
        self.unsent.retain(|(.., sent)| sent.1 != link);
        for id in self.with_copies() {
            let Some(tracked) = self.flows.get(id) else {
                continue;
            };
            let lost = tracked.copies.sent_over(link);
            let lost = lost.filter(|(position, _)| !waiting.contains(&(id, *position)));
            self.unsent
                .extend(lost.map(|(position, sent)| (id, position, sent)));
        }
        self.send_unsent(now);
    }

    /// Goes on with that.
    pub(super) fn send_unsent(&mut self, now: Instant) {
        while let Some(&(id, position, sent)) = self.unsent.front() {
            let able = |link: &LinkQueue| link.is_up() && link.has_urgent_room();
            if !self.links.iter().any(able) {
                return;
            }
            self.unsent.pop_front();
            self.in_passing(id, |edge, tracked| {
                // It may have been acknowledged or sent again meanwhile.
                let kept = tracked.copies.at_mut(position);
                if kept.is_some_and(|kept| kept.sent == sent) {
                    let room = LinkQueue::has_urgent_room;
                    let again = edge.send_again(tracked, position, now, room);
                    edge.counters.repaired_late += u64::from(again);
                }
            });
        }
    }

    /// The flows of which something is kept.
    pub(super) fn with_copies(&self) -> Vec<FlowId> {
        let flows = self.flows.idle();
        flows
            .filter(|(_, _, tracked)| tracked.copies.bytes() > 0)
            .map(|(id, ..)| id)
            .collect()
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
            // It waits for any link, be it that none carries anything now. Should there be too many, the far end, reset itself,
            // answers the user's next segment.
            if self.farewells.len() < MOST_FAREWELLS {
                self.farewells.push_back(packet.into());
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
