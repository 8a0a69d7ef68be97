//! sumlink: both sessions are the real engine, driven as the daemon drives it, over modeled
//! connections. [`sumlink_bond`] makes the decisions about carriers for both.

mod carrier;
mod daemon;
#[cfg(test)]
mod drill;
mod flows;
mod lines;
mod manager;
mod pattern;
mod rests;
mod streams;
mod wires;

use std::time::Duration;

use bytes::Bytes;
use sumlink_bond::{Carriers, Early};
use sumlink_engine::{Class, Config, ConfigError, DatagramPolicy, FlowError};
use sumlink_link::Random;

use daemon::{Daemon, Report};
use flows::Flows;
use lines::Lines;
use manager::Manager;
pub(crate) use manager::{Carrying, Dialing};
use streams::Streams;
use wires::Wires;

use crate::clock::{Nanos, duration};
use crate::net::{Alarm, Connection, Line, Net, News};
use crate::tcp::Side;
use crate::workload::{Bearer, Channel, FlowBearer, Progress};

/// A client and a server of sumlink, with the links between them.
#[derive(Debug)]
pub(crate) struct Bond {
    daemons: [Daemon; 2],
    wires: Wires,
    manager: Manager,
    streams: Streams,
    /// QUIC carriers of the links; none if the programs use no datagrams.
    lines: Option<Lines>,
    flows: Flows,
    /// How the programs' datagrams use the paths.
    policy: DatagramPolicy,
    /// Daemons that have work to do.
    due: [bool; 2],
    /// The most bytes that both sessions have held at once.
    memory_peak: u64,
}

/// Statistics of a bond at the end of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Account {
    /// Bytes sent more than once, by either side, those of datagrams included.
    pub(crate) duplicates: u64,
    /// The most bytes held because earlier ones were missing, of both sides together.
    pub(crate) reorder_peak: u64,
    /// Time that 99 % of the bytes did not exceed in waiting for earlier ones, at the side where it
    /// is longer.
    pub(crate) in_order_wait_p99: Duration,
    /// The most bytes held at once by both sides together: written and unacknowledged, and received
    /// but unread.
    pub(crate) memory_peak: u64,
    /// Paths that deliver at the end.
    pub(crate) active: usize,
    /// Share of the time for which each link rested because of the sender's selector; the larger of
    /// both sides.
    pub(crate) rested: Vec<f64>,
    /// The first received bytes that differ from the sent ones.
    pub(crate) fault: Option<String>,
}

impl Bond {
    /// Creates a bond. `configure` derives the configuration of each end from the default; `early`
    /// says when a program is given its stream before the server has connected it.
    pub(crate) fn new(
        configure: impl Fn(&mut Config),
        dialing: Dialing,
        links: usize,
        early: Early,
    ) -> Result<Self, ConfigError> {
        let daemon = |side: Side| {
            let mut config = Config::new(Daemon::role(side));
            configure(&mut config);
            let measures = side == Side::Client && dialing.carriers == Carriers::Auto;
            Daemon::new(side, config, (measures, dialing.datagrams.is_some()))
        };
        let has_udp = dialing.datagrams.is_some_and(|carrying| carrying.udp);
        let policy = dialing.datagrams.map(|carrying| carrying.policy);
        Ok(Self {
            daemons: [daemon(Side::Client)?, daemon(Side::Server)?],
            wires: Wires::default(),
            lines: has_udp.then(|| Lines::new(links)),
            policy: policy.unwrap_or_default(),
            manager: Manager::new(dialing, links),
            streams: Streams::new(early),
            flows: Flows::default(),
            due: [false; 2],
            memory_peak: 0,
        })
    }

    /// The client starts.
    pub(crate) fn start(&mut self, net: &mut Net, random: &mut Random) {
        self.manager.start(net, random);
    }

