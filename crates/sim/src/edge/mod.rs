//! An edge node between the servers and the links, and the packets that it forwards.
//!
//! ```text
//! servers (tcp) ── far delay ── node (sumlink-edge) ══ links (sumlink-link) ══ user (tcp), behind LWA's receiver if there is one
//! ```
//!
//! The hosts run the simulator's own TCP. Its segments are encoded as wire packets here (`wire.rs`)
//! and decoded at the other end, where each byte is compared with the byte that was sent; the node
//! sees only the packets. A link is given a packet only after it has sent the one before, so
//! packets wait in the node's queues. Packets from the user go over the first link that is up, as
//! in the paper.
//!
//! `net/node.rs`, which owns the links, drives the node by the rules at the top of `sumlink-edge`.

mod wire;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use sumlink_edge::lwa::{Reorder, ReorderConfig, ReorderStats, is_numbered};
use sumlink_edge::packet::{Parsed, parse};
use sumlink_edge::{ConfigError, Counters, Edge, FlowReport, LinkId, Mode};
use sumlink_scenario::edge::EdgeVariant;

use crate::clock::{Nanos, duration, nanos};
use crate::quic;
use crate::tcp::{Packet, Side};
use crate::udp::Udp;

pub(crate) use wire::Wire;

/// The payload of a link: a segment of the TCP model, a packet of the QUIC model, a datagram, or a
/// packet in wire format.
#[derive(Clone, Debug)]
pub(crate) enum Cargo {
    Segment(Packet),
    Quic(Box<quic::Packet>),
    Udp(Box<Udp>),
    Raw(Arc<[u8]>),
}

impl sumlink_link::Packet for Cargo {
    fn wire_len(&self) -> usize {
        match self {
            Self::Segment(packet) => packet.wire_len(),
            Self::Quic(packet) => packet.wire_len(),
            Self::Udp(udp) => udp.wire_len(),
            Self::Raw(bytes) => bytes.len(),
        }
    }
}

/// A node with the packets in transit between it and the servers, and the receiver at the user's
/// end.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) edge: Edge,
    /// LWA's reordering receiver.
    pub(crate) reorder: Option<Reorder>,
    far: Nanos,
    /// Packets from and to the servers, each with its arrival time.
    to_node: VecDeque<(Nanos, Vec<u8>)>,
    to_servers: VecDeque<(Nanos, Vec<u8>)>,
    /// Indexed by connection; `None` for a connection that bypasses the node.
    wires: Vec<Option<Wire>>,
    /// Time of the next scheduled event.
    pub(crate) planned: Nanos,
    /// Time of its last trace lines.
    pub(crate) traced_at: Nanos,
    fault: Option<String>,
}

/// Statistics of a node over a run.
#[derive(Clone, Debug)]
pub(crate) struct NodeAccount {
    pub(crate) counters: Counters,
    pub(crate) reorder: Option<ReorderStats>,
    /// Bytes of data that the hosts received more than once.
    pub(crate) repeated: u64,
    /// A bug of the node: it has damaged a packet.
    pub(crate) fault: Option<String>,
}

impl Node {
    /// Creates a node in front of `links` links, at a delay of `far` from the servers.
    pub(crate) fn new(
        variant: &EdgeVariant,
        links: usize,
        far: Duration,
    ) -> Result<Self, ConfigError> {
        let config = variant.node(links);
        let reorder = (config.mode == Mode::Lwa).then(|| {
            Reorder::new(ReorderConfig {
                bits: config.sequence_bits,
                timer: variant.timer,
                ..ReorderConfig::default()
            })
        });
        Ok(Self {
            edge: Edge::new(config)?,
            reorder,
            far: nanos(far),
            to_node: VecDeque::new(),
            to_servers: VecDeque::new(),
            wires: Vec::new(),
            planned: Nanos::MAX,
            traced_at: 0,
            fault: None,
        })
    }

    /// Routes a connection through the node.
    pub(crate) fn add(&mut self, connection: usize, mss: u32) {
        self.wires.resize_with(connection + 1, || None);
        self.wires[connection] = Some(Wire::new(connection as u32, mss));
    }

    /// Encodes a packet that an end sends.
    pub(crate) fn encode(
        &mut self,
        connection: usize,
        from: Side,
        packet: &Packet,
    ) -> Option<Vec<u8>> {
        self.wires
            .get_mut(connection)?
            .as_mut()?
            .encode(from, packet)
    }

    /// A server has sent a packet.
    pub(crate) fn accept_from_server(&mut self, bytes: Vec<u8>, now: Nanos) {
        self.to_node.push_back((now + self.far, bytes));
    }

    /// The node has sent a packet to a server.
    pub(crate) fn towards_server(&mut self, bytes: Vec<u8>, now: Nanos) {
        self.to_servers.push_back((now + self.far, bytes));
    }

