//! The sans-IO core of an edge node. It spreads the packets of ordinary TCP flows over several
//! links without the knowledge of either end. It holds or answers the acknowledgments that would
//! make a sender mistake reordering for loss.
//!
//! This crate uses no socket, clock, thread or source of randomness: the caller passes packets and
//! time in, and takes packets and events out. docs/edge.md explains its purpose, where its
//! algorithms come from, and how ambiguous parts of them are read.
//!
//! - [`Edge`] is the node, between the far side (the network) and the links to the user.
//! - [`steering`] decides which link a packet takes; [`queue`] is the queue in front of a link.
//! - [`flow`] tracks the state of each TCP flow; [`visible`] decides about its duplicate
//!   acknowledgments.
//! - [`lwa`] restores the order of packets at the user's end, where a receiver for it exists.
//! - [`analysis`] is the paper's queueing model.
//! - [`packet`] reads packets and edits them in place; [`seq`] unwraps sequence numbers.
//!
//! # Calling rules
//!
//! Time never goes backwards. The mutations are [`handle_far`](Edge::handle_far),
//! [`handle_user`](Edge::handle_user), [`link_down`](Edge::link_down), [`link_up`](Edge::link_up)
//! and [`handle_timeout`](Edge::handle_timeout). After each of them, and before the next one with a
//! later `now`:
//!
//! 1. call [`Edge::poll_event`] and [`Edge::poll_far`] until they return nothing,
//! 2. call [`Edge::poll_link`] for every link that can take a packet, until it returns nothing or
//!    the link is full,
//! 3. arm a timer for [`Edge::poll_timeout`]; when it fires, call [`Edge::handle_timeout`].
//!
//! When a link that was full can take a packet again, call [`Edge::poll_link`] at once, even if no
//! packet is known to wait. The node measures a link's rate by the time between two such calls.
//! Call it only when the link can take a packet; otherwise the queue builds up below the node,
//! where it cannot be measured.
//!
//! ```
//! use std::time::Duration;
//! use sumlink_edge::{Config, Edge, LinkId, Mode};
//!
//! let mut edge = Edge::new(Config {
//!     mode: Mode::Lwip,
//!     steering: "roundrobin".into(),
//!     ..Config::default()
//! })
//! .unwrap();
//! let now = Duration::ZERO;
//! // A UDP packet from 192.0.2.1 to 10.0.0.2, arriving from the far side.
//! let packet = [
//!     0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0xb0, 0xcd, 192, 0, 2, 1, 10, 0, 0, 2, 0, 53,
//!     0xc3, 0x50, 0, 9, 0, 0, b'x',
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

/// A moment: the time since an epoch that the caller chooses once per node.
pub type Instant = core::time::Duration;

/// Number of a link of the node, from 0 in configuration order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u8);
