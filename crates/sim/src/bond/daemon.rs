//! One end of a session: the engine, its carriers, and the rounds of the task that drives them
//! (`driver.rs` of `sumlink-transport`). The decisions are those of [`sumlink_bond`].

mod datagrams;

use std::collections::BTreeSet;
use std::time::Duration;

use sumlink_bond::join::{CLIENT_PATHS, SERVER_PATHS, path_to_replace, refusal};
use sumlink_bond::turns::{OVERDUE_PAUSE, RECEIVE_QUOTA, ROUNDS, SEND_PIECES};
use sumlink_bond::{Health, LinkTraffic, Traffic, beside_calls, is_stalled};
use sumlink_engine::{Config, ConfigError, Event, PathId, PathState, Role, Session};

use super::carrier::Carrier;
use super::flows::Flows;
use super::rests::Rests;
use super::streams::Streams;
use super::wires::Wires;
use crate::clock::{Nanos, duration, nanos};
use crate::net::{Alarm, Connection, Line, Net};
use crate::tcp::Side;
use datagrams::Datagrams;

/// A report of a daemon to the manager of its links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// A carrier has ended.
    Ended(PathId),
    /// The session accepts no more paths at present.
    Refused(PathId),
    /// Nothing has been acknowledged on the path for too long.
    Silent {
        path: PathId,
        /// Large packets seem to be lost and small ones do not.
        loses_large: bool,
        /// Size limit of its packets.
        packet_limit: Option<u16>,
    },
    /// The path works again.
    Recovered(PathId),
    /// Bytes moved by each link.
    Traffic(Vec<LinkTraffic<usize>>),
    /// A QUIC carrier has ended.
    LineEnded(Line),
}

/// Result of receiving from the carriers.
#[derive(Clone, Copy, Debug, Default)]
struct Received {
    any: bool,
    /// More data may be available.
    more: bool,
}

/// A session and its carriers.
#[derive(Debug)]
pub(super) struct Daemon {
    pub(super) side: Side,
    pub(super) session: Session,
    pub(super) carriers: Vec<Carrier>,
    datagrams: Datagrams,
    /// The carrier that is served first; rotates.
    turn: usize,
    health: Health,
    /// Traffic of each link's carriers, if it determines their number.
    traffic: Option<Traffic<usize>>,
    /// Time of the next scheduled wake.
    planned: Nanos,
    /// Time for which the selector has rested each link.
    pub(super) rests: Rests,
    /// Reports for the manager.
    pub(super) reports: Vec<Report>,
}

impl Daemon {
    /// Creates a daemon; `measures` if the number of carriers is chosen by measurement, and
    /// `has_datagrams` if the programs use datagrams.
    pub(super) fn new(
        side: Side,
        config: Config,
        (measures, has_datagrams): (bool, bool),
    ) -> Result<Self, ConfigError> {
        Ok(Self {
            side,
            session: Session::new(config, Duration::ZERO)?,
            carriers: Vec::new(),
            datagrams: Datagrams::new(has_datagrams),
            turn: 0,
            health: Health::new(Duration::ZERO),
            traffic: measures.then(|| Traffic::new(Duration::ZERO)),
            planned: Nanos::MAX,
            rests: Rests::default(),
            reports: Vec::new(),
        })
    }

    /// The role of a side.
    pub(super) fn role(side: Side) -> Role {
        match side {
            Side::Client => Role::Client,
            Side::Server => Role::Server,
        }
    }

    /// Most paths of the session.
    pub(super) fn max_paths(&self) -> usize {
        match self.side {
            Side::Client => CLIENT_PATHS,
            Side::Server => SERVER_PATHS,
        }
    }