    /// Whether every link that can have paths has them.
    pub(crate) fn is_ready(&self) -> bool {
        let wanted = self.manager.wanted();
        let have = |daemon: &Daemon| daemon.active_paths().len() >= wanted;
        self.daemons.iter().all(have) && self.lines.as_ref().is_none_or(Lines::are_ready)
    }

    /// Takes news; returns true if they concern the bond.
    pub(crate) fn on_news(&mut self, net: &mut Net, news: News) -> bool {
        match news {
            News::Connection(connection, side) => {
                let is_own = self.on_connection(net, connection, side);
                self.keep_lines(net);
                return is_own;
            }
            News::Line(line, side) => self.on_line(net, line, side),
            News::Alarm(Alarm::Session(side)) => {
                self.due[side.index()] |= self.daemons[side.index()].on_alarm(net);
            }
            News::Alarm(Alarm::Manager) => self.manager.on_alarm(net, &mut self.wires),
            News::Link(link, _) => {
                if net.has_carrier(link) {
                    self.manager.link_up(link, net, &mut self.wires);
                } else {
                    self.leave_link(link, net);
                }
            }
            News::NewAddress(link) => {
                self.leave_link(link, net);
                if net.has_carrier(link) {
                    self.manager.link_up(link, net, &mut self.wires);
                }
            }
            News::Alarm(Alarm::Flow(_) | Alarm::Talk(_)) => return false,
        }
        self.keep_lines(net);
        true
    }

    /// The client closes the paths of a link.
    fn leave_link(&mut self, link: usize, net: &mut Net) {
        let client = &mut self.daemons[Side::Client.index()];
        for path in self.manager.link_down(link, net) {
            client.remove(path, net, &mut self.wires);
        }
        self.due[Side::Client.index()] = true;
    }

    fn on_line(&mut self, net: &mut Net, line: Line, side: Side) {
        let Some(lines) = &mut self.lines else {
            return;
        };
        let is_new = lines.on_line(line, side, &mut self.daemons, net);
        self.due[side.index()] |= is_new || self.daemons[side.index()].is_woken_by(line, net);
    }

    /// Keeps a QUIC carrier on every link that has a path.
    fn keep_lines(&mut self, net: &mut Net) {
        let Some(lines) = &mut self.lines else {
            return;
        };
        for link in self.manager.keep_lines(lines, net) {
            self.daemons[Side::Client.index()].remove_datagrams(link, net);
            self.due[Side::Client.index()] = true;
        }
    }

    fn on_connection(&mut self, net: &mut Net, connection: Connection, side: Side) -> bool {
        if !self.wires.has(connection) {
            return false;
        }
        if self
            .manager
            .on_connection(net, connection, side, &mut self.daemons, &mut self.wires)
        {
            self.due[side.index()] = true;
        }
        let daemon = &mut self.daemons[side.index()];
        self.due[side.index()] |= daemon.is_woken(connection, net, &self.wires);
        true
    }

    /// Lets the daemons do their pending work; returns events for the programs.
    pub(crate) fn work(&mut self, net: &mut Net) -> Vec<Progress> {
        while self.due != [false; 2] {
            for side in Side::BOTH {
                if !std::mem::take(&mut self.due[side.index()]) {
                    continue;
                }
                let others = self.daemons[side.peer().index()].held();
                let daemon = &mut self.daemons[side.index()];
                let programs = (&mut self.streams, &mut self.flows);
                let most = daemon.take_turn(net, &mut self.wires, programs);
                self.memory_peak = self.memory_peak.max(others + most);
                for report in std::mem::take(&mut daemon.reports) {
                    if side == Side::Server {
                        continue;
                    }
                    match (report, &mut self.lines) {
                        (Report::LineEnded(line), Some(lines)) => lines.ended(line, net),
                        (report, _) => self.manager.on_report(report, net, &mut self.wires),
                    }
                }
                self.keep_lines(net);
                let leaving = self.manager.take_leaving();
                if !leaving.is_empty() {
                    for path in leaving {
                        let client = &mut self.daemons[Side::Client.index()];
                        client.remove(path, net, &mut self.wires);
                    }
                    self.due[Side::Client.index()] = true;
                }
            }
        }
        let mut progress = self.streams.take_progress();
        progress.extend(self.flows.take_progress());
        progress
    }

