//! The Rust part of the Python package `sumlink_sim`.
//!
//! It reads scenarios, runs them, and calls schedulers and congestion controls that are Python
//! classes. The Python part adds the user interface: frames, sweeps, and errors with their
//! location. `sumlink_sim/_native.pyi` documents each item.

#![forbid(unsafe_code)]

mod congestion;
mod fault;
mod interrupt;
mod mmwave;
mod run;
mod scenario;
mod scheduler;
mod view;

/// The Python module.
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

    /// Version of the simulator.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python's name")]
    const version: &str = env!("CARGO_PKG_VERSION");

    /// Whether this is an optimized build, as in packages.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python's name")]
    const optimized: bool = !cfg!(debug_assertions);
}
