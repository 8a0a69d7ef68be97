//! The server: one port for all clients, a session for each that proves an authorized key.

mod half_open;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use sumlink_engine::frame::RefuseCode;
use sumlink_engine::{ConfigError, Role};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{broadcast, oneshot, watch};
use tokio::task::JoinSet;

use crate::accept::Accepting;
use crate::carrier::Carrier;
use crate::config::{AuthorizedClient, ServerConfig};
use crate::congestion;
use crate::dial::{Turn, Turns, dial_in_turn};
use crate::driver::{Command, Driver, Incoming, LinkStates, Listeners};
use crate::egress::EgressPolicy;
use crate::handshake::{CarrierError, ServerCarrier};
use crate::keys::PublicKey;
use crate::log_limit::LogLimit;
use crate::relay::{Upload, relay};
use crate::socket::{self, SocketError};
use crate::status::{PathEvent, SessionStatus};
use crate::stream::Stream;
use crate::target::{OpenError, Target};
use crate::tasks::spawn_begun;
use crate::tls::{self, Authorized};

use half_open::{HalfOpen, HalfOpenLimit, MAX_HALF_OPEN};

/// A server that listens and, once it [runs](Server::run), serves.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
}

/// A way to a running server.
#[derive(Clone, Debug)]
pub struct ServerHandle {
    shared: Arc<Shared>,
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The configuration cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The port cannot be had, or the congestion control is not there.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// Nobody may connect.
    #[error("no client is authorized: name at least one public key")]
    NobodyAuthorized,
}

/// How long a dial to a target may take.
const DIAL_TIMEOUT: Duration = Duration::from_secs(15);

/// How long sessions may take to say goodbye when the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
struct Shared {
    config: ServerConfig,
    authorized: Authorized,
    egress: RwLock<Arc<EgressPolicy>>,
    names: RwLock<HashMap<PublicKey, String>>,
    sessions: Mutex<HashMap<(PublicKey, [u8; 16]), Entry>>,
    half_open: Arc<HalfOpenLimit>,
    events: broadcast::Sender<PathEvent>,
    /// For what is said of those who have not proved a key.
    strangers: LogLimit,
    stopping: watch::Sender<bool>,
    /// Who takes the streams, if not their targets.
    handler: Handler,
}

/// A program's own taker of streams; nothing when they are connected to their targets.
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

/// A session, for those who join it or ask for it.
#[derive(Clone, Debug)]
struct Entry {
    commands: UnboundedSender<Command>,
    /// Carriers that have a place in the session and are not yet paths of it.
    joining: Arc<tokio::sync::Mutex<usize>>,
}

impl Entry {
    /// A session whose first carrier is about to be welcomed.
    fn new(commands: UnboundedSender<Command>) -> Self {
        let joining = Arc::new(tokio::sync::Mutex::new(1));
        Self { commands, joining }
    }

    /// Whether the session has a place for one more path, of `limit`; if so it is kept for the caller until
    /// [`Entry::fill`].
    async fn reserve(&self, limit: usize) -> bool {
        let mut joining = self.joining.lock().await;
        let (reply, answer) = oneshot::channel();
        let _ = self.commands.send(Command::Status(reply));
        let paths = answer.await.map_or(0, |status| status.paths.len());
        let has_place = paths + *joining < limit;
        *joining += usize::from(has_place);
        has_place
    }

    /// Gives the carrier its place, or gives the place back. Under the lock, so that [`Entry::reserve`] counts every
    /// carrier once.
    async fn fill(&self, carrier: Option<Carrier>) {
        let mut joining = self.joining.lock().await;
        *joining -= 1;
        if let Some(carrier) = carrier {
            let _ = self.commands.send(Command::Add(Box::new(carrier)));
        }
    }
}

impl Server {
    /// Takes the port.
    pub async fn bind(config: ServerConfig) -> Result<Self, ServerError> {
        Self::bind_inner(config, Handler::default())
    }

