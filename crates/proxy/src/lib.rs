//! The local side of sumlink: unmodified programs reach a session through a SOCKS5 port, an HTTP
//! proxy port, a port forwarded to a fixed target, or without knowing of it: a packet filter passes
//! their connections and datagrams on.
//!
//! - [`Listener`] owns a port and serves one [`Service`] on it.
//! - [`UdpForwarder`] owns a UDP port and forwards its datagrams.
//! - [`TransparentUdp`] owns a UDP port that receives datagrams to other machines.
//! - [`Opener`] provides the streams: a session, or any other type that opens streams.
//! - [`DatagramOpener`] provides the sources of datagrams in the same way.
//! - [`Limit`] shares a limit among clients ([`shares`]), so that one of them cannot take it all.
//! - [`socks5::message`] and [`http_proxy::request`] are the wire formats, as pure functions over
//!   bytes.
//!
//! Names are not resolved here: they travel in the [`Target`] to the exit of the bond. The ports
//! have no access control, so every program that reaches one can use the session. Keep them on
//! loopback unless the network in front of them is trusted.
#![forbid(unsafe_code)]

use std::future::Future;

use sumlink_exit::datagram::DatagramSocket;
use sumlink_exit::relay::Relayed;

pub use active::Active;
pub use class::{ClassRule, ClassRuleError, Dscp, Flow, Ports};
pub use client::Client;
pub use connection_limit::ConnectionLimit;
pub use forward::{AnyForward, Forward, ForwardError, UdpForward};
pub use limit::{Limit, Place, Usage};
pub use listen_error::ListenError;
pub use listener::{Listener, Service};
pub use origin::{Origin, Side};
pub use source::{Source, SourceLimit};
pub use sumlink_transport::Class;
pub use sumlink_transport::target::{OpenError, Target};
pub use udp_bind_error::UdpBindError;
pub use udp_forward::UdpForwarder;
pub use udp_transparent::TransparentUdp;

mod active;
mod associations;
pub mod class;
mod classes;
mod client;
mod connection_limit;
pub mod forward;
pub mod http_proxy;
mod limit;
mod listen_error;
mod listener;
mod origin;
mod peers;
pub mod shares;
pub mod socks5;
mod source;
mod transparent;
mod udp_bind_error;
mod udp_forward;
mod udp_transparent;

/// Provides the streams: a session, or any other type that opens streams.
pub trait Opener: Clone + Send + Sync + 'static {
    /// One stream. Shutting down its writing side ends one direction and leaves the other open; the
    /// end of its reading side means that the peer has done the same. A stream dropped before both
    /// directions have ended must be reset at the peer, not ended: a relay drops it when the local
    /// program disappears midway.
    ///
    /// A type without a buffer is wrapped into [`Buffered`](sumlink_exit::relay::Buffered).
    type Stream: Relayed + Send + 'static;

    /// Opens a stream to `target`, with the opener's own time limit. Without a class, the session
    /// learns it from the traffic.
    fn open(
        &self,
        target: Target,
        class: Option<Class>,
    ) -> impl Future<Output = Result<Self::Stream, OpenError>> + Send;

    /// [`Opener::open`] for a program with a known address. All entries call this.
    fn open_from(
        &self,
        origin: Origin,
        target: Target,
        class: Option<Class>,
    ) -> impl Future<Output = Result<Self::Stream, OpenError>> + Send {
        let _ = origin;
        self.open(target, class)
    }
}

/// Provides the sources of datagrams: a session, or any other type that has them.
pub trait DatagramOpener: Clone + Send + Sync + 'static {
    /// One source. Dropping it ends it at the peer, too.
    type Socket: DatagramSocket;

    /// Opens a source, which needs no answer of the peer; it may wait for a session. `class` is the
    /// class of flows for which [`DatagramSocket::send`] gets none.
    ///
    /// # Errors
    ///
    /// [`OpenError::LimitReached`], [`OpenError::SessionClosed`], and [`OpenError::Unreachable`] if
    /// the peer does not carry datagrams. The entries try again with a later datagram.
    fn bind(
        &self,
        class: Option<Class>,
    ) -> impl Future<Output = Result<Self::Socket, OpenError>> + Send;

    /// [`DatagramOpener::bind`] for a program with a known address. All entries call this.
    fn bind_from(
        &self,
        origin: Origin,
        class: Option<Class>,
    ) -> impl Future<Output = Result<Self::Socket, OpenError>> + Send {
        let _ = origin;
        self.bind(class)
    }
}
