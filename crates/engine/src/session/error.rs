//! Who did what wrong: the peer on the carrier, or the program with a stream.

use crate::StreamId;
use crate::frame::FrameError;

/// What the peer did wrong: the session is closed for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// Bytes that are no frame.
    #[error("the peer sent a {0}")]
    Frame(#[from] FrameError),
    /// More data than this side allowed.
    #[error("the peer exceeded its credit on stream {0}")]
    Credit(StreamId),
    /// More streams than this side allowed.
    #[error("the peer opened more streams than allowed (stream {0})")]
    Streams(StreamId),
    /// A frame for a stream that its sender cannot have.
    #[error("the peer named stream {0}, which was never opened")]
    UnknownStream(StreamId),
    /// Two lengths for one stream, or data beyond its length.
    #[error("the peer contradicted the length of stream {0}")]
    Size(StreamId),
    /// An acknowledgement or report of something that was never sent.
    #[error("the peer acknowledged what was never sent")]
    Acknowledged,
    /// So many gaps that keeping track of them would take memory without bound.
    #[error("the peer sent or acknowledged stream {0} in too many pieces")]
    Pieces(StreamId),
    /// A frame that belongs only at a carrier's beginning.
    #[error("the peer sent a handshake frame inside a session")]
    Handshake,
}

/// Why a session takes no further path; the configuration is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathRefused {
    /// A scheduler is made for so many paths and no more.
    #[error(
        "the scheduler {scheduler} takes {most} paths: name as many links, or choose another scheduler"
    )]
    TooMany {
        /// Its name.
        scheduler: &'static str,
        /// How many it takes.
        most: usize,
    },
}

/// Why a stream operation was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// There is no such stream, or it is over.
    #[error("there is no such stream")]
    Unknown,
    /// The peer allows no more streams at the moment.
    #[error("the peer allows no more streams at the moment")]
    NoMoreStreams,
    /// The stream's writing end is finished.
    #[error("the stream is finished")]
    Finished,
    /// The target of a stream does not fit into a frame.
    #[error("the target is longer than 512 bytes")]
    TargetTooLong,
    /// The session has ended.
    #[error("the session has ended")]
    Closed,
}
