//! Datagrams of programs enter their flow's queue, and the flow gets its turns on paths.

use bytes::Bytes;

use crate::datagram::flow::Flow;
use crate::datagram::flow::lane::{Copy, CopyKind, Lane, Listed};
use crate::datagram::flow::table::FlowRef;
use crate::datagram::path::Usage;
use crate::datagram::policy::{Facts, Links, Placement};
use crate::datagram::state::Datagrams;
use crate::datagram::wire::{Half, MAX_OFFSET, Open, data_head_len};
use crate::datagram::{FlowError, FlowId};
use crate::{Class, Instant, PathId, varint};

/// Most bytes of a packet's header.
const HEADER: usize = 8 + 4;

/// Most datagrams that are dropped at once when all queues together are too long.
const SHED_AT_ONCE: u64 = 64;

/// Largest datagram while no path is known: that of UDP over IPv4.
const UNKNOWN_MOST: usize = 65_507;

impl Datagrams {
    pub(crate) fn send_datagram(
        &mut self,
        id: FlowId,
        payload: Bytes,
        now: Instant,
    ) -> Result<(), FlowError> {
        let at = self.flows.find(id).ok_or(FlowError::Unknown)?;
        if self.is_peer_silent(now) {
            return Err(FlowError::PeerWithoutDatagrams);
        }
        let flow = self.flows.get_mut(at).ok_or(FlowError::Unknown)?;
        let most = match self.paths.max_packet() {
            Some(packet) => max_payload(flow, packet),
            None => UNKNOWN_MOST,
        };
        if payload.len() > most {
            flow.counters.too_big += 1;
            return Err(FlowError::TooBig { most });
        }
        // The peer may have forgotten a flow that was idle for long.
        if now.saturating_sub(flow.active_at) > flow.link.timeout / 2 {
            flow.confirmed = false;
        }
        flow.learner.sent(payload.len(), now);
        self.note_activity(at, now);
        let Some(flow) = self.flows.get_mut(at) else {
            return Ok(());
        };
        let facts = facts(flow, payload.len(), now);
        match flow.policy.place(&facts, &self.paths) {
            Placement::Each(links) => self.send_copies(at, &links, payload, now),
            Placement::Within(links) => {
                let links = self.within_shares(&links, payload.len(), now);
                self.send_copies(at, &links, payload, now);
            }
            placement => {
                self.enqueue(at, payload, now);
                self.list(at, placement);
            }
        }
        self.shed();
        Ok(())
    }

    fn enqueue(&mut self, at: FlowRef, payload: Bytes, now: Instant) {
        let Some(flow) = self.flows.get_mut(at) else {
            return;
        };
        let limit = self.config.queue(flow.treated_as()).bytes;
        let before = flow.queue.bytes();
        let drops = &mut flow.counters.drops;
        flow.queue.push(payload, now, limit, drops);
        self.queued_bytes = self.queued_bytes + flow.queue.bytes() - before;
    }

    /// A datagram goes over several links: each path gets a copy with the same sequence number.
    fn send_copies(&mut self, at: FlowRef, links: &Links, payload: Bytes, now: Instant) {
        let Some(flow) = self.flows.get_mut(at) else {
            return;
        };
        let limits = self.config.queue(flow.treated_as());
        let sequence = flow.next_sequence;
        flow.next_sequence += 1;
        let has_queue = !flow.queue.is_empty();
        let kind = match links.len() {
            1 => CopyKind::Single,
            _ => CopyKind::Duplicate,
        };
        if kind == CopyKind::Duplicate {
            flow.fates.expect(sequence, links.len());
        }
        for path in links.iter() {
            let copy = Copy {
                kind,
                sequence,
                half: None,
                payload: payload.clone(),
                at: now,
                expires: now + limits.sojourn,
            };
            self.push_copy(at, path, copy, limits.bytes);
        }
        if has_queue {
            // Datagrams queued before the policy changed.
            self.list(at, Placement::Each(*links));
        }
    }

    /// The first path, and the others with links that permit another copy.
    fn within_shares(&mut self, links: &Links, len: usize, now: Instant) -> Links {
        let share = self.config.duplicates.link_share;
        let mut permitted = Links::default();
        for (index, id) in links.iter().enumerate() {
            let Some(path) = self.paths.get_mut(id) else {
                continue;
            };
            let rate = path.rate(now) * share;
            if index == 0 || path.copies.take(len, rate, now) {
                permitted.push(id);
            }
        }
        permitted
    }

    /// Gives a path a datagram with a fixed sequence number; older ones make room for it.
    pub(super) fn push_copy(&mut self, at: FlowRef, path: PathId, copy: Copy, limit: usize) {
        self.drop_ended_lanes(at, path);
        let Some(flow) = self.flows.get_mut(at) else {
            return;
        };
        let lane = flow.lane(path);
        let before = lane.bytes();
        let dropped = lane.push(copy, limit);
        self.queued_bytes = self.queued_bytes + lane.bytes() - before;
        let lost = flow.lost_with(dropped);
        flow.counters.drops.full += lost;
        self.list_on(at, path);
    }

