//! The server's side of published ports (docs/protocol-publish.md): a client's request holds a port
//! as long as its stream is open.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use socket2::{Domain, Protocol as SocketProtocol, Socket, Type};
use sumlink_exit::pace::Paced;
use sumlink_exit::relay::{self, Upload, relay};
use sumlink_exit::target::{Host, OpenError, PUBLISH, Target};
use sumlink_exit::udp::PublishedPort;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::Instrument;

use super::Shared;
use super::sessions::SessionId;
use super::streams::Serving;
use crate::api::publish::{MAX_PUBLISHED, Protocol, PublicPort, PublishStatus};
use crate::api::stream::Stream;
use crate::carrier::keys::PublicKey;
use crate::local::accept::Accepting;
use crate::local::tasks::spawn_begun;
use crate::publishing::wire::{Answer, Head, Refusal, Request};
use crate::publishing::{End, until_end};
use crate::session::command::open_in;

/// Longest wait for the request on its stream.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Longest wait for a former session of the client to release a port.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest wait for a stream to the client, which then has no way to it.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// Connections that the kernel accepts ahead of the program.
const BACKLOG: i32 = 1024;

/// The published ports of all clients.
#[derive(Debug, Default)]
pub(super) struct Leases {
    state: Mutex<State>,
    /// A port was released.
    released: Notify,
}

#[derive(Debug, Default)]
struct State {
    leases: HashMap<u64, Arc<Lease>>,
    next: u64,
    /// Places for connections of each client that has published a port.
    places: HashMap<PublicKey, Arc<Semaphore>>,
}

/// A published port.
#[derive(Debug)]
struct Lease {
    session: SessionId,
    listen: PublicPort,
    /// The session must release the port, for this reason.
    end: Notify,
    open: AtomicU64,
    total: AtomicU64,
}

/// The entry of a port, until it is dropped.
#[derive(Debug)]
struct Held<'a> {
    leases: &'a Leases,
    number: u64,
    lease: Arc<Lease>,
}

/// A refusal and its reason.
type Refused = (Refusal, String);

/// The socket of a port.
enum Bound {
    Tcp(TcpListener),
    Udp(PublishedPort),
}

impl Leases {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ports of a session.
    pub(super) fn status(&self, session: &SessionId) -> Vec<PublishStatus> {
        let state = self.state();
        let mut own: Vec<_> = state.leases.iter().collect();
        own.sort_by_key(|(number, _)| **number);
        let own = own.into_iter().map(|(_, lease)| lease);
        let own = own.filter(|lease| lease.session == *session);
        own.map(|lease| PublishStatus {
            listen: lease.listen.to_string(),
            target: String::new(),
            state: "published".to_owned(),
            reason: String::new(),
            connections: lease.open.load(Ordering::Relaxed),
            connections_total: lease.total.load(Ordering::Relaxed),
        })
        .collect()
    }

    /// Ends the ports that are no longer permitted.
    pub(super) fn recheck(&self, is_permitted: impl Fn(&PublicKey, &PublicPort) -> bool) {
        for lease in self.state().leases.values() {
            if !is_permitted(&lease.session.0, &lease.listen) {
                lease.end.notify_one();
            }
        }
    }

    /// The client has no session any more.
    pub(super) fn forget_client(&self, client: &PublicKey) {
        self.state().places.remove(client);
    }

    fn places(&self, client: &PublicKey, most: usize) -> Arc<Semaphore> {
        let mut state = self.state();
        let places = state.places.entry(*client);
        Arc::clone(places.or_insert_with(|| Arc::new(Semaphore::new(most))))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.leases.state().leases.remove(&self.number);
        self.leases.released.notify_waiters();
    }
}

impl Shared {
    /// Whether the configuration permits the port to this client.
    pub(super) fn may_publish(&self, client: &PublicKey, port: &PublicPort) -> bool {
        let rules = self.publish.read().unwrap_or_else(PoisonError::into_inner);
        let rules = rules.get(client);
        rules.is_some_and(|rules| rules.iter().any(|rule| rule.permits(port)))
    }

