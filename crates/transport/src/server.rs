//! The server: one port for all clients, and a session for each client that proves an authorized
//! key.

mod accounts;
mod datagrams;
mod half_open;
mod join;
mod own;
mod publish;
mod refused;
mod sessions;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use sumlink_engine::frame::RefuseCode;
use sumlink_engine::{ConfigError, Role, StreamId};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Semaphore, broadcast, watch};
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::api::config::{AuthorizedClient, ServerConfig};
use crate::api::publish::PublishRule;
use crate::api::status::{SessionEvent, SessionStatus};
use crate::api::stream::Stream;
use crate::api::totals::PeerTotals;
use crate::carrier::Carrier;
use crate::carrier::congestion;
use crate::carrier::handshake::{CarrierError, Greeted, JoinCarrier, ServerCarrier, within};
use crate::carrier::keys::PublicKey;
use crate::carrier::quic::{QuicError, QuicListener};
use crate::carrier::socket::{self, SocketError};
use crate::carrier::tls::{self, Authorized};
use crate::local::accept::Accepting;
use crate::local::descriptors;
use crate::local::tasks::spawn_begun;
use crate::session::driver::{Command, Driver, Incoming, LinkStates, Listeners, session_span};
use crate::session::former::Former;
use crate::session::sources::Sources;
use sumlink_exit::dial::{Turn, Turns, dial_in_turn};
use sumlink_exit::egress::EgressPolicy;
use sumlink_exit::pace::Paced;
use sumlink_exit::relay::{Upload, relay};
use sumlink_exit::resolver::Resolvers;
use sumlink_exit::target::{OpenError, OwnService, Target};
use sumlink_exit::udp::UdpExit;

pub use accounts::{ClientUsage, Restriction};

use accounts::Accounts;
use half_open::{HalfOpen, HalfOpenLimit};
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
    /// No client is authorized.
    #[error("no client is authorized: name at least one public key")]
    NobodyAuthorized,
}

/// How long a dial to a target may take.
const DIAL_TIMEOUT: Duration = Duration::from_secs(15);

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
        Self::bind_inner(config, Handler::default())
    }

    /// Binds the port, and passes every stream with its client's key and its target to `handler`
    /// instead of connecting it: for programs that are the target themselves. The egress policy
    /// does not apply.
    pub async fn bind_with(
        config: ServerConfig,
        handler: impl Fn(PublicKey, Target, Stream) + Send + Sync + 'static,
    ) -> Result<Self, ServerError> {
        Self::bind_inner(config, Handler(Some(Arc::new(handler))))
    }

    fn bind_inner(config: ServerConfig, handler: Handler) -> Result<Self, ServerError> {
        config.check()?;
        let listener = socket::listen(config.listen, config.congestion.as_deref())?;
        let authorized = Authorized::default();
        let datagrams = match config.udp {
            true => {
                let port = listener
                    .local_addr()
                    .map_or(config.listen.port(), |addr| addr.port());
                let address = SocketAddr::new(config.listen.ip(), port);
                let bound = QuicListener::bind(address, &config.key, &authorized);
                Some(bound.map_err(ServerError::Udp)?)
            }
            false => None,
        };
        let shared = Shared {
            authorized,
            egress: watch::channel(Arc::new(config.egress.clone())).0,
            exits: Mutex::default(),
            names: RwLock::default(),
            publish: RwLock::default(),
            leases: Leases::default(),
            resolvers: Resolvers::new(config.resolvers.clone()),
            sessions: Mutex::default(),
            half_open: HalfOpenLimit::new(&config.half_open.within(descriptors::for_strangers())),
            accounts: Accounts::default(),
            joins: JoinLimit::new(),
            targets: Arc::new(Semaphore::new(descriptors::for_streams())),
            events: broadcast::channel(256).0,
            former: Former::default(),
            refused: Refused::default(),
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

    /// Serves until `shutdown` completes, then closes all sessions.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let tls = Arc::new(TlsConfigs {
            clients: tls::server_config(&self.shared.config.key, &self.shared.authorized),
            strangers: tls::join_config(&self.shared.config.key),
        });
        let mut tasks = JoinSet::new();
        let mut accepting = Accepting::new("the server");
        let mut shutdown = std::pin::pin!(shutdown);
        // Before the first stream can request one of these addresses.
        let mut addresses = own::Addresses::read(&self.shared).await;
        let mut addresses_change = std::pin::pin!(addresses.follow(&self.shared));
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                Some(_) = tasks.join_next() => {}
                never = &mut addresses_change => match never {},
                attempt = datagrams::next(self.datagrams.as_ref()) => {
                    let guard = self.shared.half_open.admit(attempt.remote().ip());
                    let shared = Arc::clone(&self.shared);
                    tasks.spawn(async move { shared.serve_datagrams(attempt, guard).await });
                }
                (tcp, from) = accepting.next(&self.listener) => {
                    let guard = self.shared.half_open.admit(from.ip());
                    let (shared, tls) = (Arc::clone(&self.shared), Arc::clone(&tls));
                    tasks.spawn(async move { shared.serve(tcp, tls, guard).await });
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

    /// Events of paths and sessions of all clients.
    pub fn events(&self) -> broadcast::Receiver<SessionEvent> {
        self.shared.events.subscribe()
    }
}

