//! A server, a node and a user in virtual time, with 5 ms of network on the far side and links of
//! `sumlink-link` on the other, and the invariants that hold at every moment.

use std::collections::VecDeque;
use std::time::Duration;

use sumlink_engine::RangeSet;
use sumlink_link::{Change, Link, LinkConfig, Loss, Packet, QueueLimit, Random};

use super::peer::{MSS, Server, User};
use crate::flow::FlowKey;
use crate::lwa::{Reorder, ReorderConfig, is_numbered};
use crate::packet::fixture::{far, segment, user};
use crate::packet::{Parsed, parse};
use crate::visible::Boost;
use crate::{Config, Edge, Instant, LinkId, Mode, seq};

const FAR_DELAY: Duration = Duration::from_millis(5);

/// One link of a world.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// Bits per second.
    pub(super) rate: u64,
    pub(super) delay: Duration,
    pub(super) loss: f64,
}

/// A packet on a link, with the epoch of the node that sent it.
#[derive(Debug)]
struct Carried {
    epoch: u8,
    packet: Vec<u8>,
}

impl Packet for Carried {
    fn wire_len(&self) -> usize {
        self.packet.len()
    }
}

struct Wire {
    line: Line,
    link: Link<Carried>,
    /// When it can take the next packet; it takes packets at its rate.
    ready: Instant,
    asked: bool,
}

/// A scheduled event.
#[derive(Clone, Copy, Debug)]
pub(super) enum Incident {
    Down(u8),
    Up(u8),
    /// The node dies, and another one takes its place.
    Restart,
}

pub(super) struct World {
    pub(super) now: Instant,
    pub(super) server: Server,
    pub(super) user: User,
    pub(super) edge: Edge,
    config: Config,
    start: u32,
    wires: Vec<Wire>,
    to_edge: VecDeque<(Instant, Vec<u8>)>,
    to_server: VecDeque<(Instant, Vec<u8>)>,
    /// From the user: always over the first link's delay, whatever that link does.
    up: VecDeque<(Instant, Vec<u8>)>,
    up_loss: f64,
    random: Random,
    reorder: Option<Reorder>,
    /// Number of nodes before this one, and before the one that the user last received from: the
    /// epoch in the tunnel header.
    epoch: u8,
    last_epoch: u8,
    /// Bytes of the stream that nodes have received.
    handed: RangeSet,
    /// The most bytes acknowledged by a node that the user did not have.
    pub(super) max_owed: u64,
    incidents: Vec<(Instant, Incident)>,
    restarted: bool,
}

impl World {
    pub(super) fn new(config: Config, lines: &[Line], total: u64, sack: bool, start: u32) -> Self {
        let wire = |(n, &line): (usize, &Line)| Wire {
            line,
            link: {
                let Line { rate, delay, loss } = line;
                Link::new(LinkConfig {
                    rate,
                    delay,
                    loss,
                    queue: QueueLimit::Bytes(1 << 20),
                    seed: n as u64 + 1,
                })
            },
            ready: Instant::ZERO,
            asked: false,
        };
        let lwa = config.mode == Mode::Lwa;
        Self {
            now: Instant::ZERO,
            server: Server::new(total, start),
            user: User::new(sack),
            edge: Edge::new(config.clone()).unwrap(),
            config,
            start,
            wires: lines.iter().enumerate().map(wire).collect(),
            to_edge: VecDeque::new(),
            to_server: VecDeque::new(),
            up: VecDeque::new(),
            up_loss: 0.0,
            random: Random::new(u64::from(start)),
            epoch: 0,
            last_epoch: 0,
            reorder: lwa.then(|| Reorder::new(ReorderConfig::default())),
            handed: RangeSet::new(),
            max_owed: 0,
            incidents: Vec::new(),
            restarted: false,
        }
    }

    pub(super) fn incidents(mut self, incidents: &[(Duration, Incident)]) -> Self {
        self.incidents = incidents.to_vec();
        self.incidents.sort_by_key(|&(at, _)| std::cmp::Reverse(at));
        self
    }