    /// Serves a client's request for a port, on its accepted stream, until either side ends it.
    pub(super) async fn serve_lease(&self, serving: &Serving, mut stream: Stream) {
        let request = match timeout(REQUEST_TIMEOUT, Request::read(&mut stream)).await {
            Ok(Ok(request)) => request,
            Ok(Err(error)) => {
                tracing::debug!(%error, "cannot read a request to publish a port");
                let refused = (Refusal::Other, "the request cannot be read".to_owned());
                return answer(&mut stream, Err(refused)).await;
            }
            Err(_) => return,
        };
        let listen = request.listen;
        let (held, bound, _descriptor) = match self.take(serving, listen).await {
            Ok(taken) => taken,
            Err((refusal, reason)) => {
                tracing::info!(%listen, %reason, "a client's request to publish a port is refused");
                return answer(&mut stream, Err((refusal, reason))).await;
            }
        };
        let bytes = answer_of(Ok(()));
        if stream.write_all(&bytes).await.is_err() {
            return;
        }
        tracing::info!(%listen, "port published");
        let ended = async {
            tokio::select! {
                end = until_end(&mut stream) => match end {
                    End::Peer => "the client has ended it",
                    End::Session => "the session has ended",
                },
                () = held.lease.end.notified() => "the server ends it",
            }
        };
        let reason = tokio::select! {
            reason = ended => reason,
            () = self.serve_bound(serving, &request, &held, bound) => "its socket has failed",
        };
        tracing::info!(%listen, %reason, "port no longer published");
    }

    /// Enters a port for a session, and binds it.
    async fn take(
        &self,
        serving: &Serving,
        listen: PublicPort,
    ) -> Result<(Held<'_>, Bound, OwnedSemaphorePermit), Refused> {
        if !self.may_publish(&serving.session.0, &listen) {
            let reason = format!("the server's configuration does not permit {listen} to this key");
            return Err((Refusal::NotPermitted, reason));
        }
        let descriptor = Arc::clone(&self.targets).try_acquire_owned();
        let descriptor = descriptor.map_err(|_| {
            (
                Refusal::Limit,
                "the server has too many connections".to_owned(),
            )
        })?;
        let held = timeout(RELEASE_TIMEOUT, self.enter(serving, listen)).await;
        let held = held.unwrap_or_else(|_| {
            let reason = format!("a former session of this client still has {listen}");
            Err((Refusal::Taken, reason))
        })?;
        match bind(&listen, self.config.exit.receive_buffer) {
            Ok(bound) => Ok((held, bound, descriptor)),
            Err(error) => Err(refusal_of(&listen, &error)),
        }
    }

    /// Enters a port, once a former session of the same client has released it.
    async fn enter(&self, serving: &Serving, listen: PublicPort) -> Result<Held<'_>, Refused> {
        loop {
            let released = self.leases.released.notified();
            let other = {
                let mut state = self.leases.state();
                let of_session = |lease: &&Arc<Lease>| lease.session == serving.session;
                if state.leases.values().filter(of_session).count() >= MAX_PUBLISHED {
                    let reason = format!("a client publishes at most {MAX_PUBLISHED} ports");
                    return Err((Refusal::Limit, reason));
                }
                let mut leases = state.leases.values();
                match leases.find(|lease| lease.listen.collides(&listen)) {
                    Some(other) => Arc::clone(other),
                    None => {
                        let lease = Arc::new(Lease {
                            session: serving.session,
                            listen,
                            end: Notify::new(),
                            open: AtomicU64::new(0),
                            total: AtomicU64::new(0),
                        });
                        let number = state.next;
                        state.next += 1;
                        state.leases.insert(number, Arc::clone(&lease));
                        return Ok(Held {
                            leases: &self.leases,
                            number,
                            lease,
                        });
                    }
                }
            };
            if !self.yields(&other, serving).await {
                let reason = format!("{} is published by another client or session", other.listen);
                return Err((Refusal::Taken, reason));
            }
            other.end.notify_one();
            released.await;
        }
    }

    /// Whether a port is released for a new session of the same client: if its own session has lost
    /// all paths, as after a restart of the client, or is the same one.
    async fn yields(&self, lease: &Lease, serving: &Serving) -> bool {
        if lease.session.0 != serving.session.0 {
            return false;
        }
        if lease.session == serving.session {
            return true;
        }
        let entry = self.sessions().get(&lease.session).cloned();
        match entry {
            Some(entry) => entry.is_without_path().await,
            None => true,
        }
    }

    async fn serve_bound(
        &self,
        serving: &Serving,
        request: &Request,
        held: &Held<'_>,
        bound: Bound,
    ) {
        match bound {
            Bound::Tcp(listener) => {
                self.serve_connections(serving, request, held, &listener)
                    .await;
            }
            Bound::Udp(port) => {
                let source = serving.sources.attach_lasting(request.source);
                let exit = self.exit_of(&serving.session.0);
                exit.serve_published(&port, source).await;
            }
        }
    }

    /// Opens a stream to the client for each connection to a port.
    async fn serve_connections(
        &self,
        serving: &Serving,
        request: &Request,
        held: &Held<'_>,
        listener: &TcpListener,
    ) {
        let listen = request.listen;
        let places = self
            .leases
            .places(&serving.session.0, self.config.limits.published);
        let mut accepting = Accepting::new(format!("the published port {listen}"));
        let mut tasks = JoinSet::new();
        let mut is_full = false;
        loop {
            let (tcp, peer) = tokio::select! {
                accepted = accepting.next(listener) => accepted,
                Some(_) = tasks.join_next() => continue,
            };
            let place = Arc::clone(&places).try_acquire_owned();
            let descriptor = Arc::clone(&self.targets).try_acquire_owned();
            let (Ok(place), Ok(descriptor)) = (place, descriptor) else {
                let _ = tcp.set_zero_linger();
                // Logged once until there is room again: anyone can cause it.
                if !std::mem::replace(&mut is_full, true) {
                    tracing::warn!(%listen, "too many connections to a published port; further ones are reset");
                }
                continue;
            };
            is_full = false;
            let (lease, entry) = (Arc::clone(&held.lease), request.entry);
            let commands = serving.commands.clone();
            let pace = self.pace_of(&serving.session.0);
            lease.total.fetch_add(1, Ordering::Relaxed);
            let task = async move {
                let _permits = (place, descriptor);
                let _open = Open::new(&lease.open);
                let target = Target {
                    host: Host::Name(PUBLISH.to_owned()),
                    port: listen.port,
                };
                // The client reads the beginning before it accepts or resets the stream.
                let opened = open_in(commands, &target, None, None);
                match timeout(OPEN_TIMEOUT, opened).await {
                    Ok(Ok(stream)) => {
                        connect(tcp, peer, entry, Paced::new(stream, pace)).await;
                    }
                    failed => {
                        let error = failed.map_or(OpenError::TimedOut, |opened| {
                            opened.err().unwrap_or(OpenError::Reset)
                        });
                        tracing::debug!(%listen, %error, "cannot open a stream to the client");
                        let _ = tcp.set_zero_linger();
                    }
                }
            };
            spawn_begun(&mut tasks, task.in_current_span()).await;
        }
    }
}

