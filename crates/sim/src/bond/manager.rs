//! The client's manager of carriers: dials links, replaces silent paths, follows links that come
//! and go.
//!
//! As in the daemon, [`sumlink_bond::Link`] decides when a link is dialed and which of its paths
//! are replaced. This module performs the dials: a connection, then the flights of TLS and of the
//! session's handshake over it.

use std::time::Duration;

use sumlink_bond::dial::{
    CONNECT_TIMEOUT, ENDED_PAUSE, HANDSHAKE_TIMEOUT, REFUSED_PAUSE, attempt_pause,
};
use sumlink_bond::{Carriers, Link, LinkTraffic, Moved};
use sumlink_engine::{DatagramPolicy, PathId};
use sumlink_link::Random;

use super::daemon::{Daemon, Report};
use super::lines::Lines;
use super::wires::Wires;
use crate::clock::{MILLISECOND, Nanos, duration, nanos};
use crate::net::{Alarm, Connection, Net};
use crate::tcp::{Group, HEADERS, Side, TcpConfig};

/// Wire bytes of the handshake's flights: the client's first flight of TLS, the server's, the
/// client's second one with HELLO, and the server's answer.
const FLIGHTS: [u64; 4] = [260, 780, 620, 60];

/// How a bond carries datagrams. Without any it has no datagram paths: idle ones would send little
/// more than a packet in ten seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Carrying {
    /// The policy of both sides.
    pub(crate) policy: DatagramPolicy,
    /// Links have QUIC carriers; otherwise datagrams take TCP.
    pub(crate) udp: bool,
}

/// Settings of a bond's carriers.
#[derive(Clone, Debug)]
pub(crate) struct Dialing {
    /// TCP configuration of their sockets.
    pub(crate) tcp: TcpConfig,
    /// Their congestion control is chosen by measurement, starting with the one of `tcp`.
    pub(crate) chooses: bool,
    /// Number of carriers per link.
    pub(crate) carriers: Carriers,
    /// How the programs' datagrams are carried; none if they use no datagrams.
    pub(crate) datagrams: Option<Carrying>,
}

/// A connection before it becomes a carrier.
#[derive(Debug)]
struct Dial {
    connection: Connection,
    link: usize,
    path: PathId,
    begun: Nanos,
    /// Flights sent by each side.
    sent: [usize; 2],
    /// It is one of the attempts on a silent link.
    is_attempt: bool,
    packet_limit: Option<u16>,
}

/// Successive connection attempts on a silent link, until one gets through.
#[derive(Debug)]
struct Attempts {
    link: usize,
    begun: Nanos,
    /// Start of the next attempt.
    next: Nanos,
    /// The connection that got through and asks to join; no further attempt starts meanwhile.
    joining: Option<Connection>,
    packet_limit: Option<u16>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Manager {
    dialing: Dialing,
    /// Sibling groups of the carriers, indexed by the sender's side.
    groups: [Group; 2],
    links: Vec<Link<()>>,
    dials: Vec<Dial>,
    attempts: Vec<Attempts>,
    next_path: u32,
    /// Paths to close.
    leaving: Vec<PathId>,
}

impl Manager {
    pub(super) fn new(dialing: Dialing, links: usize) -> Self {
        Self {
            dialing,
            groups: Default::default(),
            links: (0..links).map(|_| Link::default()).collect(),
            dials: Vec::new(),
            attempts: Vec::new(),
            next_path: 0,
            leaving: Vec::new(),
        }
    }

    /// Number of paths that the bond should have now.
    pub(super) fn wanted(&self) -> usize {
        let carriers = self.dialing.carriers;
        self.links.iter().map(|link| link.wanted(carriers)).sum()
    }

    /// Keeps a QUIC carrier on every link that has a path; returns the links that have none any
    /// more.
    pub(super) fn keep_lines(&mut self, lines: &mut Lines, net: &mut Net) -> Vec<usize> {
        let links = &self.links;
        let next = &mut self.next_path;
        let next_path = || {
            *next += 1;
            PathId(*next - 1)
        };
        lines.keep(|link| !links[link].paths.is_empty(), next_path, net)
    }

    /// Paths to close.
    pub(super) fn take_leaving(&mut self) -> Vec<PathId> {
        std::mem::take(&mut self.leaving)
    }

    /// Dials all links within a few milliseconds, in random order.
    pub(super) fn start(&mut self, net: &mut Net, random: &mut Random) {
        for link in &mut self.links {
            let at = net.now() + random.next_u64() % (5 * MILLISECOND);
            link.retry_at = Some(duration(at));
            net.wake(at, Alarm::Manager);
        }
    }

    fn dial_if_due(&mut self, link: usize, net: &mut Net, wires: &mut Wires) {
        let is_due = self.links[link].is_due(self.dialing.carriers, duration(net.now()));
        if is_due && net.has_carrier(link) {
            self.dial(link, None, net, wires);
        }
    }

