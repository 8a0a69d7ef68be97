//! The store of a running server, on a separate thread: a slow disk delays no session.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use sumlink_store::{Location, Now, ServerEntry, StoreError};
use sumlink_transport::config::AuthorizedClient;
use sumlink_transport::join::{Invitations, Redeemed, Tag};
use sumlink_transport::{PublicKey, ServerHandle};
use tokio::sync::oneshot;

use super::desk::{Admission, Desk};
use crate::config::ClientsSettings;
use crate::control::{ClientsRequest, Refusal, RefusalKind};
use crate::output::Events;

/// How often usage is written and quotas are checked: a process that is killed loses at most this
/// much.
const EVERY: Duration = Duration::from_secs(1);

/// How often a server says that it is one of those of a shared store.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(60);

/// Longest time for which a new client waits for a store that cannot be reached. It must be below
/// the client's own patience.
const NEW_CLIENTS_WAIT: Duration = Duration::from_secs(7);

/// Time between two warnings about a store that cannot be written.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// The clients of a running server that are managed at run time. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Keeper {
    messages: mpsc::Sender<Message>,
    tags: Arc<RwLock<Tags>>,
}

/// The open invitations, with the second in which each one ends.
type Tags = HashMap<Tag, u64>;

enum Message {
    /// The server listens; clients reach it at these addresses.
    Attach(ServerHandle, Vec<String>),
    /// The clients of the configuration.
    Configured(Vec<AuthorizedClient>),
    Ask(ClientsRequest, oneshot::Sender<Result<Value, Refusal>>),
    Redeem(Newcomer),
    /// Write the last usage.
    End,
}

/// A new client with an invitation's secret.
struct Newcomer {
    secret: [u8; 16],
    key: PublicKey,
    reply: oneshot::Sender<Redeemed>,
    /// When it gets an answer in any case.
    until: Instant,
}

/// The thread; it ends when [`Running::end`] is called.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) keeper: Keeper,
    /// All clients that may connect at the start.
    pub(crate) admitted: Vec<AuthorizedClient>,
    thread: JoinHandle<()>,
}

impl Running {
    /// Opens the store, or creates it, and starts the thread.
    pub(crate) async fn start(
        settings: &ClientsSettings,
        server_key: PublicKey,
        configured: Vec<AuthorizedClient>,
        events: &Events,
    ) -> Result<Option<Self>, StoreError> {
        let Some(location) = settings.store.clone() else {
            return Ok(None);
        };
        let (messages, received) = mpsc::channel();
        let (start, started) = oneshot::channel();
        let tags = Arc::default();
        let named = std::thread::Builder::new().name("clients".to_owned());
        let work = {
            let (settings, events) = (settings.clone(), events.clone());
            let (location, tags) = (location.clone(), Arc::clone(&tags));
            move || {
                let opened = location.open_or_create();
                let desk =
                    opened.and_then(|store| Desk::new(store, &settings, server_key, configured));
                let desk = match desk {
                    Ok(desk) => desk,
                    Err(error) => {
                        let _ = start.send(Err(error));
                        return;
                    }
                };
                let mut work = Work {
                    desk,
                    handle: None,
                    tags,
                    is_shared: matches!(location, Location::Database(_)),
                    entry: None,
                    announced: None,
                    waiting: Vec::new(),
                    applied: None,
                    warned: None,
                    events,
                };
                work.publish_tags(Now::read());
                let admitted = work.authorized(&work.desk.admission(Now::read()));
                if start.send(Ok(admitted)).is_ok() {
                    work.run(&received);
                }
            }
        };
        let failed = |reason: String| StoreError::System {
            file: location.to_string().into(),
            reason,
            is_shortage: true,
        };
        let thread = named.spawn(work);
        let thread = thread.map_err(|error| failed(error.to_string()))?;
        let admitted = started
            .await
            .unwrap_or_else(|_| Err(failed("its thread failed".to_owned())))?;
        let keeper = Keeper { messages, tags };
        Ok(Some(Self {
            keeper,
            admitted,
            thread,
        }))
    }

    /// Writes the last usage and ends the thread.
    pub(crate) fn end(self) {
        let _ = self.keeper.messages.send(Message::End);
        if self.thread.join().is_err() {
            tracing::error!(
                "internal error: the store's thread failed; usage may be lost; please report it"
            );
        }
    }
}

