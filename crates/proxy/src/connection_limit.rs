//! The limit on connections that entries serve at once.

use std::sync::Arc;

use sumlink_transport::descriptors;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{Client, Limit, Place};

/// Most connections beyond the limit that are answered at once; further ones are reset. An answer
/// takes as long as the program needs to send its request.
const REFUSALS: usize = 32;

/// Limit on connections served at once. Clones share one limit, as the entries of a client do. The
/// default is the share of the open-files limit that remains for streams
/// ([`descriptors::for_streams`]).
///
/// A connection beyond it is refused at once, in its own protocol, if its client has as many as
/// others. Otherwise, the connection idle longest of the client that has the most is reset. To
/// reserve places for other clients instead would cost every client a part of the limit all the
/// time, and fail when several clients take too many. Only a client with more than its share loses
/// a connection, one that it does not use.
#[derive(Clone, Debug)]
pub struct ConnectionLimit {
    places: Limit,
    refusals: Arc<Semaphore>,
}

/// How a connection is handled.
#[derive(Debug)]
pub(crate) enum Admission {
    /// It is served with a stream, until its place is lost.
    Served(Place),
    /// It is refused with an answer.
    Refused(OwnedSemaphorePermit),
}

impl ConnectionLimit {
    /// A limit of `most` connections, at least one.
    pub fn new(most: usize) -> Self {
        Self {
            // A new connection of a client does not end another one of it: the program would take
            // that for a failure, while a refusal is clear.
            places: Limit::new("connections", most.max(1), None),
            refusals: Arc::new(Semaphore::new(REFUSALS)),
        }
    }

    /// A place for a new connection, for entries outside of this crate that need no request to
    /// refuse one; `None` if the client has its share of them. The connection is served while the
    /// place is held, and must end when it is lost.
    pub fn permit(&self, client: Client) -> Option<Place> {
        self.places.place(client)
    }

    /// The limit.
    pub(crate) fn most(&self) -> usize {
        self.places.most()
    }

    /// A place for a new connection; `None` if even the places for refusals are taken. They are not
    /// shared fairly: a client with less than its share needs none.
    pub(crate) fn admit(&self, client: Client) -> Option<Admission> {
        match self.places.place(client) {
            Some(place) => Some(Admission::Served(place)),
            None => {
                let refused = Arc::clone(&self.refusals).try_acquire_owned();
                refused.ok().map(Admission::Refused)
            }
        }
    }
}

impl Default for ConnectionLimit {
    fn default() -> Self {
        Self::new(descriptors::for_streams())
    }
}
