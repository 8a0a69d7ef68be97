//! What a session tells its owner.

use crate::{Class, PathId, PeerText, Selection, StreamId};

/// Something the owner of the session should know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The peer opened a stream.
    Opened {
        /// The stream.
        stream: StreamId,
        /// The class that the opener was told of; without one each side learns it.
        class: Option<Class>,
        /// What to connect to.
        target: Vec<u8>,
    },
    /// The peer connected a stream that this side opened.
    Accepted {
        /// The stream.
        stream: StreamId,
    },
    /// There is something to read, or the end; said once until a read comes back short.
    Readable {
        /// The stream.
        stream: StreamId,
    },
    /// There is room after a write that was cut short.
    Writable {
        /// The stream.
        stream: StreamId,
    },
    /// All that was written, and the end, has been received by the peer.
    Delivered {
        /// The stream.
        stream: StreamId,
    },
    /// The peer reset the stream; unread bytes are gone. Only where all bytes and the end had arrived before, they
    /// can still be read, and this comes after the last one; writes fail meanwhile.
    Reset {
        /// The stream.
        stream: StreamId,
        /// The peer's code.
        code: u64,
    },
    /// More streams may be opened than before.
    StreamsAvailable,
    /// A path makes no progress and gets no more work. Said once until it has recovered or ended.
    PathStalled {
        /// The path.
        path: PathId,
        /// How long its oldest byte has been without an answer.
        silent_for: core::time::Duration,
    },
    /// A path that was said to have stalled delivers again.
    PathRecovered {
        /// The path.
        path: PathId,
    },
    /// The peer bounds what this side may send over a path; the carrier is to keep to it.
    PathLimited {
        /// The path.
        path: PathId,
        /// Bytes per second, frames included; nothing for no bound.
        rate: Option<u64>,
    },
    /// The selector has decided something about a path.
    PathSelected {
        /// The path.
        path: PathId,
        /// What it is from now on.
        selection: Selection,
        /// Why, in one sentence with figures.
        reason: String,
    },
    /// The peer says that what it sends on a path is not confirmed. Said once until the peer trusts the path again, or it ends.
    PathDoubted {
        /// The path.
        path: PathId,
    },
    /// The peer says that a path that it doubted delivers again.
    PathTrusted {
        /// The path.
        path: PathId,
    },
    /// The peer has left a path: its carrier is to be ended.
    PathLeft {
        /// The path.
        path: PathId,
    },
    /// The session has ended; streams are gone.
    Closed {
        /// 0 is a normal end.
        code: u64,
        /// For people: this side's words, or the peer's.
        reason: PeerText,
    },
}
