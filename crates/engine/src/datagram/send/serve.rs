//! The turns of flows: fills a packet with datagrams.

use bytes::Bytes;

use super::enqueue::{facts, open_of};
use crate::datagram::FlowErrorCode;
use crate::datagram::flow::Flow;
use crate::datagram::flow::lane::{Copy, CopyKind, Listed};
use crate::datagram::flow::table::FlowRef;
use crate::datagram::path::sent::{Item, Young};
use crate::datagram::policy::Offer;
use crate::datagram::state::Datagrams;
use crate::datagram::wire::{Data, Half, PacketWriter, data_head_len};
use crate::{Class, Event, Instant, PathId};
use std::time::Duration;

/// Most flows that may refuse a path before it sends something else or nothing.
const MOST_REFUSALS: u32 = 16;

/// Datagrams of calls are worth a second attempt while they are younger than this ...
const RESCUE_CALLS: Duration = Duration::from_millis(200);

/// ... and those of interactive flows while they are younger than this.
const RESCUE_INTERACTIVE: Duration = Duration::from_millis(500);

/// What became of a flow's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// It sent this many bytes.
    Sent(usize),
    /// It has nothing for the path.
    Empty,
    /// Its policy prefers another path now.
    Refused,
    /// Its datagram does not fit the rest of the packet.
    Full,
}

/// What a flow sends next on a path.
struct Next {
    sequence: u64,
    half: Option<Half>,
    payload: Bytes,
    at: Instant,
    kind: Option<CopyKind>,
}

impl Datagrams {
    /// Appends datagrams to the packet until it is full or no flow has any for this path. Returns
    /// whether it has appended something.
    pub(super) fn write_datagrams(
        &mut self,
        id: PathId,
        writer: &mut PacketWriter<'_>,
        now: Instant,
    ) -> bool {
        let mut refusals = 0;
        let mut has_written = false;
        while let Some(path) = self.paths.get_mut(id)
            && let Some((at, list)) = path.rounds.front()
        {
            let quantum = path.max_packet() as i64;
            let Some(lane) = self.flows.get_mut(at).and_then(|flow| flow.find_lane(id)) else {
                path.rounds.pop(list);
                continue;
            };
            if list != Listed::Urgent && lane.deficit <= 0 {
                lane.deficit += quantum;
                self.turn_over(id, at, list, Listed::Old);
                continue;
            }
            match self.turn(id, at, writer, now) {
                Turn::Sent(bytes) => {
                    has_written = true;
                    if let Some(path) = self.paths.get_mut(id) {
                        path.rounds.served(list, bytes);
                    }
                    if let Some(lane) = self.flows.get_mut(at).and_then(|flow| flow.find_lane(id)) {
                        lane.deficit -= bytes as i64;
                    }
                    if list == Listed::Urgent {
                        self.turn_over(id, at, list, Listed::Urgent);
                    }
                }
                // A new flow that is empty must pass the old ones before it is new again.
                Turn::Empty if list == Listed::New && self.has_old(id) => {
                    self.turn_over(id, at, list, Listed::Old);
                }
                Turn::Empty => self.turn_over(id, at, list, Listed::No),
                Turn::Refused => {
                    refusals += 1;
                    self.turn_over(id, at, list, list);
                    if refusals >= MOST_REFUSALS {
                        break;
                    }
                }
                Turn::Full => break,
            }
        }
        has_written
    }

    fn has_old(&self, id: PathId) -> bool {
        self.paths.get(id).is_some_and(|path| path.rounds.has_old())
    }

    /// Moves the flow at turn to the end of a list, or removes it.
    fn turn_over(&mut self, id: PathId, at: FlowRef, from: Listed, to: Listed) {
        if let Some(path) = self.paths.get_mut(id) {
            path.rounds.pop(from);
            path.rounds.push(at, to);
        }
        if let Some(lane) = self.flows.get_mut(at).and_then(|flow| flow.find_lane(id)) {
            lane.listed = to;
        }
    }

    /// Lets a flow send one datagram.
    fn turn(
        &mut self,
        id: PathId,
        at: FlowRef,
        writer: &mut PacketWriter<'_>,
        now: Instant,
    ) -> Turn {
        let (Some(path), Some(flow)) = (self.paths.get(id), self.flows.get_mut(at)) else {
            return Turn::Empty;
        };
        let before = flow.queued_bytes();
        drop_expired(flow, id, now);
        let trip = path.srtt();
        let rules = flow.rules(&self.config, trip);
        let has_copies = flow
            .find_lane(id)
            .is_some_and(|lane| !lane.copies.is_empty());
        let mut head_len = None;
        if !has_copies {
            let head = flow.queue.head(now, &rules, &mut flow.counters.drops);
            head_len = head.map(|head| head.payload.len());
        }
        self.queued_bytes -= before - flow.queued_bytes();
        if let Some(len) = head_len {
            let facts = facts(flow, len, now);
            match flow.policy.offer(&facts, path, &self.paths) {
                Offer::Take => {}
                Offer::Leave => return Turn::Refused,
                Offer::Unlist => return Turn::Empty,
            }
        } else if !has_copies {
            return Turn::Empty;
        }
        self.write_next(id, at, writer, now)
    }