    /// A carrier has completed its handshake.
    pub(super) fn add(
        &mut self,
        id: PathId,
        connection: Connection,
        of_carrier: (bool, Option<u16>),
        net: &mut Net,
        wires: &mut Wires,
    ) {
        let most = self.max_paths();
        let (count, now) = (self.carriers.len(), duration(net.now()));
        if let Some(replaced) = path_to_replace(&self.session, false, count, most, now) {
            self.remove(replaced, net, wires);
            self.reports.push(Report::Ended(replaced));
        }
        let is_refused = refusal(&self.session, false, self.carriers.len(), most).is_some();
        if self.session.is_closed() || is_refused {
            // The other end must not use it as a path.
            net.abort(connection, self.side);
            self.reports.push(Report::Refused(id));
            return;
        }
        let mut carrier = Carrier::new(id, connection, self.side, of_carrier, net);
        self.session.path_up(id, duration(net.now()));
        self.log_path(net, id, "up");
        self.session.path_link(id, net.link_of(connection) as u64);
        let now = duration(net.now());
        self.session.path_stats(id, carrier.sample(net), now);
        self.carriers.push(carrier);
        self.choose_stand_ins(net);
    }

    fn log_path(&self, net: &mut Net, path: PathId, event: &'static str) {
        let now = net.now();
        if let Some(trace) = net.trace() {
            trace.path(now, self.side, path, event);
        }
    }

    /// Closes a carrier.
    pub(super) fn remove(&mut self, id: PathId, net: &mut Net, wires: &mut Wires) {
        if let Some(index) = self.carriers.iter().position(|carrier| carrier.id == id) {
            let carrier = self.carriers.swap_remove(index);
            self.count_ended(&carrier, net);
            self.session.path_down(id, duration(net.now()));
            self.rests.end(id, net.now());
            self.log_path(net, id, "down");
            wires.clear(carrier.connection, self.side);
            net.abort(carrier.connection, self.side);
            self.choose_stand_ins(net);
        }
    }

    fn count_ended(&mut self, carrier: &Carrier, net: &Net) {
        if let Some(traffic) = &mut self.traffic {
            traffic.ended(net.link_of(carrier.connection), carrier.bytes_moved());
        }
    }

    /// Whether a change of a connection wakes the daemon.
    pub(super) fn is_woken(&mut self, connection: Connection, net: &Net, wires: &Wires) -> bool {
        let Some(carrier) = self
            .carriers
            .iter_mut()
            .find(|carrier| carrier.connection == connection)
        else {
            return false;
        };
        let tcp = net.tcp(connection, self.side);
        let has_record = wires.has_record(connection, self.side, tcp.received());
        carrier.has_become_writable(net) || has_record || tcp.state().has_ended()
    }

    /// The alarm expired; returns false for an outdated one.
    pub(super) fn on_alarm(&mut self, net: &Net) -> bool {
        let is_due = self.planned <= net.now();
        if is_due {
            self.planned = Nanos::MAX;
        }
        is_due
    }

    /// Bytes that the session holds: unsent, unacknowledged, and received but unread.
    pub(super) fn held(&self) -> u64 {
        self.session.held()
    }

    /// Does all pending work, and returns the most bytes that the session held meanwhile.
    pub(super) fn take_turn(
        &mut self,
        net: &mut Net,
        wires: &mut Wires,
        (streams, flows): (&mut Streams, &mut Flows),
    ) -> u64 {
        let mut most = self.held();
        for _ in 0..ROUNDS {
            let Received { any, more } = self.receive(net, wires);
            let has_datagrams = self.receive_datagrams(flows, net);
            // Measured before the programs read.
            most = most.max(self.held());
            self.sample(net, wires);
            self.sample_datagrams(net);
            self.session.handle_timeout(duration(net.now()));
            let had_events = self.events(net, (streams, flows), wires);
            let has_delivered = self.deliver_datagrams(flows, net);
            let has_sent = self.transmit_datagrams(net) | self.transmit(net, wires);
            let has_events = self.events(net, (streams, flows), wires);
            if self.side == Side::Client {
                streams.end_overdue(&mut self.session, duration(net.now()));
            }
            self.look_for_silence(net);
            self.report_traffic(net);
            if !(more || has_datagrams || has_delivered || has_sent || has_events) {
                // A real driver polls again after any progress. Here no data arrives in between, so
                // a second poll would find nothing; but the next carrier takes its turn.
                self.turn = self.turn.wrapping_add(usize::from(any || had_events));
                break;
            }
        }
        let now = net.now();
        if let Some(trace) = net.trace() {
            trace.held(now, self.side, self.session.stats().reorder);
            trace.threshold(now, self.side, self.session.selector_threshold());
        }
        self.arm(net, streams);
        let carriers = &mut self.carriers;
        carriers
            .iter_mut()
            .for_each(|carrier| carrier.acknowledge(net));
        most.max(self.held())
    }

