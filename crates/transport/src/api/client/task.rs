//! The task of a bond: makes sessions, one after the other, with one of its servers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};
use sumlink_bond::dial::{LASTING, RENEW_PAUSE};
use sumlink_bond::join::CLIENT_PATHS;
use sumlink_engine::Role;
use sumlink_util::Reasons;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::{broadcast, oneshot, watch};
use tracing::Instrument;

use super::Shared;
use crate::api::error::ConnectError;
use crate::api::status::SessionEvent;
use crate::links::manager::{Manager, Outcome, until_true};
use crate::links::names::Names;
use crate::links::policy::Policies;
use crate::links::servers::{Move, Servers};
use crate::publishing::{Publisher, session_of};
use crate::session::command::Command;
use crate::session::driver::{Driver, LinkStates, Listeners, session_span};
use crate::session::former::Former;
use crate::session::sources::Sources;

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
pub(super) struct Task {
    servers: Arc<Servers>,
    session: watch::Sender<Option<UnboundedSender<Command>>>,
    server: watch::Sender<String>,
    names: watch::Sender<Option<Arc<Names>>>,
    failure: watch::Sender<Option<String>>,
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
    /// A task that shares the state of a bond, and does not keep alive the bond that it serves.
    pub(super) fn of(shared: &Shared, servers: Servers) -> Self {
        Self {
            servers: Arc::new(servers),
            session: shared.session.clone(),
            server: shared.server.clone(),
            names: shared.names.clone(),
            failure: shared.failure.clone(),
            events: shared.events.clone(),
            links: shared.links.clone(),
            policies: shared.policies.clone(),
            sources: Arc::clone(&shared.sources),
            publisher: Arc::clone(&shared.publisher),
            former: shared.former.clone(),
            closing: shared.closing.subscribe(),
            closed: shared.closed.clone(),
        }
    }

    pub(super) async fn run(mut self, ready: oneshot::Sender<Result<(), ConnectError>>) {
        let mut ready = Some(ready);
        let mut pause = RENEW_PAUSE.0;
        let mut logged = Reasons::default();
        // Ends with this task.
        let _leases = self
            .publisher
            .spawn(&self.session.subscribe(), &self.sources);
        // The servers that no session was made with since the last one that was.
        let mut failed = BTreeSet::new();
        let mut next = None;
        loop {
            let place = match next.take() {
                Some(place) => Ok(place),
                None => tokio::select! {
                    place = self.servers.choose(&failed) => place,
                    () = until_true(&mut self.closing) => break,
                },
            };
            let (place, ended) = match place {
                Ok(place) => {
                    let server = &self.servers.config(place).server;
                    self.server.send_replace(server.clone());
                    let ended = self.one_session(place, &mut ready).await;
                    self.session.send_replace(None);
                    (Some(place), ended)
                }
                Err(error) => (None, Ended::Session(Outcome::Failed(error))),
            };
            let server = self.server.borrow().clone();
            let outcome = match ended {
                Ended::Session(outcome) => outcome,
                Ended::Moved(Move { to, reason }) => {
                    let other = &self.servers.config(to).server;
                    match Some(to) == place {
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
            if let Outcome::Failed(error) = &outcome {
                self.failure.send_replace(Some(error.to_string()));
                if let Some(place) = place {
                    self.servers.note_failure(place);
                }
            }
            match outcome {
                Outcome::Closed => break,
                Outcome::Failed(error)
                    if place.is_some_and(|place| failed.insert(place))
                        && self.servers.has_others(&failed) =>
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
                    if logged.is_new(&error.to_string()) {
                        tracing::warn!(%error, "cannot reach the server; trying again");
                    }
                }
                Outcome::Lost { lasted } => {
                    failed.clear();
                    logged = Reasons::default();
                    if lasted > LASTING {
                        pause = RENEW_PAUSE.0;
                    }
                    tracing::warn!(
                        "the session was lost: open streams are reset; connecting again"
                    );
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
        let config = self.servers.config(place);
        let server = config.server.clone();
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
            self.failure.send_replace(None);
            match ready.take() {
                Some(ready) => {
                    let _ = ready.send(Ok(()));
                }
                None => tracing::info!(%server, "reconnected with a new session"),
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
