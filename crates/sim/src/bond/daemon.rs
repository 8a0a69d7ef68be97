//! One end of a session, as the daemon's task drives it (`driver.rs` of `sumlink-transport`).

use std::collections::BTreeSet;
use std::time::Duration;

use sumlink_engine::{Config, ConfigError, Event, PathId, PathState, Role, Session};

use super::carrier::Carrier;
use super::rests::Rests;
use super::streams::Streams;
use super::wires::Wires;
use crate::clock::{MILLISECOND, Nanos, SECOND, duration, nanos};
use crate::net::{Alarm, Connection, Net};
use crate::tcp::Side;

/// Rounds in one go.
const ROUNDS: usize = 16;
/// What is due and cannot be sent is tried again after this time.
const OVERDUE_PAUSE: Nanos = 5 * MILLISECOND;
/// Pieces given to one carrier before the others get their turn.
const SEND_PIECES: usize = 4;
/// Bytes taken from one carrier before the others get their turn.
const RECEIVE_QUOTA: usize = 512 * 1024;
/// A carrier on which nothing is confirmed for this long is worth a new attempt on its link.
pub(super) const SILENCE: Nanos = 3 * SECOND;
/// So is one that has been stalled for this long, and these are looked at so often.
const USELESS: Nanos = 200 * MILLISECOND;
const USELESS_CHECK: Nanos = 100 * MILLISECOND;

/// What a daemon tells the manager of its links.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tell {
    /// A carrier has ended.
    Ended(PathId),
    /// Nothing has been confirmed on it for too long.
    Silent(PathId),
    /// It is of use again.
    Recovered(PathId),
}

/// What was received from the carriers.
#[derive(Clone, Copy, Debug, Default)]
struct Received {
    any: bool,
    /// There may be more.
    more: bool,
}

/// A session and its carriers.
#[derive(Debug)]
pub(super) struct Daemon {
    side: Side,
    pub(super) session: Session,
    pub(super) carriers: Vec<Carrier>,
    /// Which carrier is served first: the turn goes round.
    turn: usize,
    silence_check: Nanos,
    /// For when it is to be woken, as far as that is planned.
    planned: Nanos,
    /// For how long the selector has had which link rest.
    pub(super) rests: Rests,
    /// What it has to tell.
    pub(super) told: Vec<Tell>,
}

impl Daemon {
    pub(super) fn new(side: Side, config: Config) -> Result<Self, ConfigError> {
        Ok(Self {
            side,
            session: Session::new(config, Duration::ZERO)?,
            carriers: Vec::new(),
            turn: 0,
            silence_check: SILENCE,
            planned: Nanos::MAX,
            rests: Rests::default(),
            told: Vec::new(),
        })
    }

    /// The role of a side.
    pub(super) fn role(side: Side) -> Role {
        match side {
            Side::Client => Role::Client,
            Side::Server => Role::Server,
        }
    }

    /// A carrier is past its handshake.
    pub(super) fn add(
        &mut self,
        id: PathId,
        connection: Connection,
        net: &mut Net,
        wires: &mut Wires,
    ) {
        if self.session.check_path().is_err()
            && let Some(useless) = self.session.most_useless_path(duration(net.now()))
        {
            self.remove(useless, net, wires);
            self.told.push(Tell::Ended(useless));
        }
        if self.session.is_closed() || self.session.check_path().is_err() {
            // The other end must not take it for a path.
            net.abort(connection, self.side);
            self.told.push(Tell::Ended(id));
            return;
        }
        let mut carrier = Carrier::new(id, connection, self.side, net);
        self.session.path_up(id, duration(net.now()));
        self.tell(net, id, "up");
        self.session.path_link(id, net.link_of(connection) as u64);
        let now = duration(net.now());
        self.session.path_stats(id, carrier.sample(net), now);
        self.carriers.push(carrier);
    }

    fn tell(&self, net: &mut Net, path: PathId, event: &'static str) {
        let now = net.now();
        if let Some(trace) = net.trace() {
            trace.path(now, self.side, path, event);
        }
    }

    /// The daemon leaves a carrier.
    pub(super) fn remove(&mut self, id: PathId, net: &mut Net, wires: &mut Wires) {
        if let Some(index) = self.carriers.iter().position(|carrier| carrier.id == id) {
            let carrier = self.carriers.swap_remove(index);
            self.session.path_down(id, duration(net.now()));
            self.rests.end(id, net.now());
            self.tell(net, id, "down");
            wires.clear(carrier.connection, self.side);
            net.abort(carrier.connection, self.side);
        }
    }

    /// Whether what has changed at a connection wakes the daemon.
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

