//! The limit on connections that entries serve at once.

use std::sync::Arc;

use sumlink_transport::descriptors;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most connections beyond the limit that are answered at once; further ones are reset. An answer
/// takes as long as the program needs to send its request.
const REFUSALS: usize = 32;

/// Limit on connections served at once. Clones share one limit, as the entries of a client do. The
/// default is the share of the open-files limit that remains for streams
/// ([`descriptors::for_streams`]).
///
/// A connection beyond it is refused at once, in its own protocol.
#[derive(Clone, Debug)]
pub struct ConnectionLimit {
    pub(crate) most: usize,
    places: Arc<Semaphore>,
    refusals: Arc<Semaphore>,
}

/// How a connection is handled.
#[derive(Debug)]
pub(crate) enum Place {
    /// It is served with a stream.
    Served(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit),
    /// It is refused with an answer.
    Refused(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit),
}

impl ConnectionLimit {
    /// A limit of `most` connections, at least one.
    pub fn new(most: usize) -> Self {
        let most = most.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            most,
            places: Arc::new(Semaphore::new(most)),
            refusals: Arc::new(Semaphore::new(REFUSALS)),
        }
    }

    /// A place for a new connection, for entries outside of this crate that need no request to
    /// refuse one; `None` if all are taken. The connection is served while the place is held.
    pub fn permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// A place for a new connection; `None` if even the places for refusals are taken.
    pub(crate) fn place(&self) -> Option<Place> {
        let served = Arc::clone(&self.places).try_acquire_owned();
        match served {
            Ok(place) => Some(Place::Served(place)),
            Err(_) => {
                let refused = Arc::clone(&self.refusals).try_acquire_owned();
                refused.ok().map(Place::Refused)
            }
        }
    }
}

impl Default for ConnectionLimit {
    fn default() -> Self {
        Self::new(descriptors::for_streams())
    }
}
