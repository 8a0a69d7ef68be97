//! Who makes carriers at the client: dials links, replaces what is silent, follows links that come and go (`client/` of
//! `sumlink-transport`).

use sumlink_engine::PathId;
use sumlink_link::Random;

use super::daemon::Daemon;
use super::wires::Wires;
use crate::clock::{MILLISECOND, Nanos, SECOND};
use crate::net::{Alarm, Connection, Net};
use crate::tcp::{Group, Side, TcpConfig};

/// How long a connection may take to be made, and the handshake after it.
const CONNECT_TIMEOUT: Nanos = 5 * SECOND;
const HANDSHAKE_TIMEOUT: Nanos = 10 * SECOND;
/// Pause before a link that failed is tried again; doubles up to the second value.
const RETRY_PAUSE: (Nanos, Nanos) = (250 * MILLISECOND, 5 * SECOND);

/// Bytes of the handshake on the wire: the client's first flight of TLS, the server's, the client's second one with
/// HELLO, and the server's answer.
const FLIGHTS: [u64; 4] = [260, 780, 620, 60];

/// A connection before it is a carrier.
#[derive(Debug)]
struct Dial {
    connection: Connection,
    link: usize,
    path: PathId,
    begun: Nanos,
    /// Flights sent by each side.
    sent: [usize; 2],
    /// The path that it is to replace.
    replacing: Option<PathId>,
}

/// A link on which nothing gets through is dialed again and again until something does.
#[derive(Debug)]
struct Probe {
    link: usize,
    /// The path that is silent.
    path: PathId,
    begun: Nanos,
    /// When it is dialed next.
    next: Nanos,
}

impl Probe {
    /// Time until the next dial of one that has been tried for so long.
    fn pause(&self, now: Nanos) -> Nanos {
        match (now - self.begun) / SECOND {
            0..10 => 250 * MILLISECOND,
            10..60 => SECOND,
            _ => 5 * SECOND,
        }
    }
}

/// What is known of a link.
#[derive(Clone, Debug, Default)]
struct Link {
    paths: Vec<PathId>,
    failures: u32,
    /// No dial before.
    retry_at: Nanos,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Manager {
    tcp: TcpConfig,
    /// Carriers are siblings, by their sender's side.
    groups: [Group; 2],
    /// Carriers for each link.
    carriers: usize,
    links: Vec<Link>,
    dials: Vec<Dial>,
    probes: Vec<Probe>,
    next_path: u32,
    /// Paths that their replacement has arrived for.
    leaving: Vec<PathId>,
}

impl Manager {
    pub(super) fn new(tcp: TcpConfig, links: usize, carriers: usize) -> Self {
        Self {
            tcp,
            groups: Default::default(),
            carriers,
            links: vec![Link::default(); links],
            dials: Vec::new(),
            probes: Vec::new(),
            next_path: 0,
            leaving: Vec::new(),
        }
    }

    /// Paths that there should be.
    pub(super) fn wanted(&self) -> usize {
        self.links.len() * self.carriers
    }

    /// Paths that are to be left.
    pub(super) fn take_leaving(&mut self) -> Vec<PathId> {
        std::mem::take(&mut self.leaving)
    }

    /// Links are tried within a few milliseconds, in any order.
    pub(super) fn start(&mut self, net: &mut Net, random: &mut Random) {
        for link in &mut self.links {
            link.retry_at = net.now() + random.next_u64() % (5 * MILLISECOND);
            net.wake(link.retry_at, Alarm::Manager);
        }
    }

    /// Dials every link that lacks carriers and may be tried.
    fn dial_all(&mut self, net: &mut Net, wires: &mut Wires) {
        for link in 0..self.links.len() {
            self.dial_if_due(link, net, wires);
        }
    }

    fn dial_if_due(&mut self, link: usize, net: &mut Net, wires: &mut Wires) {
        let is_dialing = self.dials.iter().any(|dial| dial.link == link);
        let state = &self.links[link];
        let lacks = state.paths.len() < self.carriers;
        if lacks && !is_dialing && net.has_carrier(link) && state.retry_at <= net.now() {
            self.dial(link, None, net, wires);
        }
    }

    fn dial(&mut self, link: usize, replacing: Option<PathId>, net: &mut Net, wires: &mut Wires) {
        // The congestion control was tried before the run.
        let Ok(connection) = net.connect(link, &self.tcp) else {
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
            replacing,
        });
        for limit in [CONNECT_TIMEOUT, CONNECT_TIMEOUT + HANDSHAKE_TIMEOUT] {
            net.wake(net.now() + limit, Alarm::Manager);
        }
    }

