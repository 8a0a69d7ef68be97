//! Datagrams and records that were on their way over a path that does not deliver.

use crate::datagram::flow::lane::{Copy, CopyKind, Listed};
use crate::datagram::flow::table::FlowRef;
use crate::datagram::path::DatagramPath;
use crate::datagram::path::sent::{Item, Young};
use crate::datagram::policy::Placement;
use crate::datagram::state::Datagrams;
use crate::{Instant, PathId};

use super::enqueue::facts;

impl Datagrams {
    /// A path has just become suspect: its flows move, and what may be lost on it and is still
    /// worth it goes over the others.
    pub(in crate::datagram) fn doubt(&mut self, id: PathId, now: Instant) {
        let Some(path) = self.paths.get_mut(id) else {
            return;
        };
        path.counters.times_suspect += 1;
        let listed = path.rounds.take();
        let items = path.sent.take_items(|item| !matches!(item, Item::Open(_)));
        self.paths.review(now);
        for at in listed {
            self.place_again(at, id, now);
        }
        self.settle_lost(items, Some(id), now);
    }

    /// A path has ended.
    pub(in crate::datagram) fn leave(&mut self, mut path: DatagramPath, now: Instant) {
        for at in path.rounds.take() {
            self.place_again(at, path.id, now);
        }
        let items = path.sent.take_items(|_| true);
        self.settle_lost(items, Some(path.id), now);
    }

    /// Flows that could not be placed because there was no path get one.
    pub(in crate::datagram) fn place_unlisted(&mut self, now: Instant) {
        if self.queued_bytes == 0 {
            return;
        }
        let waiting: Vec<FlowRef> = self.flows.refs().collect();
        for at in waiting {
            let Some(flow) = self.flows.get_mut(at) else {
                continue;
            };
            let is_listed = flow.lanes.iter().any(|lane| lane.listed != Listed::No);
            if !flow.queue.is_empty() && !is_listed {
                let facts = facts(flow, 0, now);
                let placement = flow.policy.place(&facts, &self.paths);
                self.list(at, placement);
            }
        }
    }

    /// Repeats control records that are unreported on a path that is being probed.
    pub(super) fn repeat_controls(&mut self, id: PathId, now: Instant) {
        let Some(path) = self.paths.get_mut(id) else {
            return;
        };
        let unreported = match path.health.is_good() {
            true => Vec::new(),
            false => path
                .sent
                .take_items(|item| matches!(item, Item::Control(_))),
        };
        self.settle_lost(unreported, None, now);
    }

    /// Items that may not have arrived; with `left`, because that path does not deliver any more.
    pub(in crate::datagram) fn settle_lost(
        &mut self,
        items: Vec<Item>,
        left: Option<PathId>,
        now: Instant,
    ) {
        for item in items {
            match item {
                Item::Control(pending) => self.controls.repeat(pending, now),
                Item::Datagram(young) => {
                    if let Some(left) = left {
                        self.rescue(young, left, now);
                    }
                }
                Item::Open(_) => {}
            }
        }
    }

    fn rescue(&mut self, young: Young, left: PathId, now: Instant) {
        let Some(flow) = self
            .flows
            .get_mut(young.flow)
            .filter(|_| young.expires > now)
        else {
            return;
        };
        let limit = self.config.queue(flow.treated_as()).bytes;
        let facts = facts(flow, young.payload.len(), now);
        let path = match flow.policy.place(&facts, &self.paths) {
            Placement::One(path) => Some(path).filter(|path| *path != left),
            Placement::Any => {
                let others = self.paths.main().filter(|path| path.id != left);
                others.min_by_key(|path| path.delay).map(|path| path.id)
            }
            // The other link has a copy already.
            Placement::Each(_) | Placement::Nowhere => None,
        };
        if let Some(path) = path {
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

    /// A flow loses its turn on a path and gets one where its policy wants it now.
    fn place_again(&mut self, at: FlowRef, id: PathId, now: Instant) {
        let Some(flow) = self.flows.get_mut(at) else {
            return;
        };
        let facts = facts(flow, flow.queue.first_len().unwrap_or(0), now);
        let placement = flow.policy.place(&facts, &self.paths);
        let Some(lane) = flow.find_lane(id) else {
            return;
        };
        lane.listed = Listed::No;
        let copies: Vec<Copy> = lane.copies.drain(..).collect();
        let bytes = |copy: &Copy| crate::datagram::flow::queue::cost(&copy.payload);
        self.queued_bytes -= copies.iter().map(bytes).sum::<usize>();
        let is_gone = self.paths.get(id).is_none();
        let limit = self.config.queue(flow.treated_as()).bytes;
        for copy in copies {
            let path = match (copy.kind, placement) {
                // The other links have their own copies.
                (CopyKind::Duplicate, _) => (!is_gone).then_some(id),
                (_, Placement::One(path)) => Some(path),
                _ => self.paths.main().next().map(|path| path.id),
            };
            if let Some(path) = path {
                self.push_copy(at, path, copy, limit);
            }
        }
        self.list(at, placement);
    }
}
