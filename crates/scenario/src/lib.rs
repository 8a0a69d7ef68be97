//! Scenarios and their results, for measurements in the laboratory and for simulations.
//!
//! - [`scenario`] reads the files under `scenarios/`, [`config`] what stands in them.
//! - [`experiment`] reads those of experiments with 60 GHz Wi-Fi.
//! - [`lan`] is the topology with a gateway.
//! - [`plan`] is what a scenario becomes with a seed, [`model`] its links in the model of
//!   `sumlink-link`, [`timeline`] what happens to them.
//! - [`system`] names what is compared, [`edge`] the parameters of the edge node among it.
//! - [`results`] is what a run leaves behind, [`health`] the emulator's account of itself.

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