impl Keeper {
    /// Admits the clients at a server, which they reach at these addresses.
    pub(crate) fn attach(&self, handle: ServerHandle, addresses: Vec<String>) {
        let _ = self.messages.send(Message::Attach(handle, addresses));
    }

    /// Replaces the clients of the configuration.
    pub(crate) fn configured(&self, clients: Vec<AuthorizedClient>) {
        let _ = self.messages.send(Message::Configured(clients));
    }

    /// Answers a request.
    pub(crate) async fn ask(&self, asked: ClientsRequest) -> Result<Value, Refusal> {
        let (reply, answer) = oneshot::channel();
        let _ = self.messages.send(Message::Ask(asked, reply));
        answer.await.unwrap_or_else(|_| {
            Err(Refusal {
                error: "the server is stopping".to_owned(),
                kind: RefusalKind::Other,
            })
        })
    }
}

impl Invitations for Keeper {
    fn knows(&self, tag: &Tag) -> bool {
        let tags = self.tags.read().unwrap_or_else(PoisonError::into_inner);
        let expires = tags.get(tag);
        expires.is_some_and(|expires| *expires > Now::read().seconds)
    }

    fn redeem(
        &self,
        secret: [u8; 16],
        key: PublicKey,
    ) -> Pin<Box<dyn Future<Output = Redeemed> + Send + '_>> {
        let (reply, answer) = oneshot::channel();
        let _ = self.messages.send(Message::Redeem(Newcomer {
            secret,
            key,
            reply,
            until: Instant::now() + NEW_CLIENTS_WAIT,
        }));
        Box::pin(async {
            let stopping = || Err("the server is stopping".to_owned());
            answer.await.unwrap_or_else(|_| stopping())
        })
    }
}

/// The thread's part.
struct Work {
    desk: Desk,
    handle: Option<ServerHandle>,
    tags: Arc<RwLock<Tags>>,
    /// Whether other servers use the store, too.
    is_shared: bool,
    /// This server in the list of all of a shared store, once it listens.
    entry: Option<ServerEntry>,
    /// When the entry was written last.
    announced: Option<Instant>,
    /// New clients that wait for a store that cannot be reached.
    waiting: Vec<Newcomer>,
    /// The clients that the server admits now.
    applied: Option<Admission>,
    /// When a store that cannot be written was reported last.
    warned: Option<Instant>,
    events: Events,
}

