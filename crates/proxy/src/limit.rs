//! A limit that entries and tasks share, with fair shares for clients.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::shares::Shares;
use crate::source::Throttle;
use crate::{Active, Client, OpenError};

/// Time for which a use of a place counts as the last one, so that not every packet takes the lock.
const USE_PAUSE: Duration = Duration::from_secs(1);

/// Most connections that make room for a stream that the session or its server has no room for.
/// Another program may be faster to take the room.
const TRIES: u32 = 3;

/// A number of places, shared fairly as [`Shares`] says. Clones share the places.
#[derive(Clone, Debug)]
pub struct Limit(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The entries, for log lines.
    name: &'static str,
    most: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Dropping a sender ends the wait of [`Place::lost`].
    shares: Shares<oneshot::Sender<()>>,
    log: Throttle,
}

/// A place within a [`Limit`]. It is free again when this is dropped.
#[derive(Debug)]
pub struct Place {
    usage: Usage,
    lost: oneshot::Receiver<()>,
    is_lost: bool,
}

/// Notes the use of a [`Place`], which it does not hold.
#[derive(Clone, Debug)]
pub struct Usage {
    limit: Limit,
    number: u64,
    client: Client,
    noted: Instant,
}

impl Limit {
    /// `most` places, for entries with this name in log lines. The arguments are those of
    /// [`Shares::new`].
    pub fn new(name: &'static str, most: usize, yield_after: Option<Duration>) -> Self {
        Self::of(name, most, Shares::new(most, yield_after))
    }

    /// [`Limit::new`] with a limit of each client, [`Shares::with_most_own`].
    pub fn with_most_own(
        name: &'static str,
        most: usize,
        most_own: usize,
        yield_after: Option<Duration>,
    ) -> Self {
        let shares = Shares::new(most, yield_after).with_most_own(most_own);
        Self::of(name, most, shares)
    }

    fn of(name: &'static str, most: usize, shares: Shares<oneshot::Sender<()>>) -> Self {
        let state = State {
            shares,
            log: Throttle::default(),
        };
        Self(Arc::new(Inner {
            name,
            most,
            state: Mutex::new(state),
        }))
    }

    /// A place for an entry of `client`: a free one, or that of another entry. `None` if the client
    /// has its share.
    pub fn place(&self, client: Client) -> Option<Place> {
        let now = Instant::now();
        let (holder, lost) = oneshot::channel();
        let mut state = self.state();
        let (number, displaced) = state.shares.insert(client, holder, now)?;
        let displaced = displaced.map(|displaced| displaced.client);
        self.report(state, displaced, now);
        Some(Place {
            usage: Usage {
                limit: self.clone(),
                number,
                client,
                noted: now,
            },
            lost,
            is_lost: false,
        })
    }

    /// The number of places.
    pub fn most(&self) -> usize {
        self.0.most
    }

    fn report(&self, mut state: MutexGuard<'_, State>, displaced: Option<Client>, now: Instant) {
        let Some(client) = displaced else {
            return;
        };
        let name = self.0.name;
        let count = state.log.count(1, now);
        drop(state);
        match count {
            Some(displaced) => warn!(
                %client, displaced, most = self.0.most,
                "limit on {name} reached; new ones replace those of the client that has the most"
            ),
            None => debug!(%client, "one of {name} has lost its place"),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Waits until the place is lost to another entry: this one must end. Cancel safe.
    pub async fn lost(&mut self) {
        if !self.is_lost {
            // Nothing is ever sent.
            let _ = (&mut self.lost).await;
            self.is_lost = true;
        }
    }

    /// Notes that the entry is in use.
    pub fn used(&mut self) {
        self.usage.used();
    }

    /// A handle that notes the use of the entry.
    pub fn usage(&self) -> Usage {
        self.usage.clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let removed = self.usage.limit.state().shares.remove(self.usage.number);
        // Its sender is dropped without the lock.
        drop(removed);
    }
}

impl Usage {
    /// Notes that the entry is in use, to the second.
    pub fn used(&mut self) {
        let now = Instant::now();
        if now.saturating_duration_since(self.noted) >= USE_PAUSE {
            self.noted = now;
            self.limit.state().shares.touch(self.number, now);
        }
    }

    /// Notes that `client` uses the entry, too ([`Shares::share`]).
    pub fn share(&self, client: Client) {
        self.limit.state().shares.share(self.number, client);
    }

    /// Opens a stream for the entry. If the session or its server has no room for another one, then
    /// the client with the most entries loses one, and the stream is tried again. Those limits are
    /// often lower than this one, and do not know clients.
    ///
    /// # Errors
    ///
    /// That of the last try.
    pub async fn open<S, F>(&self, mut open: impl FnMut() -> F) -> Result<Active<S>, OpenError>
    where
        F: Future<Output = Result<S, OpenError>>,
    {
        for _ in 0..TRIES {
            match open().await {
                Err(OpenError::LimitReached) if self.make_room() => {}
                opened => return opened.map(|stream| Active::new(stream, self.clone())),
            }
        }
        open().await.map(|stream| Active::new(stream, self.clone()))
    }

    fn make_room(&self) -> bool {
        let now = Instant::now();
        let mut state = self.limit.state();
        let displaced = state.shares.displace(self.client, now);
        let is_room = displaced.is_some();
        let client = displaced.map(|displaced| displaced.client);
        self.limit.report(state, client, now);
        is_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAN: Client = Client::Lan(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));

    async fn is_lost(place: &mut Place) -> bool {
        tokio::select! {
            biased;
            () = place.lost() => true,
            () = std::future::ready(()) => false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_is_lost_to_a_client_with_fewer() {
        let limit = Limit::new("tests", 3, None);
        let [mut first, mut second, third] =
            [(); 3].map(|()| limit.place(LAN).expect("places are free"));
        assert!(limit.place(LAN).is_none());
        tokio::time::advance(2 * USE_PAUSE).await;
        first.used();
        let other = limit.place(Client::Host).unwrap();
        assert!(is_lost(&mut second).await && !is_lost(&mut first).await);
        // It stays lost, and its end frees no other place.
        assert!(is_lost(&mut second).await);
        drop(second);
        assert!(limit.place(LAN).is_none());
        drop((third, other));
        assert!(limit.place(LAN).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_without_room_takes_that_of_the_client_with_the_most() {
        let limit = Limit::new("tests", 9, None);
        let mut held: Vec<Place> = (0..3).filter_map(|_| limit.place(LAN)).collect();
        let own = limit.place(Client::Host).unwrap();
        let usage = own.usage();
        let mut tried = 0;
        let opened = usage.open(|| {
            tried += 1;
            let opened = match tried {
                1 => Err(OpenError::LimitReached),
                _ => Ok(()),
            };
            std::future::ready(opened)
        });
        assert!(opened.await.is_ok());
        assert!(is_lost(&mut held[0]).await && !is_lost(&mut held[1]).await);
        // Equal shares are left alone.
        drop(held.pop());
        let refused = usage.open(|| std::future::ready(Err::<(), _>(OpenError::LimitReached)));
        assert!(matches!(refused.await, Err(OpenError::LimitReached)));
        assert!(!is_lost(&mut held[1]).await);
    }
}
