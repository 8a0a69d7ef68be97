//! Events that a session reports to its owner.

use crate::datagram::{CloseReason, FlowErrorCode, FlowId};
use crate::{Class, PathId, PeerText, Selection, StreamId};

/// An event for the owner of the session.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The peer opened a stream.
    Opened {
        /// The stream.
        stream: StreamId,
        /// The class that the opener has set; without one each side learns it.
        class: Option<Class>,
        /// The target to connect to.
        target: Vec<u8>,
    },
    /// The peer has connected a stream that this side opened.
    Accepted {
        /// The stream.
        stream: StreamId,
    },
    /// Bytes or the end can be read. Reported once, until a read returns less than it asked for.
    Readable {
        /// The stream.
        stream: StreamId,
    },
    /// The send buffer has space again after a short write.
    Writable {
        /// The stream.
        stream: StreamId,
    },
    /// The peer has received all written bytes and the end.
    Delivered {
        /// The stream.
        stream: StreamId,
    },
    /// The peer has reset the stream; unread bytes are dropped. If all bytes and the end had
    /// arrived before, they can still be read and this event follows the last one; writes fail
    /// meanwhile.
    Reset {
        /// The stream.
        stream: StreamId,
        /// The peer's code.
        code: u64,
    },
    /// More streams may be opened.
    StreamsAvailable,
    /// A path makes no progress and gets no more data. Reported once, until it has recovered or
    /// ended.
    PathStalled {
        /// The path.
        path: PathId,
        /// Time for which its oldest byte has been unanswered.
        silent_for: core::time::Duration,
    },
    /// A path that was reported as stalled delivers again.
    PathRecovered {
        /// The path.
        path: PathId,
    },
    /// The peer limits the rate at which this side sends over a path; the carrier must keep to it.
    PathLimited {
        /// The path.
        path: PathId,
        /// Bytes per second, frames included; none for no limit.
        rate: Option<u64>,
    },
    /// The selector has changed the selection of a path.
    PathSelected {
        /// The path.
        path: PathId,
        /// The path's new selection.
        selection: Selection,
        /// The reason, in one sentence with figures.
        reason: String,
    },
    /// The peer reports that its data on a path is not acknowledged. Reported once, until the peer
    /// reports the path as recovered or the path ends.
    PathStalledAtPeer {
        /// The path.
        path: PathId,
    },
    /// The peer reports that a path that it had reported as stalled delivers again.
    PathRecoveredAtPeer {
        /// The path.
        path: PathId,
    },
    /// The peer has abandoned a path; its carrier should be closed.
    PathLeft {
        /// The path.
        path: PathId,
    },
    /// The peer opened a datagram flow. Its first datagrams follow from
    /// [`Session::poll_received`](crate::Session::poll_received).
    FlowOpened {
        /// The flow.
        flow: FlowId,
        /// The program's socket, by a number that the client has chosen.
        source: u64,
        /// The destination.
        target: Vec<u8>,
        /// The class that the opener has set; without one each side learns it.
        class: Option<Class>,
    },
    /// A datagram flow has ended, and not by [`Session::close_flow`](crate::Session::close_flow)
    /// on this side.
    FlowClosed {
        /// The flow.
        flow: FlowId,
        /// Why.
        reason: CloseReason,
    },
    /// A datagram of a flow could not be delivered; the flow continues.
    FlowFailed {
        /// The flow.
        flow: FlowId,
        /// Why.
        code: FlowErrorCode,
    },
    /// The session has ended; its streams and flows are gone.
    Closed {
        /// 0 is a normal end.
        code: u64,
        /// Human-readable text, from this side or the peer.
        reason: PeerText,
    },
}
