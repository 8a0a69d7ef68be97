//! The turns of flows: fills a packet with datagrams.

use std::time::Duration;

use bytes::Bytes;

use super::enqueue::{facts, max_part, open_of};
use super::split::{Space, split};
use crate::datagram::FlowErrorCode;
use crate::datagram::flow::Flow;
use crate::datagram::flow::lane::{Copy, CopyKind, Lane, Listed};
use crate::datagram::flow::table::FlowRef;
use crate::datagram::path::DatagramPath;
use crate::datagram::path::sent::{Item, Young};
use crate::datagram::policy::{DatagramPolicy, Offer};
use crate::datagram::state::Datagrams;
use crate::datagram::wire::{Data, Half, PacketWriter, data_head_len};
use crate::{Class, Event, Instant, PathId};

/// Most flows that may refuse a path before it sends something else or nothing.
const MAX_REFUSALS: usize = 16;

/// A flow that prefers another path is asked again after this time.
const RECHECK: Duration = Duration::from_millis(1);

/// Datagrams mention the other path of their flow as long as fewer than this many have followed the
/// change, so that a single loss does not hide it.
const MENTIONS: u8 = 3;

/// Datagrams of calls are worth a second attempt while they are younger than this ...
const RESCUE_CALLS: Duration = Duration::from_millis(200);

/// ... and those of interactive flows while they are younger than this.
const RESCUE_INTERACTIVE: Duration = Duration::from_millis(500);

/// Datagrams of a flow over several paths are worth a repair for this long after they were sent.
/// The receiver waits for at most [`reorder_wait`](crate::DatagramConfig::reorder_wait), which has
/// this value by default.
const REPAIR: Duration = Duration::from_millis(400);

/// A bulk flow on one lossy path, which is repaired as well, mentions its path at this interval.
const MENTION_INTERVAL: Duration = Duration::from_millis(100);

/// What became of a flow's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// It has sent this many bytes.
    Sent(usize),
    /// It has nothing for the path.
    Empty,
    /// It has something, but not for this path any more.
    Elsewhere,
    /// Its policy prefers another path now.
    Refused,
    /// Its datagram does not fit the rest of the packet.
    Full,
}