    pub(super) fn up_loss(mut self, loss: f64) -> Self {
        self.up_loss = loss;
        self
    }

    /// Runs until all data has arrived, a connection has failed or `end` is reached; returns
    /// whether the server knows that all data has arrived.
    pub(super) fn run(&mut self, end: Instant) -> bool {
        self.exchange();
        while self.now < end && !self.over() {
            let Some(next) = self.next() else { break };
            self.now = self.now.max(next).min(end);
            self.step();
        }
        self.server.done()
    }

    pub(super) fn over(&self) -> bool {
        self.server.done() || self.failed()
    }

    /// An end has seen its connection fail.
    pub(super) fn failed(&self) -> bool {
        self.server.failed || self.user.failed
    }

    fn next(&self) -> Option<Instant> {
        let queues = [&self.to_edge, &self.to_server, &self.up]
            .into_iter()
            .filter_map(|q| q.front())
            .map(|(at, _)| *at);
        let timers = [self.server.timer, self.user.timer, self.edge.poll_timeout()];
        let timers = timers
            .into_iter()
            .chain([self.reorder.as_ref().and_then(Reorder::poll_timeout)])
            .flatten();
        let links = self
            .wires
            .iter()
            .filter_map(|wire| wire.link.next_deadline());
        let ready = self
            .wires
            .iter()
            .filter(|wire| wire.ready > self.now || !wire.asked)
            .map(|wire| wire.ready);
        let incidents = self.incidents.last().map(|&(at, _)| at);
        queues
            .chain(timers)
            .chain(links)
            .chain(ready)
            .chain(incidents)
            .min()
    }

    fn step(&mut self) {
        let now = self.now;
        while let Some((_, incident)) = self.incidents.pop_if(|(at, _)| *at <= now) {
            self.happen(incident);
        }
        self.server.handle_timeout(now);
        self.user.handle_timeout(now);
        if self.edge.poll_timeout().is_some_and(|at| at <= now) {
            self.edge.handle_timeout(now);
        }
        self.exchange();
        while let Some(packet) = due(&mut self.to_edge, now) {
            self.hand(&packet);
            self.edge.handle_far(packet, now);
            self.exchange();
        }
        while let Some(packet) = due(&mut self.up, now) {
            self.edge.handle_user(packet, now);
            self.exchange();
        }
        for n in 0..self.wires.len() {
            while let Some(delivery) = self.wires[n].link.poll(now) {
                self.arrive(delivery.packet);
            }
        }
        if let Some(reorder) = &mut self.reorder {
            reorder.handle_timeout(now);
        }
        self.in_order();
        while let Some(packet) = due(&mut self.to_server, now) {
            self.server.handle(&segment(&packet), now);
        }
        self.exchange();
    }

    fn happen(&mut self, incident: Incident) {
        match incident {
            Incident::Down(n) => {
                self.edge.link_down(LinkId(n), self.now);
                self.wires[usize::from(n)]
                    .link
                    .set(self.now, Change::Loss(Loss::Independent(1.0)));
            }
            Incident::Up(n) => {
                let wire = &mut self.wires[usize::from(n)];
                wire.link
                    .set(self.now, Change::Loss(Loss::Independent(wire.line.loss)));
                wire.ready = wire.ready.max(self.now);
                self.edge.link_up(LinkId(n), self.now);
            }
            Incident::Restart => {
                self.edge = Edge::new(self.config.clone()).unwrap();
                self.restarted = true;
                self.epoch += 1;
            }
        }
    }

    fn hand(&mut self, packet: &[u8]) {
        let segment = segment(packet);
        let first = self.position(segment.sequence);
        self.handed.insert(first..first + segment.sequence_len());
    }

    /// Position of one of the server's numbers: the SYN is at 2^32 - 1.
    fn position(&self, number: u32) -> u64 {
        seq::near(
            (1 << 32) + self.user.next,
            number.wrapping_sub(self.start).wrapping_sub(1),
        )
    }

