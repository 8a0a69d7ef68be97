//! From the user to the far side: acknowledgments go through algorithm 1.

use std::time::Duration;

use super::{Edge, Tracked};
use crate::flow::{Acknowledgment, FlowKey, Phase};
use crate::packet::{self, Malformed, Parsed, Segment};
use crate::queue::LinkQueue;
use crate::seq::Position;
use crate::visible::{Boost, Situation, Step};
use crate::{Instant, LinkId};

impl Edge {
    /// Handles a packet from a user, received over any link.
    pub fn handle_user(&mut self, mut packet: Vec<u8>, now: Instant) {
        self.counters.up_packets += 1;
        let mut segment = match packet::parse(&packet, self.config.verify_checksums) {
            Parsed::Tcp(segment) => segment,
            Parsed::Other(_) => return self.far.push_back(packet),
            Parsed::Malformed(reason, _) => {
                self.counters.malformed += 1;
                if reason != Malformed::Ip {
                    self.far.push_back(packet);
                }
                return;
            }
        };
        let key = FlowKey {
            far: segment.destination,
            user: segment.source,
        };
        self.expire_busy(now);
        self.edit_syn(&mut packet, &segment);
        let Some(id) = self.track_segment(key, &segment, now) else {
            return self.far.push_back(packet);
        };
        let pass = self.with(id, now, |edge, tracked| {
            edge.user_segment(tracked, &mut packet, &mut segment, now)
        });
        if pass != Some(false) {
            self.far.push_back(packet);
        }
        self.end_if_closed(id);
        self.end_if_orphaned(id, now);
    }

    /// Decides whether the segment is passed on, and edits it.
    fn user_segment(
        &mut self,
        tracked: &mut Tracked,
        packet: &mut [u8],
        segment: &mut Segment,
        now: Instant,
    ) -> bool {
        let before = tracked.flow.acked();
        let conveyed = before.map(|_| tracked.flow.ack_sent());
        let window = tracked.flow.window();
        let ack = tracked.flow.locate(segment.ack);
        let first = before
            .filter(|before| self.visible() && *before < ack)
            .and_then(|before| tracked.copies.holding(before))
            .map(|(_, first)| first.clone());
        let acknowledgment = tracked.flow.user_segment(segment);
        let moved = tracked.flow.acked() != before;
        // With a timestamp that the user has not seen, the user would discard all data repaired
        // with it.
        let believed = match acknowledgment {
            Acknowledgment::None => None,
            Acknowledgment::Old => Some(false),
            Acknowledgment::Beyond => moved.then_some(true),
            _ => Some(true),
        };
        if let Some(is_latest) = believed.filter(|_| self.visible() && !tracked.flow.sealed()) {
            (tracked.times).answer(packet, segment, first.as_ref(), is_latest);
            if let Some((value, echo)) = segment.options.timestamps.filter(|_| segment.flags.ack)
                && let raised = tracked.echo(ack, echo)
                && raised != echo
            {
                packet::set_timestamp_echo(packet, segment, raised);
                segment.options.timestamps = Some((value, raised));
            }
        }
        if acknowledgment != Acknowledgment::None {
            tracked.last_ack = Some(now);
        }
        if moved {
            self.acknowledged(tracked, before, now);
            tracked.last_passed = Some(now);
        }
        if acknowledgment.is_duplicate() && tracked.flow.orphaned().is_some() {
            tracked.orphaned.get_or_insert(now);
        }
        if !self.visible() || tracked.flow.sealed() {
            return true;
        }
        if acknowledgment.is_duplicate() {
            self.counters.duplicates += 1;
        }
        if believed == Some(true) {
            self.learn_blocks(tracked, segment, moved);
        }
        if acknowledgment == Acknowledgment::Same {
            hide_growth(tracked, packet, segment, window);
        }
        let pass = self.decide(
            tracked,
            packet,
            segment,
            (acknowledgment, moved),
            conveyed,
            now,
        );
        if pass && segment.flags.ack && tracked.flow.acked() == Some(ack) {
            tracked.release = None; // this packet conveys all of it
        }
        // Behind the packet of the first gap, which the user is waiting for.
        if believed == Some(true) && !segment.options.sack.is_empty() {
            self.repair_behind(tracked, now);
        }
        pass
    }