/// The next packet of a flow on a path.
#[derive(Debug)]
struct Next {
    sequence: u64,
    half: Option<Half>,
    payload: Bytes,
    at: Instant,
    expires: Instant,
    /// None for a datagram of the queue.
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
        let (mut has_written, mut moves) = (false, 0);
        // Flows that leave their datagrams to another path, until the end of this packet.
        let mut refusals: Vec<(FlowRef, Listed)> = Vec::new();
        while let Some(path) = self.paths.get(id)
            && let Some((at, list)) = path.rounds.front()
        {
            let (quantum, has_old) = (path.quantum(), path.rounds.has_old());
            let Some(lane) = self.lane(at, id) else {
                // The flow has ended.
                self.turn_over(id, at, list, Listed::No);
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
                    self.note_served(id, at, list, bytes);
                    if list == Listed::Urgent {
                        self.turn_over(id, at, list, Listed::Urgent);
                    }
                }
                // A new flow that is empty must pass the old ones before it is new again.
                Turn::Empty if list == Listed::New && has_old => {
                    self.turn_over(id, at, list, Listed::Old);
                }
                Turn::Empty => self.turn_over(id, at, list, Listed::No),
                Turn::Elsewhere => {
                    self.turn_over(id, at, list, Listed::No);
                    self.place_queue(at, now);
                    moves += 1;
                }
                Turn::Refused => {
                    self.recheck_at.get_or_insert(now + RECHECK);
                    self.turn_over(id, at, list, Listed::No);
                    refusals.push((at, list));
                }
                Turn::Full => break,
            }
            if refusals.len() + moves >= MAX_REFUSALS {
                break;
            }
        }
        for (at, list) in refusals {
            self.list_again(id, at, list);
        }
        has_written
    }

    fn lane(&mut self, at: FlowRef, id: PathId) -> Option<&mut Lane> {
        self.flows.get_mut(at)?.find_lane(id)
    }

    fn note_served(&mut self, id: PathId, at: FlowRef, list: Listed, bytes: usize) {
        if let Some(path) = self.paths.get_mut(id) {
            path.rounds.served(list, bytes);
        }
        if let Some(lane) = self.lane(at, id) {
            lane.deficit -= bytes as i64;
        }
    }

    /// Moves the flow at turn to the end of a list, or removes it.
    fn turn_over(&mut self, id: PathId, at: FlowRef, from: Listed, to: Listed) {
        if let Some(path) = self.paths.get_mut(id) {
            path.rounds.pop(from);
            path.rounds.push(at, to);
        }
        if let Some(lane) = self.lane(at, id) {
            lane.listed = to;
        }
    }

    /// Puts a flow back into a list of a path, unless it is in one again.
    fn list_again(&mut self, id: PathId, at: FlowRef, list: Listed) {
        if let Some(lane) = self.lane(at, id)
            && lane.listed == Listed::No
        {
            lane.listed = list;
            if let Some(path) = self.paths.get_mut(id) {
                path.rounds.push(at, list);
            }
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
        let has_copies = has_copies(flow, id, now);
        let mut offer = Offer::Take;
        if !has_copies {
            let rules = flow.rules(&self.config, path.srtt(), &self.paths, now);
            let drops = &mut flow.counters.drops;
            let head = flow.queue.head(now, &rules, drops);
            offer = match head.map(|head| head.payload.len()) {
                None => Offer::Unlist,
                Some(len) => {
                    let facts = facts(flow, len, now);
                    flow.policy.offer(&facts, path, &self.paths)
                }
            };
        }
        self.queued_bytes -= before - flow.queued_bytes();
        let is_empty = flow.queue.is_empty();
        match offer {
            Offer::Take => self.write_next(id, at, 0, writer, now),
            Offer::Behind(bytes) => self.write_next(id, at, bytes, writer, now),
            Offer::Leave => Turn::Refused,
            Offer::Unlist if is_empty => Turn::Empty,
            Offer::Unlist => Turn::Elsewhere,
        }
    }

    /// Writes the flow's next datagram that has `behind` bytes before it, or its first part.
    fn write_next(
        &mut self,
        id: PathId,
        at: FlowRef,
        behind: usize,
        writer: &mut PacketWriter<'_>,
        now: Instant,
    ) -> Turn {
        let smallest = self.paths.min_packet().unwrap_or(usize::MAX);
        let Some(flow) = self.flows.get_mut(at) else {
            return Turn::Empty;
        };
        let before = flow.queued_bytes();
        let Some(mut next) = take(flow, id, behind) else {
            return if flow.queue.is_empty() {
                Turn::Empty
            } else {
                Turn::Refused
            };
        };
        // Copies may arrive out of order.
        let is_ordered = matches!(next.kind, None | Some(CopyKind::Fragment));
        let path = self.paths.get(id).filter(|_| is_ordered);
        let after = path.and_then(|path| mention(flow, path, now));
        let mut data = Data {
            flow: flow.id,
            sequence: next.sequence,
            open: open_of(flow),
            after: after.map(|path| u64::from(path.0)),
            half: next.half,
            payload: &next.payload,
        };
        let mut rest = None;
        let head = head_len(&data);
        if head + data.payload.len() > writer.space() {
            let space = Space {
                // The field of the half takes a byte.
                here: writer.space().saturating_sub(head + 1),
                is_empty: writer.is_empty(),
                anywhere: max_part(flow, smallest),
            };
            let whole = next.half.is_none();
            match split(data.payload.len(), &space).filter(|_| whole) {
                Some(first) => {
                    data.half = Some(Half::First);
                    data.payload = &next.payload[..first];
                    rest = Some(next.payload.slice(first..));
                }
                None if space.is_empty => {
                    self.queued_bytes -= before - flow.queued_bytes();
                    self.move_too_big(id, at, next);
                    return Turn::Sent(0);
                }
                None => {
                    put_back(flow, id, next);
                    return Turn::Full;
                }
            }
        }
        writer.data(&data);
        let len = head_len(&data) + data.payload.len();
        if after.is_some() {
            flow.mentioned_at = Some(now);
        }
        if let Some(rest) = rest {
            next.half = Some(Half::First);
            next.payload.truncate(next.payload.len() - rest.len());
            let offset = next.payload.len() as u64;
            flow.lane(id).push_first(Copy {
                kind: next.kind.unwrap_or(CopyKind::Fragment),
                sequence: next.sequence,
                half: Some(Half::Second { offset }),
                payload: rest,
                at: next.at,
                expires: next.expires,
            });
        }
        self.queued_bytes = self.queued_bytes + flow.queued_bytes() - before;
        if is_ordered {
            note_path(flow, id);
        }
        flow.lane(id).used = Some(now);
        let counters = &mut flow.counters;
        // Both halves of a datagram count as one.
        let is_second = matches!(next.half, Some(Half::Second { .. }));
        match next.kind.filter(|_| !is_second) {
            None if is_second => {}
            None | Some(CopyKind::Single) => counters.sent += 1,
            Some(CopyKind::Duplicate) => {
                counters.copies_sent += 1;
                match flow.fates.leave(next.sequence) {
                    true => counters.sent += 1,
                    false => counters.bytes_repeated += next.payload.len() as u64,
                }
            }
            Some(CopyKind::Rescue) => {
                counters.rescued += 1;
                counters.bytes_repeated += next.payload.len() as u64;
            }
            Some(CopyKind::Fragment) => {}
        }
        counters.bytes_sent += next.payload.len() as u64;
        self.note_sent(id, at, next, now);
        Turn::Sent(len)
    }

    /// A datagram fits no packet of this path, not even in two parts, because the path's packets
    /// have become smaller or other paths have larger ones. The path with the largest gets it.
    fn move_too_big(&mut self, id: PathId, at: FlowRef, next: Next) {
        let Some(flow) = self.flows.get_mut(at) else {
            return;
        };
        // The datagram has been sent in part.
        let is_second = matches!(next.half, Some(Half::Second { .. }));
        if next.kind == Some(CopyKind::Duplicate) {
            // The other link has a copy.
            let lost = !is_second && flow.fates.drop(next.sequence);
            flow.counters.too_big += u64::from(lost);
            return;
        }
        let here = self.paths.get(id).map(DatagramPath::max_packet);
        let larger = self
            .paths
            .usable()
            .filter(|path| Some(path.max_packet()) > here);
        let Some(other) = larger.max_by_key(|path| path.max_packet()) else {
            // A copy of it may have been sent.
            let is_unsent = !is_second && matches!(next.kind, None | Some(CopyKind::Single));
            flow.counters.too_big += u64::from(is_unsent);
            let (flow, code) = (flow.id, FlowErrorCode::TooBig);
            self.events.push_back(Event::FlowFailed { flow, code });
            return;
        };
        let (other, limit) = (other.id, self.config.queue(flow.treated_as()).bytes);
        let copy = Copy {
            kind: next.kind.unwrap_or(CopyKind::Single),
            sequence: next.sequence,
            half: next.half,
            payload: next.payload,
            at: next.at,
            expires: next.expires,
        };
        self.push_copy(at, other, copy, limit);
    }

    /// Records the packet until it is reported or lost.
    fn note_sent(&mut self, id: PathId, at: FlowRef, next: Next, now: Instant) {
        let several = self.paths.len() > 1;
        let (Some(flow), Some(path)) = (self.flows.get(at), self.paths.get_mut(id)) else {
            return;
        };
        if !flow.confirmed {
            path.sent.attach(Item::Open(at), now);
        }
        if flow.is_conversational() {
            path.called_at = Some(now);
        }
        if next.kind.is_none() {
            path.note_wait(now.saturating_sub(next.at), now);
        }
        let is_repaired = flow.is_repaired(now);
        let worth_until = match flow.treated_as() {
            Class::Conversational => next.at + RESCUE_CALLS,
            Class::Interactive => next.at + RESCUE_INTERACTIVE,
            Class::Streaming | Class::Background => Instant::ZERO,
        };
        let repairable_until = match is_repaired {
            true if next.expires == Instant::MAX => now + REPAIR,
            // A repair does not last longer than the datagram.
            true => next.expires,
            false => Instant::ZERO,
        };
        let expires = worth_until.max(repairable_until);
        // The other link has a copy of a duplicate already.
        if (several || is_repaired) && expires > now && next.kind != Some(CopyKind::Duplicate) {
            let young = Young {
                flow: at,
                sequence: next.sequence,
                half: next.half,
                payload: next.payload,
                at: next.at,
                expires,
                is_repaired,
            };
            path.sent.attach(Item::Datagram(young), now);
        }
    }
}

