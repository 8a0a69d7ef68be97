//! The client: a session to one server over all links, created anew when the server has lost it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};
use sumlink_bond::Early;
use sumlink_bond::dial::{LASTING, RENEW_PAUSE};
use sumlink_bond::join::CLIENT_PATHS;
use sumlink_bond::opens::OPEN_TIMEOUT;
use sumlink_engine::frame::RefuseCode;
use sumlink_engine::{Class, ConfigError, Role};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::{broadcast, oneshot, watch};
use tracing::Instrument;

use crate::api::config::ClientConfig;
use crate::api::status::{SessionEvent, SessionStatus};
use crate::api::stream::Stream;
use crate::api::totals::PeerTotals;
use crate::carrier::handshake::CarrierError;
use crate::carrier::socket::SocketError;
use crate::links::LinkError;
use crate::links::manager::{Manager, Outcome, until_true};
use crate::links::names::Names;
use crate::links::policy::{LinkPolicy, LinkReport, Policies, PolicyError, StateError};
use crate::links::servers::{Move, Servers};
use crate::publishing::{Publisher, session_of};
use crate::session::driver::{Command, Driver, LinkStates, Listeners, open_in, session_span};
use crate::session::former::Former;
use crate::session::sources::Sources;
use sumlink_exit::target::{OpenError, OwnService, Target};

/// A bond to a server. Clones share one bond; it ends with [`Client::close`] or when the last clone
/// is dropped.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