    /// Takes the port, and gives every stream with its client's key and its target to `handler` instead of connecting
    /// it: for programs that are the target themselves. The egress policy does not apply.
    pub async fn bind_with(
        config: ServerConfig,
        handler: impl Fn(PublicKey, Target, Stream) + Send + Sync + 'static,
    ) -> Result<Self, ServerError> {
        Self::bind_inner(config, Handler(Some(Arc::new(handler))))
    }

    fn bind_inner(config: ServerConfig, handler: Handler) -> Result<Self, ServerError> {
        config.session.check()?;
        if config.authorized.is_empty() {
            return Err(ServerError::NobodyAuthorized);
        }
        let listener = socket::listen(config.listen, config.congestion.as_deref())?;
        let shared = Shared {
            authorized: Authorized::default(),
            egress: RwLock::new(Arc::new(config.egress.clone())),
            names: RwLock::default(),
            sessions: Mutex::default(),
            half_open: HalfOpenLimit::new(config.limits.half_open, MAX_HALF_OPEN),
            events: broadcast::channel(256).0,
            strangers: LogLimit::new(),
            stopping: watch::channel(false).0,
            handler,
            config,
        };
        let server = Self {
            listener,
            shared: Arc::new(shared),
        };
        server
            .handle()
            .set_authorized(&server.shared.config.authorized);
        Ok(server)
    }

    /// A way to the server while it runs.
    pub fn handle(&self) -> ServerHandle {
        ServerHandle {
            shared: Arc::clone(&self.shared),
        }
    }

