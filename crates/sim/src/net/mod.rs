//! The links, the TCP connections over them, and the clock.

mod connections;
mod node;
mod quic;
mod udp;

use std::collections::BTreeSet;
use std::time::Duration;

use sumlink_link::{LinkId, Network};
use sumlink_scenario::config::{Direction, Fate, InterfaceState, LinkChange, Setting};
use sumlink_scenario::error::LinkError;
use sumlink_scenario::model::Model;
use sumlink_scenario::plan::LabConfig;
use sumlink_scenario::timeline::{Action, Timeline};

use crate::agenda::Agenda;
use crate::clock::{Nanos, duration, nanos};
use crate::edge::{Cargo, Node};
use crate::log::{EventLog, Kind};
use crate::tcp::{Side, Tcp};
use crate::trace::Trace;
use crate::udp::Udp;

/// A connection number.
pub(crate) type Connection = usize;

/// The number of a QUIC connection.
pub(crate) type Line = usize;

/// The owner of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alarm {
    /// The session of a side.
    Session(Side),
    /// The manager of carriers.
    Manager,
    /// A flow of the workload.
    Flow(usize),
    /// A flow of datagrams of the workload.
    Talk(usize),
}

/// An event that the system or the programs must handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// The state of this end of a connection changed.
    Connection(Connection, Side),
    /// The state of this end of a QUIC connection changed.
    Line(Line, Side),
    /// An alarm expired.
    Alarm(Alarm),
    /// A link went up or down, and the client noticed.
    Link(usize, InterfaceState),
    /// The client's address on a link changed.
    NewAddress(usize),
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Tcp(Connection, Side),
    Quic(Line, Side),
    Alarm(Alarm),
    /// The node has work that is due.
    Node,
}

/// An end of a connection.
#[derive(Debug)]
struct End {
    tcp: Tcp,
    /// Time of the next scheduled event.
    planned: Nanos,
}

/// The treatment of a connection's packets by the middlebox at the client's end of each link;
/// `None` while the middlebox knows the connection.
type Lost = Option<Fate>;

/// The bytes delivered by one direction of a link.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carried {
    /// Wire bytes in each interval since the start of the run.
    pub(crate) buckets: Vec<u64>,
}

/// All links and connections of a run.
#[derive(Debug)]
pub(crate) struct Net {
    now: Nanos,
    network: Network<Cargo>,
    /// Both directions of each link: up, down.
    ids: Vec<[LinkId; 2]>,
    states: Vec<InterfaceState>,
    timeline: Timeline,
    /// The settings whose clock starts with the run: link, direction, setting.
    restarts: Vec<(usize, Direction, Setting)>,
    /// Start of the run; link changes only happen after it.
    zero: Option<Nanos>,
    interval: Nanos,
    carried: Vec<Carried>,
    connections: Vec<[End; 2]>,
    /// The link of each connection; [`node::STEERED`] if the node chooses.
    links: Vec<usize>,
    lost: Vec<Lost>,
    lines: Vec<quic::Ends>,
    /// Links on which a firewall drops QUIC.
    blocked: BTreeSet<usize>,
    /// Datagrams of programs that have arrived.
    udp: Vec<Udp>,
    node: Option<Box<Node>>,
    agenda: Agenda<Event>,
    news: Vec<News>,
    log: EventLog,
    trace: Option<Trace>,
    /// Factor by which the reported rate of a link is multiplied.
    #[cfg(test)]
    pub(crate) lies: Vec<f64>,
}

