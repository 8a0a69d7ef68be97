//! The server: one port for all clients, and a session for each client that proves an authorized
//! key.

mod accounts;
mod admit;
mod balanced;
mod datagrams;
mod half_open;
mod join;
mod own;
mod publish;
mod refused;
mod sessions;
mod streams;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use sumlink_engine::ConfigError;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, broadcast, watch};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use crate::api::config::{AuthorizedClient, ServerConfig};
use crate::api::publish::PublishRule;
use crate::api::status::PeerTotals;
use crate::api::status::{SessionEvent, SessionStatus};
use crate::api::stream::Stream;
use crate::carrier::keys::PublicKey;
use crate::carrier::quic::{QuicError, QuicListener};
use crate::carrier::socket::{self, SocketError};
use crate::carrier::tls::{self, Authorized};
use crate::local::accept::Accepting;
use crate::local::descriptors;
use crate::local::heap::{self, Heap};
use crate::session::driver::session_span;
use crate::session::former::Former;
use sumlink_exit::egress::EgressPolicy;
use sumlink_exit::resolver::Resolvers;
use sumlink_exit::target::Target;
use sumlink_exit::udp::UdpExit;

pub use accounts::{ClientUsage, Restriction};

use accounts::Accounts;
use admit::TlsConfigs;
use half_open::HalfOpenLimit;
use join::JoinLimit;
use publish::Leases;
use refused::Refused;
use sessions::{Entry, SessionId, Sessions};

/// A server that listens, and accepts clients once it [runs](Server::run).
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    /// The UDP port for datagram carriers; none if the configuration excludes it.
    datagrams: Option<QuicListener>,
    shared: Arc<Shared>,
}

/// A handle to a running server.
#[derive(Clone, Debug)]
pub struct ServerHandle {
    shared: Arc<Shared>,
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The port is unavailable, or the congestion control does not exist.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The UDP port is unavailable.
    #[error("{0}; `udp = false` serves datagrams over TCP only")]
    Udp(QuicError),
    /// A socket of another program does not fit the configuration.
    #[error("{0}")]
    Adopted(String),
    /// No client is authorized.
    #[error("no client is authorized: name at least one public key")]
    NobodyAuthorized,
}

/// Sockets that another program has bound, such as systemd.
#[derive(Debug)]
pub struct Sockets {
    /// Listens for connections.
    pub tcp: std::net::TcpListener,
    /// Receives datagrams; `None` binds the port's number.
    pub udp: Option<std::net::UdpSocket>,
}

fn check_port(
    config: &ServerConfig,
    kind: &str,
    bound: std::io::Result<SocketAddr>,
) -> Result<(), ServerError> {
    let listen = config.listen;
    match bound {
        Ok(bound) if bound.port() == listen.port() => Ok(()),
        Ok(bound) => Err(ServerError::Adopted(format!(
            "`listen` is {listen}, and the {kind} socket that this program was started with has \
             {bound}: give both the same port"
        ))),
        Err(error) => Err(ServerError::Adopted(format!(
            "the {kind} socket that this program was started with has no address: {error}"
        ))),
    }
}

/// Time allowed for sessions to close when the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Time allowed for datagram carriers to be closed afterwards.
const DATAGRAM_STOP_TIMEOUT: Duration = Duration::from_millis(200);

#[derive(Debug)]
struct Shared {
    config: ServerConfig,
    authorized: Authorized,
    egress: watch::Sender<Arc<EgressPolicy>>,
    /// The exits for datagrams of the clients that have sessions.
    exits: Mutex<HashMap<PublicKey, UdpExit>>,
    names: RwLock<HashMap<PublicKey, String>>,
    /// The ports that each client may publish.
    publish: RwLock<HashMap<PublicKey, Vec<PublishRule>>>,
    leases: Leases,
    resolvers: Resolvers,
    sessions: Mutex<Sessions>,
    half_open: Arc<HalfOpenLimit>,
    /// Connections of load balancers before their headers.
    balanced: Arc<HalfOpenLimit>,
    accounts: Accounts,
    joins: JoinLimit,
    /// Limit on streams of all clients connected to targets, so that descriptors remain for
    /// carriers.
    targets: Arc<Semaphore>,
    events: broadcast::Sender<SessionEvent>,
    /// The counters of former sessions.
    former: Former,
    /// Connections that were refused.
    refused: Refused,
    /// Whether new sessions are refused.
    is_draining: AtomicBool,
    stopping: watch::Sender<bool>,
    /// Receives the streams, if they are not connected to their targets.
    handler: Handler,
}

/// A program's handler for streams; empty if they are connected to their targets.
#[derive(Clone, Default)]
struct Handler(Option<Arc<HandlerFn>>);

type HandlerFn = dyn Fn(PublicKey, Target, Stream) + Send + Sync;