impl Work {
    fn run(&mut self, messages: &mpsc::Receiver<Message>) {
        let mut due = Instant::now() + EVERY;
        loop {
            let wait = due.saturating_duration_since(Instant::now());
            match messages.recv_timeout(wait) {
                Ok(Message::End) | Err(RecvTimeoutError::Disconnected) => break,
                Ok(message) => self.handle(message),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if Instant::now() >= due {
                self.keep(Now::read());
                due = Instant::now() + EVERY;
            }
        }
        self.keep(Now::read());
        let bytes = self.desk.registry.unwritten();
        if bytes > 0 {
            tracing::error!(
                bytes,
                "usage is lost: the store of clients could not be written"
            );
        }
    }

    fn handle(&mut self, message: Message) {
        let now = Now::read();
        match message {
            Message::Attach(handle, addresses) => {
                self.handle = Some(handle);
                self.entry = (self.is_shared && !addresses.is_empty()).then(|| ServerEntry {
                    name: machine(),
                    key: self.desk.server_key,
                    addresses,
                });
                // So that invitations of other servers name this one at once.
                self.keep(now);
            }
            Message::Configured(clients) => {
                self.desk.configured = clients;
                self.applied = None;
            }
            Message::Ask(asked, reply) => {
                self.collect(now);
                if self.is_shared {
                    // A change reports a failure, and a report shows the known state.
                    let _ = self.desk.registry.sync(now);
                }
                // Answered when the change is in force.
                let answer = self.desk.answer(asked, now);
                self.publish_tags(now);
                self.admit(now);
                let _ = reply.send(answer);
                return;
            }
            Message::Redeem(newcomer) => {
                self.redeem(newcomer, now);
                return;
            }
            Message::End => {}
        }
        self.admit(now);
    }

    /// Makes the holder of a secret a client. If the store cannot be reached, it waits.
    fn redeem(&mut self, newcomer: Newcomer, now: Now) {
        if newcomer.reply.is_closed() {
            // It has left, and can use the invitation later.
            return;
        }
        let Newcomer { secret, key, .. } = newcomer;
        let redeemed = self.desk.redeem(secret, key, now);
        if let Err(error) = &redeemed {
            if error.may_pass() && Instant::now() + EVERY < newcomer.until {
                self.waiting.push(newcomer);
                return;
            }
            tracing::warn!(%error, "cannot add a client to the store");
        }
        self.publish_tags(now);
        self.admit(now);
        if let Ok(Some(name)) = &redeemed {
            self.events.emit(&serde_json::json!({
                "event": "client_joined", "client": name, "peer": key,
            }));
        }
        // The place of the store is of no use to the client.
        let reason = |error: StoreError| match error.may_pass() {
            true => "its store of clients cannot be reached: try this invitation again later",
            false => "its store of clients cannot be written",
        };
        let reason = |error| reason(error).to_owned();
        let _ = newcomer.reply.send(redeemed.map_err(reason));
    }

    /// Writes this server into the list of all servers from time to time.
    fn announce(&mut self) -> Result<(), StoreError> {
        let is_due = |at: Instant| at.elapsed() >= ANNOUNCE_EVERY;
        if let Some(entry) = &self.entry
            && self.announced.is_none_or(is_due)
        {
            self.desk.registry.announce(entry)?;
            self.announced = Some(Instant::now());
        }
        Ok(())
    }

    /// Writes usage, takes over the changes of other servers, and lets quotas and expiry take
    /// effect.
    fn keep(&mut self, now: Now) {
        self.collect(now);
        // Before the changes of others: a repeated attempt finds its invitation.
        for newcomer in std::mem::take(&mut self.waiting) {
            self.redeem(newcomer, now);
        }
        let written = self.desk.registry.sync(now);
        let written = written.and_then(|()| self.announce());
        match written {
            Ok(()) => {
                if self.warned.take().is_some() {
                    tracing::info!("the store of clients is written again; no usage was lost");
                }
            }
            Err(error) => {
                if self
                    .warned
                    .is_none_or(|warned| warned.elapsed() >= WARN_EVERY)
                {
                    tracing::warn!(
                        %error,
                        "cannot write the store of clients; sessions go on, and usage is kept in \
                        memory until it can be written"
                    );
                    self.warned = Some(Instant::now());
                }
            }
        }
        self.publish_tags(now);
        self.admit(now);
    }

    /// Takes the usage that the server has counted.
    fn collect(&mut self, now: Now) {
        let Some(handle) = &self.handle else { return };
        let usage = handle.take_usage().into_iter();
        let usage: Vec<_> = usage
            .map(|used| (used.key, used.sent, used.received))
            .collect();
        self.desk.registry.count(&usage, now);
    }

    /// Gives the server the clients that may connect, if they have changed.
    fn admit(&mut self, now: Now) {
        let Some(handle) = &self.handle else { return };
        let admission = self.desk.admission(now);
        if self.applied.as_ref() == Some(&admission) {
            return;
        }
        let all = self.authorized(&admission);
        // Restrictions first: a client must not get in between.
        handle.set_restrictions(admission.restrictions.clone());
        handle.set_authorized(&all);
        self.applied = Some(admission);
    }

    /// The clients of the configuration and those of the store.
    fn authorized(&self, admission: &Admission) -> Vec<AuthorizedClient> {
        let stored = admission.authorized.iter();
        let stored = stored.map(|(key, name)| AuthorizedClient {
            key: *key,
            name: name.clone(),
            publish: Vec::new(),
        });
        self.desk.configured.iter().cloned().chain(stored).collect()
    }

    fn publish_tags(&mut self, now: Now) {
        let open = self.desk.registry.invitations(now);
        let open: Tags = open.map(|open| (open.tag, open.expires)).collect();
        let mut tags = self.tags.write().unwrap_or_else(PoisonError::into_inner);
        if *tags != open {
            *tags = open;
        }
    }
}

/// The name of this machine.
fn machine() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.unwrap_or_default().trim().to_owned()
}