    /// Dials a link. To replace the path of a silent link, it dials until a connection gets
    /// through.
    fn dial(&mut self, link: usize, replacing: Option<PathId>, net: &mut Net, wires: &mut Wires) {
        let (now, carriers) = (net.now(), self.dialing.carriers);
        let packet_limit = self.links[link].dial(replacing, carriers, duration(now));
        if replacing.is_none() {
            return self.connect(link, packet_limit, false, net, wires);
        }
        self.attempts.push(Attempts {
            link,
            begun: now,
            next: now,
            joining: None,
            packet_limit,
        });
        self.connect_again(net, wires);
    }

    fn connect(
        &mut self,
        link: usize,
        packet_limit: Option<u16>,
        is_attempt: bool,
        net: &mut Net,
        wires: &mut Wires,
    ) {
        let mut tcp = self.dialing.tcp.clone();
        if let Some(limit) = packet_limit {
            tcp.mss = tcp.mss.min(u32::from(limit) - HEADERS as u32);
        }
        // Cannot fail: the congestion control's name was checked before the run.
        let Ok(connection) = net.connect(link, &tcp) else {
            return;
        };
        net.join(connection, &self.groups);
        wires.add(connection);
        let path = PathId(self.next_path);
        self.next_path += 1;
        self.dials.push(Dial {
            connection,
            link,
            path,
            begun: net.now(),
            sent: [0; 2],
            is_attempt,
            packet_limit,
        });
        for limit in [CONNECT_TIMEOUT, CONNECT_TIMEOUT + HANDSHAKE_TIMEOUT] {
            net.wake(net.now() + nanos(limit), Alarm::Manager);
        }
    }

    /// Starts the next attempt on each silent link for which it is due.
    fn connect_again(&mut self, net: &mut Net, wires: &mut Wires) {
        let now = net.now();
        let mut due = Vec::new();
        for attempts in &mut self.attempts {
            if attempts.joining.is_some() || attempts.next > now {
                continue;
            }
            attempts.next = now + nanos(attempt_pause(duration(now - attempts.begun)));
            net.wake(attempts.next, Alarm::Manager);
            due.push((attempts.link, attempts.packet_limit));
        }
        for (link, packet_limit) in due {
            self.connect(link, packet_limit, true, net, wires);
        }
    }

    /// Handles a change at one end of a connection; returns whether the daemon of that side has a
    /// new carrier.
    pub(super) fn on_connection(
        &mut self,
        net: &mut Net,
        connection: Connection,
        side: Side,
        daemons: &mut [Daemon; 2],
        wires: &mut Wires,
    ) -> bool {
        let Some(index) = self.dials.iter().position(|d| d.connection == connection) else {
            return false;
        };
        let tcp = net.tcp(connection, side);
        if tcp.state().has_ended() {
            if side == Side::Client {
                self.fail(index, net);
            }
            return false;
        }
        if !tcp.is_established() {
            return false;
        }
        let received = tcp.received();
        let may_join = !self.is_joining(index);
        let dial = &mut self.dials[index];
        let [client, server] = &mut dial.sent;
        let (path, of_carrier) = (dial.path, (self.dialing.chooses, dial.packet_limit));
        match (side, &client, &server) {
            (Side::Client, 0, _) => {
                *client = 1;
                net.write(connection, side, FLIGHTS[0]);
            }
            (Side::Server, _, 0) if received >= FLIGHTS[0] => {
                *server = 1;
                net.write(connection, side, FLIGHTS[1]);
            }
            (Side::Client, 1, _) if received >= FLIGHTS[1] && may_join => {
                *client = 2;
                self.join(index);
                net.write(connection, side, FLIGHTS[2]);
            }
            (Side::Server, _, 1) if received >= FLIGHTS[0] + FLIGHTS[2] => {
                *server = 2;
                net.write(connection, side, FLIGHTS[3]);
                daemons[side.index()].add(path, connection, of_carrier, net, wires);
                return true;
            }
            (Side::Client, 2, _) if received >= FLIGHTS[1] + FLIGHTS[3] => {
                self.joined(index, net);
                daemons[side.index()].add(path, connection, of_carrier, net, wires);
                return true;
            }
            _ => {}
        }
        false
    }

    /// Whether another attempt on the same link asks to join: only one of them sends HELLO.
    fn is_joining(&self, dial: usize) -> bool {
        let dial = &self.dials[dial];
        let mut of_link = self.attempts.iter().filter(|a| a.link == dial.link);
        dial.is_attempt && of_link.any(|attempts| attempts.joining.is_some())
    }

    /// A connection sends HELLO.
    fn join(&mut self, dial: usize) {
        let dial = &self.dials[dial];
        if dial.is_attempt {
            let mut of_link = self.attempts.iter_mut().filter(|a| a.link == dial.link);
            if let Some(attempts) = of_link.next() {
                attempts.joining = Some(dial.connection);
            }
        }
    }

    fn joined(&mut self, index: usize, net: &mut Net) {
        let dial = self.dials.remove(index);
        self.end_dial(dial.link, net);
        let now = duration(net.now());
        let replaced = self.links[dial.link].joined(dial.path, (), now);
        self.leaving.extend(replaced);
        // The next carrier of several.
        net.wake(net.now(), Alarm::Manager);
    }