impl std::fmt::Debug for Handler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() {
            "a handler"
        } else {
            "no handler"
        })
    }
}

impl Server {
    /// Binds the port.
    pub async fn bind(config: ServerConfig) -> Result<Self, ServerError> {
        Self::bind_inner(config, Handler::default(), None)
    }

    /// Takes over sockets that another program has bound, which must have the port of
    /// [`ServerConfig::listen`].
    pub async fn adopt(config: ServerConfig, sockets: Sockets) -> Result<Self, ServerError> {
        Self::bind_inner(config, Handler::default(), Some(sockets))
    }

    /// Binds the port, and passes every stream with its client's key and its target to `handler`
    /// instead of connecting it: for programs that are the target themselves. The egress policy
    /// does not apply.
    pub async fn bind_with(
        config: ServerConfig,
        handler: impl Fn(PublicKey, Target, Stream) + Send + Sync + 'static,
    ) -> Result<Self, ServerError> {
        Self::bind_inner(config, Handler(Some(Arc::new(handler))), None)
    }

    fn bind_inner(
        config: ServerConfig,
        handler: Handler,
        sockets: Option<Sockets>,
    ) -> Result<Self, ServerError> {
        config.check()?;
        let congestion = config.congestion.as_deref();
        let (listener, udp) = match sockets {
            Some(Sockets { tcp, udp }) => {
                check_port(&config, "TCP", tcp.local_addr())?;
                if let Some(udp) = &udp {
                    check_port(&config, "UDP", udp.local_addr())?;
                }
                (socket::adopt(tcp, congestion)?, udp)
            }
            None => (socket::listen(config.listen, congestion)?, None),
        };
        let authorized = Authorized::default();
        let datagrams = match config.udp {
            true => {
                let port = listener
                    .local_addr()
                    .map_or(config.listen.port(), |addr| addr.port());
                let address = SocketAddr::new(config.listen.ip(), port);
                let alpn = tls::protocols(&config.alpn).collect();
                let bound = match udp {
                    Some(udp) => QuicListener::adopt(udp, &config.key, &authorized, alpn),
                    None => QuicListener::bind_as(address, &config.key, &authorized, alpn),
                };
                Some(bound.map_err(ServerError::Udp)?)
            }
            false => None,
        };
        let strangers = config.half_open.within(descriptors::for_strangers());
        let shared = Shared {
            authorized,
            egress: watch::channel(Arc::new(config.egress.clone())).0,
            exits: Mutex::default(),
            names: RwLock::default(),
            publish: RwLock::default(),
            leases: Leases::default(),
            resolvers: Resolvers::new(config.resolvers.clone()),
            sessions: Mutex::default(),
            half_open: HalfOpenLimit::new(&strangers),
            balanced: HalfOpenLimit::new(&balanced::places(&strangers)),
            accounts: Accounts::default(),
            joins: JoinLimit::new(),
            targets: Arc::new(Semaphore::new(descriptors::for_streams())),
            events: broadcast::channel(256).0,
            former: Former::default(),
            refused: Refused::default(),
            is_draining: AtomicBool::new(false),
            stopping: watch::channel(false).0,
            handler,
            config,
        };
        let server = Self {
            listener,
            datagrams,
            shared: Arc::new(shared),
        };
        server
            .handle()
            .set_authorized(&server.shared.config.authorized);
        Ok(server)
    }

    /// A handle to the server while it runs.
    pub fn handle(&self) -> ServerHandle {
        ServerHandle {
            shared: Arc::clone(&self.shared),
        }
    }

    /// The listening address, with the port chosen by the system if port 0 was configured.
    pub fn local_addr(&self) -> std::io::Result<std::net::SocketAddr> {
        self.listener.local_addr()
    }

    /// Sessions and QUIC connections.
    fn connections(&self) -> usize {
        let datagrams = self.datagrams.as_ref().map_or(0, QuicListener::connections);
        self.shared.sessions().iter().count() + datagrams
    }

