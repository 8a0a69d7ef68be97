//! Scenarios and their results, for measurements in the laboratory and for simulations.
//!
//! - [`scenario`] reads the files under `scenarios/`, with the formats of [`config`] and [`units`].
//! - [`experiment`] reads the files of experiments with 60 GHz Wi-Fi.
//! - [`plan`] is a scenario with a seed, [`model`] its links in the model of `sumlink-link`,
//!   [`timeline`] its scheduled changes.
//! - [`system`] names the systems under comparison, [`session`] the settings that a sumlink
//!   system's name may contain, [`edge`] the parameters of the edge node.
//! - [`unquoted`] explains a frequent mistake in files.
//! - [`results`] defines the results of a run, [`health`] the emulator's measurement of itself.

#![forbid(unsafe_code)]

pub mod config;
pub mod edge;
pub mod error;
pub mod experiment;
pub mod health;
pub mod model;
pub mod plan;
pub mod results;
pub mod scenario;
pub mod session;
pub mod system;
pub mod timeline;
pub mod units;
pub mod unquoted;

/// MTU of the links, in bytes.
pub const MTU: u32 = 1500;
