//! Scenarios and their results, for measurements in the laboratory and for simulations.
//!
//! - [`scenario`] reads the files under `scenarios/`; [`config`] has their contents.
//! - [`experiment`] reads the files of experiments with 60 GHz Wi-Fi.
//! - [`lan`] is the topology with a gateway.
//! - [`plan`] is a scenario with a seed, [`model`] its links in the model of `sumlink-link`,
//!   [`timeline`] their events.
//! - [`system`] names the compared systems, [`edge`] the parameters of the edge node.
//! - [`results`] holds the results of runs, [`health`] whether the emulator kept up.

#![forbid(unsafe_code)]

mod check;
pub mod config;
pub mod edge;
pub mod error;
pub mod experiment;
pub mod health;
pub mod lan;
pub mod model;
pub mod plan;
mod problem;
pub mod results;
pub mod scenario;
pub mod system;
pub mod timeline;

/// MTU of the links, in bytes.
pub const MTU: u32 = 1500;
