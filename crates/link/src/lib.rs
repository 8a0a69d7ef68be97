//! A sans-IO model of network links: drop-tail queue, rate or trace, loss, delay and jitter, and what
//! links do to each other.
//!
//! ```text
//! enqueue ──▶ policer ──▶ queue ──▶ rate or trace ──▶ loss ──────────▶ delay ──▶ poll
//!            (token     (bytes,   (bit/s, burst;    (i.i.d., bursts, (fixed,
//!             bucket)    time)     Mahimahi)         script)          jitter)
//!                                  ▲
//!             share of the air: coupling group, interferer (and repetitions on layer 2)
//! ```
//!
//! The simulator and the laboratory's emulator both run packets through this model, so that the two cannot
//! drift apart. The crate knows no socket, no clock, no thread and no global source of randomness: the
//! caller passes the time, as the [`Duration`](core::time::Duration) since an epoch of its choice, and
//! the seed.
//!
//! - [`Network`] is all links of an experiment under one clock; a link is one direction. What they share is
//!   described by [`Air`] (links that hear each other), [`Interferer`] (a stranger on the channel) and
//!   [`Radio`] (virtual interfaces on one card).
//! - [`Link`] is one link alone, for whoever needs no more.
//! - [`Change`] is what may be set at the start and later; a timeline of changes makes an event or a
//!   [`Profile`] (mmWave, train, LTE, Wi-Fi).
//!
//! # The law
//!
//! - Time never runs backwards; a `now` before the latest one counts as the latest one.
//! - After every call that changes something, ask [`Network::next_deadline`] again. At that time, or as
//!   soon after it as possible, call [`Network::poll`] until it returns `None`. [`Link`] has the same calls.
//! - A late poll delivers late but never changes the model: when a packet leaves the queue, whether it is
//!   lost and when it is due are computed from the times that were due, not from the times of the calls.
//!   One thing does depend on them: a link that stops being up forgets what has not been polled.
//!
//! ```
//! use core::time::Duration;
//! use sumlink_link::{Change, LinkConfig, Network, QueueLimit};
//!
//! let mut network = Network::new(1);
//! let wifi = network.add(LinkConfig {
//!     rate: 12_000_000,
//!     delay: Duration::from_millis(10),
//!     loss: 0.0,
//!     queue: QueueLimit::Time(Duration::from_millis(50)),
//!     seed: 0,
//! });
//! network.enqueue(Duration::ZERO, wifi, vec![0u8; 1500]);
//! // 1500 bytes take 1 ms at 12 Mbit/s, and 10 ms more to travel.
//! let due = network.next_deadline().unwrap();
//! assert_eq!(due, Duration::from_millis(11));
//! let (link, delivery) = network.poll(due).unwrap();
//! assert_eq!((link, delivery.packet.len()), (wifi, 1500));
//! network.set(due, wifi, Change::Rate(0));
//! ```
//!
//! # Randomness
//!
//! One seed stands for a whole network. The generator is SplitMix64; from the seed it is split into
//! streams by link and purpose (loss, jitter, layer 2), by coupling group and member, and by interferer, so
//! that a packet more on one link changes no dice of another one, and a change of the jitter none of the
//! loss. Links that share the air do change each other's times, of course.
//!
//! # Cost
//!
//! Putting a packet in, serving it, asking for deadlines and taking it out takes about 0.15 us with one
//! link and 0.2 us with 128, 0.25 us with traces, 0.35 us in coupling groups with an interferer, 0.55 us
//! behind a radio with virtual interfaces (`cargo bench -p sumlink-link`, on one of two shared virtual
//! cores). 2.5 Gbit/s in packets of 1500 bytes leave 4.8 us for each.
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
mod policer;
pub mod profile;
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
pub use policer::Policer;
pub use profile::{Profile, Timeline};
pub use queue::QueueLimit;
pub use random::Random;
pub use trace::{Trace, TraceError};
