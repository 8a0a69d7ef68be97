//! The datagram half of a session, and its operations.

mod snapshot;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use super::control::{Control, Controls};
use super::flow::table::{FlowRef, FlowTable};
use super::flow::{Flow, FlowConfig};
use super::path::{DatagramPath, Paths, SenderClock};
use super::receive::{Deliveries, Fragments};
use super::stats::DatagramStats;
use super::wire::MAX_TARGET;
use super::{
    CloseReason, DatagramCarrier, DatagramConfig, DatagramSample, FlowError, FlowErrorCode, FlowId,
};
use crate::policy::{PathPolicy, PeerPolicy};
use crate::{Class, Event, Instant, PathId, Role, varint};

/// Most flows that are remembered after their end, so that late datagrams do not bring them back.
const MAX_ENDED: usize = 8192;

/// A peer that sends in a flow for longer than this after its end does not know of it.
const SETTLES: Duration = Duration::from_secs(2);

/// A call counts as over after a pause of this length.
const CALL_PAUSE: Duration = Duration::from_secs(2);

/// The datagrams of a session.
#[derive(Debug)]
pub(crate) struct Datagrams {
    pub(super) config: DatagramConfig,
    pub(super) role: Role,
    pub(super) flows: FlowTable,
    pub(super) paths: Paths,
    pub(super) controls: Controls,
    pub(super) fragments: Fragments,
    pub(super) clock: SenderClock,
    /// Index of the next flow that this side opens.
    next_flow: u64,
    /// Flows that have ended, and when the peer was last informed; the oldest first in
    /// `ended_order`.
    ended: BTreeMap<FlowId, Instant>,
    ended_order: VecDeque<FlowId>,
    pub(super) events: VecDeque<Event>,
    pub(super) deliveries: Deliveries,
    /// Bytes in the queues of all flows.
    pub(super) queued_bytes: usize,
    /// When a flow last carried a datagram, and when one of a call did.
    pub(super) active_at: Option<Instant>,
    pub(super) called_at: Option<Instant>,
    /// A packet has arrived from the peer.
    pub(super) peer_speaks: bool,
    /// When the first datagram left for a peer that has not answered.
    pub(super) asked_at: Option<Instant>,
    /// When a flow that has refused a path is asked again.
    pub(super) recheck_at: Option<Instant>,
    /// The latest time that any caller has passed.
    pub(super) handled: Instant,
    pub(super) counters: DatagramStats,
}

impl Datagrams {
    pub(crate) fn new(role: Role, config: DatagramConfig) -> Self {
        Self {
            config,
            role,
            flows: FlowTable::default(),
            paths: Paths::default(),
            controls: Controls::default(),
            fragments: Fragments::default(),
            clock: SenderClock::default(),
            next_flow: 0,
            ended: BTreeMap::new(),
            ended_order: VecDeque::new(),
            events: VecDeque::new(),
            deliveries: Deliveries::default(),
            queued_bytes: 0,
            active_at: None,
            called_at: None,
            peer_speaks: false,
            asked_at: None,
            recheck_at: None,
            handled: Instant::ZERO,
            counters: DatagramStats::default(),
        }
    }

    /// The session has ended: everything is dropped.
    pub(crate) fn end(&mut self) {
        let (config, counters) = (self.config.clone(), self.counters.clone());
        *self = Self {
            counters,
            ..Self::new(self.role, config)
        };
    }

    pub(crate) fn open_flow(
        &mut self,
        config: FlowConfig,
        now: Instant,
    ) -> Result<FlowId, FlowError> {
        if config.target.len() > MAX_TARGET {
            return Err(FlowError::TargetTooLong);
        }
        if config.source > varint::MAX {
            return Err(FlowError::Source);
        }
        if self.is_peer_silent(now) {
            return Err(FlowError::PeerWithoutDatagrams);
        }
        if !self.make_room(now) {
            return Err(FlowError::NoMoreFlows);
        }
        let id = self.next_flow * 2 + u64::from(self.role == Role::Server);
        self.next_flow += 1;
        self.counters.flows_opened += 1;
        let flow = Flow::new(id, config, &self.config, now);
        self.flows.insert(flow, now);
        Ok(id)
    }

