//! TCP: connections of programs continue between a peer and a listener of this process.
//!
//! The first segment of a connection is kept back until the target has answered. Only then does the
//! kernel see it and confirm the connection, so a program gets a refusal if its target refuses, as
//! with SOCKS5.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use sumlink_exit::relay::{Relayed, Upload, relay, tune};
use sumlink_proxy::class::class_of;
use sumlink_proxy::{
    ClassRule, Client, ConnectionLimit, Flow as ClassFlow, OpenError, Opener, Origin, Target,
};
use sumlink_transport::accept::Accepting;
use sumlink_transport::tasks::spawn_begun;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tracing::{debug, error};

use crate::config::Range;
use crate::nat::{Flow, Nat};
use crate::packet::{self, Body, build};
use crate::stats::Counters;

/// Most connections in the table, including those closed shortly before.
const TABLE: usize = 1 << 18;

/// Connections that wait to be accepted; `net.core.somaxconn` limits them, too.
const BACKLOG: i32 = 4096;

/// Time from the target's answer until the program must have confirmed the connection. The kernel
/// repeats its segment after 1, 3 and 7 seconds.
const HANDSHAKE: Duration = Duration::from_secs(20);

/// The congestion control of connections between this process and programs, if the system's is BBR,
/// which would pace them (see [`sumlink_exit::local_hop`]).
const UNPACED: &str = "reno";

/// A listener on the device's address of one family.
pub(crate) struct Listener {
    pub(crate) socket: TcpListener,
    pub(crate) address: SocketAddr,
    pub(crate) range: Range,
    accepting: Accepting,
}

impl Listener {
    /// Listens for connections that arrive through the device, and no others.
    pub(crate) fn bind(device: &str, range: Range) -> io::Result<Self> {
        let address = SocketAddr::new(range.own, 0);
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM,
            Some(Protocol::TCP),
        )?;
        socket.set_nonblocking(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind_device(Some(device.as_bytes()))?;
        let is_paced = |name: Vec<u8>| name.starts_with(b"bbr");
        if socket.tcp_congestion().is_ok_and(is_paced)
            && let Err(error) = socket.set_tcp_congestion(UNPACED.as_bytes())
        {
            debug!(%error, "cannot set the congestion control; connections stay paced");
        }
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        let socket = TcpListener::from_std(socket.into())?;
        Ok(Self {
            address: socket.local_addr()?,
            socket,
            range,
            accepting: Accepting::new("the TUN device"),
        })
    }

    /// The next connection, if there is a listener; waits forever otherwise. Cancel safe.
    pub(crate) async fn next(listener: &mut Option<Self>) -> (TcpStream, SocketAddr) {
        match listener {
            Some(listener) => listener.accepting.next(&listener.socket).await,
            None => std::future::pending().await,
        }
    }
}

/// The state kept for a connection until it is accepted. Dropping it ends the connection's task.
#[derive(Debug)]
pub(crate) struct Held {
    /// The first segment as it was read, with its header.
    first: Vec<u8>,
    accepted: oneshot::Sender<TcpStream>,
}

/// A report from the task of a connection.
#[derive(Debug)]
pub(crate) struct Event {
    flow: Flow,
    number: u64,
    what: What,
}

#[derive(Debug)]
enum What {
    Opened(Result<(), OpenError>),
    Ended,
}

/// The reaction to an event.
#[derive(Debug)]
pub(crate) enum Reaction {
    /// Nothing.
    None,
    /// The first segment is passed on, to this peer.
    Pass(Vec<u8>, SocketAddr),
    /// The program is refused; with its first segment.
    Refuse(Vec<u8>, OpenError),
}

/// The connections of a device.
pub(crate) struct Connections<O> {
    opener: O,
    limit: ConnectionLimit,
    rules: Arc<[ClassRule]>,
    pub(crate) nat: Nat<Held>,
    tasks: JoinSet<()>,
    sender: mpsc::UnboundedSender<Event>,
    /// Each task sends two events at most.
    events: mpsc::UnboundedReceiver<Event>,
    counters: Arc<Counters>,
}

impl<O: Opener> Connections<O> {
    pub(crate) fn new(
        opener: O,
        limit: ConnectionLimit,
        rules: Arc<[ClassRule]>,
        ranges: [Option<Range>; 2],
        counters: Arc<Counters>,
    ) -> Self {
        let peers = |range: Option<Range>| range.map(|range| range.peers()).unwrap_or_default();
        let [v4, v6] = ranges.map(peers);
        let (sender, events) = mpsc::unbounded_channel();
        Self {
            opener,
            limit,
            rules,
            nat: Nat::new(v4, v6, TABLE),
            tasks: JoinSet::new(),
            sender,
            events,
            counters,
        }
    }

