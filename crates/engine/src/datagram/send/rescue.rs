//! Flows, datagrams and records on a path that does not carry them any more.

use super::enqueue::facts;
use crate::datagram::DatagramCarrier;
use crate::datagram::flow::lane::{Copy, CopyKind, Lane, Listed};
use crate::datagram::flow::table::FlowRef;
use crate::datagram::path::sent::{Item, Young};
use crate::datagram::path::{DatagramPath, Usage};
use crate::datagram::policy::Placement;
use crate::datagram::state::Datagrams;
use crate::{Instant, PathId};

impl Datagrams {
    /// A path has just become suspect: its flows move, and datagrams that may be lost on it and are
    /// still worth it go over the others.
    pub(in crate::datagram) fn suspect(&mut self, id: PathId, now: Instant) {
        let Some(path) = self.paths.get_mut(id) else {
            return;
        };
        path.counters.times_suspect += 1;
        let (link, carrier) = (path.link, path.carrier);
        let items = path.sent.take_items(|item| !matches!(item, Item::Open(_)));
        if carrier == DatagramCarrier::Quic {
            self.suspect_stand_ins(link, now);
        }
        self.review_paths(now);
        self.settle_lost(items, Some(id), now);
    }

    /// A link that has fallen silent carries no TCP either: the stream paths that stand in for its
    /// QUIC path must first deliver a probe.
    fn suspect_stand_ins(&mut self, link: u64, now: Instant) {
        let mut index = 0;
        while let Some(path) = self.paths.nth_mut(index) {
            index += 1;
            if path.link == link && path.carrier == DatagramCarrier::Stream {
                path.health.suspect(now);
            }
        }
    }

    /// A path has ended.
    pub(in crate::datagram) fn leave(&mut self, mut path: DatagramPath, now: Instant) {
        for at in path.rounds.take() {
            self.place_again(at, path.id, now);
        }
        let items = path.sent.take_items(|_| true);
        self.settle_lost(items, Some(path.id), now);
        self.end_waits_on(path.id, i64::MAX, now);
    }

    /// Finds out which paths carry datagrams now. Flows leave those that do not any more.
    pub(in crate::datagram) fn review_paths(&mut self, now: Instant) {
        let had_paths = self.paths.usable().next().is_some();
        self.paths.review(now);
        let mut index = 0;
        while let Some(path) = self.paths.nth_mut(index) {
            index += 1;
            if path.usage == Usage::None && !path.rounds.is_empty() {
                let id = path.id;
                for at in path.rounds.take() {
                    self.place_again(at, id, now);
                }
            }
        }
        if !had_paths {
            self.place_unlisted(now);
        }
    }

    /// Flows that could not be placed because there was no path get one.
    pub(in crate::datagram) fn place_unlisted(&mut self, now: Instant) {
        if self.queued_bytes == 0 {
            return;
        }
        let all: Vec<FlowRef> = self.flows.refs().collect();
        let is_listed = |lane: &Lane| lane.listed != Listed::No;
        for at in all {
            let flow = self.flows.get(at);
            if flow.is_some_and(|flow| !flow.lanes.iter().any(is_listed)) {
                self.place_queue(at, now);
            }
        }
    }

    /// Repeats control records that are unreported on a suspect path, which is being probed.
    pub(super) fn repeat_controls(&mut self, id: PathId, now: Instant) {
        if let Some(path) = self.paths.get_mut(id)
            && !path.health.is_good()
        {
            let is_control = |item: &Item| matches!(item, Item::Control(_));
            let unreported = path.sent.take_items(is_control);
            self.settle_lost(unreported, None, now);
        }
    }

    /// Items that may not have arrived; with `left`, because that path does not deliver any more.
    pub(in crate::datagram) fn settle_lost(
        &mut self,
        items: Vec<Item>,
        left: Option<PathId>,
        now: Instant,
    ) {
        for item in items {
            match (item, left) {
                (Item::Control(pending), _) => self.controls.repeat(pending, now),
                (Item::Datagram(young), Some(_)) => self.rescue(young, left, now),
                (Item::Datagram(young), None) if young.is_repaired => self.rescue(young, None, now),
                _ => {}
            }
        }
        self.shed();
    }

    /// Sends a datagram once more over the path with the least delay, except `left`.
    fn rescue(&mut self, young: Young, left: Option<PathId>, now: Instant) {
        let Some(flow) = self.flows.get(young.flow).filter(|_| young.expires > now) else {
            return;
        };
        let limit = self.config.queue(flow.treated_as()).bytes;
        let others = self.paths.main().filter(|path| Some(path.id) != left);
        let best = others.min_by_key(|path| (path.delay_with_loss(), path.id));
        let best = best.filter(|path| now + path.delay < young.expires);
        if let Some(path) = best.map(|path| path.id) {
            let copy = Copy {
                kind: CopyKind::Rescue,
                sequence: young.sequence,
                half: young.half,
                payload: young.payload,
                at: young.at,
                expires: young.expires,
            };
            self.push_copy(young.flow, path, copy, limit);
        }
    }

    /// A flow has lost its turn on a path and gets one where its policy wants it now.
    fn place_again(&mut self, at: FlowRef, id: PathId, now: Instant) {
        let Some(flow) = self.flows.get_mut(at) else {
            return;
        };
        let facts = facts(flow, flow.queue.first_len().unwrap_or(0), now);
        let placement = flow.policy.place(&facts, &self.paths);
        let limit = self.config.queue(flow.treated_as()).bytes;
        let has_queue = !flow.queue.is_empty();
        let Some(lane) = flow.find_lane(id) else {
            return;
        };
        lane.listed = Listed::No;
        self.queued_bytes -= lane.bytes();
        let copies = lane.take();
        let is_gone = self.paths.get(id).is_none();
        for copy in copies {
            let path = match (copy.kind, placement) {
                // The other links have their own copies.
                (CopyKind::Duplicate, _) if is_gone => None,
                (CopyKind::Duplicate, _) => Some(id),
                (_, Placement::One(path)) => Some(path),
                _ => self.paths.main().next().map(|path| path.id),
            };
            if let Some(path) = path {
                self.push_copy(at, path, copy, limit);
            } else if let Some(flow) = self.flows.get_mut(at) {
                let lost = flow.loses_with(&copy);
                flow.counters.drops.late += u64::from(lost);
            }
        }
        if has_queue {
            self.list(at, placement);
        }
    }
}