impl Shared {
    /// Handles a connection; for the first one of a session, until the session ends.
    async fn serve(self: Arc<Self>, tcp: TcpStream, tls: Arc<TlsConfigs>, mut guard: HalfOpen) {
        let from = tcp
            .peer_addr()
            .map_or_else(|_| "?".to_owned(), |addr| addr.to_string());
        let carrier = match self.prove(tcp, &tls, &mut guard, &from).await {
            Ok(Some(carrier)) => carrier,
            Ok(None) => return,
            Err(error) => {
                self.refused.handshake(error.as_ref());
                match error {
                    Some(error) => tracing::info!(%from, %error, "connection refused"),
                    None => tracing::warn!(
                        %from,
                        "too many connections without a key; dropped the oldest one of the \
                        busiest network"
                    ),
                }
                return;
            }
        };
        drop(guard);
        if *self.stopping.borrow() {
            return self.refuse(carrier, RefuseCode::Stopping, "").await;
        }
        let name = self.name(&carrier.client);
        let client = Some((&carrier.client, name.as_deref()));
        let span = session_span(&carrier.session, client);
        self.serve_known(carrier, name, &from)
            .instrument(span)
            .await;
    }

    /// [`Shared::serve`] for a connection whose client is known.
    async fn serve_known(
        self: Arc<Self>,
        carrier: ServerCarrier,
        name: Option<String>,
        from: &str,
    ) {
        let key = (carrier.client, carrier.session);
        if carrier.new {
            self.serve_new(key, carrier, name, from).await;
        } else {
            // Looked up by the client's own key: a client cannot name another client's session.
            let entry = self.sessions().get(&key).cloned();
            let Some(entry) = entry else {
                return self.refuse(carrier, RefuseCode::NoSuchSession, "").await;
            };
            let (most, refusal) = self.config.session.max_paths(self.config.limits.paths);
            if !entry.reserve(most).await {
                return self.refuse(carrier, RefuseCode::Limit, &refusal).await;
            }
            let welcomed = self.welcome(carrier).await;
            match &welcomed {
                Ok(carrier) => entry.vouch(&self.half_open, carrier.remote.ip()),
                Err(error) => {
                    tracing::info!(%from, %error, "connection lost while it joined a session")
                }
            }
            entry.fill(welcomed.ok()).await;
        }
    }

    /// Waits for a connection to prove a key and to state its purpose. `Ok(None)` is the end of a
    /// connection with an invitation. `Err(None)` means that it had to make room for another
    /// connection.
    async fn prove(
        &self,
        tcp: TcpStream,
        tls: &TlsConfigs,
        guard: &mut HalfOpen,
        from: &str,
    ) -> Result<Option<ServerCarrier>, Option<CarrierError>> {
        // A silent peer costs neither TLS nor, when it is dropped, a closing exchange of the
        // kernel. `peek` and not `readable`, because a socket may seem readable when it is not.
        let mut byte = [0];
        let first = tokio::select! {
            first = within(guard.patience, tcp.peek(&mut byte)) => first.and_then(|read| Ok(read?)),
            () = guard.evicted() => {
                let _ = tcp.set_zero_linger();
                return Err(None);
            }
        };
        if let Err(error) = first {
            let _ = tcp.set_zero_linger();
            return Err(Some(error));
        }
        guard.spoke();
        let congestion = self.config.congestion.as_deref();
        if let Err(error) = socket::tune_accepted(&tcp, congestion) {
            return Err(Some(std::io::Error::other(error).into()));
        }
        let patience = guard.patience;
        tokio::select! {
            proved = self.accept(tcp, tls, patience, from) => proved.map_err(Some),
            () = guard.evicted() => Err(None),
        }
    }

    /// Refuses a connection that has proved a key.
    async fn refuse(&self, carrier: ServerCarrier, code: RefuseCode, reason: &str) {
        self.refused.code(code);
        carrier.refuse(code, reason).await;
    }