    /// Serves until `shutdown` completes, then closes all sessions.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let config = &self.shared.config;
        let mut clients = tls::server_config(&config.key, &self.shared.authorized);
        let names = tls::protocols(&config.alpn);
        Arc::make_mut(&mut clients).alpn_protocols.extend(names);
        let tls = Arc::new(TlsConfigs {
            clients,
            strangers: tls::join_config(&self.shared.config.key),
        });
        let mut tasks = JoinSet::new();
        let mut accepting = Accepting::new("the server");
        let mut heap = Heap::default();
        let mut heap_looks = tokio::time::interval(heap::LOOK_EVERY);
        heap_looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut shutdown = std::pin::pin!(shutdown);
        // Before the first stream can request one of these addresses.
        let mut addresses = own::Addresses::read(&self.shared).await;
        let mut addresses_change = std::pin::pin!(addresses.follow(&self.shared));
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                Some(_) = tasks.join_next() => {}
                never = &mut addresses_change => match never {},
                _ = heap_looks.tick() => heap.look(self.connections()),
                attempt = datagrams::next(self.datagrams.as_ref()) => {
                    let guard = self.shared.half_open.admit(attempt.remote().ip());
                    let shared = Arc::clone(&self.shared);
                    tasks.spawn(async move { shared.serve_datagrams(attempt, guard).await });
                }
                (tcp, from) = accepting.next(&self.listener) => {
                    let guard = self.shared.admit(from);
                    let (shared, tls) = (Arc::clone(&self.shared), Arc::clone(&tls));
                    tasks.spawn(shared.serve(tcp, from, tls, guard));
                }
            }
        }
        self.shared.stopping.send_replace(true);
        for (_, entry) in self.shared.sessions().iter() {
            entry.close("the server is stopping");
        }
        let all_left = async { while tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(STOP_TIMEOUT, all_left).await;
        if let Some(datagrams) = &self.datagrams {
            datagrams
                .close("the server is stopping", DATAGRAM_STOP_TIMEOUT)
                .await;
        }
    }
}

impl ServerHandle {
    /// The status of every session.
    pub async fn status(&self) -> Vec<SessionStatus> {
        let entries: Vec<(SessionId, Entry)> = self
            .shared
            .sessions()
            .iter()
            .map(|(id, entry)| (*id, entry.clone()))
            .collect();
        let mut all = Vec::new();
        for (id, entry) in entries {
            let (key, _) = id;
            if let Some(mut status) = entry.status().await {
                status.published = self.shared.leases.status(&id);
                if let Some(name) = self.shared.name(&key) {
                    status.peer = format!("{} ({name})", status.peer);
                    status.client = name;
                }
                all.push(status);
            }
        }
        all
    }

    /// The counters of each client since the server began, over all sessions; `present` is the
    /// current status.
    pub fn totals(&self, present: &[SessionStatus]) -> Vec<PeerTotals> {
        let mut all = self.shared.former.with(present);
        for totals in &mut all {
            if let Ok(key) = totals.peer.parse() {
                totals.client = self.shared.name(&key).unwrap_or_default();
            }
        }
        all
    }

    /// How many connections were refused since the server began, by reason.
    pub fn refused(&self) -> BTreeMap<String, u64> {
        self.shared.refused.counts()
    }

    /// Replaces the set of authorized clients. Sessions of removed keys end, and so do published
    /// ports that are no longer permitted.
    pub fn set_authorized(&self, clients: &[AuthorizedClient]) {
        self.shared
            .authorized
            .replace(clients.iter().map(|client| client.key));
        let named = clients.iter().filter(|client| !client.name.is_empty());
        *self
            .shared
            .names
            .write()
            .unwrap_or_else(PoisonError::into_inner) = named
            .map(|client| (client.key, client.name.clone()))
            .collect();
        let publish = clients.iter();
        let publish = publish.map(|client| (client.key, client.publish.clone()));
        *self
            .shared
            .publish
            .write()
            .unwrap_or_else(PoisonError::into_inner) = publish.collect();
        let known: HashSet<String> = clients.iter().map(|c| c.key.to_string()).collect();
        self.shared.former.retain(|key| known.contains(key));
        let leases = &self.shared.leases;
        leases.recheck(|client, port| self.shared.may_publish(client, port));
        for ((key, _), entry) in self.shared.sessions().iter() {
            if !self.shared.authorized.contains(key) {
                entry.close("the client's key is no longer authorized");
            }
        }
    }

    /// Replaces the egress policy, for streams opened from now on.
    pub fn set_egress(&self, policy: EgressPolicy) {
        self.shared.change_egress(|present| {
            policy.with_own_addresses(present.own_addresses().iter().copied())
        });
    }

    /// Refuses new sessions from now on, or admits them again. Present sessions go on, and their
    /// links may join.
    pub fn set_draining(&self, on: bool) {
        self.shared.is_draining.store(on, Ordering::Relaxed);
    }

    /// Whether new sessions are refused.
    pub fn is_draining(&self) -> bool {
        self.shared.is_draining.load(Ordering::Relaxed)
    }

    /// Events of paths and sessions of all clients.
    pub fn events(&self) -> broadcast::Receiver<SessionEvent> {
        self.shared.events.subscribe()
    }
}

impl Shared {
    /// Replaces the egress policy by one derived from the current policy.
    fn change_egress(&self, change: impl FnOnce(&EgressPolicy) -> EgressPolicy) {
        self.egress
            .send_modify(|egress| *egress = Arc::new(change(egress)));
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name(&self, key: &PublicKey) -> Option<String> {
        self.names
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(key)
            .cloned()
    }
}