    /// Algorithm 1: decides whether the acknowledgment is passed on, and edits it.
    fn decide(
        &mut self,
        tracked: &mut Tracked,
        packet: &mut [u8],
        segment: &Segment,
        (acknowledgment, moved): (Acknowledgment, bool),
        conveyed: Option<Position>,
        now: Instant,
    ) -> bool {
        let gap = tracked.flow.outstanding() > 0 && !segment.options.sack.is_empty();
        if self.is_unneeded(tracked, segment, acknowledgment, now) {
            self.counters.unneeded += 1;
            if acknowledgment.is_duplicate() {
                // The packet may be lost even if the acknowledgment shows no gap.
                self.repair_later(tracked, self.repair_wait(), now);
            }
            return false;
        }
        match acknowledgment {
            Acknowledgment::Duplicate { .. } | Acknowledgment::New { .. } => {}
            Acknowledgment::Same | Acknowledgment::Repeated if segment.flags.ack => {
                if tracked.release.is_some()
                    && self.release(tracked, packet, segment, conveyed, now)
                {
                    return false;
                }
                // Each packet that a user stores behind a gap may open its window further. Such an
                // acknowledgment is no duplicate, so without SACK nothing shows the loss but time.
                if self.config.visible.proof && tracked.flow.outstanding() > 0 {
                    self.await_proof(tracked, now);
                }
                tracked.last_passed = Some(now);
                self.repair_debt(tracked, now);
                self.rewrite(tracked, packet, segment, None, false);
                return true;
            }
            Acknowledgment::Beyond if moved => {
                // The data came by another route, so the gap is closed.
                let situation = self.situation(tracked, false, false, now);
                (tracked.visible).acknowledgment(&self.config.visible, &situation);
                return true;
            }
            _ => return true,
        }
        let is_duplicate = acknowledgment.is_duplicate();
        let target = match is_duplicate && tracked.release.is_none() {
            true => boost_target(tracked, self.config.visible.boost),
            false => None,
        };
        let situation = self.situation(tracked, is_duplicate, target.is_some(), now);
        let step = tracked
            .visible
            .acknowledgment(&self.config.visible, &situation);
        match step {
            Step::Boost => {
                self.counters.boosted += 1;
                if let Some((end, timestamp)) = target {
                    tracked.flow.note_ack_sent(end);
                    self.rewrite(tracked, packet, segment, timestamp, true);
                }
                self.check_later(tracked, now);
            }
            Step::Hold | Step::Repair => {
                self.counters.held += 1;
                if step == Step::Repair
                    && let Some(acked) = tracked.flow.acked()
                {
                    let sent = self.repair(tracked, acked, now, LinkQueue::has_urgent_room);
                    self.counters.repaired += u64::from(sent);
                }
                self.check_later(tracked, now);
                let window_moves = Acknowledgment::Duplicate { window_moves: true };
                if acknowledgment != window_moves
                    || tracked.release.is_some()
                        && self.release(tracked, packet, segment, conveyed, now)
                {
                    return false;
                }
                // The node must not withhold a window from the far end; an acknowledgment that
                // changes it is no duplicate there (RFC 5681, section 2).
                self.rewrite(tracked, packet, segment, None, true);
            }
            Step::Retransmit => {
                self.repair_later(tracked, self.repair_wait(), now);
                if let Some(acked) = tracked.flow.acked() {
                    let sent = self.send_again(tracked, acked, now, LinkQueue::has_urgent_room);
                    self.counters.repaired += u64::from(sent);
                }
                self.pass_duplicate(tracked, packet, segment, !situation.repeated);
            }
            Step::Pass if situation.duplicate => {
                self.repair_debt(tracked, now);
                self.pass_duplicate(tracked, packet, segment, false);
            }
            Step::Pass => {
                // Acknowledgments passed on while the node can repair the gap do not report it;
                // those passed on when it gives up do.
                let parameters = &self.config.visible;
                let able = match parameters.proof {
                    true => !situation.repeated,
                    false => situation.free > parameters.min_free,
                };
                let silent = gap && situation.kept && able;
                let is_whole = segment.options.sack.is_empty() || silent;
                if parameters.proof
                    && is_whole
                    && self.release(tracked, packet, segment, conveyed, now)
                {
                    return false;
                }
                self.rewrite(tracked, packet, segment, None, silent);
            }
        }
        true
    }

    /// Handles newly acknowledged data: releases its copies and takes a trip time sample from the
    /// first packet.
    fn acknowledged(&mut self, tracked: &mut Tracked, before: Option<Position>, now: Instant) {
        let Some(acked) = tracked.flow.acked() else {
            return;
        };
        // A cumulative acknowledgment advances when the first missing packet arrives, so the time
        // is that packet's.
        if let Some((_, first)) = before.and_then(|before| tracked.copies.holding(before))
            && first.end <= acked
            && !first.again
        {
            let (sent, LinkId(n)) = first.sent;
            tracked.trip = now.saturating_sub(sent);
            if let Some(link) = self.links.get_mut(usize::from(n)) {
                link.trip_sample(tracked.trip);
                if let Some(departed) = link.departed(sent, false) {
                    link.flight_sample(departed, now);
                }
            }
        }
        tracked.copies.release(acked);
        // Duplicate SACK blocks report data of the last window at most.
        tracked.repaired.remove(0..acked.saturating_sub(1 << 20));
        tracked.orphaned = None;
        tracked.repair = None;
        let owed = tracked.flow.owed() > 0;
        if self.visible() && self.config.visible.proof {
            self.await_next(tracked, now);
        }
        if owed {
            self.repair_later(tracked, self.repair_wait(), now);
        } else if self.visible() && !self.config.visible.proof {
            // The next gap's packet is overdue. If a whole window was lost and only its first
            // packet was repeated, no data is in flight behind the gap that would make the user
            // report it. Trip times differ between users.
            let own = tracked.trip.mul_f64(self.config.visible.repair_after);
            let wait = self.repair_wait().max(own);
            let gap = tracked.copies.holding(acked);
            if gap.is_some_and(|(_, kept)| kept.sent.0 + wait <= now) {
                self.repair_later(tracked, wait, now);
            }
        }
    }

