//! The client: a session to one server over all links, created anew when the server has lost it.

mod task;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sumlink_bond::Early;
use sumlink_bond::opens::OPEN_TIMEOUT;
use sumlink_engine::Class;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{broadcast, oneshot, watch};
use tokio::time::timeout;

use crate::api::config::ClientConfig;
use crate::api::error::{ConnectError, SetPolicyError};
use crate::api::status::PeerTotals;
use crate::api::status::{SessionEvent, SessionStatus};
use crate::api::stream::Stream;
use crate::links::names::Names;
use crate::links::policy::{LinkPolicy, LinkReport, Policies};
use crate::links::servers::Servers;
use crate::publishing::Publisher;
use crate::session::command::{Command, open_in};
use crate::session::driver::LinkStates;
use crate::session::former::Former;
use crate::session::sources::Sources;
use sumlink_exit::target::{OpenError, OwnService, Target};
use task::Task;

/// Time for a session that refuses a stream because it ends to have ended.
const SESSION_END: Duration = Duration::from_secs(1);

/// A bond to a server. Clones share one bond; it ends with [`Client::close`] or when the last clone
/// is dropped.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The command channel of the current session; `None` while there is none.
    session: watch::Sender<Option<UnboundedSender<Command>>>,
    /// The server of the current or latest session, HOST:PORT.
    server: watch::Sender<String>,
    /// The names of the current or latest session.
    names: watch::Sender<Option<Arc<Names>>>,
    /// Why the latest attempt at a session failed; `None` since a session began.
    failure: watch::Sender<Option<String>>,
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
            server: watch::channel(servers.configured().to_owned()).0,
            names: watch::channel(None).0,
            failure: watch::channel(None).0,
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
        let task = Task::of(&shared, servers);
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
            loop {
                if *self.shared.closing.borrow() {
                    return Err(OpenError::SessionClosed);
                }
                let commands = session
                    .wait_for(|now| now.as_ref().is_some_and(|session| !session.is_closed()))
                    .await
                    .ok()
                    .and_then(|s| s.clone());
                let commands = commands.ok_or(OpenError::SessionClosed)?;
                let opened = open_in(commands.clone(), &target, class, early).await;
                let has_ended = matches!(opened, Err(OpenError::SessionClosed))
                    && timeout(SESSION_END, commands.closed()).await.is_ok();
                // No data was sent, so the next session can open it as well.
                if !has_ended {
                    return opened;
                }
            }
        };
        timeout(OPEN_TIMEOUT, open)
            .await
            .unwrap_or(Err(OpenError::TimedOut))
    }

    /// The server of the current session, or of the latest attempt, as the configuration names it.
    pub fn server(&self) -> String {
        self.shared.server.borrow().clone()
    }

    /// Why the latest attempt to make a session failed; `None` while there is one, and before the
    /// first failure.
    pub fn failure(&self) -> Option<String> {
        self.shared.failure.borrow().clone()
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
