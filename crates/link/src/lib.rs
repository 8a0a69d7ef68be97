//! A sans-IO model of one direction of a network link: drop-tail queue, rate server, propagation delay,
//! loss.
//!
//! ```text
//! enqueue ──▶ queue ──▶ rate ──▶ loss ──▶ delay ──▶ poll
//!            (bytes)   (bit/s)  (i.i.d.)  (fixed)
//! ```
//!
//! The simulator and the laboratory's emulator both run packets through [`Link`], so that the two cannot
//! drift apart. The crate knows no socket, no clock, no thread and no global source of randomness: the
//! caller passes the time, as the [`Duration`](core::time::Duration) since an epoch of its choice, and
//! the seed.
//!
//! # The law
//!
//! - Time never runs backwards; a `now` before the latest one counts as the latest one.
//! - After every call that changes something, ask [`Link::next_deadline`] again. At that time, or as soon
//!   after it as possible, call [`Link::poll`] until it returns `None`.
//! - A late poll delivers late but never changes the model: when a packet leaves the queue, whether it is
//!   lost and when it is due are computed from the times that were due, not from the times of the calls.
//!
//! ```
//! use core::time::Duration;
//! use sumlink_link::{Link, LinkConfig, QueueLimit};
//!
//! let mut link = Link::new(LinkConfig {
//!     rate: 12_000_000,
//!     delay: Duration::from_millis(10),
//!     loss: 0.0,
//!     queue: QueueLimit::Time(Duration::from_millis(50)),
//!     seed: 1,
//! });
//! link.enqueue(Duration::ZERO, vec![0u8; 1500]);
//! // 1500 bytes take 1 ms at 12 Mbit/s, and 10 ms more to travel.
//! let due = link.next_deadline().unwrap();
//! assert_eq!(due, Duration::from_millis(11));
//! assert_eq!(link.poll(due).unwrap().packet.len(), 1500);
//! ```
#![forbid(unsafe_code)]

mod change;
mod counters;
mod delay;
mod error;
mod jitter;
mod layer2;
mod link;
mod loss;
mod network;
mod opportunity;
mod packet;
mod queue;
mod random;
mod rate;
mod server;
mod trace;

pub use change::Change;
pub use counters::Counters;
pub use error::ModelError;
pub use jitter::{Distribution, Jitter};
pub use link::{Delivery, Link, LinkConfig, LinkState};
pub use loss::{GilbertElliott, Loss, LossScript};
pub use network::{Air, Hotspot, Interferer, InterfererId, LinkId, Network, Radio, Schedule};
pub use packet::Packet;
pub use queue::QueueLimit;
pub use trace::{Trace, TraceError};