    /// Checks the gap later, unless an acknowledgment comes first.
    fn check_later(&self, tracked: &mut Tracked, now: Instant) {
        match self.config.visible.proof {
            true => self.await_proof(tracked, now),
            false => self.repair_later(tracked, self.repair_wait(), now),
        }
    }

    fn situation(
        &self,
        tracked: &Tracked,
        duplicate: bool,
        boostable: bool,
        now: Instant,
    ) -> Situation {
        let flow = &tracked.flow;
        let acked = flow.acked().unwrap_or(0);
        let missing = tracked.copies.holding(acked).map(|(_, kept)| kept);
        let (sum, count) = self
            .trips()
            .fold((Duration::ZERO, 0), |(sum, count), trip| {
                (sum + trip, count + 1)
            });
        Situation {
            now,
            duplicate,
            // An adopted flow has no I, but its data shows that it has started.
            beyond_initial: flow
                .initial()
                .map_or(flow.phase() == Phase::Adopted, |initial| {
                    acked > initial + 1
                }),
            kept: missing.is_some(),
            boostable,
            lost: duplicate && self.is_lost(tracked, acked, now),
            repeated: missing.is_some_and(|kept| kept.repeated),
            repaired: missing.map_or(0, |kept| kept.repaired),
            free: self.free(),
            flows: self.busy.len() + usize::from(!tracked.share.counts()),
            trip: (count > 0).then(|| sum / count.max(1)),
        }
    }
}

/// While the user waits for the packet that shows the far end full queues, its window does not grow
/// (`overflow.rs`). `before`: the window of its previous acknowledgment.
fn hide_growth(tracked: &mut Tracked, packet: &mut [u8], segment: &mut Segment, before: u16) {
    let flags = &segment.flags;
    let is_plain = segment.len == 0 && flags.ack && !(flags.syn || flags.fin || flags.marked);
    if is_plain && tracked.signal.is_some() && tracked.signal == tracked.flow.acked() {
        let window = *tracked.window_at_signal.get_or_insert(before);
        if segment.window > window {
            packet::set_window(packet, segment, window);
            segment.window = window;
        }
    }
}

/// Most segments that a flow is owed, however small φ is.
const MAX_OWED: u32 = 64;

/// Target of a boost, and the timestamp of the last packet that it would acknowledge. The target is
/// the end of the missing packet or, with [`Boost::Many`], of the packet P behind it (line 3). It
/// exists only if
///
/// - it is news for the far end, and with [`Boost::Once`] nothing else is owed,
/// - the node has received all packets before it, has copies and can deliver them,
/// - more data is outstanding behind it, so that the far end waits and notices if the node dies,
/// - the packets have no FIN, both SYNs were seen, and a segment's worth of window remains.
fn boost_target(tracked: &Tracked, boost: Boost) -> Option<(Position, Option<u32>)> {
    let flow = &tracked.flow;
    let acked = flow.acked()?;
    let segments = match boost {
        Boost::Off => return None,
        Boost::Once if flow.owed() > 0 => return None,
        Boost::Once => 1,
        Boost::Many => tracked.visible.duplicates() + 1,
    };
    if segments > MAX_OWED {
        return None;
    }
    let (mut target, mut timestamp) = (acked, None);
    for _ in 0..segments {
        let (_, kept) = tracked.copies.holding(target)?;
        if kept.waits {
            return None; // it has no place in a queue yet
        }
        (target, timestamp) = (kept.end, kept.theirs);
    }
    let sound = flow.phase() == Phase::Open
        && target > flow.ack_sent()
        && flow.has_received(target)
        && target < flow.highest()
        && flow.far_fin().is_none_or(|fin| target < fin)
        && target - acked <= u64::from(segments) * u64::from(flow.mss())
        && target + u64::from(flow.mss()) <= flow.permitted();
    sound.then_some((target, timestamp))
}
