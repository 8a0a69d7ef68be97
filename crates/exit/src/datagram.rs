//! The interface between a session's datagrams and the sockets at both of its ends.
//!
//! A *source* corresponds to a UDP socket of a program: it exchanges datagrams with any number of
//! remotes. A [`DatagramSocket`] is one end of a source. At the client, a local entry holds it; at
//! the server, [`udp`](crate::udp) connects it to real UDP sockets.

use std::future::Future;

use bytes::Bytes;
use sumlink_engine::Class;

use crate::target::Target;

mod backlog;
mod failure;
mod pair;

pub use backlog::Backlog;
pub use failure::FlowFailure;
pub use pair::{PairSocket, pair};

/// Longest payload of a UDP datagram over IPv4, in bytes: 65,535 less an IP header of 20 and a UDP
/// header of 8 (RFC 791, RFC 768). Entries and exits carry no longer one over IPv6 either.
pub const MAX_PAYLOAD: usize = 65_507;

/// An event from or about a remote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// A datagram from the remote, 0 to [`MAX_PAYLOAD`] bytes.
    Datagram(Bytes),
    /// Datagrams to the remote did not arrive. Later ones may: the flow stays usable.
    Failed(FlowFailure),
}

/// Why a datagram was dropped before it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The payload is longer than the session carries.
    #[error("the datagram is longer than the session carries, {most} bytes")]
    TooBig {
        /// Longest payload for now, in bytes.
        most: usize,
    },
    /// A limit on flows or memory is reached, here or at the peer.
    #[error("a limit on flows or on their memory is reached")]
    LimitReached,
    /// The peer is an older version that carries streams only.
    #[error("the peer does not carry datagrams; it needs a newer version")]
    Unsupported,
    /// The source has ended, or its session has.
    #[error("the source of the datagram has ended")]
    Closed,
}

/// One end of a source.
pub trait DatagramSocket: Send + 'static {
    /// Sends a datagram. Never waits; the datagram may be dropped later, like any datagram.
    ///
    /// `class` counts for the first datagram to a remote; `None` leaves the class to the session.
    ///
    /// # Errors
    ///
    /// The datagram was dropped at once. Only after [`SendError::Closed`] is it useless to send
    /// more.
    fn send(&self, remote: &Target, payload: Bytes, class: Option<Class>) -> Result<(), SendError>;

    /// Waits for at least one event, appends at most `limit` of them and returns their number; 0
    /// means that the source has ended.
    ///
    /// Cancel safe: a future that is dropped before it completes has taken nothing.
    fn receive(
        &mut self,
        out: &mut Vec<(Target, Received)>,
        limit: usize,
    ) -> impl Future<Output = usize> + Send;

    /// Reports to the peer that datagrams to `remote` do not arrive. Never waits; the report may
    /// get lost.
    fn report(&self, remote: &Target, failure: FlowFailure);
}
