//! Where the server is: its name, resolved at the start and again when a link has lost it.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::task::JoinHandle;

use super::ConnectError;

/// What the resolver says.
pub(super) type Answer = Result<Vec<SocketAddr>, ConnectError>;

/// Asks the system's resolver for the server's addresses.
pub(super) struct Resolver {
    /// Begins a look-up.
    look_up: Box<dyn Fn() -> BoxFuture<'static, Answer> + Send + Sync>,
    /// From one look-up to the next at least.
    pause: Duration,
    /// No look-up before.
    not_before: Instant,
    /// The one under way.
    asking: Option<JoinHandle<Answer>>,
}

/// The server's name is resolved anew no more often than this.
const PAUSE: Duration = Duration::from_secs(30);

impl Resolver {
    /// For a server that is given as HOST:PORT.
    pub(super) fn new(server: &str) -> Self {
        let server = server.to_owned();
        Self::with(PAUSE, move || {
            let server = server.clone();
            async move { resolve(&server).await }.boxed()
        })
    }

    /// With another way to look a name up, and another pause.
    pub(super) fn with(
        pause: Duration,
        look_up: impl Fn() -> BoxFuture<'static, Answer> + Send + Sync + 'static,
    ) -> Self {
        Self {
            look_up: Box::new(look_up),
            pause,
            not_before: Instant::now(),
            asking: None,
        }
    }

    /// Asks now, and waits for the answer.
    pub(super) async fn resolve(&mut self) -> Answer {
        self.not_before = Instant::now() + self.pause;
        (self.look_up)().await
    }

    /// The server may have moved: asks beside everything else, and not too often.
    pub(super) fn ask_again(&mut self) {
        let now = Instant::now();
        if self.asking.is_none() && now >= self.not_before {
            self.not_before = now + self.pause;
            self.asking = Some(tokio::spawn((self.look_up)()));
        }
    }

    /// Waits for the answer to [`Resolver::ask_again`]; for ever if nobody has asked. Cancel safe.
    pub(super) async fn answer(&mut self) -> Answer {
        let Some(handle) = &mut self.asking else {
            return std::future::pending().await;
        };
        let result = handle.await;
        self.asking = None;
        // A look-up's task ends with an answer, or with the program.
        result.unwrap_or(Ok(Vec::new()))
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver")
            .field("not_before", &self.not_before)
            .finish_non_exhaustive()
    }
}

/// The server's addresses, in the order that the resolver prefers.
async fn resolve(server: &str) -> Result<Vec<SocketAddr>, ConnectError> {
    if server
        .rsplit_once(':')
        .is_none_or(|(host, port)| host.is_empty() || port.parse::<u16>().is_err())
    {
        return Err(ConnectError::ServerAddress(server.to_owned()));
    }
    let found = tokio::net::lookup_host(server)
        .await
        .map_err(|error| ConnectError::Resolve {
            name: server.to_owned(),
            reason: error.to_string(),
        })?;
    let mut addresses: Vec<SocketAddr> = found.collect();
    addresses.dedup();
    Ok(addresses)
}