    /// The statistics of the bond.
    pub(crate) fn account(&self, net: &Net) -> Account {
        let stats = self.daemons.each_ref().map(|daemon| daemon.session.stats());
        let waits = stats.iter().map(|stats| stats.in_order_wait_p99);
        Account {
            duplicates: stats.iter().map(|stats| stats.duplicates_sent).sum::<u64>()
                + self.repeated(),
            reorder_peak: stats.iter().map(|stats| stats.reorder_peak).sum(),
            in_order_wait_p99: waits.max().unwrap_or_default(),
            memory_peak: self.memory_peak,
            active: self.daemons[0].active_paths().len(),
            rested: self.rested(net),
            fault: self.streams.fault.clone().or(self.flows.fault.clone()),
        }
    }

    /// Payload bytes of datagrams that both sides have sent more than once.
    fn repeated(&self) -> u64 {
        let sessions = self.daemons.iter().map(|daemon| &daemon.session);
        let flows = sessions.flat_map(|session| session.flow_stats());
        flows.map(|flow| flow.bytes_repeated).sum()
    }

    fn rested(&self, net: &Net) -> Vec<f64> {
        let now = net.now();
        let of = |link: usize| {
            let sides = self.daemons.iter().map(|daemon| daemon.rests.of(link, now));
            sides.max().unwrap_or_default() as f64 / now.max(1) as f64
        };
        (0..net.link_count()).map(of).collect()
    }

    /// A program opens a flow of datagrams.
    pub(crate) fn open_flow(&mut self, class: Option<Class>, policy: DatagramPolicy) -> Channel {
        self.flows.open(class, policy)
    }

    /// The program at a side sends a datagram, which may be lost. An error says that it was not
    /// accepted.
    pub(crate) fn send_datagram(
        &mut self,
        net: &mut Net,
        channel: Channel,
        side: Side,
        payload: Bytes,
    ) -> Result<(), FlowError> {
        self.due[side.index()] = true;
        let session = &mut self.daemons[side.index()].session;
        self.flows.send(channel, side, payload, session, net)
    }

    fn now(net: &Net) -> (Nanos, std::time::Duration) {
        (net.now(), duration(net.now()))
    }
}

impl Bearer for Bond {
    fn open(&mut self, net: &mut Net, _link: Option<usize>, class: Option<Class>) -> Channel {
        let (now, _) = Self::now(net);
        self.due[Side::Client.index()] = true;
        let session = &mut self.daemons[Side::Client.index()].session;
        self.streams.open(class, session, now)
    }

    fn offer(&mut self, net: &mut Net, channel: Channel, side: Side, bytes: u64) {
        let (_, now) = Self::now(net);
        self.due[side.index()] = true;
        let session = &mut self.daemons[side.index()].session;
        self.streams.offer(channel, side, bytes, session, now);
    }

    fn close(&mut self, net: &mut Net, channel: Channel) {
        let (_, now) = Self::now(net);
        for side in Side::BOTH {
            self.due[side.index()] = true;
            let session = &mut self.daemons[side.index()].session;
            self.streams.leave(channel, session, now);
        }
    }
}

impl FlowBearer for Bond {
    fn open_flow(&mut self, _: &mut Net, _: Option<usize>, class: Option<Class>) -> Channel {
        Self::open_flow(self, class, self.policy)
    }

    fn send(&mut self, net: &mut Net, channel: Channel, side: Side, payload: Bytes) {
        // Like any datagram it may be lost, here, too.
        let _ = self.send_datagram(net, channel, side, payload);
    }
}
