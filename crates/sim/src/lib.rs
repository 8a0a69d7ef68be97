//! The simulator: the daemon's engine over modeled TCP over modeled links, in virtual time.
//!
//! ```text
//! programs ── session ── carriers ── TCP, packet by packet ── links (sumlink-link) ── TCP ── carriers ── session ── programs
//! ```
//!
//! [`run()`] plays a scenario file of the laboratory and returns results in the same form. The
//! systems are sumlink with any scheduler, a model of the kernel's MPTCP, plain TCP over each link
//! alone or over all links at once, and an edge node that is transparent to both ends (`edge`).
//! Both ends of sumlink run the real engine, driven as the daemon drives it. The links are those of
//! the emulator, with the same random numbers; the TCP between them is a model of Linux ([`tcp`]).
//! Processors are infinitely fast: nothing is late and no wake-up is missed, so a shortfall is
//! never caused by the machine.
//!
//! ```
//! use std::path::Path;
//! use sumlink_scenario::results::Outcome;
//! use sumlink_scenario::scenario::Scenario;
//!
//! let text = "name = \"two\"\nduration = \"2s\"\nwarmup = \"1s\"\n\
//!     [[link]]\nname = \"wifi\"\nrate = \"30mbit\"\ndelay = \"5ms\"\n\
//!     [[link]]\nname = \"lte\"\nrate = \"10mbit\"\ndelay = \"20ms\"\n";
//! let scenario = Scenario::parse(Path::new("two.toml"), text).unwrap();
//! let run = sumlink_sim::run(&scenario, "sumlink:fbdt", 1).unwrap();
//! let Outcome::Measured(figures) = run.outcome else { panic!("{run:?}") };
//! assert!(figures.goodput_bps > 36e6);
//! ```
//!
//! # Determinism
//!
//! Time is a whole number of nanoseconds. Simultaneous events are ordered by link, then by the
//! order in which they were scheduled. Every random number derives from the seed of the run: those
//! of the links as in the laboratory, and the start times of programs and carriers within a few
//! milliseconds. The same scenario, system and seed give the same events on every build; an
//! [`EventLog`] folds the events into a hash.

#![forbid(unsafe_code)]

#[cfg(test)]
mod adversary;
mod agenda;
mod bond;
pub mod clock;
pub mod compare;
mod edge;
mod log;
mod mptcp;
mod net;
mod own;
mod plain;
mod quic;
mod run;
pub mod tcp;
mod trace;
mod udp;
mod workload;
mod world;

pub use log::EventLog;
pub use own::{Own, Stop};
pub use run::{check_system, run, run_logged, run_own, run_traced};