/// Whether the flow has copies for a path, after those that are worthless by now.
fn has_copies(flow: &mut Flow, id: PathId, now: Instant) -> bool {
    let mut dropped = Vec::new();
    let has_copies = flow.find_lane(id).is_some_and(|lane| {
        while lane.first().is_some_and(|copy| copy.expires <= now) {
            dropped.extend(lane.pop());
        }
        lane.first().is_some()
    });
    let lost = flow.lost_with(dropped);
    flow.counters.drops.late += lost;
    has_copies
}

/// Takes the next datagram of the flow that has `behind` bytes before it.
fn take(flow: &mut Flow, id: PathId, behind: usize) -> Option<Next> {
    if let Some(copy) = flow.find_lane(id)?.pop() {
        return Some(Next {
            sequence: copy.sequence,
            half: copy.half,
            payload: copy.payload,
            at: copy.at,
            expires: copy.expires,
            kind: Some(copy.kind),
        });
    }
    let head = match behind {
        0 => flow.queue.pop()?,
        _ => flow.queue.pop_behind(behind, &mut flow.next_sequence)?,
    };
    let sequence = head.sequence.unwrap_or(flow.next_sequence);
    if head.sequence.is_none() {
        flow.next_sequence += 1;
    }
    Some(Next {
        sequence,
        half: None,
        payload: head.payload,
        at: head.at,
        expires: Instant::MAX,
        kind: None,
    })
}

