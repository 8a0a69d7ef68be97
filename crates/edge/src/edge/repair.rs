//! Retransmissions from the node, and timers.

use std::time::Duration;

use super::tracked::{Repair, Tracked};
use super::{Edge, Event, MAX_RESETS, Reset, Waiting};
use crate::flow::{FlowId, Phase};
use crate::packet;
use crate::queue::LinkQueue;
use crate::seq::{self, Position};
use crate::{Instant, LinkId};

/// Largest backoff exponent: 64 times the first wait.
const MAX_BACKOFF: u32 = 6;

/// Most ranges tracked of data that the node has sent again.
const MAX_REPAIRED: usize = 256;

impl Edge {
    /// Handles the timer of [`Edge::poll_timeout`]; a call that comes too early does nothing.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.expire_busy(now);
        while let Some(&(at, id)) = self.timers.first()
            && at <= now
        {
            let releases =
                |tracked: &Tracked| tracked.release.as_ref().is_some_and(|r| r.at <= now);
            if self.flows.get(id).is_some_and(releases) {
                self.in_passing(id, |edge, tracked| edge.continue_release(tracked, now));
                continue;
            }
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
            // Repairs end earlier than this, but owed bytes are never silently forgotten.
            match self.flows.get(id).map_or(0, |tracked| tracked.flow.owed()) {
                0 => self.forget(id),
                _ => self.reset(id, Reset::Undeliverable),
            }
        }
    }

    /// A flow with an expired idle time.
    fn idle_for_long(&self, now: Instant) -> Option<FlowId> {
        let (id, used, _) = self.flows.idle().next()?;
        (used + self.config.idle <= now).then_some(id)
    }

    /// Checks the gap again after some link trip times, unless an acknowledgment comes first.
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
            .max(self.config.visible.min_repair)
    }

    /// Sends the missing packet again. Bytes that the far end believes delivered are sent until
    /// they arrive; the sender can repair the rest itself. Returns whether the flow must be given
    /// up.
    fn repair_now(&mut self, tracked: &mut Tracked, now: Instant) -> bool {
        let Some(mut repair) = tracked.repair else {
            return false;
        };
        let owed = tracked.flow.owed() > 0;
        if owed && now.saturating_sub(repair.since) >= self.config.visible.give_up {
            return true;
        }
        let most = self.config.visible.max_retransmissions;
        let with_proof = self.config.visible.proof;
        let kept = tracked.copies.holding(repair.position);
        let attempts = match kept {
            Some((_, kept)) if with_proof => kept.repaired,
            _ => repair.attempts,
        };
        if !owed && (attempts >= most || tracked.flow.outstanding() == 0) {
            tracked.repair = None;
            return false;
        }
        if with_proof && let Some((_, kept)) = kept {
            // The packet may have been late in the node's own queue, or sent again meanwhile.
            let at = self.lost_at(kept, repair.since);
            if at > now {
                repair.at = at;
                tracked.repair = Some(repair);
                return false;
            }
        }
        let sent = self.repair(tracked, repair.position, now, LinkQueue::has_urgent_room);
        self.counters.repaired_late += u64::from(sent);
        repair.attempts += 1;
        repair.at = now + self.repair_wait() * (1 << repair.attempts.min(MAX_BACKOFF));
        tracked.repair = Some(repair);
        false
    }

    /// Repeats owed bytes at once when the user still requests them. The user is alive and the last
    /// copy was lost; no other node can send a new one, and the timer may have backed off far while
    /// the user was away. RT^max applies to repairs that the sender could do, so it does not count
    /// here.
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

    /// Restarts the repair timers when a link returns: copies sent while it was away may have had
    /// no route to the user.
    pub(super) fn restart_repairs(&mut self, now: Instant) {
        let at = now + self.repair_wait();
        for id in self.with_copies() {
            self.in_passing(id, |_, tracked| {
                if let Some(repair) = tracked.repair.as_mut().filter(|repair| repair.at > at) {
                    (repair.at, repair.attempts) = (at, 0);
                }
            });
        }
    }

    /// The same for a lost packet; it counts towards RT^max.
    pub(super) fn repair(
        &mut self,
        tracked: &mut Tracked,
        position: Position,
        now: Instant,
        has_room: fn(&LinkQueue) -> bool,
    ) -> bool {
        let Some((start, _)) = tracked.copies.holding(position) else {
            return false;
        };
        let sent = self.send_again(tracked, start, now, has_room);
        if let Some(kept) = tracked.copies.at_mut(start).filter(|_| sent) {
            kept.repaired += 1;
        }
        sent
    }

    /// Sends the packet at `position` again over the link that delivers it first, among links with
    /// room. Returns whether it succeeded.
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
        (kept.urgent, kept.again) = (true, true);
        tracked.again = Some(now);
        tracked.repaired.insert(start..end);
        while tracked.repaired.count() > MAX_REPAIRED
            && let Some(first) = tracked.repaired.first()
        {
            tracked.repaired.remove(first);
        }
        true
    }

    /// Sends again the unacknowledged packets of a dead link, except those that still wait in its
    /// queue. Packets beyond the available room follow as room appears.
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

    /// Continues sending the packets of dead links.
    pub(super) fn send_unsent(&mut self, now: Instant) {
        while let Some(&(id, position, sent)) = self.unsent.front() {
            let able = |link: &LinkQueue| link.is_up() && link.has_urgent_room();
            if !self.links.iter().any(able) {
                return;
            }
            self.unsent.pop_front();
            self.in_passing(id, |edge, tracked| {
                // The packet may have been acknowledged or sent again meanwhile.
                let kept = tracked.copies.at_mut(position);
                if kept.is_some_and(|kept| kept.sent == sent) {
                    let room = LinkQueue::has_urgent_room;
                    let again = edge.send_again(tracked, position, now, room);
                    edge.counters.repaired_late += u64::from(again);
                }
            });
        }
    }

    /// The flows with copies.
    pub(super) fn with_copies(&self) -> Vec<FlowId> {
        let flows = self.flows.idle();
        flows
            .filter(|(_, _, tracked)| tracked.copies.bytes() > 0)
            .map(|(id, ..)| id)
            .collect()
    }

    /// Resets a flow if an earlier node acknowledged bytes to the far end that no node has a copy
    /// of.
    pub(super) fn end_if_orphaned(&mut self, id: FlowId, now: Instant) {
        let since = self.flows.get(id).and_then(|tracked| tracked.orphaned);
        if since.is_some_and(|since| now.saturating_sub(since) >= self.config.orphaned) {
            self.reset(id, Reset::Orphaned);
        }
    }

    /// Resets both ends, each with the sequence number that it expects, and forgets the flow.
    fn reset(&mut self, id: FlowId, reason: Reset) {
        let (Some(flow), Some(tracked)) = (self.flows.key(id), self.flows.get_mut(id)) else {
            return;
        };
        tracked.release = None;
        let state = &tracked.flow;
        let lowest = state.acked().unwrap_or(state.highest());
        let owed = match reason {
            Reset::Undeliverable => state.owed(),
            Reset::Orphaned => state.orphaned().map_or(0, |position| position - lowest),
        };
        let (user_next, ack_sent) = (
            state.user_next().unwrap_or(0),
            seq::wrapped(state.ack_sent()),
        );
        debug_assert_ne!(state.phase(), Phase::Closed);
        if let Some(packet) = packet::reset(flow.far, flow.user, seq::wrapped(lowest), user_next) {
            // The reset waits for any link, even if all are down. If too many resets wait, this one
            // is dropped: the far end, which is reset too, answers the user's next segment with its
            // own.
            if self.resets_for_users.len() < MAX_RESETS {
                self.resets_for_users.push_back(packet.into());
            }
        }
        self.far
            .extend(packet::reset(flow.user, flow.far, user_next, ack_sent));
        self.counters.resets += 1;
        self.event(Event::FlowReset {
            flow,
            reason,
            undelivered: owed,
        });
        self.forget(id);
    }
}