/// Why a bond could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The server is not given as HOST:PORT.
    #[error("the server must be given as HOST:PORT, not \"{0}\"")]
    ServerAddress(String),
    /// The server's name does not resolve.
    #[error(
        "cannot resolve the server's name {name}: {reason}; check the name and this machine's \
        resolver"
    )]
    Resolve {
        /// The name.
        name: String,
        /// The resolver's error.
        reason: String,
    },
    /// No interface can be used; the text has the reason of each requested one.
    #[error("no link can be used: {0}")]
    NoLink(String),
    /// The kernel's links cannot be queried.
    #[error(transparent)]
    Links(#[from] LinkError),
    /// The saved link state cannot be read.
    #[error(transparent)]
    State(#[from] StateError),
    /// The policy of a link is invalid.
    #[error("{link}: {error}")]
    Policy {
        /// The link.
        link: String,
        /// The invalid value.
        error: PolicyError,
    },
    /// No link could connect; the error of the most promising link.
    #[error("{link}: {error}")]
    Socket {
        /// The link.
        link: String,
        /// The error on that link.
        error: SocketError,
    },
    /// A network answers in the server's place until the user signs in.
    #[error("{link}: behind a captive portal: sign in at {page}")]
    Portal {
        /// The link.
        link: String,
        /// The portal's page.
        page: String,
    },
    /// A connection was made but did not become a carrier; the error of the most promising link.
    #[error("{link}: {error}")]
    Carrier {
        /// The link.
        link: String,
        /// The error on that link.
        error: CarrierError,
    },
}

/// Why a link's policy was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetPolicyError {
    /// Neither the machine nor the configuration has this link.
    #[error("no link named {}; known links: {known}", .name.escape_debug())]
    NoSuchLink {
        /// The name.
        name: String,
        /// The known links.
        known: String,
    },
    /// The policy is invalid.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The policy cannot be saved.
    #[error(transparent)]
    State(#[from] StateError),
}

#[derive(Debug)]
struct Shared {
    /// The command channel of the current session; `None` while there is none.
    session: watch::Sender<Option<UnboundedSender<Command>>>,
    /// The server of the current or latest session, HOST:PORT.
    server: watch::Sender<String>,
    /// The names of the current or latest session.
    names: watch::Sender<Option<Arc<Names>>>,
    events: broadcast::Sender<SessionEvent>,
    /// Events since `connect` began, for the first subscriber.
    first_events: Mutex<Option<broadcast::Receiver<SessionEvent>>>,
    links: LinkStates,
    policies: Policies,
    /// Sources of datagrams, which outlive sessions.
    sources: Arc<Sources>,
    /// The published ports.
    publisher: Arc<Publisher>,
    /// The counters of former sessions.
    former: Former,
    /// Set once by `close`, or when the last clone is dropped.
    closing: watch::Sender<bool>,
    closed: watch::Sender<Option<String>>,
}

impl Client {
    /// Connects to the server over all links at once and returns when the first has become a path;
    /// the others join the running session. Fails if no link connects.
    pub async fn connect(config: ClientConfig) -> Result<Self, ConnectError> {
        config.check()?;
        let policies = Policies::new(&config.links, config.state.clone())?;
        let (events, first_events) = broadcast::channel(256);
        let publisher = Arc::new(Publisher::new(&config));
        let servers = Servers::new(config, policies.clone());
        let shared = Arc::new(Shared {
            session: watch::channel(None).0,
            server: watch::channel(servers.config(0).server.clone()).0,
            names: watch::channel(None).0,
            events,
            first_events: Mutex::new(Some(first_events)),
            links: LinkStates::default(),
            policies,
            sources: Arc::default(),
            publisher,
            former: Former::default(),
            closing: watch::channel(false).0,
            closed: watch::channel(None).0,
        });
        // The task must not keep alive the bond that it serves.
        let task = Task {
            servers: Arc::new(servers),
            session: shared.session.clone(),
            server: shared.server.clone(),
            names: shared.names.clone(),
            events: shared.events.clone(),
            links: shared.links.clone(),
            policies: shared.policies.clone(),
            sources: Arc::clone(&shared.sources),
            publisher: Arc::clone(&shared.publisher),
            former: shared.former.clone(),
            closing: shared.closing.subscribe(),
            closed: shared.closed.clone(),
        };
        let (ready, connected) = oneshot::channel();
        tokio::spawn(task.run(ready));
        match connected.await {
            Ok(Ok(())) => Ok(Self { shared }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(ConnectError::NoLink("the client was stopped".to_owned())),
        }
    }

    /// Opens a stream to `target`; returns when the server has connected it. The server resolves
    /// names.
    pub async fn open_stream(&self, target: Target) -> Result<Stream, OpenError> {
        self.open_stream_as(target, None).await
    }

    /// Opens a stream that both sides treat as `class`; for `None`, each side learns the class from
    /// the stream's behavior.
    pub async fn open_stream_as(
        &self,
        target: Target,
        class: impl Into<Option<Class>>,
    ) -> Result<Stream, OpenError> {
        self.open_stream_early(target, class, Early::Never).await
    }

    /// [`Client::open_stream_as`] that returns before the server has answered if [`Early`] allows
    /// it: data then arrives a round trip sooner. If the target is unreachable, the stream fails
    /// when it is used.
    pub async fn open_stream_early(
        &self,
        target: Target,
        class: impl Into<Option<Class>>,
        early: Early,
    ) -> Result<Stream, OpenError> {
        let class = class.into();
        // Published ports are those of the configuration, and not of every program with an entry.
        if target.own_service() == Some(OwnService::Publish) {
            return Err(OpenError::NotAllowed);
        }
        let open = async {
            let mut session = self.shared.session.subscribe();
            let commands = session
                .wait_for(Option::is_some)
                .await
                .ok()
                .and_then(|s| s.clone());
            let commands = commands.ok_or(OpenError::SessionClosed)?;
            open_in(commands, &target, class, early).await
        };
        tokio::time::timeout(OPEN_TIMEOUT, open)
            .await
            .unwrap_or(Err(OpenError::TimedOut))
    }

    /// The server of the current session, or of the latest attempt, as the configuration names it.
    pub fn server(&self) -> String {
        self.shared.server.borrow().clone()
    }

    /// The name of the current session's server, empty if it has none.
    fn server_name(&self) -> String {
        let names = self.shared.names.borrow();
        let name = names.as_ref().and_then(|names| names.own());
        name.map(|name| name.to_str().into_owned())
            .unwrap_or_default()
    }

    /// The status of the current session; only the links while there is none.
    pub async fn status(&self) -> SessionStatus {
        let commands = self.shared.session.borrow().clone();
        let (reply, answer) = oneshot::channel();
        if let Some(commands) = commands
            && commands.send(Command::Status(reply)).is_ok()
            && let Ok(status) = answer.await
        {
            let published = self.shared.publisher.status();
            return SessionStatus {
                server: self.server(),
                server_name: self.server_name(),
                published,
                ..status
            };
        }
        SessionStatus {
            role: "client".to_owned(),
            server: self.server(),
            paths: self.shared.links.paths(),
            published: self.shared.publisher.status(),
            ..SessionStatus::default()
        }
    }

    /// The counters since [`Client::connect`], over all sessions; `present` is the current status.
    pub fn totals(&self, present: &SessionStatus) -> Vec<PeerTotals> {
        self.shared.former.with(std::slice::from_ref(present))
    }

    /// Policy and usage of each link of a status, in its order.
    pub fn links(&self, present: &SessionStatus) -> Vec<LinkReport> {
        let mut names: Vec<&str> = Vec::new();
        let paths = present.paths.iter().map(|path| path.link.as_str());
        for name in paths.chain(present.links.iter().map(|link| link.link.as_str())) {
            if !name.is_empty() && !names.contains(&name) {
                names.push(name);
            }
        }
        let reports = names.into_iter();
        let reports = reports.map(|name| self.shared.policies.report(name));
        reports.collect()
    }

    /// Policy and usage of a link.
    pub async fn link(&self, name: &str) -> Result<LinkReport, SetPolicyError> {
        let status = self.status().await;
        let there = status.paths.into_iter().map(|path| path.link);
        let mut there: Vec<String> = there.filter(|link| !link.is_empty()).collect();
        if !self.shared.policies.names(name) && !there.iter().any(|link| link == name) {
            there.sort();
            there.dedup();
            return Err(SetPolicyError::NoSuchLink {
                name: name.to_owned(),
                known: there.join(", "),
            });
        }
        Ok(self.shared.policies.report(name))
    }

    /// Sets a link's policy, effective at once in the running session: until the client stops, or
    /// with `keep` also afterwards ([`ClientConfig::state`]). `None` restores the configured
    /// policy.
    pub async fn set_link_policy(
        &self,
        name: &str,
        policy: Option<LinkPolicy>,
        keep: bool,
    ) -> Result<LinkReport, SetPolicyError> {
        if let Some(policy) = &policy {
            policy.check()?;
        }
        self.link(name).await?;
        let policies = self.shared.policies.clone();
        let link = name.to_owned();
        let set = tokio::task::spawn_blocking(move || policies.set(&link, policy, keep));
        set.await.unwrap_or(Ok(()))?;
        Ok(self.shared.policies.report(name))
    }

    /// Events of paths and sessions: the first call returns all since the bond began, later calls
    /// those from then on.
    ///
    /// A receiver that lags by more than 256 events misses the oldest and gets their number.
    pub fn events(&self) -> broadcast::Receiver<SessionEvent> {
        let first = self.shared.first_events.lock();
        let first = first.unwrap_or_else(PoisonError::into_inner).take();
        first.unwrap_or_else(|| self.shared.events.subscribe())
    }

    /// The sources of datagrams.
    pub(crate) fn sources(&self) -> &Arc<Sources> {
        &self.shared.sources
    }

    /// Ends the bond; returns when the server has been notified or cannot be.
    pub async fn close(&self) {
        self.shared.closing.send_replace(true);
        self.closed().await;
    }

    /// Waits until the bond has ended for good, and returns the reason.
    pub async fn closed(&self) -> String {
        let mut closed = self.shared.closed.subscribe();
        let reason = closed
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|reason| reason.clone());
        reason.unwrap_or_default()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.closing.send_replace(true);
    }
}

/// Time for a session to close before the client moves to another server: one that no longer
/// answers does not delay it.
const MOVE_TIMEOUT: Duration = Duration::from_millis(300);

/// How a session ended.
enum Ended {
    Session(Outcome),
    /// It has left its server for another one.
    Moved(Move),
}

/// Maintains a session to the server, or to one of several.
struct Task {
    servers: Arc<Servers>,
    session: watch::Sender<Option<UnboundedSender<Command>>>,
    server: watch::Sender<String>,
    names: watch::Sender<Option<Arc<Names>>>,
    events: broadcast::Sender<SessionEvent>,
    links: LinkStates,
    policies: Policies,
    sources: Arc<Sources>,
    publisher: Arc<Publisher>,
    former: Former,
    closing: watch::Receiver<bool>,
    closed: watch::Sender<Option<String>>,
}

impl Task {
    async fn run(mut self, ready: oneshot::Sender<Result<(), ConnectError>>) {
        let mut ready = Some(ready);
        let mut pause = RENEW_PAUSE.0;
        let mut last_reason = String::new();
        // Ends with this task.
        let _leases = self
            .publisher
            .spawn(&self.session.subscribe(), &self.sources);
        // The servers that no session was made with since the last one that was.
        let mut failed = BTreeSet::new();
        let mut next = None;
        loop {
            let place = match next.take() {
                Some(place) => place,
                None => tokio::select! {
                    place = self.servers.choose(&failed) => place,
                    () = until_true(&mut self.closing) => break,
                },
            };
            let server = self.servers.config(place).server.clone();
            self.server.send_replace(server.clone());
            let ended = self.one_session(place, &mut ready).await;
            self.session.send_replace(None);
            let outcome = match ended {
                Ended::Session(outcome) => outcome,
                Ended::Moved(Move { to, reason }) => {
                    let other = &self.servers.config(to).server;
                    match to == place {
                        true => tracing::warn!(
                            %server,
                            "the server no longer answers, and another one behind the same \
                            address does; the bond moves there"
                        ),
                        false => {
                            tracing::warn!(%server, to = %other, "{reason}; the bond moves there")
                        }
                    }
                    failed.clear();
                    next = Some(to);
                    continue;
                }
            };
            if let Outcome::Failed(_) = &outcome {
                self.servers.note_failure(place);
            }
            match outcome {
                Outcome::Closed => break,
                Outcome::Failed(error)
                    if failed.insert(place) && failed.len() < self.servers.len() =>
                {
                    tracing::warn!(
                        %server,
                        %error,
                        "cannot reach this server; trying the next one"
                    );
                    continue;
                }
                Outcome::Failed(error) => {
                    failed.clear();
                    if let Some(ready) = ready.take() {
                        let _ = ready.send(Err(error));
                        break;
                    }
                    // A repeated reason is logged only once.
                    let reason = error.to_string();
                    if reason != last_reason {
                        tracing::warn!(%error, "cannot reach the server; trying again");
                    }
                    last_reason = reason;
                }
                Outcome::Lost { lasted } => {
                    failed.clear();
                    last_reason.clear();
                    if lasted > LASTING {
                        pause = RENEW_PAUSE.0;
                    }
                    tracing::warn!("the session was lost; making a new one");
                }
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = until_true(&mut self.closing) => break,
            }
            pause = (pause * 2).min(RENEW_PAUSE.1);
        }
        self.sources.close();
        self.policies.save_or_warn();
        self.closed
            .send_replace(Some("closed by this side".to_owned()));
    }

    /// Creates a session and runs it until it ends.
    async fn one_session(
        &mut self,
        place: usize,
        ready: &mut Option<oneshot::Sender<Result<(), ConnectError>>>,
    ) -> Ended {
        let config = Arc::clone(self.servers.config(place));
        let mut id = [0; 16];
        if SystemRandom::new().fill(&mut id).is_err() {
            let reason = "the operating system has no random numbers".to_owned();
            return Ended::Session(Outcome::Failed(ConnectError::NoLink(reason)));
        }
        let (news_sender, news) = unbounded_channel();
        let (incoming_sender, incoming) = unbounded_channel();
        let listeners = Listeners {
            incoming: self.publisher.takes_streams().then_some(incoming_sender),
            carriers: Some(news_sender),
            wants_traffic: config.measures_carriers(),
            events: self.events.clone(),
            former: self.former.clone(),
            links: self.links.clone(),
            policies: Some(self.policies.clone()),
            account: None,
            max_paths: CLIENT_PATHS,
            sources: Arc::clone(&self.sources),
            udp: config.udp,
            datagram_exit: None,
        };
        let made = Driver::new(
            Role::Client,
            id,
            config.server_key,
            &config.session,
            listeners,
        );
        let (driver, commands) = match made {
            Ok(made) => made,
            Err(error) => return Ended::Session(Outcome::Failed(error.into())),
        };
        let manager = Manager::new(
            config,
            id,
            commands.clone(),
            news,
            self.links.clone(),
            self.policies.clone(),
        );
        let connected = || {
            self.session.send_replace(Some(commands.clone()));
            match ready.take() {
                Some(ready) => {
                    let _ = ready.send(Ok(()));
                }
                None => tracing::info!("reconnected with a new session"),
            }
        };
        let (servers, current) = (Arc::clone(&self.servers), self.session.clone());
        let names = manager.names();
        self.names.send_replace(Some(Arc::clone(&names)));
        let superseded = servers.superseded(place, commands.clone(), names);
        let session = manager.run(driver, &mut self.closing, connected);
        let published = session_of(Arc::clone(&self.publisher), incoming, commands.clone());
        let session = async {
            tokio::select! {
                outcome = session => outcome,
                never = published => match never {},
            }
        };
        let session = async {
            let mut session = std::pin::pin!(session);
            tokio::select! {
                outcome = &mut session => Ended::Session(outcome),
                moved = superseded => {
                    // Streams that programs open from now on wait for the next session.
                    current.send_replace(None);
                    let _ = commands.send(Command::Close(moved.reason.to_owned()));
                    match tokio::time::timeout(MOVE_TIMEOUT, session).await {
                        Ok(Outcome::Closed) => Ended::Session(Outcome::Closed),
                        _ => Ended::Moved(moved),
                    }
                }
            }
        };
        session.instrument(session_span(&id, None)).await
    }
}

/// Whether the server's refusal means that this session will not come back.
pub(crate) fn is_lost(error: &CarrierError) -> bool {
    matches!(
        error,
        CarrierError::Refused {
            code: RefuseCode::NoSuchSession,
            ..
        }
    )
}