/// Undoes [`take`].
fn put_back(flow: &mut Flow, id: PathId, next: Next) {
    match next.kind {
        None => flow.queue.put_back(next.payload, next.at, next.sequence),
        Some(kind) => flow.lane(id).push_first(Copy {
            kind,
            sequence: next.sequence,
            half: next.half,
            payload: next.payload,
            at: next.at,
            expires: next.expires,
        }),
    }
}

fn head_len(data: &Data<'_>) -> usize {
    let open = data.open.as_ref();
    data_head_len(data.flow, data.sequence, open, data.after, data.half)
}

/// The path that a datagram mentions, so that the receiver keeps the order and waits for repairs:
/// another one that the flow has just used, or its only one if that loses packets.
fn mention(flow: &Flow, path: &DatagramPath, now: Instant) -> Option<PathId> {
    other_path(flow, path.id).or(is_repaired_alone(flow, path, now).then_some(path.id))
}

/// Whether a flow on one path mentions this path now, because losses on it are to be repaired.
fn is_repaired_alone(flow: &Flow, path: &DatagramPath, now: Instant) -> bool {
    let is_due = flow
        .mentioned_at
        .is_none_or(|at| now.saturating_sub(at) >= MENTION_INTERVAL);
    // `pinned` and `duplicate` add no waiting.
    let may_wait = matches!(
        flow.configured,
        DatagramPolicy::Auto | DatagramPolicy::Spread
    );
    let is_bulk = || flow.treated_as() == Class::Background;
    is_due
        && may_wait
        && path.repairs_within(REPAIR)
        && (flow.begins_bulk(now) || is_bulk() && path.is_lossy(now))
}

/// The other path that the flow has just used, if the receiver is to wait for it.
fn other_path(flow: &Flow, id: PathId) -> Option<PathId> {
    if flow.is_conversational() {
        return None;
    }
    match flow.last_path {
        Some(last) if last != id => Some(last),
        _ => flow.other_path.filter(|_| flow.mentions > 0),
    }
}

/// Records the path of a datagram.
fn note_path(flow: &mut Flow, id: PathId) {
    match flow.last_path.replace(id) {
        Some(last) if last != id => {
            flow.other_path = Some(last);
            flow.mentions = MENTIONS - 1;
        }
        _ => flow.mentions = flow.mentions.saturating_sub(1),
    }
}