    pub(crate) fn close_flow(&mut self, id: FlowId, now: Instant) {
        if let Some(at) = self.flows.find(id) {
            self.end_flow(at, CloseReason::Closed, now);
        }
    }

    pub(crate) fn flow_failed(&mut self, id: FlowId, code: FlowErrorCode, now: Instant) {
        let at = self.flows.find(id);
        if let Some(flow) = at.and_then(|at| self.flows.get_mut(at)) {
            flow.failures_sent += 1;
            let (flow, version) = (id, flow.failures_sent);
            let control = Control::Failed {
                flow,
                version,
                code,
            };
            self.controls.push(control, now);
        }
    }

    pub(crate) fn set_class(&mut self, id: FlowId, class: Option<Class>) -> Result<(), FlowError> {
        let at = self.flows.find(id).ok_or(FlowError::Unknown)?;
        let flow = self.flows.get_mut(at).ok_or(FlowError::Unknown)?;
        flow.class = class;
        Ok(())
    }

    pub(crate) fn set_policy(
        &mut self,
        id: FlowId,
        policy: super::DatagramPolicy,
        now: Instant,
    ) -> Result<(), FlowError> {
        let at = self.flows.find(id).ok_or(FlowError::Unknown)?;
        let flow = self.flows.get_mut(at).ok_or(FlowError::Unknown)?;
        flow.policy = policy.start(&self.config);
        self.place_queue(at, now);
        Ok(())
    }

    pub(crate) fn poll_received(&mut self) -> Option<(FlowId, Bytes)> {
        self.deliveries.outbox.pop()
    }

    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(crate) fn path_up(
        &mut self,
        id: PathId,
        carrier: DatagramCarrier,
        link: u64,
        metered: bool,
        now: Instant,
    ) {
        if let Some(path) = self.paths.get_mut(id) {
            path.is_off = false;
            self.review_paths(now);
        } else {
            let path = DatagramPath::new(id, carrier, link, metered, now);
            self.paths.add(path, now);
            if !self.peer_speaks {
                self.asked_at = None;
            }
            self.review_paths(now);
            self.place_unlisted(now);
        }
    }

    pub(crate) fn path_down(&mut self, id: PathId, now: Instant) {
        if let Some(path) = self.paths.remove(id, now) {
            self.leave(path, now);
        }
    }

    /// The owner of the session wants no more datagrams on a path. A stream path stays, because the
    /// peer may still send some, and because its packet numbers continue if it is wanted again.
    pub(crate) fn path_off(&mut self, id: PathId, now: Instant) {
        match self.paths.get_mut(id) {
            Some(path) if path.carrier == DatagramCarrier::Stream => {
                path.is_off = true;
                self.review_paths(now);
            }
            _ => self.path_down(id, now),
        }
    }

    /// The version of the peer's policy for a path, and none if there is no such path.
    pub(crate) fn policy_version(&mut self, id: PathId) -> Option<&mut Option<u64>> {
        self.paths.get_mut(id).map(|path| &mut path.policy_version)
    }

    /// The policy that the peer was sent for a path, and none if there is no such path.
    pub(crate) fn sent_policy(&mut self, id: PathId) -> Option<&mut Option<(u64, PeerPolicy)>> {
        self.paths.get_mut(id).map(|path| &mut path.sent_policy)
    }

    pub(crate) fn path_policy(&mut self, id: PathId, policy: PathPolicy, now: Instant) {
        if let Some(path) = self.paths.get_mut(id)
            && path.policy != policy
        {
            path.policy = policy;
            self.review_paths(now);
        }
    }

