//! The simulator for Python: the part in Rust of the package `sumlink_sim`.
//!
//! It reads scenarios, runs them, and calls schedulers and congestion controls that are Python classes. Everything that
//! people see (frames, sweeps, errors with their place) is made of this in Python. What each thing is for stands in
//! `sumlink_sim/_native.pyi`.

#![forbid(unsafe_code)]

mod congestion;
mod fault;
mod interrupt;
mod mmwave;
mod run;
mod scenario;
mod scheduler;
mod view;

/// The module as Python sees it.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::congestion::Ack;
    #[pymodule_export]
    use crate::interrupt::interrupt;
    #[pymodule_export]
    use crate::mmwave::{Experiment, access_names, good_beams, heat_map};
    #[pymodule_export]
    use crate::run::run;
    #[pymodule_export]
    use crate::scenario::{Scenario, check_system, congestion_names, scheduler_names};
    #[pymodule_export]
    use crate::view::{Flight, Path, Stream, View};

    /// The version of the simulator.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python's name")]
    const version: &str = env!("CARGO_PKG_VERSION");

    /// Whether it was built with optimisation, as packages are.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python's name")]
    const optimised: bool = !cfg!(debug_assertions);
}
