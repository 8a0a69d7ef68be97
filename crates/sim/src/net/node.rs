//! Drives the edge node of a run, if the scenario has one.

use std::sync::Arc;

use sumlink_edge::LinkId;
use sumlink_scenario::config::Direction;

use super::{Connection, Event, Net};
use crate::clock::{MILLISECOND, Nanos, duration, nanos};
use crate::edge::{Cargo, Node, NodeAccount};
use crate::log::Kind;
use crate::tcp::{BuildError, Side, TcpConfig};

/// Stands for the link of a connection whose packets the node steers.
pub(super) const STEERED: usize = usize::MAX;
/// Interval between trace lines about flows and queues.
const PAUSE: Nanos = 10 * MILLISECOND;

impl Net {
    /// Puts a node in front of the links.
    pub(crate) fn set_node(&mut self, node: Node) {
        self.node = Some(Box::new(node));
    }

    /// Whether the run has a node.
    pub(crate) fn has_node(&self) -> bool {
        self.node.is_some()
    }

    /// Statistics of the node.
    pub(crate) fn node_account(&self) -> Option<NodeAccount> {
        let node = self.node.as_ref()?;
        let steered = self
            .connections
            .iter()
            .zip(&self.links)
            .filter(|(_, link)| **link == STEERED);
        let repeated = steered
            .flat_map(|(ends, _)| ends)
            .map(|end| end.tcp.repeated())
            .sum();
        Some(node.account(repeated))
    }

    /// Opens a connection through the node.
    pub(crate) fn connect_steered(&mut self, config: &TcpConfig) -> Result<Connection, BuildError> {
        if let Some(node) = &mut self.node {
            node.add(self.connections.len(), config.mss);
        }
        self.connect(STEERED, config)
    }

    /// Sends the pending packets of an end of a steered connection.
    pub(super) fn send_steered(&mut self, connection: Connection, side: Side) {
        let up = (0..self.ids.len())
            .find(|link| self.has_carrier(*link))
            .unwrap_or(0);
        let Some(node) = &mut self.node else { return };
        let tcp = &mut self.connections[connection][side.index()].tcp;
        while let Some(packet) = tcp.poll_transmit(self.now) {
            let Some(bytes) = node.encode(connection, side, &packet) else {
                continue;
            };
            match side {
                Side::Server => node.accept_from_server(bytes, self.now),
                Side::Client => {
                    let id = self.ids[up][Direction::Up.index()];
                    self.network
                        .enqueue(duration(self.now), id, Cargo::Raw(bytes.into()));
                }
            }
        }
        self.plan_node();
    }

    /// A packet left a link.
    pub(super) fn arrive_raw(&mut self, direction: Direction, bytes: &Arc<[u8]>) {
        let Some(node) = &mut self.node else { return };
        match direction {
            Direction::Up => {
                node.edge.handle_user(bytes.to_vec(), duration(self.now));
                self.exchange();
            }
            Direction::Down => {
                if let Some(bytes) = node.at_user(bytes, self.now) {
                    self.deliver(Side::Client, &bytes);
                }
                self.hand_in_order();
            }
        }
    }

    /// Reports to the node that a link went up or down.
    pub(super) fn report_link(&mut self, link: usize) {
        let is_up = self.has_carrier(link);
        let now = duration(self.now);
        let Some(node) = &mut self.node else { return };
        match is_up {
            true => node.edge.link_up(LinkId(link as u8), now),
            false => node.edge.link_down(LinkId(link as u8), now),
        }
        self.exchange();
    }

    /// Does the node's due work and schedules its next event.
    pub(super) fn work_node(&mut self) {
        if self.node.is_none() {
            return;
        }
        let now = self.now;
        while let Some(packet) = self.node.as_mut().and_then(|node| node.next_at_node(now)) {
            if let Some(node) = &mut self.node {
                node.edge.handle_far(packet, duration(now));
            }
            self.exchange();
        }
        while let Some(packet) = self.node.as_mut().and_then(|node| node.next_at_server(now)) {
            self.deliver(Side::Server, &packet);
        }
        if let Some(node) = &mut self.node {
            node.on_time(now);
        }
        self.hand_in_order();
        self.exchange();
        self.plan_node();
        self.trace_node();
    }

    fn hand_in_order(&mut self) {
        while let Some(bytes) = self.node.as_mut().and_then(|node| node.next_in_order()) {
            self.deliver(Side::Client, &bytes);
        }
    }

    /// Delivers a packet to an end.
    fn deliver(&mut self, side: Side, bytes: &[u8]) {
        let now = self.now;
        let decoded = self
            .node
            .as_mut()
            .and_then(|node| node.decode(side, bytes, now));
        let Some((connection, packet)) = decoded else {
            return;
        };
        let who = connection as u64 * 2 + side.index() as u64;
        self.log.note(
            now,
            Kind::Packet,
            who,
            packet.seq ^ packet.ack.rotate_left(32),
        );
        self.connections[connection][side.index()]
            .tcp
            .receive(&packet, now);
        self.flush(connection, side);
        self.notify(connection, side);
    }

    /// Moves packets from the node to the servers and to each idle link.
    fn exchange(&mut self) {
        let now = duration(self.now);
        let Some(node) = &mut self.node else { return };
        while node.edge.poll_event().is_some() {}
        while let Some(packet) = node.edge.poll_far() {
            node.towards_server(packet, self.now);
        }
        for (number, ids) in self.ids.iter().enumerate() {
            let id = ids[Direction::Down.index()];
            while self.network.backlog(now, id).0 == 0 {
                let Some(packet) = node.edge.poll_link(LinkId(number as u8), now) else {
                    break;
                };
                self.network.enqueue(now, id, Cargo::Raw(packet));
            }
        }
    }

    /// Schedules the node's next event: its own deadline, or the time at which a link becomes idle.
    fn plan_node(&mut self) {
        let now = duration(self.now);
        let Some(node) = &mut self.node else { return };
        let mut next = node.deadline();
        for ids in &self.ids {
            let (packets, end) = self.network.backlog(now, ids[Direction::Down.index()]);
            let end = end.filter(|_| packets > 0).map(nanos);
            next = next.into_iter().chain(end).min();
        }
        if let Some(at) = next.map(|at| at.max(self.now))
            && at < node.planned
        {
            node.planned = at;
            self.agenda.plan(at, Event::Node);
        }
    }

    /// Handles an event of the node.
    pub(super) fn wake_node(&mut self) {
        if let Some(node) = &mut self.node
            && node.planned <= self.now
        {
            node.planned = Nanos::MAX;
        }
    }

    /// Writes trace lines about flows and queues at intervals.
    fn trace_node(&mut self) {
        let (Some(trace), Some(node)) = (&mut self.trace, &mut self.node) else {
            return;
        };
        if self.now < node.traced_at + PAUSE {
            return;
        }
        node.traced_at = self.now;
        for link in node.links() {
            if let Some(queue) = node.edge.link(link) {
                trace.queue(self.now, link, queue);
            }
        }
        for (number, ends) in self.connections.iter().enumerate() {
            let sends = |side: &&Side| ends[side.index()].tcp.is_established();
            let side = Side::BOTH
                .iter()
                .rev()
                .filter(sends)
                .max_by_key(|side| ends[side.index()].tcp.written());
            if let (Some(side), Some(report)) = (side, node.report(number)) {
                let info = ends[side.index()].tcp.info(self.now);
                trace.flow(self.now, *side, number, &info, &report);
            }
        }
    }
}