    /// The dial of a link has ended, or is no longer needed.
    fn end_dial(&mut self, link: usize, net: &mut Net) {
        self.attempts.retain(|attempts| attempts.link != link);
        while let Some(index) = self.dials.iter().position(|dial| dial.link == link) {
            let dial = self.dials.remove(index);
            net.abort(dial.connection, Side::Client);
            // Another dial of the link may have waited for this one.
            net.wake(net.now(), Alarm::Manager);
        }
    }

    fn fail(&mut self, index: usize, net: &mut Net) {
        let dial = self.dials.remove(index);
        net.abort(dial.connection, Side::Client);
        if dial.is_attempt {
            // Further attempts start as long as the link is silent.
            for attempts in &mut self.attempts {
                if attempts.joining == Some(dial.connection) {
                    attempts.joining = None;
                    net.wake(attempts.next, Alarm::Manager);
                }
            }
            return;
        }
        let link = &mut self.links[dial.link];
        link.failed(duration(net.now()));
        wake(net, link);
    }

    /// Ends dials that take too long, and dials links that lack carriers.
    pub(super) fn on_alarm(&mut self, net: &mut Net, wires: &mut Wires) {
        let now = net.now();
        let is_late = |dial: &Dial| {
            let connected = net.tcp(dial.connection, Side::Client).is_established();
            let limit = match connected {
                true => CONNECT_TIMEOUT + HANDSHAKE_TIMEOUT,
                false => CONNECT_TIMEOUT,
            };
            now >= dial.begun + nanos(limit)
        };
        let late: Vec<usize> = (0..self.dials.len())
            .rev()
            .filter(|index| is_late(&self.dials[*index]))
            .collect();
        for index in late {
            self.fail(index, net);
        }
        for link in 0..self.links.len() {
            self.dial_if_due(link, net, wires);
        }
        self.connect_again(net, wires);
    }

    /// Handles a report of the client's daemon about its carriers.
    pub(super) fn on_report(&mut self, report: Report, net: &mut Net, wires: &mut Wires) {
        match report {
            Report::Ended(path) => self.on_end(path, ENDED_PAUSE, net),
            Report::Refused(path) => self.on_end(path, REFUSED_PAUSE, net),
            Report::Silent {
                path,
                loses_large,
                packet_limit,
            } => self.on_silence(path, (loses_large, packet_limit), net, wires),
            Report::Recovered(path) => {
                let recovers = |link: &mut Link<()>| link.recovered(path);
                if let Some(link) = self.links.iter_mut().position(recovers) {
                    self.end_dial(link, net);
                }
            }
            Report::Traffic(links) => self.on_traffic(&links, net, wires),
            Report::LineEnded(_) => {}
        }
    }

    fn on_end(&mut self, path: PathId, pause: Duration, net: &mut Net) {
        let now = duration(net.now());
        for link in &mut self.links {
            if link.ended(path, pause, now) {
                wake(net, link);
            }
        }
    }

    /// A path has had no acknowledgment for too long.
    fn on_silence(
        &mut self,
        path: PathId,
        (loses_large, packet_limit): (bool, Option<u16>),
        net: &mut Net,
        wires: &mut Wires,
    ) {
        let Some(link) = self.links.iter().position(|link| link.has(path)) else {
            return;
        };
        let now = duration(net.now());
        let silence = self.links[link].on_silence(loses_large, packet_limit, now);
        if silence.gives_up {
            self.end_dial(link, net);
        }
        if silence.dials && net.has_carrier(link) {
            self.dial(link, Some(path), net, wires);
        }
    }

    /// Adjusts the number of carriers per link to their traffic.
    fn on_traffic(&mut self, links: &[LinkTraffic<usize>], net: &mut Net, wires: &mut Wires) {
        let session = links.iter().map(|link| link.bytes).sum();
        for traffic in links {
            let moved = Moved {
                link: traffic.bytes,
                session,
                is_queueing: traffic.is_queueing,
            };
            let state = &mut self.links[traffic.link];
            let Some((before, carriers)) = state.on_traffic(moved, duration(net.now())) else {
                continue;
            };
            if carriers < before {
                let (superfluous, gives_up) = state.superfluous(carriers.into());
                self.leaving.extend(superfluous);
                if gives_up {
                    self.end_dial(traffic.link, net);
                }
            }
            self.dial_if_due(traffic.link, net, wires);
        }
    }

    /// A link is up again and is dialed at once.
    pub(super) fn link_up(&mut self, link: usize, net: &mut Net, wires: &mut Wires) {
        self.links[link].changed();
        self.dial_if_due(link, net, wires);
    }

    /// A link is down; returns its paths, which are closed.
    pub(super) fn link_down(&mut self, link: usize, net: &mut Net) -> Vec<PathId> {
        self.end_dial(link, net);
        let paths = self.links[link].leave();
        paths.into_iter().map(|(path, ())| path).collect()
    }
}

/// Wakes the manager when the link may be dialed again.
fn wake(net: &mut Net, link: &Link<()>) {
    if let Some(at) = link.retry_at {
        net.wake(nanos(at), Alarm::Manager);
    }
}
