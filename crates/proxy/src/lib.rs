//! The local side of sumlink: unmodified programs reach a session through a SOCKS5 port, an HTTP
//! proxy port, or a port that is forwarded to one fixed target.
//!
//! - [`Listener`] owns a port and serves one [`Service`] on it.
//! - [`Opener`] is what carries the streams: a session, or anything else that opens one.
//! - [`socks5::message`] and [`http_proxy::request`] are the wire formats, pure functions over bytes.
//!
//! Names are not resolved here: they travel in the [`Target`] to where the stream leaves the bond.
//! The ports have no access control of their own, so whoever reaches one can use the session: keep
//! them on loopback unless the network in front of them is trusted.
#![forbid(unsafe_code)]

use std::future::Future;

use sumlink_transport::relay::Relayed;

pub use class::{ClassRule, ClassRuleError, Dscp, Flow, Ports};
pub use forward::{Forward, ForwardError};
pub use listener::{ConnectionLimit, ListenError, Listener, Service};
pub use sumlink_transport::Class;
pub use sumlink_transport::target::{OpenError, Target};

pub mod class;
pub mod forward;
pub mod http_proxy;
mod listener;
pub mod socks5;

/// What carries the streams: a session, or anything else that opens one.
pub trait Opener: Clone + Send + Sync + 'static {
    /// One stream. Shutting its writing side down ends one direction and leaves the other open; an
    /// end of its reading side means that the peer has done the same. A stream that is dropped
    /// before both directions have ended must be reset at the peer, not ended: a relay drops it
    /// when the local program has vanished in the middle.
    ///
    /// A type without memory of its own is wrapped into [`Buffered`](sumlink_transport::relay::Buffered).
    type Stream: Relayed + Send + 'static;

    /// Opens a stream of a class to `target`, with the opener's own time limit. Without a class, it is for the stream
    /// to show which it has.
    fn open(
        &self,
        target: Target,
        class: Option<Class>,
    ) -> impl Future<Output = Result<Self::Stream, OpenError>> + Send;
}