    /// Gives the flow a turn on the paths that serve its queue.
    pub(super) fn list(&mut self, at: FlowRef, placement: Placement) {
        match placement {
            Placement::One(path) => self.list_on(at, path),
            Placement::Any => {
                let mut index = 0;
                while let Some(path) = self.paths.nth(index) {
                    index += 1;
                    if path.usage != Usage::None {
                        let id = path.id;
                        self.list_on(at, id);
                    }
                }
            }
            Placement::Each(links) | Placement::Within(links) => {
                if let Some(first) = links.iter().next() {
                    self.list_on(at, first);
                }
            }
            Placement::Nowhere => {}
        }
    }

    fn list_on(&mut self, at: FlowRef, id: PathId) {
        self.drop_ended_lanes(at, id);
        let Some(flow) = self.flows.get_mut(at) else {
            return;
        };
        let is_urgent = flow.is_conversational();
        let lane = flow.lane(id);
        if lane.listed == Listed::No
            && let Some(path) = self.paths.get_mut(id)
        {
            lane.listed = match is_urgent {
                true => Listed::Urgent,
                false => Listed::New,
            };
            lane.deficit = path.quantum();
            path.rounds.push(at, lane.listed);
        }
    }

    /// A flow that uses a path for the first time forgets paths that have ended.
    fn drop_ended_lanes(&mut self, at: FlowRef, id: PathId) {
        if let Some(flow) = self.flows.get_mut(at)
            && flow.find_lane(id).is_none()
        {
            let before = flow.queued_bytes();
            let mut dropped = Vec::new();
            let paths = &self.paths;
            flow.lanes.retain_mut(|lane| {
                let is_kept = paths.get(lane.path).is_some();
                if !is_kept {
                    dropped.extend(lane.take());
                }
                is_kept
            });
            self.queued_bytes -= before - flow.queued_bytes();
            let lost = flow.lost_with(dropped);
            flow.counters.drops.late += lost;
        }
    }

    /// Gives the flow's queue a turn where its policy wants it now.
    pub(in crate::datagram) fn place_queue(&mut self, at: FlowRef, now: Instant) {
        if let Some(flow) = self.flows.get_mut(at)
            && let Some(len) = flow.queue.first_len()
        {
            let facts = facts(flow, len, now);
            let placement = flow.policy.place(&facts, &self.paths);
            self.list(at, placement);
        }
    }

    /// The queues of all flows together are too long: the longest ones are cut.
    pub(super) fn shed(&mut self) {
        while self.queued_bytes > self.config.queue_memory {
            let longest = self.flows.iter().max_by_key(|flow| flow.queued_bytes());
            let longest = longest.map(|flow| flow.id);
            let longest = longest.and_then(|id| self.flows.find(id));
            let Some(flow) = longest.and_then(|at| self.flows.get_mut(at)) else {
                return;
            };
            let before = flow.queued_bytes();
            let drops = &mut flow.counters.drops;
            if flow.queue.shed(SHED_AT_ONCE, drops) == 0 {
                // Only copies are left.
                let copies: Vec<Copy> = flow.lanes.iter_mut().flat_map(Lane::take).collect();
                let lost = flow.lost_with(copies);
                flow.counters.drops.full += lost;
            }
            let freed = before - flow.queued_bytes();
            self.queued_bytes -= freed;
            if freed == 0 {
                return;
            }
        }
    }
}

/// The facts about a flow that a policy may use.
pub(super) fn facts(flow: &Flow, len: usize, now: Instant) -> Facts {
    Facts {
        class: flow.treated_as(),
        len,
        queued: flow.queue.bytes(),
        numbered: flow.queue.numbered_bytes(),
        waits_since: flow.queue.since(),
        now,
    }
}

/// The properties of a flow that its peer may not know.
pub(super) fn open_of(flow: &Flow) -> Option<Open<'_>> {
    (!flow.confirmed).then(|| Open {
        source: flow.source,
        class: Class::to_open(flow.class),
        target: &flow.target,
    })
}

/// The largest datagram that fits two packets of this size.
fn max_payload(flow: &Flow, packet: usize) -> usize {
    2 * max_part(flow, packet)
}

/// The largest part of a datagram that fits a packet of this size, whatever the other fields are.
pub(super) fn max_part(flow: &Flow, packet: usize) -> usize {
    let open = open_of(flow);
    // The fields of the order and of the half are as large as they can be.
    let half = Half::Second { offset: MAX_OFFSET };
    let (after, half) = (Some(varint::MAX), Some(half));
    let head = data_head_len(flow.id, flow.next_sequence, open.as_ref(), after, half);
    packet.saturating_sub(HEADER + head)
}
