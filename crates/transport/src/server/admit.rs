//! A connection of a client, from its first byte to its place in a session.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sumlink_engine::Role;
use sumlink_engine::frame::RefuseCode;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::AbortHandle;
use tracing::Instrument;
use tracing::instrument::Instrumented;

use super::Shared;
use super::half_open::HalfOpen;
use super::sessions::{self, Entry, SessionId};
use super::streams::{SPEED_TESTS, Serving};
use crate::carrier::congestion;
use crate::carrier::handshake::{CarrierError, Greeted, JoinCarrier, ServerCarrier, within};
use crate::carrier::keys::PublicKey;
use crate::carrier::socket;
use crate::carrier::{Carrier, canonical};
use crate::links::NO_SESSION;
use crate::session::driver::{Driver, LinkStates, Listeners, session_span};
use crate::session::sources::Sources;

/// The TLS configurations of a server.
pub(super) struct TlsConfigs {
    pub(super) clients: Arc<rustls::ServerConfig>,
    /// For those with an invitation.
    pub(super) strangers: Arc<rustls::ServerConfig>,
}

impl Shared {
    /// Handles a connection; for the first one of a session, until the session ends.
    pub(super) async fn serve(
        self: Arc<Self>,
        tcp: TcpStream,
        peer: SocketAddr,
        tls: Arc<TlsConfigs>,
        guard: HalfOpen,
    ) {
        // Boxed, so that an idle session does not hold the memory of its handshakes.
        if let Some(begun) = Box::pin(self.begin_or_join(tcp, peer, tls, guard)).await {
            begun.run().await;
        }
    }

    /// [`Shared::serve`] up to the beginning of a session. `None` if the connection begins none.
    async fn begin_or_join(
        self: Arc<Self>,
        mut tcp: TcpStream,
        peer: SocketAddr,
        tls: Arc<TlsConfigs>,
        mut guard: HalfOpen,
    ) -> Option<Begun> {
        let mut from = peer;
        let proved = match self.origin(&mut tcp, peer, &mut guard).await {
            Ok(Some(origin)) => {
                from = canonical(origin);
                self.prove(tcp, &tls, &mut guard, from).await
            }
            Ok(None) => {
                tracing::debug!(%from, "a load balancer checks this server");
                return None;
            }
            Err(error) => Err(error),
        };
        let carrier = match proved {
            Ok(Some(carrier)) => carrier,
            Ok(None) => return None,
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
                return None;
            }
        };
        drop(guard);
        if *self.stopping.borrow() {
            self.refuse(carrier, RefuseCode::Stopping, "").await;
            return None;
        }
        let name = self.name(&carrier.client);
        let client = Some((&carrier.client, name.as_deref()));
        let span = session_span(&carrier.session, client);
        let admit = async {
            let key = (carrier.client, carrier.session);
            if carrier.new {
                return self.begin(key, carrier, name, from).await;
            }
            self.join(key, carrier, from).await;
            None
        };
        admit.instrument(span).await
    }

    /// Adds a connection to an existing session.
    async fn join(&self, key: SessionId, carrier: ServerCarrier, from: SocketAddr) {
        // Looked up by the client's own key: a client cannot name another client's session.
        let entry = self.sessions().get(&key).cloned();
        let Some(entry) = entry else {
            let asks = carrier.session == NO_SESSION;
            let barred = self.bars_sessions(&carrier.client).filter(|_| asks);
            let no_session = (RefuseCode::NoSuchSession, String::new());
            let (code, reason) = barred.unwrap_or(no_session);
            return self.refuse(carrier, code, &reason).await;
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

    /// Why a client may not begin a session now.
    fn bars_sessions(&self, client: &PublicKey) -> Option<(RefuseCode, String)> {
        if self.is_draining.load(Ordering::Relaxed) {
            let reason = "the server takes no new sessions for now".to_owned();
            return Some((RefuseCode::Stopping, reason));
        }
        let blocked = self.accounts.blocked(client);
        blocked.map(|reason| (RefuseCode::Limit, reason))
    }

    /// Waits for a connection to prove a key and to state its purpose. `Ok(None)` is the end of a
    /// connection with an invitation. `Err(None)` means that it had to make room for another
    /// connection.
    async fn prove(
        &self,
        tcp: TcpStream,
        tls: &TlsConfigs,
        guard: &mut HalfOpen,
        from: SocketAddr,
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
        from: SocketAddr,
    ) -> Result<Option<ServerCarrier>, CarrierError> {
        let greeted = Greeted::read(tcp, from, patience).await?;
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
        let mut carrier = carrier.welcome(self.config.name.as_deref()).await?;
        if self.config.congestion.as_deref() == Some(congestion::AUTO) {
            carrier.choose_congestion();
        }
        if let Some(groups) = &self.config.groups {
            carrier.join_group(groups.as_ref(), &session);
        }
        Ok(carrier)
    }

    /// Begins a session with its first connection.
    async fn begin(
        self: &Arc<Self>,
        key: SessionId,
        carrier: ServerCarrier,
        name: Option<String>,
        from: SocketAddr,
    ) -> Option<Begun> {
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
            Ok((driver, commands)) => (Box::new(driver.with_client(name)), commands),
            // The configuration was checked when the server started.
            Err(error) => {
                tracing::error!(%error, "cannot create a session; connection dropped");
                self.refuse(carrier, RefuseCode::Limit, "").await;
                return None;
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
                if let Some(barred) = self.bars_sessions(&key.0) {
                    break Some(barred);
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
                tracing::info!("closing a session without paths to make room for a new one");
                without_path.close("a new session of the same client takes its place");
            }
        };
        if let Some((code, reason)) = refusal {
            self.refuse(carrier, code, &reason).await;
            return None;
        }
        let forget = Forget {
            shared: Arc::clone(self),
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
                    speed_tests: Semaphore::new(SPEED_TESTS),
                });
                let streams = Arc::clone(self).serve_streams(serving, incoming);
                let streams = tokio::spawn(streams.in_current_span());
                let sources = Arc::clone(self).serve_sources(key.0, opened_sources);
                let sources = tokio::spawn(sources.in_current_span());
                Some(Begun {
                    driver: driver.in_current_span(),
                    streams: streams.abort_handle(),
                    sources: sources.abort_handle(),
                    _forget: forget,
                })
            }
            Err(error) => {
                tracing::info!(%from, %error, "connection lost while its session started");
                None
            }
        }
    }
}

/// A session that has begun.
struct Begun {
    driver: Instrumented<Box<Driver>>,
    /// The tasks of its streams and of its sources of datagrams.
    streams: AbortHandle,
    sources: AbortHandle,
    _forget: Forget,
}

impl Begun {
    /// Runs the session until it ends.
    async fn run(mut self) {
        (&mut self.driver).await;
        self.streams.abort();
        self.sources.abort();
    }
}

/// Removes a session from the list when its task ends, on any way out.
struct Forget {
    shared: Arc<Shared>,
    key: SessionId,
    entry: Entry,
}

impl Drop for Forget {
    fn drop(&mut self) {
        let mut sessions = self.shared.sessions();
        sessions.remove(&self.key, &self.entry);
        if sessions.of_client(&self.key.0).is_empty() {
            self.shared.forget_exit(&self.key.0);
        }
    }
}
