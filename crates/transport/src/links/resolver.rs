//! Resolves the server's name, at the start and again when a link has lost the server.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::task::JoinSet;

use super::services::{Service, no_services};
use crate::api::error::ConnectError;

/// The resolver's answer.
pub(super) type Answer = Result<Vec<SocketAddr>, ConnectError>;

/// Looks up the addresses of a server's name in place of the system's resolver. A gateway needs it:
/// the system's resolver would use the very connection that is to be made.
pub trait Lookup: fmt::Debug + Send + Sync {
    /// The addresses of `host`.
    fn look_up(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>;

    /// The SRV records of `name` (RFC 2782), for a client with a [server of that
    /// kind](super::is_service). Fails unless it is implemented.
    fn look_up_services(&self, _name: String) -> BoxFuture<'static, io::Result<Vec<Service>>> {
        std::future::ready(Err(no_services())).boxed()
    }
}

/// Looks up the server's addresses, at first and when it may have moved.
pub(super) struct Resolver {
    /// Starts a lookup.
    look_up: Box<dyn Fn() -> BoxFuture<'static, Answer> + Send + Sync>,
    pauses: Pauses,
    /// When the latest lookup was started.
    started: Option<Instant>,
    /// Lookups in progress. A resolver that has lost its network may take half a minute, while a
    /// newer lookup succeeds at once.
    in_progress: JoinSet<(u64, Answer)>,
    /// Number of the latest lookup, and of the latest answered one.
    begun: u64,
    answered: u64,
}

/// Minimum time between two lookups.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pauses {
    /// While the server is reachable over some link.
    pub(super) reached: Duration,
    /// While it is not.
    pub(super) lost: Duration,
}

/// An unreachable server may have moved, and its clients should follow it within three seconds.
const PAUSES: Pauses = Pauses {
    reached: Duration::from_secs(30),
    lost: Duration::from_secs(2),
};

/// Maximum number of lookups in progress: each takes a thread.
const MAX: usize = 4;

impl Resolver {
    /// For a server given as HOST:PORT. Uses the system's resolver unless there is a `lookup`.
    pub(super) fn new(server: &str, lookup: Option<Arc<dyn Lookup>>) -> Self {
        let server = server.to_owned();
        Self::with(PAUSES, move || {
            let (server, lookup) = (server.clone(), lookup.clone());
            async move { resolve(&server, lookup).await }.boxed()
        })
    }

    /// With another lookup function and other pauses.
    pub(super) fn with(
        pauses: Pauses,
        look_up: impl Fn() -> BoxFuture<'static, Answer> + Send + Sync + 'static,
    ) -> Self {
        Self {
            look_up: Box::new(look_up),
            pauses,
            started: None,
            in_progress: JoinSet::new(),
            begun: 0,
            answered: 0,
        }
    }

    /// With other answers.
    #[cfg(test)]
    pub(super) fn answering(
        self,
        look_up: impl Fn() -> BoxFuture<'static, Answer> + Send + Sync + 'static,
    ) -> Self {
        Self::with(self.pauses, look_up)
    }

    /// Starts a lookup and waits for its answer.
    pub(super) async fn resolve(&mut self) -> Answer {
        self.started = Some(Instant::now());
        (self.look_up)().await
    }

    /// Starts another lookup in the background, unless the last one was too recent: the server may
    /// have moved. `is_lost` says that no link reaches the server.
    pub(super) fn ask_again(&mut self, is_lost: bool) {
        let now = Instant::now();
        if self.due(is_lost) <= now {
            self.started = Some(now);
            self.begun += 1;
            let (number, look_up) = (self.begun, (self.look_up)());
            self.in_progress
                .spawn(async move { (number, look_up.await) });
        }
    }

    /// The earliest time of the next lookup.
    pub(super) fn due(&self, is_lost: bool) -> Instant {
        let pause = match is_lost {
            true => self.pauses.lost,
            false => self.pauses.reached,
        };
        let now = Instant::now();
        match self.in_progress.len() < MAX {
            true => self.started.map_or(now, |started| started + pause),
            false => now + pause,
        }
    }

    /// Waits for the answer to [`Resolver::ask_again`]; forever if no lookup is in progress. Cancel
    /// safe.
    pub(super) async fn answer(&mut self) -> Answer {
        loop {
            match self.in_progress.join_next().await {
                // The answers to older lookups are out of date.
                Some(Ok((number, answer))) if number > self.answered => {
                    self.answered = number;
                    return answer;
                }
                // A lookup's task ends with an answer, or with the program.
                Some(_) => {}
                None => return std::future::pending().await,
            }
        }
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver")
            .field("started", &self.started)
            .finish_non_exhaustive()
    }
}

/// The server's addresses, in the resolver's order of preference.
async fn resolve(
    server: &str,
    lookup: Option<Arc<dyn Lookup>>,
) -> Result<Vec<SocketAddr>, ConnectError> {
    let parts = server.rsplit_once(':');
    let parts = parts.and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
    let Some((host, port)) = parts.filter(|(host, _)| !host.is_empty()) else {
        return Err(ConnectError::ServerAddress(server.to_owned()));
    };
    let found = match lookup {
        Some(lookup) if server.parse::<SocketAddr>().is_err() => {
            lookup.look_up(host.to_owned(), port).await
        }
        _ => tokio::net::lookup_host(server).await.map(Iterator::collect),
    };
    let mut addresses: Vec<SocketAddr> = found.map_err(|error| ConnectError::Resolve {
        name: server.to_owned(),
        reason: error.to_string(),
    })?;
    addresses.dedup();
    Ok(addresses)
}