    fn arm(&mut self, net: &mut Net, streams: &Streams) {
        let now = net.now();
        let engine = self.session.poll_timeout().map(nanos);
        let engine = engine.map(|at| {
            if at > now {
                at
            } else {
                now + nanos(OVERDUE_PAUSE)
            }
        });
        let silence = (!self.carriers.is_empty() && self.side == Side::Client)
            .then_some(nanos(self.health.due()).max(now + 1));
        let opens = (self.side == Side::Client).then(|| streams.due()).flatten();
        let opens = opens.map(|at| nanos(at).max(now + 1));
        if let Some(at) = engine.into_iter().chain(silence).chain(opens).min()
            && at < self.planned
        {
            self.planned = at;
            net.wake(at, Alarm::Session(self.side));
        }
    }

    fn receive(&mut self, net: &mut Net, wires: &mut Wires) -> Received {
        let mut all = Received::default();
        let mut index = 0;
        while index < self.carriers.len() {
            let carrier = &mut self.carriers[index];
            let (id, connection) = (carrier.id, carrier.connection);
            let tcp = net.tcp(connection, self.side);
            let received = tcp.received();
            let has_ended = tcp.state().has_ended();
            let now = duration(net.now());
            let mut taken = 0;
            while taken < RECEIVE_QUOTA {
                // A fault closes the session, which an event reports.
                let record = wires.take(connection, self.side, received, |frames| {
                    let _ = self.session.handle_frames(id, frames, now);
                });
                let Some(len) = record else { break };
                taken += len;
            }
            all.any |= taken > 0;
            all.more |= taken >= RECEIVE_QUOTA;
            if taken > 0 {
                carrier.read(received, net);
            }
            if has_ended {
                all = Received {
                    any: true,
                    more: true,
                };
                let carrier = self.carriers.swap_remove(index);
                self.count_ended(&carrier, net);
                wires.clear(connection, self.side);
                self.session.path_down(id, now);
                self.rests.end(id, net.now());
                self.log_path(net, id, "down");
                self.reports.push(Report::Ended(id));
                self.choose_stand_ins(net);
                continue;
            }
            index += 1;
        }
        all
    }

    fn events(
        &mut self,
        net: &mut Net,
        (streams, flows): (&mut Streams, &mut Flows),
        wires: &mut Wires,
    ) -> bool {
        let mut moved = false;
        let now = net.now();
        while let Some(event) = self.session.poll_event() {
            moved = true;
            if let Event::PathSelected {
                path, selection, ..
            } = &event
                && let Some(carrier) = self.carriers.iter().find(|carrier| carrier.id == *path)
            {
                let link = net.link_of(carrier.connection);
                self.rests.note(*path, link, selection.rests(), now);
            }
            if let Some(trace) = net.trace() {
                match &event {
                    Event::PathSelected {
                        path,
                        selection,
                        reason,
                    } => trace.selected(now, self.side, *path, *selection, reason),
                    Event::PathStalled { path, .. } => trace.path(now, self.side, *path, "stalled"),
                    Event::PathRecovered { path } => trace.path(now, self.side, *path, "recovered"),
                    _ => {}
                }
            }
            match event {
                Event::PathStalled { .. } | Event::PathStalledAtPeer { .. } => {
                    self.health.look_soon(duration(now));
                }
                Event::PathRecovered { path } => {
                    let stats = self.session.path_stats_all(duration(now));
                    if !is_stalled(&stats, path) {
                        self.reports.push(Report::Recovered(path));
                    }
                }
                Event::PathLeft { path } => {
                    self.remove(path, net, wires);
                    self.reports.push(Report::Ended(path));
                }
                _ => {}
            }
            streams.on_event(&event, self.side, &mut self.session, net);
            flows.on_event(&event, self.side, &mut self.session, net);
        }
        moved
    }