    /// A packet leaves a link.
    fn arrive(&mut self, Carried { epoch, packet }: Carried) {
        if epoch > self.last_epoch {
            // Its sequence starts again.
            self.last_epoch = epoch;
            self.reorder = (self.reorder.take()).map(|_| Reorder::new(ReorderConfig::default()));
        }
        match &mut self.reorder {
            Some(_) if epoch < self.last_epoch && is_numbered(&packet) => {}
            Some(reorder) if is_numbered(&packet) => reorder.handle_pdu(&packet, self.now),
            _ => self.receive(packet),
        }
        self.in_order();
    }

    fn in_order(&mut self) {
        while let Some(packet) = self.reorder.as_mut().and_then(Reorder::poll) {
            self.receive(packet);
        }
    }

    fn receive(&mut self, packet: Vec<u8>) {
        let Parsed::Tcp(segment) = parse(&packet, true) else {
            panic!("the node damaged a packet")
        };
        self.user.handle(&packet, &segment, self.now);
        self.exchange();
    }

    /// Follows the node's calling rules, and moves all packets along.
    fn exchange(&mut self) {
        let now = self.now;
        self.to_edge.extend(
            self.server
                .out
                .drain(..)
                .map(|packet| (now + FAR_DELAY, packet)),
        );
        let delay = self.wires[0].line.delay;
        for packet in self.user.out.drain(..) {
            if self.random.next_f64() >= self.up_loss {
                self.up.push_back((now + delay, packet));
            }
        }
        while self.edge.poll_event().is_some() {}
        while let Some(packet) = self.edge.poll_far() {
            self.check(&packet);
            self.to_server.push_back((now + FAR_DELAY, packet));
        }
        for (n, wire) in self.wires.iter_mut().enumerate() {
            while wire.ready <= now {
                let packet = self.edge.poll_link(LinkId(n as u8), now);
                wire.asked = true;
                let Some(packet) = packet else { break };
                wire.ready = now
                    + Duration::from_secs_f64(packet.len() as f64 * 8.0 / wire.line.rate as f64);
                wire.asked = false;
                let (epoch, packet) = (self.epoch, packet.to_vec());
                wire.link.enqueue(now, Carried { epoch, packet });
            }
        }
    }

    /// The most bytes that a node may owe the only flow: with phi of 0.2, one packet or five.
    pub(super) fn owable(&self) -> u64 {
        let packets = match self.config.visible.boost {
            Boost::Off => 0,
            Boost::Once => 1,
            Boost::Many => 5,
        };
        packets * MSS as u64
    }

    /// Invariants of everything that the node sends to the server.
    fn check(&mut self, packet: &[u8]) {
        let segment = segment(packet);
        if !segment.flags.ack || segment.flags.syn || segment.flags.rst {
            return;
        }
        let ack = self.position(segment.ack);
        let base = 1u64 << 32;
        assert!(
            ack <= base || self.handed.covers(base..ack),
            "the node acknowledges {}, which it has not received",
            ack - base
        );
        let owed = (ack - base).saturating_sub(self.user.next);
        self.max_owed = self.max_owed.max(owed);
        assert!(
            owed <= self.owable(),
            "{owed} bytes are acknowledged but not delivered"
        );
        if owed > 0 && !self.restarted {
            let report = self
                .edge
                .flow(&FlowKey {
                    far: far(),
                    user: user(),
                })
                .unwrap();
            assert!(
                report.deliverable && report.outstanding > report.owed,
                "{report:?}"
            );
        }
        let right = ack - base + (u64::from(segment.window) << 7);
        assert!(
            right <= self.user.permitted(),
            "the window exceeds the user's"
        );
    }
}

/// The next packet due by `now`.
fn due(queue: &mut VecDeque<(Instant, Vec<u8>)>, now: Instant) -> Option<Vec<u8>> {
    queue.front().filter(|(at, _)| *at <= now)?;
    queue.pop_front().map(|(_, packet)| packet)
}