impl Net {
    pub(crate) fn new(config: &LabConfig) -> Result<Self, LinkError> {
        let Model {
            network,
            ids,
            actions,
        } = Model::build(config)?;
        let mut restarts = Vec::new();
        for (link, spec) in config.links.iter().enumerate() {
            for direction in Direction::BOTH {
                let rest = spec.shapes[direction.index()].rest();
                let clocked = rest.filter(has_a_clock);
                restarts.extend(clocked.map(|setting| (link, direction, setting)));
            }
        }
        Ok(Self {
            now: 0,
            network,
            states: vec![InterfaceState::Up; ids.len()],
            carried: vec![Carried::default(); ids.len() * 2],
            ids,
            timeline: Timeline::new(actions),
            restarts,
            zero: None,
            interval: nanos(config.sample_interval),
            connections: Vec::new(),
            links: Vec::new(),
            lost: Vec::new(),
            lines: Vec::new(),
            blocked: BTreeSet::new(),
            udp: Vec::new(),
            node: None,
            agenda: Agenda::new(),
            news: Vec::new(),
            log: EventLog::new(),
            trace: None,
            #[cfg(test)]
            lies: Vec::new(),
        })
    }

    pub(crate) fn now(&self) -> Nanos {
        self.now
    }

    /// Time since the start of the run; 0 before.
    pub(crate) fn elapsed(&self) -> Nanos {
        self.zero.map_or(0, |zero| self.now - zero)
    }

    /// Converts a time since the start of the run to simulation time.
    pub(crate) fn at(&self, since: Nanos) -> Nanos {
        self.zero.unwrap_or(self.now) + since
    }

    pub(crate) fn log(&mut self) -> &mut EventLog {
        &mut self.log
    }

    /// Writes a trace from now on.
    pub(crate) fn set_trace(&mut self, trace: Option<Trace>) {
        self.trace = trace;
    }

    /// The trace, if one is written.
    pub(crate) fn trace(&mut self) -> Option<&mut Trace> {
        self.trace.as_mut()
    }

    pub(crate) fn take_trace(&mut self) -> Option<Trace> {
        self.trace.take()
    }

    /// Number of links.
    pub(crate) fn link_count(&self) -> usize {
        self.ids.len()
    }

    /// Whether the client's interface on this link reports a carrier signal.
    pub(crate) fn has_carrier(&self, link: usize) -> bool {
        matches!(
            self.states[link],
            InterfaceState::Up | InterfaceState::Blackhole
        )
    }

    /// Starts the run: scheduled changes count from now, and rate traces and scripted losses
    /// restart.
    pub(crate) fn begin(&mut self) {
        self.zero = Some(self.now);
        self.timeline.begin(duration(self.now));
        for (link, direction, setting) in std::mem::take(&mut self.restarts) {
            let id = self.ids[link][direction.index()];
            let now = duration(self.now);
            if let Some(change) = setting.to_change(now) {
                self.network.set(now, id, change);
            }
        }
    }

    /// Counters of a direction of a link.
    pub(crate) fn counters(&self, link: usize, direction: Direction) -> sumlink_link::Counters {
        self.network.counters(self.ids[link][direction.index()])
    }

    /// The bytes that a direction of a link delivered over time.
    pub(crate) fn carried(&self, link: usize, direction: Direction) -> &Carried {
        &self.carried[link * 2 + direction.index()]
    }

    /// Schedules `alarm`.
    pub(crate) fn wake(&mut self, at: Nanos, alarm: Alarm) {
        self.agenda.plan(at.max(self.now), Event::Alarm(alarm));
    }

    /// Advances to the next event, if it is not after `until`, and handles it; returns false if
    /// there is none.
    pub(crate) fn step(&mut self, until: Nanos) -> bool {
        let next = [
            self.timeline.next().map(nanos),
            self.network.next_deadline().map(nanos),
            self.agenda.next(),
        ];
        let Some(at) = next.into_iter().flatten().min().filter(|at| *at <= until) else {
            self.now = self.now.max(until);
            return false;
        };
        self.now = self.now.max(at);
        self.apply_planned();
        while let Some((id, delivery)) = self.network.poll(duration(self.now)) {
            self.arrive(id, &delivery.packet);
        }
        while let Some(event) = self.agenda.pop(self.now) {
            match event {
                Event::Tcp(connection, side) => self.fire(connection, side),
                Event::Quic(line, side) => self.fire_line(line, side),
                Event::Alarm(alarm) => self.news.push(News::Alarm(alarm)),
                Event::Node => self.wake_node(),
            }
        }
        self.work_node();
        true
    }

