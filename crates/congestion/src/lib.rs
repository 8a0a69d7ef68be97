//! Congestion controls of TCP and multipath TCP: a readable reference of each algorithm, as a pure
//! state machine.
//!
//! This crate uses no socket, clock, thread or source of randomness. The owner of a TCP connection
//! (a simulator, a script, a test) reports acknowledgments and losses with their times; the
//! algorithm answers with a window. The same events give the same windows on every machine: the
//! crate uses only operations that IEEE 754 defines to the last bit.
//!
//! ```
//! use std::time::Duration;
//! use sumlink_congestion::{Ack, Loss, Settings, Siblings, build};
//!
//! let mut flow = build("reno", &Settings::default()).unwrap();
//! let rtt = Duration::from_millis(20);
//! // The first window of ten packets is acknowledged: slow start doubles it.
//! let ack = Ack {
//!     now: rtt,
//!     acked: 10,
//!     rtt: Some(rtt),
//!     srtt: rtt,
//!     acknowledged: 10,
//!     sent: 10,
//!     cwnd_limited: true,
//! };
//! flow.on_ack(&ack, &Siblings::NONE);
//! assert_eq!(flow.cwnd(), 20.0);
//! flow.on_loss(&Loss { now: 2 * rtt }, &Siblings::NONE);
//! assert_eq!((flow.cwnd(), flow.ssthresh()), (10.0, 10.0));
//! flow.on_recovery_exit(3 * rtt);
//! ```
//!
//! # Units
//!
//! Windows and thresholds are in packets of one MSS and are real numbers, as in the papers; the
//! whole part of `cwnd` may be in flight. Kernels count whole packets, so their windows differ by
//! rounding. Times are [`Duration`](core::time::Duration)s; an [`Instant`] is the time since an
//! epoch of the caller's choice.
//!
//! # Rules for callers
//!
//! Time never runs backwards. For each flow, call:
//!
//! - [`on_ack`](CongestionControl::on_ack) for every acknowledgment of new data, cumulative or
//!   selective, in recovery too.
//! - [`on_delivery`](CongestionControl::on_delivery) before that, if the model measures delivery
//!   rates.
//! - [`on_loss`](CongestionControl::on_loss) when a loss is detected outside of recovery: once,
//!   however many packets of that window are lost. The window is reduced at once; a model that
//!   reduces the data in flight gradually (PRR) uses it as the target. During recovery the window
//!   does not grow.
//! - [`on_rto`](CongestionControl::on_rto) each time that the retransmission timer fires, in
//!   recovery too.
//! - [`on_recovery_exit`](CongestionControl::on_recovery_exit) when all data is acknowledged that
//!   had been sent when the loss was detected or the timer fired; before the `on_ack` of the same
//!   acknowledgment.
//! - [`on_spurious_loss`](CongestionControl::on_spurious_loss) in place of the former, if nothing
//!   had been lost. A model that cannot detect this never calls it.
//! - [`on_idle_end`](CongestionControl::on_idle_end) before the first packet after a time without
//!   data in flight.
//!
//! Then read [`cwnd`](CongestionControl::cwnd). No other call changes it. [`player`] implements
//! these rules in a hundred lines, for flows without a network.
//!
//! # Siblings
//!
//! A coupled algorithm reads the state of the other flows of its bond. The caller keeps one
//! [`Flow`] for each and renews it after each event:
//!
//! ```
//! # use sumlink_congestion::*;
//! # use std::time::Duration;
//! # let ack = Ack { now: Duration::ZERO, acked: 1, rtt: None, srtt: Duration::ZERO,
//! #     acknowledged: 1, sent: 1, cwnd_limited: true };
//! let mut controls = vec![
//!     build("cubic", &Settings::default()).unwrap(),
//!     build("cubic", &Settings::default()).unwrap(),
//! ];
//! let mut flows: Vec<Flow> = controls.iter().map(|control| control.flow()).collect();
//! // an event of the second flow
//! controls[1].on_ack(&ack, &Siblings::of(&flows, 1));
//! flows[1] = controls[1].flow();
//! ```

#![forbid(unsafe_code)]

mod algorithm;
pub mod balia;
#[cfg(test)]
mod bottleneck;
#[cfg(test)]
mod conformance;
mod control;
pub mod coupled;
pub mod cs218;
pub mod cubic;
pub mod edinburgh;
mod event;
pub mod ewtcp;
#[cfg(test)]
mod fixture;
mod flow;
#[cfg(test)]
mod golden;
pub mod hystart;
pub mod illinois;
pub mod lia;
pub mod olia;
mod parameter;
pub mod player;
mod registry;
pub mod reno;
mod root;
mod rounds;
pub mod rtt_compensator;
pub mod script;
mod siblings;
pub mod uncoupled;
pub mod whitehaul;
mod window;
pub mod wvegas;

pub use algorithm::{Algorithm, Info};
pub use control::CongestionControl;
pub use event::{Ack, Delivery, Idle, Loss, Timeout};
pub use flow::{BetweenLosses, Flow, Phase};
pub use parameter::{BuildError, NoParameters, Parameter, Parameters, Value};
pub use registry::{ALGORITHMS, Entry, NAMES, Settings, build, build_named, entry};
pub use siblings::Siblings;
pub use window::{MIN_CWND, Window, WindowParameters};

/// A point in time: the time since an epoch that the caller chooses once.
pub type Instant = core::time::Duration;
