//! The simulator: the engine that the daemon runs, over modelled TCP over modelled links, in virtual time.
//!
//! ```text
//! programs ── session ── carriers ── TCP, packet by packet ── links (sumlink-link) ── TCP ── carriers ── session ── programs
//! ```
//!
//! It runs the scenario files of the laboratory and gives the same results ([`run()`]): sumlink with any of its schedulers,
//! a system like the kernel's MPTCP, plain TCP over each link alone or over all at once, and an edge node that neither end knows
//! of (`edge`). Both ends of sumlink are the very engine, driven as the daemon
//! drives it; the links are those of the emulator, with the same dice; what is between, TCP, is a model of Linux ([`tcp`]).
//! Processors are infinitely fast: nothing is late, no wake-up is missed, and what falls short here is not the machine's
//! fault.
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
//! # The same every time
//!
//! Time is a whole number of nanoseconds. What happens at the same moment happens in the order of the links, and then in
//! the order in which it was planned. All dice are split from the seed of the run: those of the links as in the laboratory,
//! and how many milliseconds apart programs and carriers begin. The same scenario, system and seed give the same events,
//! which an [`EventLog`] folds into a hash, on every build.

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
mod run;
pub mod tcp;
mod trace;
mod workload;
mod world;

pub use log::EventLog;
pub use own::{Own, Stop};
pub use run::{check_system, run, run_logged, run_own, run_traced};