/// Counts an open connection.
struct Open<'a>(&'a AtomicU64);

impl<'a> Open<'a> {
    fn new(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Relays a connection to a published port over its stream to the client.
async fn connect(tcp: TcpStream, peer: SocketAddr, entry: u16, stream: Paced<Stream>) {
    let Ok(local) = tcp.local_addr() else { return };
    let head = Head { entry, peer, local }.encode();
    if let Err(error) = relay::tune(&tcp) {
        tracing::debug!(%error, "cannot set the options of a published port's connection");
    }
    relay(tcp, stream, &head, Upload::Unlimited).await;
}

fn bind(listen: &PublicPort, receive_buffer: usize) -> io::Result<Bound> {
    match listen.protocol {
        Protocol::Udp => {
            PublishedPort::bind(listen.address, listen.port, receive_buffer).map(Bound::Udp)
        }
        Protocol::Tcp => bind_tcp(listen).map(Bound::Tcp),
    }
}

fn bind_tcp(listen: &PublicPort) -> io::Result<TcpListener> {
    let bind = |address: SocketAddr| {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM,
            Some(SocketProtocol::TCP),
        )?;
        if listen.address.is_none() && address.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        // Connections of a former lease may still be closing.
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        TcpListener::from_std(socket.into())
    };
    match bind(listen.socket_address()) {
        // A machine without IPv6.
        Err(error)
            if listen.address.is_none()
                && matches!(
                    error.raw_os_error(),
                    Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL)
                ) =>
        {
            bind(SocketAddr::from(([0; 4], listen.port)))
        }
        result => result,
    }
}

fn refusal_of(listen: &PublicPort, error: &io::Error) -> Refused {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            let reason = format!("another program at the server has {listen}");
            (Refusal::Taken, reason)
        }
        io::ErrorKind::PermissionDenied => {
            let reason = format!(
                "the server's system does not permit {listen}: ports below 1024 need \
                 CAP_NET_BIND_SERVICE"
            );
            (Refusal::System, reason)
        }
        io::ErrorKind::AddrNotAvailable => {
            let reason = format!("the server does not have the address of {listen}");
            (Refusal::System, reason)
        }
        _ => (Refusal::System, format!("cannot bind {listen}: {error}")),
    }
}

fn answer_of(result: Result<(), Refused>) -> Vec<u8> {
    let answer = match result {
        Ok(()) => Answer {
            result: Ok(()),
            reason: String::new(),
        },
        Err((refusal, reason)) => Answer {
            result: Err(refusal),
            reason,
        },
    };
    answer.encode()
}

/// Answers a request, and ends its stream.
async fn answer(stream: &mut Stream, result: Result<(), Refused>) {
    if stream.write_all(&answer_of(result)).await.is_ok() {
        let _ = stream.shutdown().await;
    }
}
