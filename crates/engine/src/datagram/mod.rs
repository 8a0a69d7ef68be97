//! Datagrams: flows of UDP-like datagrams over the datagram paths of a session.
//!
//! # How it works
//!
//! A *flow* is a sequence of datagrams between one *source* (a program's socket) and one
//! destination. Its sender numbers the datagrams, and its receiver delivers each at most once.
//! Nothing waits for credit, as with UDP: datagrams that the paths do not carry in time are dropped
//! from bounded queues, the oldest first.
//!
//! - A [policy](DatagramPolicy) decides which paths carry the datagrams of a flow.
//! - The receiver reports the packets of each path within a few milliseconds, over any path. From
//!   the reports the sender knows the delay of each path relative to the others, its rate and loss,
//!   and within tens of milliseconds that it does not deliver any more.
//! - When a path becomes suspect, young datagrams of calls and of interactive flows that may be
//!   lost on it are sent again over another one.
//! - Flows over several paths keep their order. The receiver waits for slower paths, and for the
//!   repair of datagrams that a path has lost.
//!
//! # Peers without datagrams
//!
//! An old peer skips DATAGRAM frames (an optional type), and has no QUIC carriers. Until the first
//! packet arrives from the peer it is unknown whether it understands datagrams. If it stays silent
//! for [`DatagramConfig::peer_timeout`] after the first datagram, sending fails with
//! [`FlowError::PeerWithoutDatagrams`] until a packet arrives; probes continue with ever longer
//! pauses. The flows themselves end when they expire.
//!
//! # Input of the peer
//!
//! A packet that cannot be decoded is counted and dropped, and the session continues: a datagram
//! may be lost anyway, no later packet depends on it, and streams should not end for it. A record
//! for a flow that its sender cannot have is counted and ignored for the same reason. A report of
//! packets that were never sent is a protocol error as it is on stream paths: it would make this
//! side trust a path that does not deliver.

mod budget;
mod clock;
mod config;
mod control;
mod error;
mod flow;
mod path;
mod policy;
mod receive;
mod send;
mod state;
mod stats;
mod timer;
pub mod wire;

pub use config::{DatagramConfig, DuplicateLimits, QueueLimits};
pub use error::{CloseReason, FlowError, FlowErrorCode};
pub use flow::FlowConfig;
pub use path::{DatagramCarrier, DatagramSample, PathHealth};
pub use policy::DatagramPolicy;
pub(crate) use state::Datagrams;
pub use stats::{DatagramPathStats, DatagramStats, FlowDrops, FlowStats};

/// Number of a flow. The client opens even ones, the server odd ones.
pub type FlowId = u64;

#[cfg(test)]
mod tests;