    /// The handshake of a client, or the whole exchange with a stranger that has an invitation.
    async fn accept(
        &self,
        tcp: TcpStream,
        tls: &TlsConfigs,
        patience: Duration,
        from: &str,
    ) -> Result<Option<ServerCarrier>, CarrierError> {
        let greeted = Greeted::read(tcp, patience).await?;
        // A server without invitations answers as one that has never heard of them.
        let attempt = greeted.join().filter(|_| self.config.invitations.is_some());
        let Some(attempt) = attempt else {
            let carrier = ServerCarrier::accept(greeted, &tls.clients, patience).await?;
            return Ok(Some(carrier));
        };
        let Some(open) = self.admit_join(&attempt) else {
            return Err(greeted.deny(patience).await);
        };
        let carrier = JoinCarrier::accept(greeted, &tls.strangers, patience).await?;
        self.serve_join(open.as_ref(), carrier, patience, from)
            .await;
        Ok(None)
    }

    /// Turns a connection that may join into a path.
    async fn welcome(&self, carrier: ServerCarrier) -> Result<Carrier, CarrierError> {
        let session = carrier.session;
        let mut carrier = carrier.welcome().await?;
        if self.config.congestion.as_deref() == Some(congestion::AUTO) {
            carrier.choose_congestion();
        }
        if let Some(groups) = &self.config.groups {
            carrier.join_group(groups.as_ref(), &session);
        }
        Ok(carrier)
    }

    async fn serve_new(
        self: &Arc<Self>,
        key: (PublicKey, [u8; 16]),
        carrier: ServerCarrier,
        name: Option<String>,
        from: &str,
    ) {
        let (incoming_sender, incoming) = unbounded_channel();
        let (source_sender, opened_sources) = unbounded_channel();
        let sources = Arc::<Sources>::default();
        let listeners = Listeners {
            incoming: Some(incoming_sender),
            carriers: None,
            wants_traffic: false,
            events: self.events.clone(),
            former: self.former.clone(),
            links: LinkStates::default(),
            policies: None,
            account: Some(self.accounts.of(&key.0)),
            max_paths: self.config.limits.paths,
            sources: Arc::clone(&sources),
            udp: self.config.udp,
            // A program that is the target of all streams has no sockets for datagrams.
            datagram_exit: self.handler.0.is_none().then_some(source_sender),
        };
        let made = Driver::new(Role::Server, key.1, key.0, &self.config.session, listeners);
        let (driver, commands) = match made {
            Ok((driver, commands)) => (driver.with_client(name), commands),
            // The configuration was checked when the server started.
            Err(error) => {
                tracing::error!(%error, "cannot create a session; connection dropped");
                return self.refuse(carrier, RefuseCode::Limit, "").await;
            }
        };
        let entry = Entry::new(commands.clone());
        let most = self.config.limits.sessions_of(&self.config.session);
        let refusal = loop {
            let of_client = {
                let mut sessions = self.sessions();
                if sessions.contains(&key) {
                    break Some((RefuseCode::SessionExists, String::new()));
                }
                // The key may have been removed while the client held back its HELLO. Sessions
                // already listed by then are ended by `set_authorized`.
                if !self.authorized.contains(&key.0) {
                    let reason = "the key is no longer authorized".to_owned();
                    break Some((RefuseCode::NoSuchSession, reason));
                }
                // Sessions that are listed by the time of a restriction end by it.
                if let Some(reason) = self.accounts.blocked(&key.0) {
                    break Some((RefuseCode::Limit, reason));
                }
                let of_client = sessions.of_client(&key.0);
                if of_client.len() < most {
                    sessions.insert(key, entry.clone());
                    break None;
                }
                of_client
            };
            // A restarted client has left its former session without a path. That session would
            // only wait for its timeout, and keep the client out meanwhile.
            let Some((id, without_path)) = sessions::oldest_without_path(of_client).await else {
                let reason = "too many sessions, all of which have paths".to_owned();
                break Some((RefuseCode::Limit, reason));
            };
            if self.sessions().remove(&id, &without_path) {
                tracing::info!(
                    client = %key.0,
                    "closing a session without paths to make room for a new one"
                );
                without_path.close("a new session of the same client takes its place");
            }
        };
        if let Some((code, reason)) = refusal {
            return self.refuse(carrier, code, &reason).await;
        }
        let _forget = Forget {
            shared: self,
            key,
            entry: entry.clone(),
        };
        match self.welcome(carrier).await {
            Ok(carrier) => {
                tracing::info!(%from, "session begins");
                entry.vouch(&self.half_open, carrier.remote.ip());
                // In a separate task, because the session's task must run for the lock to become
                // free.
                tokio::spawn(async move { entry.fill(Some(carrier)).await });
                let serving = Arc::new(Serving {
                    session: key,
                    sources,
                    commands,
                });
                let streams = Arc::clone(self).serve_streams(serving, incoming);
                let streams = tokio::spawn(streams.in_current_span());
                let sources = Arc::clone(self).serve_sources(key.0, opened_sources);
                let sources = tokio::spawn(sources.in_current_span());
                driver.await;
                streams.abort();
                sources.abort();
            }
            Err(error) => {
                tracing::info!(%from, %error, "connection lost while its session started")
            }
        }
    }