    /// Writes the flow's next datagram, or its first half.
    fn write_next(
        &mut self,
        id: PathId,
        at: FlowRef,
        writer: &mut PacketWriter<'_>,
        now: Instant,
    ) -> Turn {
        let Some(flow) = self.flows.get_mut(at) else {
            return Turn::Empty;
        };
        let next = peek(flow, id);
        let Some((sequence, half, len)) = next else {
            return Turn::Empty;
        };
        let after = order_after(flow, id);
        let open = open_of(flow);
        let head = data_head_len(flow.id, sequence, open.as_ref(), after, half);
        let room = writer.room();
        let mut second = None;
        let mut end = len;
        if head + len > room {
            if !writer.is_empty() {
                return Turn::Full;
            }
            let head = data_head_len(flow.id, sequence, open.as_ref(), after, Some(Half::Second));
            end = len.div_ceil(2);
            if half.is_some() || head + end > room {
                return self.drop_too_big(id, at);
            }
            second = Some(end..len);
        }
        let before = flow.queued_bytes();
        let Some(next) = take(flow, id) else {
            return Turn::Empty;
        };
        let half = second.as_ref().map_or(next.half, |_| Some(Half::First));
        let payload = next.payload.slice(..end);
        writer.data(&Data {
            flow: flow.id,
            sequence,
            open: open_of(flow),
            after,
            half,
            payload: &payload,
        });
        if let Some(rest) = second {
            flow.lane(id).copies.push_front(Copy {
                kind: CopyKind::Fragment,
                sequence,
                half: Some(Half::Second),
                payload: next.payload.slice(rest),
                at: next.at,
                expires: Instant::MAX,
            });
        }
        self.queued_bytes = self.queued_bytes + flow.queued_bytes() - before;
        flow.last_path = Some(id);
        match next.kind {
            None => flow.counters.sent += 1,
            Some(CopyKind::Fragment) => {}
            Some(CopyKind::Duplicate) => flow.counters.copies_sent += 1,
            Some(CopyKind::Rescue) => flow.counters.rescued += 1,
        }
        flow.counters.bytes_sent += payload.len() as u64;
        if !flow.confirmed
            && let Some(path) = self.paths.get_mut(id)
        {
            path.sent.attach(Item::Open(at));
        }
        let young = Young {
            flow: at,
            sequence,
            half,
            payload,
            at: next.at,
            expires: next.at,
        };
        self.remember(id, young, now);
        Turn::Sent(head + end)
    }

    /// Keeps a datagram for a second attempt if its class and the number of paths make one
    /// worthwhile.
    fn remember(&mut self, id: PathId, young: Young, now: Instant) {
        let several = self.paths.len() > 1;
        let Some(flow) = self.flows.get(young.flow).filter(|_| several) else {
            return;
        };
        let within = match flow.treated_as() {
            Class::Conversational => RESCUE_CALLS,
            Class::Interactive => RESCUE_INTERACTIVE,
            Class::Streaming | Class::Background => return,
        };
        let expires = young.at + within;
        if expires > now
            && let Some(path) = self.paths.get_mut(id)
        {
            path.sent.attach(Item::Datagram(Young { expires, ..young }));
        }
    }

    /// The flow's next datagram fits no packet of this path, not even in two parts.
    fn drop_too_big(&mut self, id: PathId, at: FlowRef) -> Turn {
        let Some(flow) = self.flows.get_mut(at) else {
            return Turn::Empty;
        };
        let before = flow.queued_bytes();
        take(flow, id);
        flow.counters.too_big += 1;
        self.queued_bytes -= before - flow.queued_bytes();
        let (flow, code) = (flow.id, FlowErrorCode::TooBig);
        self.events.push_back(Event::FlowFailed { flow, code });
        Turn::Sent(0)
    }
}

/// Drops copies that are worthless by now.
fn drop_expired(flow: &mut Flow, id: PathId, now: Instant) {
    let mut dropped = 0;
    if let Some(lane) = flow.find_lane(id) {
        while lane.copies.front().is_some_and(|copy| copy.expires <= now) {
            lane.copies.pop_front();
            dropped += 1;
        }
    }
    flow.counters.drops.late += dropped;
}

/// Sequence number, half and length of what the flow sends next.
fn peek(flow: &mut Flow, id: PathId) -> Option<(u64, Option<Half>, usize)> {
    let sequence = flow.next_sequence;
    let lane = flow.find_lane(id)?;
    if let Some(copy) = lane.copies.front() {
        return Some((copy.sequence, copy.half, copy.payload.len()));
    }
    let len = flow.queue.first_len()?;
    Some((sequence, None, len))
}

/// Takes what the flow sends next.
fn take(flow: &mut Flow, id: PathId) -> Option<Next> {
    if let Some(copy) = flow.find_lane(id)?.copies.pop_front() {
        return Some(Next {
            sequence: copy.sequence,
            half: copy.half,
            payload: copy.payload,
            at: copy.at,
            kind: Some(copy.kind),
        });
    }
    let head = flow.queue.pop()?;
    let sequence = flow.next_sequence;
    flow.next_sequence += 1;
    Some(Next {
        sequence,
        half: None,
        payload: head.payload,
        at: head.at,
        kind: None,
    })
}

/// The path of the preceding datagram, if the receiver is to wait for it.
fn order_after(flow: &Flow, id: PathId) -> Option<u64> {
    let last = flow.last_path.filter(|last| *last != id)?;
    (!flow.is_conversational()).then_some(u64::from(last.0))
}
