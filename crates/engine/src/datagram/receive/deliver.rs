//! From datagrams to the program: each once, and in order where a flow uses several paths.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::order::{Arrival, Order};
use super::{Outbox, Wait};
use crate::datagram::flow::Flow;
use crate::datagram::flow::table::FlowRef;
use crate::datagram::state::Datagrams;
use crate::{Instant, PathId};

/// Received datagrams that wait, and their flows.
#[derive(Debug, Default)]
pub(in crate::datagram) struct Deliveries {
    pub(in crate::datagram) outbox: Outbox,
    /// Memory of datagrams that wait for earlier ones, of all flows.
    pub(in crate::datagram) held_bytes: usize,
    /// Flows that wait for a packet on a path that was sent after a time.
    waits: BTreeSet<(PathId, i64, FlowRef)>,
    /// When their waits end.
    ends: BTreeSet<(Instant, FlowRef)>,
}

impl Deliveries {
    /// When the first wait ends.
    pub(in crate::datagram) fn next_end(&self) -> Option<Instant> {
        self.ends.first().map(|(at, _)| *at)
    }

    /// A flow that need not wait any more for a packet on this path.
    fn passed(&self, path: PathId, newest: i64) -> Option<FlowRef> {
        let from = (path, i64::MIN, FlowRef::FIRST);
        let first = self.waits.range(from..).next();
        let passed = first.filter(|(on, sent_at, _)| *on == path && *sent_at < newest);
        passed.map(|(_, _, flow)| *flow)
    }

    fn register(&mut self, at: FlowRef, wait: Wait) {
        self.waits.insert((wait.path, wait.sent_at, at));
        self.ends.insert((wait.until, at));
    }

    fn unregister(&mut self, at: FlowRef, wait: Wait) {
        self.waits.remove(&(wait.path, wait.sent_at, at));
        self.ends.remove(&(wait.until, at));
    }
}

impl Datagrams {
    /// The sender of a flow wants its order restored, and has shortly before used the path `after`.
    pub(super) fn on_mention(&mut self, at: FlowRef, after: PathId, now: Instant) {
        let Some(flow) = self.flows.get_mut(at) else {
            return;
        };
        let next = flow.inbound.window.next();
        let order = &mut flow.inbound.order;
        let order = order.get_or_insert_with(|| Box::new(Order::new(next, now)));
        // Paths that do not exist here bring nothing, and would only take memory.
        let after = Some(after).filter(|path| self.paths.get(*path).is_some());
        order.mention(after, now);
    }

    /// A whole datagram that has not arrived before.
    pub(super) fn on_arrival(&mut self, at: FlowRef, arrival: Arrival) {
        let now = arrival.at;
        let Some(flow) = self.flows.get_mut(at) else {
            return;
        };
        flow.inbound.window.insert(arrival.sequence);
        flow.counters.received += 1;
        flow.counters.bytes_received += arrival.payload.len() as u64;
        let Some(order) = &mut flow.inbound.order else {
            let limit = self.config.receive_memory;
            self.deliveries.outbox.push(flow.id, arrival.payload, limit);
            return;
        };
        let before = order.bytes();
        let (outbox, limit) = (&mut self.deliveries.outbox, self.config.receive_memory);
        let id = flow.id;
        let mut out = |payload: Bytes| outbox.push(id, payload, limit);
        order.add(arrival, &mut out);
        while self.deliveries.held_bytes - before + order.bytes() > self.config.reorder_memory
            && order.bytes() > 0
        {
            order.give_up(&mut out);
        }
        self.deliveries.held_bytes = self.deliveries.held_bytes - before + order.bytes();
        self.advance(at, now);
    }

    /// Delivers the datagrams that are due, and registers the next wait.
    pub(in crate::datagram) fn advance(&mut self, at: FlowRef, now: Instant) {
        let Some(flow) = self.flows.get_mut(at) else {
            return;
        };
        let Some(order) = &mut flow.inbound.order else {
            return;
        };
        let before = order.bytes();
        let (outbox, limit) = (&mut self.deliveries.outbox, self.config.receive_memory);
        let id = flow.id;
        let mut out = |payload: Bytes| outbox.push(id, payload, limit);
        let wait = order.advance(&self.paths, self.config.reorder_wait, now, &mut out);
        self.deliveries.held_bytes = self.deliveries.held_bytes - before + order.bytes();
        let registered = std::mem::replace(&mut order.wait, wait);
        let is_over = order.is_over(now);
        if is_over {
            let (given_up, late) = flow.inbound.given_up_and_late();
            (flow.inbound.given_up, flow.inbound.late) = (given_up, late);
            flow.inbound.order = None;
        }
        if registered != wait {
            if let Some(registered) = registered {
                self.deliveries.unregister(at, registered);
            }
            if let Some(wait) = wait {
                self.deliveries.register(at, wait);
            }
        }
    }

    /// Packets have arrived on a path, which may end waits of any flow.
    pub(in crate::datagram) fn end_waits_on(&mut self, path: PathId, newest: i64, now: Instant) {
        while let Some(at) = self.deliveries.passed(path, newest) {
            self.end_wait(at, now);
        }
    }

    /// Ends the waits that are over.
    pub(in crate::datagram) fn end_due_waits(&mut self, now: Instant) {
        while let Some((until, at)) = self.deliveries.ends.first().copied()
            && until <= now
        {
            self.end_wait(at, now);
        }
    }

    fn end_wait(&mut self, at: FlowRef, now: Instant) {
        let flow = self.flows.get_mut(at);
        let order = flow.and_then(|flow| flow.inbound.order.as_mut());
        if let Some(wait) = order.and_then(|order| order.wait.take()) {
            self.deliveries.unregister(at, wait);
        }
        self.advance(at, now);
    }

    /// A flow has ended: nothing waits for it any more.
    pub(in crate::datagram) fn drop_held(&mut self, at: FlowRef, flow: &Flow) {
        if let Some(order) = &flow.inbound.order {
            self.deliveries.held_bytes -= order.bytes();
            if let Some(wait) = order.wait {
                self.deliveries.unregister(at, wait);
            }
        }
    }
}
