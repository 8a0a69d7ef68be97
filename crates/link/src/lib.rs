//! A sans-IO model of network links: drop-tail queue, rate or trace, loss, delay and jitter, and
//! the effects of links on each other.
//!
//! ```text
//! enqueue ──▶ policer ──▶ queue ──▶ rate or trace ──▶ loss ──────────▶ delay ──▶ poll
//!            (token     (bytes,   (bit/s, burst;    (i.i.d., bursts, (fixed,
//!             bucket)    time)     Mahimahi)         script)          jitter)
//!                                  ▲
//!             share of the air: coupling group, interferer (and repetitions on layer 2)
//! ```
//!
//! The simulator and the laboratory's emulator both run packets through this model, so they cannot
//! drift apart. The crate uses no socket, clock, thread or global source of randomness: the caller
//! passes the seed and the time, as the [`Duration`](core::time::Duration) since an epoch of its
//! choice.
//!
//! - [`Network`] holds all links of an experiment under one clock; a link is one direction. Shared
//!   resources are described by [`Air`] (links that hear each other), [`Interferer`] (a foreign
//!   transmitter on the channel) and [`Radio`] (virtual interfaces on one card).
//! - [`Link`] is a single independent link.
//! - [`Change`] sets a property, at the start or later. A timeline of changes makes an event or a
//!   [`Profile`] (mmWave, train, LTE, Wi-Fi).
//!
//! # Rules for callers
//!
//! - Time never runs backwards; a `now` before the latest one counts as the latest one.
//! - After every call that changes something, ask for [`Network::next_deadline`] again. At that
//!   time, or as soon after it as possible, call [`Network::poll`] until it returns `None`.
//!   [`Link`] has the same calls.
//! - A late poll delivers late but never changes the model. Departure, loss and due time of a
//!   packet are computed from the scheduled times, not from the times of the calls. The only
//!   exception: a link that leaves the up state discards packets that have not been polled.
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
//! One seed determines a whole network. The generator is SplitMix64. The seed is split into streams
//! by link and purpose (loss, jitter, layer 2), by coupling group and member, and by interferer. An
//! additional packet on one link therefore changes no random number of another link, and a change
//! of the jitter changes no loss. Links that share the air still affect each other's timing.
//!
//! # Cost
//!
//! Enqueueing a packet, serving it, querying deadlines and polling it takes about 0.15 us with one
//! link and 0.2 us with 128 links. It takes 0.25 us with traces, 0.35 us in coupling groups with an
//! interferer, and 0.55 us behind a radio with virtual interfaces (`cargo bench -p sumlink-link`,
//! on one of two shared virtual cores). 2.5 Gbit/s in packets of 1500 bytes leave 4.8 us for each.
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
