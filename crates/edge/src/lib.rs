//! The sans-IO core of an edge node: it spreads the packets of ordinary TCP flows over several links, without either end
//! knowing, and holds or answers the acknowledgements that would make a sender take reordering for loss.
//!
//! This crate knows no socket, no clock, no thread and no source of randomness: packets and time are passed in, packets
//! and events are taken out. docs/edge.md says what it is for, where its algorithms come from and how they are read.
//!
//! - [`Edge`] is the node: the far side (the network) is one end of it, its links to the user the other.
//! - [`steering`] decides which link a packet takes, [`queue`] is what waits for a link.
//! - [`flow`] is what is known of each TCP flow, [`visible`] what becomes of its duplicate acknowledgements.
//! - [`lwa`] puts packets in order at the user's end, where there is somebody to do it.
//! - [`analysis`] is the paper's queueing model.
//! - [`packet`] reads packets and edits them in place, [`seq`] unwraps sequence numbers.
//!
//! # The law
//!
//! Time never goes backwards. After every mutation — a [`handle_far`](Edge::handle_far), a
//! [`handle_user`](Edge::handle_user), a [`link_down`](Edge::link_down) or [`link_up`](Edge::link_up), a
//! [`handle_timeout`](Edge::handle_timeout) — and before the next one that carries a later `now`:
//!
//! 1. take [`Edge::poll_event`] and [`Edge::poll_far`] until they are empty,
//! 2. ask [`Edge::poll_link`] for every link that can take a packet, until it gives none or the link can take no more,
//! 3. arm a timer for [`Edge::poll_timeout`]; when it fires call [`Edge::handle_timeout`].
//!
//! And when a link that could take no packet can take one again, ask [`Edge::poll_link`] at once, even if nothing is known
//! to wait: by the time between two such calls the node measures how fast the link is. A link is asked only when it can
//! take a packet, or the queue is not the node's but somebody's below it.
//!
//! ```
//! use std::time::Duration;
//! use sumlink_edge::{Config, Edge, LinkId, Mode};
//!
//! let mut edge = Edge::new(Config { mode: Mode::Lwip, steering: "roundrobin".into(), ..Config::default() }).unwrap();
//! let now = Duration::ZERO;
//! // A UDP packet of 192.0.2.1 for 10.0.0.2, as it comes from the far side.
//! let packet = [
//!     0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0xb0, 0xcd, 192, 0, 2, 1, 10, 0, 0, 2, 0, 53, 0xc3, 0x50, 0, 9, 0, 0, b'x',
//! ];
//! edge.handle_far(packet.to_vec(), now);
//! edge.handle_far(packet.to_vec(), now);
//! assert_eq!(edge.poll_link(LinkId(0), now).as_deref(), Some(&packet[..]));
//! assert_eq!(edge.poll_link(LinkId(1), now).as_deref(), Some(&packet[..]));
//! assert_eq!(edge.poll_link(LinkId(0), now), None);
//! ```

#![forbid(unsafe_code)]

pub mod analysis;
mod config;
mod edge;
pub mod flow;
pub mod lwa;
pub mod packet;
pub mod queue;
pub mod seq;
pub mod steering;
pub mod visible;

pub use config::{Config, ConfigError, LinkSettings, Mode, Sack};
pub use edge::{Counters, Edge, Event, FlowReport, Reset};

/// A moment: the time since an epoch that the caller chooses once for a node.
pub type Instant = core::time::Duration;

/// Number of a link of the node, from 0 in the order of its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u8);