    /// Whether there is news since the last [`Net::take_news`].
    pub(crate) fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// Takes the news since the last call.
    pub(crate) fn take_news(&mut self, into: &mut Vec<News>) {
        into.clear();
        std::mem::swap(into, &mut self.news);
    }

    fn arrive(&mut self, id: LinkId, cargo: &Cargo) {
        if let Some(zero) = self.zero {
            let bucket = ((self.now - zero) / self.interval) as usize;
            let buckets = &mut self.carried[id.index()].buckets;
            if buckets.len() <= bucket {
                buckets.resize(bucket + 1, 0);
            }
            buckets[bucket] += sumlink_link::Packet::wire_len(cargo) as u64;
        }
        let packet = match cargo {
            Cargo::Segment(packet) => packet,
            Cargo::Quic(packet) => return self.arrive_on_line(packet),
            Cargo::Udp(udp) => return self.arrive_udp(udp),
            Cargo::Raw(bytes) => {
                let direction = Direction::BOTH[id.index() % 2];
                return self.arrive_raw(direction, bytes);
            }
        };
        let (connection, side) = (packet.connection as usize, packet.to);
        let who = connection as u64 * 2 + side.index() as u64;
        self.log.note(
            self.now,
            Kind::Packet,
            who,
            packet.seq ^ packet.ack.rotate_left(32),
        );
        if side == Side::Client && self.lost[connection].is_some() {
            return self.refuse(connection, packet);
        }
        let end = &mut self.connections[connection][side.index()];
        end.tcp.receive(packet, self.now);
        self.flush(connection, side);
        self.notify(connection, side);
    }

    fn fire(&mut self, connection: Connection, side: Side) {
        let end = &mut self.connections[connection][side.index()];
        if end.planned > self.now {
            return;
        }
        end.planned = Nanos::MAX;
        if end.tcp.deadline().is_some_and(|at| at <= self.now) {
            let who = connection as u64 * 2 + side.index() as u64;
            self.log.note(self.now, Kind::Timer, who, 0);
            end.tcp.on_time(self.now);
        }
        self.flush(connection, side);
        self.notify(connection, side);
    }

    fn notify(&mut self, connection: Connection, side: Side) {
        let news = News::Connection(connection, side);
        if self.news.last() != Some(&news) {
            self.news.push(news);
        }
    }

    fn apply_planned(&mut self) {
        while let Some((at, action)) = self.timeline.pop(duration(self.now)) {
            match action {
                Action::Link(link, change) => self.apply_to_link(at, link, &change),
                Action::Interferer(id, interferer) => {
                    // Cannot fail: the setting was checked when the network was built.
                    let _ = self.network.set_interferer(at, id, interferer);
                }
            }
        }
    }
}

impl Net {
    fn apply_to_link(&mut self, at: Duration, link: usize, change: &LinkChange) {
        self.log.note(self.now, Kind::Link, link as u64, 0);
        let mut is_told = false;
        match change.setting {
            Setting::State(state) => {
                self.states[link] = state;
                self.news.push(News::Link(link, state));
                is_told = true;
            }
            Setting::Connections(fate) => self.lose(link, fate),
            Setting::NewAddress => {
                // Packets to the old address reach no host.
                self.lose(link, Fate::Forgotten);
                self.news.push(News::NewAddress(link));
            }
            _ => {}
        }
        let zero = self.zero.map_or(Duration::ZERO, duration);
        for direction in change.directions() {
            let id = self.ids[link][direction.index()];
            if let Some(change) = change.setting.to_change(zero) {
                self.network.set(at, id, change);
            }
        }
        if is_told {
            self.report_link(link);
        }
    }
}

/// Whether a setting has a clock that restarts with the run: rate traces and scripted losses.
fn has_a_clock(setting: &Setting) -> bool {
    matches!(
        setting,
        Setting::Trace(_) | Setting::Loss(sumlink_link::Loss::Script(_))
    )
}