    /// Connects the client's streams, in the order of its requests.
    async fn serve_streams(
        self: Arc<Self>,
        serving: Arc<Serving>,
        mut incoming: UnboundedReceiver<Incoming>,
    ) {
        let mut tasks = JoinSet::new();
        let mut turns = Turns::default();
        let most = usize::try_from(self.config.session.max_streams).unwrap_or(usize::MAX);
        loop {
            tokio::select! {
                next = incoming.recv() => match next {
                    // A stream's task may briefly outlive the stream; the limit applies to the
                    // tasks.
                    Some(next) if tasks.len() >= most => {
                        serving.refuse(next.id, OpenError::LimitReached);
                    }
                    Some(next) => {
                        let (shared, serving) = (Arc::clone(&self), Arc::clone(&serving));
                        let turn = turns.next(&next.target);
                        let task = async move {
                            shared.serve_stream(&serving, next, turn).await;
                        };
                        spawn_begun(&mut tasks, task.in_current_span()).await;
                    }
                    None => break,
                },
                Some(_) = tasks.join_next() => {}
            }
        }
    }

    async fn serve_stream(&self, serving: &Serving, incoming: Incoming, turn: Turn) {
        let Incoming { id, target, stream } = incoming;
        let Ok(target) = Target::decode(&target) else {
            return serving.refuse(id, OpenError::BadTarget);
        };
        if let Some(handler) = &self.handler.0 {
            serving.accept(id);
            handler(serving.session.0, target, stream);
            return;
        }
        let service = target.own_service();
        if service == Some(OwnService::Publish) {
            serving.accept(id);
            return self.serve_lease(serving, stream).await;
        }
        let policy = Arc::clone(&self.egress.borrow());
        let Ok(_place) = self.targets.try_acquire() else {
            return serving.refuse(id, OpenError::LimitReached);
        };
        let connect = async {
            match service {
                None => dial_in_turn(&target, &policy, DIAL_TIMEOUT, turn).await,
                Some(OwnService::Resolver) => self.resolvers.connect(DIAL_TIMEOUT).await,
                Some(_) => Err(OpenError::NameNotResolved),
            }
        };
        let connected = tokio::select! {
            connected = connect => connected,
            // The client has given up, and the dial ends with the stream; otherwise a client could
            // start any number of dials.
            _ = stream.failed() => return,
        };
        match &connected {
            Err(OpenError::NotAllowed) if service.is_none() => {
                tracing::info!(%target, "refused by the egress policy");
            }
            Err(error) => tracing::debug!(%target, %error, "cannot connect a stream to its target"),
            Ok(_) => {}
        }
        match connected {
            Ok(tcp) => {
                serving.accept(id);
                let stream = Paced::new(stream, self.pace_of(&serving.session.0));
                relay(tcp, stream, &[], Upload::Unlimited).await;
            }
            Err(error) => serving.refuse(id, error),
        }
    }

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

/// The TLS configurations of a server.
struct TlsConfigs {
    clients: Arc<rustls::ServerConfig>,
    /// For those with an invitation.
    strangers: Arc<rustls::ServerConfig>,
}

/// A session, as the tasks of its streams use it.
#[derive(Debug)]
struct Serving {
    session: SessionId,
    sources: Arc<Sources>,
    commands: UnboundedSender<Command>,
}

impl Serving {
    /// The target of a stream is connected.
    fn accept(&self, stream: StreamId) {
        let _ = self.commands.send(Command::Accept(stream));
    }

    /// The target of a stream cannot be connected.
    fn refuse(&self, stream: StreamId, error: OpenError) {
        let _ = self.commands.send(Command::Refuse(stream, error));
    }
}

/// Removes a session from the list when its task ends, on any way out.
struct Forget<'a> {
    shared: &'a Shared,
    key: SessionId,
    entry: Entry,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        let mut sessions = self.shared.sessions();
        sessions.remove(&self.key, &self.entry);
        if sessions.of_client(&self.key.0).is_empty() {
            self.shared.forget_exit(&self.key.0);
        }
    }
}
