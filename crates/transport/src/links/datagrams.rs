//! Keeps a datagram carrier (QUIC) on every link that has a path.
//!
//! The manager publishes which links have a path, and this task makes a carrier for each of them,
//! replaces those that ended, and tries links again on which UDP does not pass. Meanwhile such a
//! link's datagrams take its TCP carrier. A session without flows has none of them after a while.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use sumlink_bond::dial::datagram_pause;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;
use tracing::Instrument;

use crate::carrier::quic::{DatagramCarrier, Ended, HANDSHAKE_PATIENCE, QuicError};
use crate::session::command::Command;

use super::dialer::Dialer;

/// The way over a link that has a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DatagramLink {
    /// The server's addresses that the link reaches.
    pub(crate) servers: Vec<SocketAddr>,
    /// Whether a carrier is wanted now.
    pub(crate) is_wanted: bool,
}

/// Why a link has no carrier while none is wanted.
const RESTS: &str = "no datagrams for a minute; the next ones begin over TCP";

/// The links that have a path, by name.
pub(crate) type DatagramLinks = BTreeMap<String, DatagramLink>;

/// The state of one link.
#[derive(Debug, Default)]
struct State {
    servers: Vec<SocketAddr>,
    /// The current dial, or the wait for the end of the carrier.
    task: Option<AbortHandle>,
    failures: u32,
    retry_at: Option<Instant>,
    /// The reason that was logged last.
    logged: String,
}

enum Done {
    /// A dial has ended.
    Dialed(String, Result<Box<DatagramCarrier>, QuicError>),
    /// A carrier has ended.
    Ended(String, Ended),
}

/// Runs until the session's task is gone.
pub(super) async fn keep(
    dialer: Arc<Dialer>,
    mut links: watch::Receiver<DatagramLinks>,
    commands: UnboundedSender<Command>,
) {
    let mut states: BTreeMap<String, State> = BTreeMap::new();
    let mut tasks: JoinSet<Done> = JoinSet::new();
    loop {
        let present = links.borrow_and_update().clone();
        states.retain(|name, state| {
            let is_present = present.contains_key(name);
            if !is_present {
                if let Some(task) = state.task.take() {
                    task.abort();
                }
                let reason = "the link has no path".to_owned();
                let _ = commands.send(Command::RemoveDatagrams(name.clone(), reason));
            }
            is_present
        });
        let now = Instant::now();
        for (name, link) in present {
            let state = states.entry(name.clone()).or_default();
            if state.servers != link.servers {
                // Another network: what failed before may work now.
                state.servers.clone_from(&link.servers);
                (state.failures, state.retry_at) = (0, None);
            }
            if !link.is_wanted {
                if let Some(task) = state.task.take() {
                    task.abort();
                    let reason = RESTS.to_owned();
                    let _ = commands.send(Command::RemoveDatagrams(name.clone(), reason.clone()));
                    let _ = commands.send(Command::NoDatagrams(name, reason));
                }
                continue;
            }
            if state.task.is_none() && state.retry_at.is_none_or(|at| at <= now) {
                let dialer = Arc::clone(&dialer);
                let dial = async move {
                    let dialed = dialer.dial_datagrams(&name, &link).await;
                    Done::Dialed(name, dialed.map(Box::new))
                };
                state.task = Some(tasks.spawn(dial.in_current_span()));
            }
        }
        let retry = retry_at(&states, &links.borrow());
        let retry = async {
            match retry {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = links.changed() => if changed.is_err() {
                return;
            },
            () = commands.closed() => return,
            () = retry => {}
            Some(done) = tasks.join_next() => if let Ok(done) = done {
                on_done(done, &mut states, &mut tasks, &commands);
            },
        }
    }
}

/// The time of the next dial.
fn retry_at(states: &BTreeMap<String, State>, links: &DatagramLinks) -> Option<Instant> {
    let is_wanted = |name: &String| links.get(name).is_some_and(|link| link.is_wanted);
    let waiting = states
        .iter()
        .filter(|(name, state)| state.task.is_none() && is_wanted(name));
    waiting.filter_map(|(_, state)| state.retry_at).min()
}

fn on_done(
    done: Done,
    states: &mut BTreeMap<String, State>,
    tasks: &mut JoinSet<Done>,
    commands: &UnboundedSender<Command>,
) {
    let mut is_own_end = false;
    let (name, reason, is_blocked) = match done {
        Done::Dialed(name, Ok(carrier)) => {
            let Some(state) = states.get_mut(&name) else {
                return;
            };
            (state.failures, state.retry_at) = (0, None);
            state.logged.clear();
            let ended = carrier.closed();
            let wait = async move { Done::Ended(name, ended.await) };
            state.task = Some(tasks.spawn(wait));
            let _ = commands.send(Command::AddDatagrams(carrier));
            return;
        }
        Done::Dialed(name, Err(error)) => (name, error.to_string(), error.is_blocked()),
        Done::Ended(name, ended) => {
            // The end of the session, or a link that is no longer used, is no failure of UDP.
            is_own_end = ended == Ended::Here;
            (name, ended.to_string(), false)
        }
    };
    let Some(state) = states.get_mut(&name) else {
        return;
    };
    state.task = None;
    state.retry_at = Some(Instant::now() + datagram_pause(state.failures, is_blocked));
    state.failures = state.failures.saturating_add(1);
    // A lasting reason is logged once.
    if !is_own_end && state.logged != reason {
        tracing::info!(
            link = %name,
            %reason,
            "no datagram carrier on this link; its datagrams use TCP"
        );
        state.logged.clone_from(&reason);
    }
    let _ = commands.send(Command::NoDatagrams(name, reason));
}

impl Dialer {
    /// Makes a datagram carrier over the link, to the first of the server's addresses that
    /// answers.
    pub(super) async fn dial_datagrams(
        &self,
        name: &str,
        link: &DatagramLink,
    ) -> Result<DatagramCarrier, QuicError> {
        let mut failure = None;
        let sni = self.names.current();
        for server in &link.servers {
            // QUIC finds the largest packets of the path itself (RFC 8899).
            let opened = self
                .quic
                .connect_as(&sni, Some(name), *server, None, HANDSHAKE_PATIENCE)
                .await;
            let joined = match opened {
                Ok(opened) => {
                    let path = self.next_path();
                    opened.hello(self.session, path, name.to_owned()).await
                }
                Err(error) => Err(error),
            };
            match joined {
                Ok(carrier) => return Ok(carrier),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.unwrap_or(QuicError::NoAddress))
    }
}
