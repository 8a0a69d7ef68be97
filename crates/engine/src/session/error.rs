//! Errors of the peer on a carrier, and of the program with a stream.

use crate::StreamId;
use crate::frame::FrameError;

/// A protocol violation by the peer; it closes the session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// Bytes that do not form a frame.
    #[error("the peer sent a {0}")]
    Frame(#[from] FrameError),
    /// More data than this side permits.
    #[error("the peer exceeded its credit on stream {0}")]
    Credit(StreamId),
    /// More streams than this side permits.
    #[error("the peer opened more streams than allowed (stream {0})")]
    Streams(StreamId),
    /// A frame for a stream that its sender cannot have.
    #[error("the peer named stream {0}, which was never opened")]
    UnknownStream(StreamId),
    /// Two different lengths for one stream, or data beyond its length.
    #[error("the peer contradicted the length of stream {0}")]
    Size(StreamId),
    /// An acknowledgment or report of data that was never sent.
    #[error("the peer acknowledged data that was never sent")]
    Acknowledged,
    /// More gaps than this side tracks; they would take unbounded memory.
    #[error("the peer sent or acknowledged stream {0} in too many pieces")]
    Pieces(StreamId),
    /// A report of datagram packets that were never sent.
    #[error("the peer reported datagrams that were never sent")]
    Reported,
    /// A frame that is valid only at the start of a carrier.
    #[error("the peer sent a handshake frame inside a session")]
    Handshake,
}

/// The session accepts no further path; the configuration is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathRefused {
    /// A scheduler supports only this number of paths.
    #[error(
        "the scheduler {scheduler} takes {most} paths: configure that many links, \
         or choose another scheduler"
    )]
    TooMany {
        /// The scheduler's name.
        scheduler: &'static str,
        /// The number of paths that it supports.
        most: usize,
    },
}

/// The reason for which a stream operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The stream does not exist or has ended.
    #[error("the stream does not exist")]
    Unknown,
    /// The peer does not permit more streams now.
    #[error("the peer does not permit more streams now")]
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
