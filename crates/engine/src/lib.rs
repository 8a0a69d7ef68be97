//! The session state machine of sumlink: one bond between a client and a server, over any number of
//! paths.
//!
//! This crate uses no socket, no clock, no thread and no source of randomness. Bytes and time are
//! passed in; bytes and events are taken out. The daemon, the simulator and the tests all drive the
//! same [`Session`].
//!
//! # How to drive a session
//!
//! Time never goes backwards. After every mutation (a `handle_*`, a `path_*` or a stream operation)
//! and before the next one with a later `now`:
//!
//! 1. call [`Session::poll_event`] until it returns none,
//! 2. call [`Session::poll_transmit`] for every path with a carrier that can accept bytes, until it
//!    returns none,
//! 3. arm a timer for [`Session::poll_timeout`]. When it fires, first pass in the carriers'
//!    measurements ([`Session::path_stats`]), then call [`Session::handle_timeout`], which uses
//!    them to decide which paths are late.
//!
//! Bytes returned by `poll_transmit` belong to the carrier. It delivers them in order, or the
//! caller ends the path with [`Session::path_down`]. The engine keeps every stream byte until the
//! peer has acknowledged it end to end, so a path may end at any moment.
//!
//! Datagram paths add two calls to the second step: [`Session::poll_datagram`] for every QUIC path
//! that can accept a packet, until it returns false, and [`Session::poll_received`] until it
//! returns none. Before the third step their measurements are passed in
//! ([`Session::datagram_path_stats`]); module [`datagram`] describes the rest.
//!
//! ```
//! use sumlink_engine::{Class, Config, Event, Instant, PathId, Role, Session};
//!
//! let now = Instant::from_millis(0);
//! let mut client = Session::new(Config::new(Role::Client), now).unwrap();
//! let mut server = Session::new(Config::new(Role::Server), now).unwrap();
//! for side in [&mut client, &mut server] {
//!     side.path_up(PathId(0), now);
//! }
//! let exchange = |client: &mut Session, server: &mut Session| loop {
//!     let (mut up, mut down) = (Vec::new(), Vec::new());
//!     client.poll_transmit(PathId(0), 1 << 16, now, &mut up);
//!     server.poll_transmit(PathId(0), 1 << 16, now, &mut down);
//!     if up.is_empty() && down.is_empty() {
//!         break;
//!     }
//!     server.handle_frames(PathId(0), &up, now).unwrap();
//!     client.handle_frames(PathId(0), &down, now).unwrap();
//! };
//! exchange(&mut client, &mut server); // the first credit
//! let stream = client.open_stream(b"example.org:80", Class::Interactive, now).unwrap();
//! client.write(stream, b"hello", now).unwrap();
//! exchange(&mut client, &mut server);
//! assert!(matches!(server.poll_event(), Some(Event::StreamsAvailable)));
//! assert!(matches!(server.poll_event(), Some(Event::Opened { .. })));
//! let mut text = Vec::new();
//! server.read(stream, 100, &mut text, now).unwrap();
//! assert_eq!(text, b"hello");
//! ```

#![forbid(unsafe_code)]

mod backlog;
mod config;
pub mod datagram;
pub mod frame;
mod learn;
mod meter;
mod outgoing;
mod page;
mod pages;
mod path;
pub mod peer_text;
mod policy;
mod ranges;
mod reader;
mod received;
pub mod scheduler;
pub mod selector;
mod session;
mod share;
mod stream;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod varint;
mod waiting;
mod writers;

pub use config::{Class, Config, ConfigError, Hints, Redundancy, Role};
pub use datagram::{
    CloseReason, DatagramCarrier, DatagramConfig, DatagramPathStats, DatagramPolicy,
    DatagramSample, DatagramStats, DuplicateLimits, FlowConfig, FlowError, FlowErrorCode, FlowId,
    FlowStats, PathHealth, QueueLimits,
};
pub use page::PAGE;
pub use path::{Flight, LossState, Path, PathSample, PathState, SustainedRate};
pub use peer_text::PeerText;
pub use policy::{PathPolicy, PeerPolicy, Priority};
pub use ranges::RangeSet;
pub use received::Received;
pub use selector::{Selection, SelectorConfig};
pub use session::{
    Event, PathRefused, PathStats, ProtocolError, ReadOutcome, Session, Stats, StreamError,
    StreamStats,
};
pub use stream::Stream;

/// A point in time, measured from an epoch that the caller chooses once for a session.
pub type Instant = core::time::Duration;

/// Number of a path in its session. A link that comes back gets a new number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u32);

/// Number of a stream. The client opens even ones, the server odd ones.
pub type StreamId = u64;