    /// Something has changed at an end of a connection; whether the daemon of that side has a new carrier.
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
        let dial = &mut self.dials[index];
        let [client, server] = &mut dial.sent;
        let path = dial.path;
        match (side, &client, &server) {
            (Side::Client, 0, _) => {
                *client = 1;
                net.write(connection, side, FLIGHTS[0]);
            }
            (Side::Server, _, 0) if received >= FLIGHTS[0] => {
                *server = 1;
                net.write(connection, side, FLIGHTS[1]);
            }
            (Side::Client, 1, _) if received >= FLIGHTS[1] => {
                *client = 2;
                let link = dial.link;
                net.write(connection, side, FLIGHTS[2]);
                // Only one of those that were begun for a silent link says HELLO, and none is begun any more.
                self.probes.retain(|probe| probe.link != link);
                self.give_up(net, |other| {
                    other.link == link && other.connection != connection
                });
            }
            (Side::Server, _, 1) if received >= FLIGHTS[0] + FLIGHTS[2] => {
                *server = 2;
                net.write(connection, side, FLIGHTS[3]);
                daemons[side.index()].add(path, connection, net, wires);
                return true;
            }
            (Side::Client, 2, _) if received >= FLIGHTS[1] + FLIGHTS[3] => {
                self.joined(index, net);
                daemons[side.index()].add(path, connection, net, wires);
                return true;
            }
            _ => {}
        }
        false
    }

    fn joined(&mut self, index: usize, net: &mut Net) {
        let dial = self.dials.remove(index);
        self.probes.retain(|probe| probe.link != dial.link);
        let link = &mut self.links[dial.link];
        link.failures = 0;
        // The pause after another path's end stays: a peer that refuses what has just joined would be dialed without any.
        link.paths.push(dial.path);
        if let Some(old) = dial.replacing.filter(|old| link.paths.contains(old)) {
            link.paths.retain(|path| *path != old);
            self.leaving.push(old);
        }
        net.wake(net.now(), Alarm::Manager);
    }

    /// These dials are not wanted any more.
    fn give_up(&mut self, net: &mut Net, which: impl Fn(&Dial) -> bool) {
        while let Some(index) = self.dials.iter().position(&which) {
            let dial = self.dials.remove(index);
            net.abort(dial.connection, Side::Client);
            // The link may have waited for it with a dial of its own.
            net.wake(net.now(), Alarm::Manager);
        }
    }

    fn fail(&mut self, index: usize, net: &mut Net) {
        let dial = self.dials.remove(index);
        if dial.replacing.is_some() {
            // Others are begun as long as the link is silent.
            return net.abort(dial.connection, Side::Client);
        }
        let link = &mut self.links[dial.link];
        link.failures += 1;
        let pause = RETRY_PAUSE.0 << (link.failures.min(8) - 1);
        link.retry_at = net.now() + pause.min(RETRY_PAUSE.1);
        net.wake(link.retry_at, Alarm::Manager);
        net.abort(dial.connection, Side::Client);
    }

    /// Dials that take too long fail, and links that lack carriers are tried.
    pub(super) fn on_alarm(&mut self, net: &mut Net, wires: &mut Wires) {
        let now = net.now();
        let is_late = |dial: &Dial| {
            let connected = net.tcp(dial.connection, Side::Client).is_established();
            let limit = match connected {
                true => CONNECT_TIMEOUT + HANDSHAKE_TIMEOUT,
                false => CONNECT_TIMEOUT,
            };
            now >= dial.begun + limit
        };
        let late: Vec<usize> = (0..self.dials.len())
            .rev()
            .filter(|index| is_late(&self.dials[*index]))
            .collect();
        for index in late {
            self.fail(index, net);
        }
        self.dial_all(net, wires);
        self.dial_probes(net, wires);
    }

    /// Begins another connection on each silent link whose turn it is.
    fn dial_probes(&mut self, net: &mut Net, wires: &mut Wires) {
        let now = net.now();
        let mut due = Vec::new();
        for probe in self.probes.iter_mut().filter(|probe| probe.next <= now) {
            probe.next = now + probe.pause(now);
            net.wake(probe.next, Alarm::Manager);
            due.push((probe.link, probe.path));
        }
        for (link, path) in due {
            self.dial(link, Some(path), net, wires);
        }
    }

    /// A path of the session has ended.
    pub(super) fn on_end(&mut self, path: PathId, net: &mut Net) {
        self.probes.retain(|probe| probe.path != path);
        self.give_up(net, |dial| dial.replacing == Some(path));
        for link in &mut self.links {
            if link.paths.contains(&path) {
                link.paths.retain(|other| *other != path);
                link.retry_at = net.now() + RETRY_PAUSE.0;
                net.wake(link.retry_at, Alarm::Manager);
            }
        }
    }

    /// Nothing is confirmed on a path: a new connection may get through where the old one waits for ever longer timeouts.
    pub(super) fn on_silence(&mut self, path: PathId, net: &mut Net, wires: &mut Wires) {
        let Some(link) = self
            .links
            .iter()
            .position(|link| link.paths.contains(&path))
        else {
            return;
        };
        let is_dialing = self.dials.iter().any(|dial| dial.link == link);
        let is_probed = self.probes.iter().any(|probe| probe.link == link);
        let may_dial = !is_dialing && self.links[link].retry_at <= net.now();
        if may_dial && !is_probed && net.has_carrier(link) {
            let now = net.now();
            self.probes.push(Probe {
                link,
                path,
                begun: now,
                next: now,
            });
            self.dial_probes(net, wires);
        }
    }

    /// A path is of use again: its link need not be dialed.
    pub(super) fn on_recovery(&mut self, path: PathId, net: &mut Net) {
        self.probes.retain(|probe| probe.path != path);
        self.give_up(net, |dial| dial.replacing == Some(path));
    }

    /// A link has a carrier again: it is worth a dial at once.
    pub(super) fn link_up(&mut self, link: usize, net: &mut Net, wires: &mut Wires) {
        self.links[link].retry_at = 0;
        self.links[link].failures = 0;
        self.dial_if_due(link, net, wires);
    }

    /// A link has lost its carrier: its paths are left.
    pub(super) fn link_down(&mut self, link: usize, net: &mut Net) -> Vec<PathId> {
        self.probes.retain(|probe| probe.link != link);
        self.give_up(net, |dial| dial.link == link);
        self.links[link].failures = 0;
        self.links[link].retry_at = 0;
        std::mem::take(&mut self.links[link].paths)
    }
}
