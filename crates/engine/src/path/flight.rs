//! Data in flight on a path.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::frame::ReportedState;
use crate::{Instant, PathId, StreamId};

/// Stream bytes in flight on a path.
#[derive(Clone, Debug)]
pub struct Flight {
    /// The stream.
    pub stream: StreamId,
    /// Their range in the stream.
    pub range: Range<u64>,
    /// Time at which they were handed to the carrier.
    pub sent_at: Instant,
    /// Expected arrival at the peer, as predicted when they were handed over.
    pub expected_at: Instant,
    /// Time after `expected_at` at which they become late, as predicted when they were handed over
    /// ([`Path::patience`](super::Path::patience)).
    pub patience: Duration,
    /// Round trip that was expected when they were handed over.
    pub round_trip: Duration,
    /// Whether another path has carried a second copy.
    pub repeated: bool,
    /// The path's count of sent bytes at their end.
    pub(crate) path_end: u64,
    /// The path's count of sent bytes at the end of the TLS record in which they end: a record can
    /// be read only once all of it has arrived.
    pub(crate) record_end: u64,
}

/// A control frame in flight.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    /// The path's count of sent bytes at its end.
    pub(crate) path_end: u64,
    pub(crate) sent_at: Instant,
    /// None once the frame has been handed to another path; from then on only its acknowledgment
    /// matters.
    pub(crate) frame: Option<Control>,
}

impl Flight {
    /// How long they may be overdue before the path counts as stalled, as predicted when they were
    /// handed over. On a path that slows down, round trip and variation grow with the data that
    /// waits on it.
    pub(crate) fn stall_patience(&self) -> Duration {
        Self::stall_patience_of(self.round_trip, self.patience)
    }

    /// The same for a piece with this round trip and this patience.
    pub(crate) fn stall_patience_of(round_trip: Duration, patience: Duration) -> Duration {
        round_trip + 2 * patience
    }
}

impl Sent {
    /// A PING concerns its own path; every other frame may go over any path.
    pub(crate) fn needs_repeat(&self) -> bool {
        !matches!(self.frame, None | Some(Control::Ping { .. }))
    }
}

/// A control frame that waits or is in flight. Credit is read from the session when the frame is
/// encoded, so a second copy is never outdated.
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
    /// The state of a path as this side sees it.
    PathState {
        path: PathId,
        version: u64,
        state: ReportedState,
    },
}
