//! What one run measures.

use std::path::Path;

use crate::scenario::Scenario;

/// The parameters of a run.
pub(crate) struct Job<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) seed: u64,
    pub(crate) system: String,
    /// The sumlink program: it is measured, and generates the traffic.
    pub(crate) program: &'a Path,
    /// Sum of the rates of its links in bit/s, if the run may share the machine.
    pub(crate) rate: Option<u64>,
    /// Directory for traces, from systems that support them.
    pub(crate) trace: Option<&'a Path>,
}
