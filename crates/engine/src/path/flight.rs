//! What is on its way over a path.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::frame::PathWord;
use crate::{Instant, PathId, StreamId};

/// Stream bytes on their way over a path.
#[derive(Clone, Debug)]
pub struct Flight {
    /// The stream.
    pub stream: StreamId,
    /// Which bytes of it.
    pub range: Range<u64>,
    /// When they were handed to the carrier.
    pub sent_at: Instant,
    /// When they were expected at the peer, by what was known then.
    pub expected_at: Instant,
    /// How long after that they are late, by what was known then ([`Path::patience`](super::Path::patience)).
    pub patience: Duration,
    /// The round trip that was expected when they were handed over, as far as it was known.
    pub round_trip: Duration,
    /// Whether another path has repeated them.
    pub repeated: bool,
    /// Count of the path's bytes at their end.
    pub(crate) path_end: u64,
    /// The same at the end of the TLS record in which they end: nothing of a record can be read before all of it is there.
    pub(crate) record_end: u64,
}

/// A control frame on its way.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    /// Count of the path's bytes at its end.
    pub(crate) path_end: u64,
    pub(crate) sent_at: Instant,
    /// Nothing once it has been handed to another path: then only its confirmation is of interest.
    pub(crate) frame: Option<Control>,
}

impl Flight {
    /// How long they may be overdue before the path counts as stalled, by what was known when they were handed over: of a path that
    /// slows down round trip and variation grow with what waits on it.
    pub(crate) fn stall_patience(&self) -> Duration {
        self.round_trip + 2 * self.patience
    }
}

impl Sent {
    /// A PING asks about its own path; everything else may go over any.
    pub(crate) fn is_to_be_repeated(&self) -> bool {
        !matches!(self.frame, None | Some(Control::Ping { .. }))
    }
}

/// A control frame in waiting or on its way; credit is read from the session when it is encoded, so that a
/// repeated one is never out of date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    Open {
        stream: StreamId,
        class: u64,
        target: Arc<[u8]>,
    },
    Accept {
        stream: StreamId,
    },
    Fin {
        stream: StreamId,
        size: u64,
    },
    Reset {
        stream: StreamId,
        code: u64,
        size: u64,
    },
    CreditSession,
    CreditStream {
        stream: StreamId,
    },
    CreditInitial,
    CreditStreams,
    Policy {
        path: PathId,
    },
    Ping {
        token: u64,
    },
    /// What a path is to this side.
    PathState {
        path: PathId,
        version: u64,
        state: PathWord,
    },
}