    /// Returns the next packet from the servers that has reached the node.
    pub(crate) fn next_at_node(&mut self, now: Nanos) -> Option<Vec<u8>> {
        due(&mut self.to_node, now)
    }

    /// Returns the next packet that has reached a server.
    pub(crate) fn next_at_server(&mut self, now: Nanos) -> Option<Vec<u8>> {
        due(&mut self.to_servers, now)
    }

    /// Decodes a packet that has reached an end, and returns its connection, too. A packet that
    /// differs from the one that its sender sent ends the run.
    pub(crate) fn decode(&mut self, to: Side, bytes: &[u8], now: Nanos) -> Option<(usize, Packet)> {
        let read = match parse(bytes, true) {
            Parsed::Tcp(segment) => self.read(to, bytes, &segment, now),
            other => Err(format!("cannot parse a packet: {other:?}")),
        };
        read.map_err(|fault| self.fault.get_or_insert(fault)).ok()
    }

    fn read(
        &mut self,
        to: Side,
        bytes: &[u8],
        segment: &sumlink_edge::packet::Segment,
        now: Nanos,
    ) -> Result<(usize, Packet), String> {
        let connection = wire::connection(to, segment)
            .filter(|number| self.wires.get(*number).is_some_and(Option::is_some))
            .ok_or_else(|| format!("a packet belongs to no connection: {segment:?}"))?;
        let wire = self.wires[connection].as_mut();
        let packet = wire.map(|wire| wire.decode(to, bytes, segment, now));
        packet
            .unwrap_or_else(|| Err(String::new()))
            .map(|packet| (connection, packet))
    }

    /// Time of the next event here, without those of the links.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        let queues = [&self.to_node, &self.to_servers];
        let arrivals = queues
            .into_iter()
            .filter_map(|queue| queue.front())
            .map(|(at, _)| *at);
        let reorder = self.reorder.as_ref().and_then(Reorder::poll_timeout);
        let timers = [self.edge.poll_timeout(), reorder]
            .into_iter()
            .flatten()
            .map(nanos);
        arrivals.chain(timers).min()
    }

    /// Fires expired timers.
    pub(crate) fn on_time(&mut self, now: Nanos) {
        let now = duration(now);
        if self.edge.poll_timeout().is_some_and(|at| at <= now) {
            self.edge.handle_timeout(now);
        }
        if let Some(reorder) = &mut self.reorder {
            reorder.handle_timeout(now);
        }
    }

    /// A packet left a link at the user's end. With a reordering receiver, [`Node::next_in_order`]
    /// returns the packets for the user.
    pub(crate) fn at_user(&mut self, bytes: &[u8], now: Nanos) -> Option<Vec<u8>> {
        match &mut self.reorder {
            Some(reorder) if is_numbered(bytes) => {
                reorder.handle_pdu(bytes, duration(now));
                None
            }
            _ => Some(bytes.to_vec()),
        }
    }

    /// Returns the next packet that LWA's receiver releases.
    pub(crate) fn next_in_order(&mut self) -> Option<Vec<u8>> {
        self.reorder.as_mut().and_then(Reorder::poll)
    }

    /// The node's state of a connection.
    pub(crate) fn report(&self, connection: usize) -> Option<FlowReport> {
        let wire = self.wires.get(connection)?.as_ref()?;
        self.edge.flow(&wire.key())
    }

    /// All links, by number.
    pub(crate) fn links(&self) -> impl Iterator<Item = LinkId> + use<> {
        let count = (0..=u8::MAX)
            .take_while(|n| self.edge.link(LinkId(*n)).is_some())
            .count();
        (0..count).map(|n| LinkId(n as u8))
    }

    /// Statistics of the node; the caller counts `repeated` at the hosts.
    pub(crate) fn account(&self, repeated: u64) -> NodeAccount {
        NodeAccount {
            counters: self.edge.counters(),
            reorder: self.reorder.as_ref().map(Reorder::stats),
            repeated,
            fault: self.fault.clone(),
        }
    }
}

impl NodeAccount {
    /// A note for the reader of the results.
    pub(crate) fn note(&self) -> String {
        let c = &self.counters;
        let mut note = format!("node: {} dropped", c.dropped);
        if c.duplicates > 0 {
            let repaired = c.sent_again();
            note += &format!(
                ", {} duplicates ({} boosted, {} held), {repaired} retransmissions",
                c.duplicates, c.boosted, c.held
            );
        }
        if c.resets > 0 {
            note += &format!(", {} flows reset", c.resets);
        }
        if let Some(reorder) = &self.reorder {
            note += &format!(
                ", {} reordered, {} too late, {} missing",
                reorder.reordered, reorder.late, reorder.missing
            );
        }
        note
    }
}

fn due(queue: &mut VecDeque<(Nanos, Vec<u8>)>, now: Nanos) -> Option<Vec<u8>> {
    queue.front().filter(|(at, _)| *at <= now)?;
    queue.pop_front().map(|(_, bytes)| bytes)
}