    /// The alarm went off; false if it was an old one.
    pub(super) fn on_alarm(&mut self, net: &Net) -> bool {
        let is_due = self.planned <= net.now();
        if is_due {
            self.planned = Nanos::MAX;
        }
        is_due
    }

    /// Bytes that the session holds: to be sent or sent and not acknowledged, and arrived and not read.
    pub(super) fn held(&self) -> u64 {
        self.session.held()
    }

    /// Does what there is to do, and says the most that the session held meanwhile.
    pub(super) fn take_turn(
        &mut self,
        net: &mut Net,
        wires: &mut Wires,
        streams: &mut Streams,
    ) -> u64 {
        let mut most = self.held();
        for _ in 0..ROUNDS {
            let Received { any, more } = self.receive(net, wires);
            // Before the programs read.
            most = most.max(self.held());
            self.sample(net, wires);
            self.session.handle_timeout(duration(net.now()));
            let was_told = self.events(net, streams, wires);
            let has_sent = self.transmit(net, wires);
            let is_told = self.events(net, streams, wires);
            self.look_for_silence(net);
            if !(more || has_sent || is_told) {
                // Who drives a real session looks once more where anything has moved. Here nothing arrives meanwhile, so that it
                // would be in vain; but the next carrier's turn comes.
                self.turn = self.turn.wrapping_add(usize::from(any || was_told));
                break;
            }
        }
        let now = net.now();
        if let Some(trace) = net.trace() {
            trace.held(now, self.side, self.session.stats().reorder);
        }
        self.arm(net);
        let carriers = &mut self.carriers;
        carriers
            .iter_mut()
            .for_each(|carrier| carrier.acknowledge(net));
        most.max(self.held())
    }

    fn arm(&mut self, net: &mut Net) {
        let now = net.now();
        let engine = self.session.poll_timeout().map(nanos);
        let engine = engine.map(|at| if at > now { at } else { now + OVERDUE_PAUSE });
        let silence = (!self.carriers.is_empty() && self.side == Side::Client)
            .then_some(self.silence_check.max(now + 1));
        if let Some(at) = engine.into_iter().chain(silence).min()
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
                // A fault closes the session, which is told as an event.
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
                self.carriers.swap_remove(index);
                wires.clear(connection, self.side);
                self.session.path_down(id, now);
                self.rests.end(id, net.now());
                self.tell(net, id, "down");
                self.told.push(Tell::Ended(id));
                continue;
            }
            index += 1;
        }
        all
    }

    fn events(&mut self, net: &mut Net, streams: &mut Streams, wires: &mut Wires) -> bool {
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
                Event::PathStalled { .. } | Event::PathDoubted { .. } => {
                    self.silence_check = self.silence_check.min(now + USELESS);
                }
                Event::PathRecovered { path } => {
                    let stats = self.session.path_stats_all(duration(now));
                    let mut of_path = stats.iter().filter(|stats| stats.id == path);
                    if of_path.all(|stats| stats.useless_for.is_none()) {
                        self.told.push(Tell::Recovered(path));
                    }
                }
                Event::PathLeft { path } => {
                    self.remove(path, net, wires);
                    self.told.push(Tell::Ended(path));
                }
                _ => {}
            }
            streams.on_event(&event, self.side, &mut self.session, net);
        }
        moved
    }

    fn sample(&mut self, net: &mut Net, wires: &mut Wires) {
        for carrier in &mut self.carriers {
            // Whether it takes anything is a part of the sample.
            carrier.poll_writable(net, wires.pipe(carrier.connection, self.side.peer()));
            let sample = carrier.sample(net);
            let (at, link) = (net.now(), net.link_of(carrier.connection));
            if let Some(trace) = net.trace() {
                trace.sample(at, self.side, carrier.id, link, &sample);
            }
            self.session.path_stats(carrier.id, sample, duration(at));
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
            // Before the first one, nothing has changed on this carrier since all were sampled.
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
        let now = net.now();
        if now < self.silence_check {
            return;
        }
        self.silence_check = now + SILENCE;
        if self.side == Side::Server {
            return;
        }
        for path in self.session.path_stats_all(duration(now)) {
            if path.stuck_for.is_some() {
                self.silence_check = self.silence_check.min(now + SILENCE / 6);
            }
            if path.useless_for.is_some() {
                self.silence_check = self.silence_check.min(now + USELESS_CHECK);
            }
            let is_stuck = path.stuck_for.is_some_and(|time| nanos(time) >= SILENCE);
            let is_long = |time| nanos(time) >= USELESS;
            let is_still = path.still_for.is_none_or(is_long);
            if is_stuck || is_still && path.useless_for.is_some_and(is_long) {
                self.told.push(Tell::Silent(path.id));
            }
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
