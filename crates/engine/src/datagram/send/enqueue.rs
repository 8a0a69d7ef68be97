//! Datagrams of programs enter their flow's queue, and the flow gets its turns on paths.

use bytes::Bytes;

use crate::datagram::flow::lane::{Copy, CopyKind, Listed};
use crate::datagram::flow::table::FlowRef;
use crate::datagram::flow::{Flow, queue};
use crate::datagram::policy::{Facts, Links, Placement};
use crate::datagram::state::Datagrams;
use crate::datagram::wire::{Open, data_head_len};
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
            Some(packet) => most_payload(flow, packet),
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
            placement => {
                self.enqueue(at, payload, now);
                self.list(at, placement);
            }
        }
        self.shed(at);
        Ok(())
    }

    fn enqueue(&mut self, at: FlowRef, payload: Bytes, now: Instant) {
        let Some(flow) = self.flows.get_mut(at) else {
            return;
        };
        let limit = self.config.queue(flow.treated_as()).bytes;
        let before = flow.queue.bytes();
        flow.queue
            .push(payload, now, limit, &mut flow.counters.drops);
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
        for path in links.iter() {
            let copy = Copy {
                kind: CopyKind::Duplicate,
                sequence,
                half: None,
                payload: payload.clone(),
                at: now,
                expires: now + limits.sojourn,
            };
            self.push_copy(at, path, copy, limits.bytes);
        }
    }

    /// Gives a path a datagram with a fixed sequence number; older ones make room for it.
    pub(super) fn push_copy(&mut self, at: FlowRef, path: PathId, copy: Copy, limit: usize) {
        let Some(flow) = self.flows.get_mut(at) else {
            return;
        };
        let lane = flow.lane(path);
        let mut bytes = lane.bytes() + queue::cost(&copy.payload);
        self.queued_bytes += queue::cost(&copy.payload);
        lane.copies.push_back(copy);
        let mut dropped = 0;
        while bytes > limit
            && lane.copies.len() > 1
            && let Some(oldest) = lane.copies.pop_front()
        {
            bytes -= queue::cost(&oldest.payload);
            self.queued_bytes -= queue::cost(&oldest.payload);
            dropped += 1;
        }
        flow.counters.drops.full += dropped;
        self.list_on(at, path);
    }

    /// Gives the flow a turn on the paths that serve its queue.
    pub(super) fn list(&mut self, at: FlowRef, placement: Placement) {
        match placement {
            Placement::One(path) => self.list_on(at, path),
            Placement::Any => {
                let paths: Vec<PathId> = self.paths.usable().map(|path| path.id).collect();
                paths.iter().for_each(|path| self.list_on(at, *path));
            }
            Placement::Each(_) | Placement::Nowhere => {}
        }
    }

    fn list_on(&mut self, at: FlowRef, id: PathId) {
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
            lane.deficit = path.max_packet() as i64;
            path.rounds.push(at, lane.listed);
        }
    }

    /// The queues of all flows together are too long: the longest one is cut.
    fn shed(&mut self, at: FlowRef) {
        while self.queued_bytes > self.config.queue_memory {
            let longest = self
                .flows
                .iter()
                .max_by_key(|flow| flow.queue.bytes())
                .filter(|flow| !flow.queue.is_empty())
                .map(|flow| flow.id);
            let longest = longest.and_then(|id| self.flows.find(id));
            let Some(flow) = self.flows.get_mut(longest.unwrap_or(at)) else {
                return;
            };
            let before = flow.queued_bytes();
            let dropped = flow.queue.shed(SHED_AT_ONCE, &mut flow.counters.drops);
            if dropped == 0 {
                // Only copies are left.
                for lane in &mut flow.lanes {
                    flow.counters.drops.full += lane.copies.len() as u64;
                    lane.copies.clear();
                }
            }
            let after = flow.queued_bytes();
            self.queued_bytes -= before - after;
            if before == after {
                return;
            }
        }
    }
}

/// What a policy may know about a flow.
pub(super) fn facts(flow: &Flow, len: usize, now: Instant) -> Facts {
    Facts {
        class: flow.treated_as(),
        len,
        queued: flow.queue.bytes(),
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
fn most_payload(flow: &Flow, packet: usize) -> usize {
    let open = open_of(flow);
    // The order's field and the half's are the largest that occur.
    let after = Some(varint::MAX);
    let half = Some(crate::datagram::wire::Half::Second);
    let head = data_head_len(flow.id, flow.next_sequence, open.as_ref(), after, half);
    2 * packet.saturating_sub(HEADER + head)
}
