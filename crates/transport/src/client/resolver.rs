//! Where the server is: its name, resolved at the start and again when a link has lost it.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::task::JoinSet;

use super::ConnectError;

/// What the resolver says.
pub(super) type Answer = Result<Vec<SocketAddr>, ConnectError>;

/// Asks the system's resolver for the server's addresses.
pub(super) struct Resolver {
    /// Begins a look-up.
    look_up: Box<dyn Fn() -> BoxFuture<'static, Answer> + Send + Sync>,
    pauses: Pauses,
    /// When a look-up was last begun.
    asked: Option<Instant>,
    /// Those under way. A resolver that has lost its network may take half a minute, and a newer one beside it a moment.
    asking: JoinSet<(u64, Answer)>,
    /// The number of the newest one, and of the newest that has been answered.
    begun: u64,
    answered: u64,
}

/// From one look-up to the next at least.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pauses {
    /// While the server is reached over some link.
    pub(super) reached: Duration,
    /// While it is not.
    pub(super) lost: Duration,
}

/// A server that cannot be reached may have moved, and its clients are to follow it within three seconds.
const PAUSES: Pauses = Pauses {
    reached: Duration::from_secs(30),
    lost: Duration::from_secs(2),
};

/// Look-ups under way at most: each takes a thread.
const MOST: usize = 4;

impl Resolver {
    /// For a server that is given as HOST:PORT.
    pub(super) fn new(server: &str) -> Self {
        let server = server.to_owned();
        Self::with(PAUSES, move || {
            let server = server.clone();
            async move { resolve(&server).await }.boxed()
        })
    }

    /// With another way to look a name up, and other pauses.
    pub(super) fn with(
        pauses: Pauses,
        look_up: impl Fn() -> BoxFuture<'static, Answer> + Send + Sync + 'static,
    ) -> Self {
        Self {
            look_up: Box::new(look_up),
            pauses,
            asked: None,
            asking: JoinSet::new(),
            begun: 0,
            answered: 0,
        }
    }

    /// The same with other answers.
    #[cfg(test)]
    pub(super) fn answering(
        self,
        look_up: impl Fn() -> BoxFuture<'static, Answer> + Send + Sync + 'static,
    ) -> Self {
        Self::with(self.pauses, look_up)
    }

    /// Asks now, and waits for the answer.
    pub(super) async fn resolve(&mut self) -> Answer {
        self.asked = Some(Instant::now());
        (self.look_up)().await
    }

    /// The server may have moved: asks beside everything else, and not too often. `is_lost` says that it is reached over
    /// no link.
    pub(super) fn ask_again(&mut self, is_lost: bool) {
        let now = Instant::now();
        if self.due(is_lost) <= now {
            self.asked = Some(now);
            self.begun += 1;
            let (number, look_up) = (self.begun, (self.look_up)());
            self.asking.spawn(async move { (number, look_up.await) });
        }
    }

    /// When it may be asked again.
    pub(super) fn due(&self, is_lost: bool) -> Instant {
        let pause = match is_lost {
            true => self.pauses.lost,
            false => self.pauses.reached,
        };
        let now = Instant::now();
        match self.asking.len() < MOST {
            true => self.asked.map_or(now, |asked| asked + pause),
            false => now + pause,
        }
    }

    /// Waits for the answer to [`Resolver::ask_again`]; for ever if nobody has asked. Cancel safe.
    pub(super) async fn answer(&mut self) -> Answer {
        loop {
            match self.asking.join_next().await {
                // What was asked before the newest answer says where the server was then.
                Some(Ok((number, answer))) if number > self.answered => {
                    self.answered = number;
                    return answer;
                }
                // A look-up's task ends with an answer, or with the program.
                Some(_) => {}
                None => return std::future::pending().await,
            }
        }
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver")
            .field("asked", &self.asked)
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