    /// The address that it listens on; tells the port where port 0 was asked for.
    pub fn local_addr(&self) -> std::io::Result<std::net::SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown` is done, then says goodbye to all sessions.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let tls = tls::server_config(&self.shared.config.key, &self.shared.authorized);
        let mut tasks = JoinSet::new();
        let mut accepting = Accepting::new("the server");
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            // A line is left out by a task, and its end comes round here.
            let untold = self.shared.strangers.due();
            tokio::select! {
                () = &mut shutdown => break,
                Some(_) = tasks.join_next() => {}
                () = sleep_until(untold) => self.shared.tell_of_left_out(),
                (tcp, from) = accepting.next(&self.listener) => {
                    let Some(guard) = self.shared.half_open.count(from.ip().to_canonical()) else {
                        if self.shared.tells_of_strangers() {
                            tracing::warn!(%from, "too many connections without a key; dropped");
                        }
                        continue;
                    };
                    let (shared, tls) = (Arc::clone(&self.shared), Arc::clone(&tls));
                    tasks.spawn(async move { shared.serve(tcp, tls, guard).await });
                }
            }
        }
        self.shared.stopping.send_replace(true);
        for entry in self.shared.sessions().values() {
            let _ = entry
                .commands
                .send(Command::Close("the server is stopping".to_owned()));
        }
        let all_left = async { while tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(STOP_TIMEOUT, all_left).await;
        self.shared.tell_of_left_out();
    }
}

impl ServerHandle {
    /// Every session.
    pub async fn status(&self) -> Vec<SessionStatus> {
        let entries: Vec<(PublicKey, Entry)> = self
            .shared
            .sessions()
            .iter()
            .map(|((key, _), entry)| (*key, entry.clone()))
            .collect();
        let mut all = Vec::new();
        for (key, entry) in entries {
            let (reply, answer) = oneshot::channel();
            if entry.commands.send(Command::Status(reply)).is_ok()
                && let Ok(mut status) = answer.await
            {
                if let Some(name) = self.shared.name(&key) {
                    status.peer = format!("{} ({name})", status.peer);
                }
                all.push(status);
            }
        }
        all
    }

    /// Replaces the set of clients that may connect. Sessions of keys that are no longer in it end.
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
        for ((key, _), entry) in self.shared.sessions().iter() {
            if !self.shared.authorized.contains(key) {
                let reason = "the client's key is no longer authorized";
                let _ = entry.commands.send(Command::Close(reason.to_owned()));
            }
        }
    }

    /// Replaces the egress policy, for streams opened from now on.
    pub fn set_egress(&self, policy: EgressPolicy) {
        *self
            .shared
            .egress
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
    }

    /// What happens to paths and sessions, of all clients.
    pub fn events(&self) -> broadcast::Receiver<PathEvent> {
        self.shared.events.subscribe()
    }
}

impl Shared {
    /// Takes a connection as far as it goes; for the first one of a session, until the session ends.
    async fn serve(
        self: Arc<Self>,
        tcp: TcpStream,
        tls: Arc<rustls::ServerConfig>,
        guard: HalfOpen,
    ) {
        let from = tcp
            .peer_addr()
            .map_or_else(|_| "?".to_owned(), |addr| addr.to_string());
        if let Err(error) = socket::tune_accepted(&tcp, self.config.congestion.as_deref()) {
            if self.tells_of_strangers() {
                tracing::warn!(%from, %error, "cannot set up a connection");
            }
            return;
        }
        let carrier = match ServerCarrier::accept(tcp, &tls).await {
            Ok(carrier) => carrier,
            Err(error) => {
                if self.tells_of_strangers() {
                    tracing::info!(%from, %error, "connection refused");
                }
                return;
            }
        };
        drop(guard);
        if *self.stopping.borrow() {
            return carrier.refuse(RefuseCode::Stopping, "").await;
        }
        let key = (carrier.client, carrier.session);
        if carrier.new {
            self.serve_new(key, carrier, &from).await;
        } else {
            // Looked up by the client's own key: another client's session cannot be named.
            let entry = self.sessions().get(&key).cloned();
            let Some(entry) = entry else {
                return carrier.refuse(RefuseCode::NoSuchSession, "").await;
            };
            let (most, refusal) = self.config.session.most_paths(self.config.limits.paths);
            if !entry.reserve(most).await {
                return carrier.refuse(RefuseCode::Limit, &refusal).await;
            }
            let welcomed = self.welcome(carrier).await;
            if let Err(error) = &welcomed {
                tracing::info!(%from, %error, "a joining connection was lost");
            }
            entry.fill(welcomed.ok()).await;
        }
    }

    /// Makes a connection that may join a path.
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
        from: &str,
    ) {
        let (incoming_sender, incoming) = unbounded_channel();
        let listeners = Listeners {
            incoming: Some(incoming_sender),
            carriers: None,
            wants_traffic: false,
            events: self.events.clone(),
            links: LinkStates::default(),
            policies: None,
            max_paths: self.config.limits.paths,
        };
        let made = Driver::new(Role::Server, key.1, key.0, &self.config.session, listeners);
        let (driver, commands) = match made {
            Ok(made) => made,
            // The configuration was checked when the server started.
            Err(error) => {
                tracing::error!(%error, "cannot make a session");
                return carrier.refuse(RefuseCode::Limit, "").await;
            }
        };
        let entry = Entry::new(commands.clone());
        let refusal = {
            let mut sessions = self.sessions();
            let of_client = sessions
                .keys()
                .filter(|(client, _)| *client == key.0)
                .count();
            match sessions.entry(key) {
                Occupied(_) => Some((RefuseCode::SessionExists, "")),
                // It may have been taken off the list while it held back its HELLO; whose session is on the list by then is
                // ended by `set_authorized`.
                Vacant(_) if !self.authorized.contains(&key.0) => {
                    Some((RefuseCode::NoSuchSession, "the key is no longer authorized"))
                }
                Vacant(_) if of_client >= self.config.limits.sessions_of(&self.config.session) => {
                    Some((RefuseCode::Limit, "too many sessions"))
                }
                Vacant(vacant) => {
                    vacant.insert(entry.clone());
                    None
                }
            }
        };
        if let Some((code, reason)) = refusal {
            return carrier.refuse(code, reason).await;
        }
        let _forget = Forget { shared: self, key };
        match self.welcome(carrier).await {
            Ok(carrier) => {
                tracing::info!(%from, client = %key.0, name = self.name(&key.0), "session begins");
                // Beside the session's task, which must run for the lock to become free.
                tokio::spawn(async move { entry.fill(Some(carrier)).await });
                let streams =
                    tokio::spawn(Arc::clone(self).serve_streams(key.0, incoming, commands));
                driver.await;
                streams.abort();
            }
            Err(error) => tracing::info!(%from, %error, "a new session's connection was lost"),
        }
    }

    /// Connects what the client asks for, in the order in which it asks.
    async fn serve_streams(
        self: Arc<Self>,
        client: PublicKey,
        mut incoming: UnboundedReceiver<Incoming>,
        commands: UnboundedSender<Command>,
    ) {
        let mut tasks = JoinSet::new();
        let mut turns = Turns::default();
        let most = usize::try_from(self.config.session.max_streams).unwrap_or(usize::MAX);
        loop {
            tokio::select! {
                next = incoming.recv() => match next {
                    // A stream's task may outlive the stream for a moment: the bound is on what they all hold.
                    Some(next) if tasks.len() >= most => {
                        let _ = commands.send(Command::Refuse(next.id, OpenError::LimitReached));
                    }
                    Some(next) => {
                        let (shared, commands) = (Arc::clone(&self), commands.clone());
                        let turn = turns.next(&next.target);
                        let task = async move {
                            shared.serve_stream(client, next, turn, &commands).await;
                        };
                        spawn_begun(&mut tasks, task).await;
                    }
                    None => break,
                },
                Some(_) = tasks.join_next() => {}
            }
        }
    }

    async fn serve_stream(
        &self,
        client: PublicKey,
        incoming: Incoming,
        turn: Turn,
        commands: &UnboundedSender<Command>,
    ) {
        let Incoming { id, target, stream } = incoming;
        if let Some(handler) = &self.handler.0 {
            match Target::decode(&target) {
                Ok(target) => {
                    let _ = commands.send(Command::Accept(id));
                    handler(client, target, stream);
                }
                Err(_) => {
                    let _ = commands.send(Command::Refuse(id, OpenError::BadTarget));
                }
            }
            return;
        }
        let policy = Arc::clone(&self.egress.read().unwrap_or_else(PoisonError::into_inner));
        let Ok(target) = Target::decode(&target) else {
            let _ = commands.send(Command::Refuse(id, OpenError::BadTarget));
            return;
        };
        let connected = tokio::select! {
            connected = dial_in_turn(&target, &policy, DIAL_TIMEOUT, turn) => connected,
            // The client has given up, and so does the dial: a client could have any number of them otherwise.
            _ = stream.failed() => return,
        };
        match &connected {
            Err(OpenError::NotAllowed) => {
                tracing::info!(%client, %target, "refused by the egress policy");
            }
            Err(error) => tracing::debug!(%client, %target, %error, "cannot connect a stream"),
            Ok(_) => {}
        }
        match connected {
            Ok(tcp) => {
                let _ = commands.send(Command::Accept(id));
                relay(tcp, stream, &[], Upload::Unlimited).await;
            }
            Err(error) => {
                let _ = commands.send(Command::Refuse(id, error));
            }
        }
    }

    /// Whether one more line about those who have not proved a key may be written.
    fn tells_of_strangers(&self) -> bool {
        self.strangers.admits(Instant::now())
    }

    fn tell_of_left_out(&self) {
        let left_out = self.strangers.take_left_out();
        if left_out > 0 {
            tracing::warn!(
                left_out,
                "connections without a key were refused, and left out of the log"
            );
        }
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<(PublicKey, [u8; 16]), Entry>> {
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

/// Takes a session off the list when its task ends, in whatever way.
struct Forget<'a> {
    shared: &'a Shared,
    key: (PublicKey, [u8; 16]),
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.shared.sessions().remove(&self.key);
    }
}

/// Sleeps until then; for ever without a time.
async fn sleep_until(then: Option<Instant>) {
    match then {
        Some(then) => tokio::time::sleep_until(then.into()).await,
        None => std::future::pending().await,
    }
}