    fn sample(&mut self, net: &mut Net, wires: &mut Wires) {
        self.note_calls(net);
        for carrier in &mut self.carriers {
            // The sample includes whether the carrier is writable.
            carrier.poll_writable(net, wires.pipe(carrier.connection, self.side.peer()));
            let sample = carrier.sample(net);
            let (at, link) = (net.now(), net.link_of(carrier.connection));
            if let Some(trace) = net.trace() {
                trace.sample(at, self.side, carrier.id, link, &sample);
            }
            self.session.path_stats(carrier.id, sample, duration(at));
        }
    }

    /// Lets the carriers know whether a call uses their links.
    fn note_calls(&mut self, net: &mut Net) {
        let now = duration(net.now());
        let carriers = self.carriers.iter();
        let links = carriers.map(|carrier| net.link_of(carrier.connection) as u64);
        let beside = beside_calls(&self.session, links, now);
        for (index, carrier) in self.carriers.iter_mut().enumerate() {
            carrier.set_call(beside.get(index).copied().flatten(), net);
        }
    }

    fn transmit(&mut self, net: &mut Net, wires: &mut Wires) -> bool {
        self.turn = self.turn.wrapping_add(1);
        let count = self.carriers.len();
        let mut moved = false;
        for step in 0..count {
            let index = (self.turn + step) % count;
            moved |= self.transmit_on(index, net, wires);
        }
        moved
    }

    fn transmit_on(&mut self, index: usize, net: &mut Net, wires: &mut Wires) -> bool {
        let carrier = &mut self.carriers[index];
        let (id, connection, to) = (carrier.id, carrier.connection, self.side.peer());
        let mut moved = false;
        for piece in 0..SEND_PIECES {
            if !carrier.poll_writable(net, wires.pipe(connection, to)) {
                return moved;
            }
            let now = duration(net.now());
            // Before the first piece, nothing has changed on this carrier since all were sampled.
            if piece > 0 {
                self.session.path_stats(id, carrier.sample(net), now);
            }
            let budget = carrier.budget();
            let mut frames = wires.memory(budget);
            if self.session.poll_transmit(id, budget, now, &mut frames) == 0 {
                wires.put_back(frames);
                return moved;
            }
            let at = net.now();
            if let Some(trace) = net.trace() {
                trace.sent(at, self.side, id, &frames);
            }
            moved = true;
            carrier.send(frames, wires.pipe(connection, to));
        }
        carrier.poll_writable(net, wires.pipe(connection, to));
        moved
    }

    fn look_for_silence(&mut self, net: &Net) {
        let (now, session) = (duration(net.now()), &self.session);
        if self.side == Side::Server {
            self.health.look(now, Vec::new);
            return;
        }
        for path in self.health.look(now, || session.path_stats_all(now)) {
            let mut carriers = self.carriers.iter();
            if let Some(carrier) = carriers.find(|carrier| carrier.id == path) {
                self.reports.push(Report::Silent {
                    path,
                    loses_large: carrier.loses_large_packets(),
                    packet_limit: carrier.packet_limit,
                });
            }
        }
    }

    /// Reports the carriers' traffic to the manager, which chooses their number.
    fn report_traffic(&mut self, net: &Net) {
        let now = duration(net.now());
        if let Some(traffic) = &mut self.traffic
            && traffic.is_due(now)
        {
            let carriers = self.carriers.iter().map(|carrier| {
                let link = net.link_of(carrier.connection);
                (link, carrier.bytes_moved(), carrier.is_queueing())
            });
            self.reports
                .push(Report::Traffic(traffic.report(carriers, now)));
        }
    }

    /// Paths that deliver.
    pub(super) fn active_paths(&self) -> BTreeSet<PathId> {
        let active = self
            .session
            .paths()
            .filter(|path| path.state() == PathState::Active);
        active.map(|path| path.id()).collect()
    }
}