    pub(crate) fn path_link(&mut self, id: PathId, link: u64, now: Instant) {
        if let Some(path) = self.paths.get_mut(id) {
            path.link = link;
            self.review_paths(now);
        }
    }

    pub(crate) fn has_path(&self, id: PathId) -> bool {
        self.paths.get(id).is_some()
    }

    pub(crate) fn path_stats(&mut self, id: PathId, sample: DatagramSample, now: Instant) {
        if let Some(path) = self.paths.get_mut(id) {
            path.update(sample);
            self.review_paths(now);
        }
    }

    /// Whether the peer has not answered any datagram for so long that it does not know them.
    pub(super) fn is_peer_silent(&self, now: Instant) -> bool {
        !self.peer_speaks
            && self
                .asked_at
                .is_some_and(|at| now >= at + self.config.peer_timeout)
    }

    /// Ends a flow if there are as many as permitted; false if none may end.
    pub(super) fn make_room(&mut self, now: Instant) -> bool {
        while self.flows.len() >= self.config.max_flows {
            let Some(oldest) = self.flows.oldest(now) else {
                return false;
            };
            self.counters.flows_evicted += 1;
            if let Some(id) = self.end_flow(oldest, CloseReason::Evicted, now) {
                let reason = CloseReason::Evicted;
                self.events
                    .push_back(Event::FlowClosed { flow: id, reason });
            }
        }
        true
    }

    /// Ends a flow and informs the peer, unless it knows.
    pub(super) fn end_flow(
        &mut self,
        at: FlowRef,
        reason: CloseReason,
        now: Instant,
    ) -> Option<FlowId> {
        let id = self.forget_flow(at, now)?;
        self.controls.push(Control::Close { flow: id, reason }, now);
        Some(id)
    }

    /// Ends a flow on this side.
    pub(super) fn forget_flow(&mut self, at: FlowRef, now: Instant) -> Option<FlowId> {
        let flow = self.flows.remove(at)?;
        self.queued_bytes -= flow.queued_bytes();
        self.drop_held(at, &flow);
        self.note_ended(flow.id, now);
        Some(flow.id)
    }

    /// Remembers that a flow has ended.
    pub(super) fn note_ended(&mut self, id: FlowId, now: Instant) {
        if self.ended.insert(id, now).is_none() {
            self.ended_order.push_back(id);
        }
        if self.ended_order.len() > MAX_ENDED
            && let Some(oldest) = self.ended_order.pop_front()
        {
            self.ended.remove(&oldest);
        }
    }

    /// Whether a flow has ended so recently that the peer may not know it yet.
    pub(super) fn has_just_ended(&self, id: FlowId, now: Instant) -> bool {
        self.ended.get(&id).is_some_and(|at| now < *at + SETTLES)
    }

    /// Whether a flow is remembered as one that has ended.
    pub(super) fn has_ended(&self, id: FlowId) -> bool {
        self.ended.contains_key(&id)
    }

    /// Whether any link may carry a call. False is reliable.
    pub(crate) fn has_calls(&self, now: Instant) -> bool {
        let is_recent = |at| now.saturating_sub(at) < CALL_PAUSE;
        self.config.yield_to_calls && self.called_at.is_some_and(is_recent)
    }

    /// Whether a link carries datagrams of a call that this side sends.
    pub(crate) fn carries_call(&self, link: u64, now: Instant) -> bool {
        let is_recent = |at| now.saturating_sub(at) < CALL_PAUSE;
        self.has_calls(now)
            && self
                .paths
                .iter()
                .any(|path| path.link == link && path.called_at.is_some_and(is_recent))
    }

    /// Records that a flow carries datagrams.
    pub(super) fn note_activity(&mut self, at: FlowRef, now: Instant) {
        self.active_at = Some(now);
        if let Some(flow) = self.flows.get_mut(at) {
            flow.note_activity(now);
            if flow.called_at == Some(now) {
                self.called_at = Some(now);
            }
            self.flows.touch(at, now);
        }
    }
}