    /// Opens the target of a new connection. `first` is the segment as it was read. Returns whether
    /// there was room for it.
    pub(crate) async fn open(
        &mut self,
        flow: Flow,
        origin: Origin,
        dscp: u8,
        first: &[u8],
        now: Instant,
    ) -> bool {
        let Some(mut place) = self.limit.permit(Client::from(origin)) else {
            return false;
        };
        let (accepted, accept) = oneshot::channel();
        let held = Held {
            first: first.to_vec(),
            accepted,
        };
        let Some(number) = self.nat.insert(flow, held, now) else {
            return false;
        };
        let class = class_of(
            &self.rules,
            &ClassFlow {
                port: flow.destination.port(),
                dscp: Some(dscp),
                user: None,
            },
        );
        let reports = Reports {
            flow,
            number,
            sender: self.sender.clone(),
            counters: Arc::clone(&self.counters),
        };
        self.counters.traffic.connections.increment();
        let opener = self.opener.clone();
        let task = async move {
            let target = Target::from(flow.destination);
            let usage = place.usage();
            let opening = usage.open(|| opener.open_from(origin, target.clone(), class));
            tokio::select! {
                () = connect(opening, accept, reports) => {}
                // Dropping the relay resets the connection.
                () = place.lost() => debug!(?flow, "a connection makes room"),
            }
        };
        // In order, because programs may rely on the order of their connections.
        spawn_begun(&mut self.tasks, task).await;
        true
    }

    /// The first segment has been repeated: its options replace those of the one before.
    pub(crate) fn repeated(&mut self, flow: &Flow, first: &[u8]) {
        if let Some(held) = self.nat.held(flow) {
            held.first.clear();
            held.first.extend_from_slice(first);
        }
    }

    /// The next event; must be handled by [`Connections::react`]. Cancel safe.
    pub(crate) async fn event(&mut self) -> Event {
        loop {
            tokio::select! {
                event = self.events.recv() => match event {
                    Some(event) => return event,
                    None => std::future::pending().await,
                },
                Some(ended) = self.tasks.join_next() => {
                    if let Err(error) = ended {
                        error!(
                            %error,
                            "internal error: one connection was closed; please report it"
                        );
                    }
                }
            }
        }
    }

    pub(crate) fn react(&mut self, event: Event, now: Instant) -> Reaction {
        let Event { flow, number, what } = event;
        match what {
            What::Ended => self.nat.ended(&flow, number, now),
            What::Opened(opened) => {
                let Some(held) = self.nat.opening(&flow, number) else {
                    return Reaction::None;
                };
                let first = std::mem::take(&mut held.first);
                match opened {
                    Ok(()) => {
                        if let Some(peer) = self.nat.connecting(&flow, number) {
                            return Reaction::Pass(first, peer);
                        }
                    }
                    Err(error) => {
                        self.nat.refused(&flow, number);
                        self.counters.traffic.connections_refused.increment();
                        return Reaction::Refuse(first, error);
                    }
                }
            }
        }
        Reaction::None
    }

    /// A connection was accepted.
    pub(crate) fn accepted(&mut self, local: TcpStream, peer: SocketAddr) {
        match self.nat.accepted(peer) {
            // The task has just given up if it does not take the connection.
            Some((_, held)) => drop(held.accepted.send(local)),
            None => {
                debug!(%peer, "a connection to the listener itself is reset");
                let _ = local.set_zero_linger();
            }
        }
    }

    /// Whether no connection is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }
}

/// Reports of one connection; when dropped, its end.
struct Reports {
    flow: Flow,
    number: u64,
    sender: mpsc::UnboundedSender<Event>,
    counters: Arc<Counters>,
}

impl Reports {
    fn send(&self, what: What) {
        // The device may be closing.
        let _ = self.sender.send(Event {
            flow: self.flow,
            number: self.number,
            what,
        });
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        self.counters.traffic.connections.decrement();
        self.send(What::Ended);
    }
}

/// Opens a connection's target, waits for the program's connection, and relays.
async fn connect<S: Relayed>(
    opening: impl Future<Output = Result<S, OpenError>>,
    mut accept: oneshot::Receiver<TcpStream>,
    reports: Reports,
) {
    let opened = tokio::select! {
        biased;
        opened = opening => opened,
        // The program has given up.
        _ = &mut accept => return,
    };
    let stream = match opened {
        Ok(stream) => stream,
        Err(error) => {
            debug!(target = %reports.flow.destination, %error, "cannot open a connection's target");
            reports.send(What::Opened(Err(error)));
            return;
        }
    };
    reports.send(What::Opened(Ok(())));
    let Ok(Ok(local)) = timeout(HANDSHAKE, accept).await else {
        debug!(flow = ?reports.flow, "the program has given up its connection");
        return;
    };
    reports.counters.traffic.connections_opened.increment();
    if let Err(error) = tune(&local) {
        // The connection has been reset already; the relay will notice.
        debug!(%error, "cannot set socket options");
    }
    relay(local, stream, &[], Upload::Unlimited).await;
}

/// The reset that refuses a first segment.
pub(crate) fn refusal(packet: &[u8]) -> Option<Vec<u8>> {
    let parsed = packet::parse(packet).ok()?;
    match &parsed.body {
        Body::Tcp(segment) => build::reset(&parsed, segment),
        _ => None,
    }
}
