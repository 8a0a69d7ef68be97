//! Scenarios and names.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use sumlink_scenario::config::Direction;
use sumlink_scenario::scenario::Scenario as Inner;
use sumlink_scenario::system::System;

/// A valid scenario.
#[pyclass(frozen, module = "sumlink_sim._native")]
pub(crate) struct Scenario {
    pub(crate) inner: Inner,
}

#[pymethods]
impl Scenario {
    /// The argument of the ValueError is a list of (file, line, reason).
    #[new]
    fn new(text: &str, file: PathBuf) -> PyResult<Self> {
        match Inner::parse(&file, text) {
            Ok(inner) => Ok(Self { inner }),
            Err(problems) => {
                let problems = problems.into_iter();
                let all: Vec<_> = problems.map(|p| (p.file, p.line, p.reason)).collect();
                Err(PyValueError::new_err((all,)))
            }
        }
    }

    #[getter]
    fn name(&self) -> &str {
        &self.inner.name
    }

    #[getter]
    fn about(&self) -> &str {
        &self.inner.about
    }

    #[getter]
    fn sha256(&self) -> &str {
        &self.inner.sha256
    }

    #[getter]
    fn systems(&self) -> Vec<String> {
        self.inner.systems.clone()
    }

    #[getter]
    fn seeds(&self) -> u64 {
        self.inner.seeds
    }

    #[getter]
    fn congestion(&self) -> &str {
        &self.inner.congestion
    }

    /// Seconds, including the warm-up.
    #[getter]
    fn duration(&self) -> f64 {
        self.inner.duration.as_secs_f64()
    }

    #[getter]
    fn warmup(&self) -> f64 {
        self.inner.warmup.as_secs_f64()
    }

    /// Name, and initial rates down and up in bit/s.
    #[getter]
    fn links(&self) -> Vec<(String, f64, f64)> {
        let specs = self.inner.lab_config(1).links.into_iter();
        specs
            .map(|spec| {
                let [down, up] = [Direction::Down, Direction::Up]
                    .map(|way| spec.shapes[way.index()].rate as f64);
                (spec.name, down, up)
            })
            .collect()
    }
}

/// ValueError for an unknown system, with the list of systems.
#[pyfunction]
pub(crate) fn check_system(name: &str, schedulers: Vec<String>) -> PyResult<()> {
    let own: Vec<&str> = schedulers.iter().map(String::as_str).collect();
    let parsed = System::parse_with(name, &own);
    parsed.map(drop).map_err(PyValueError::new_err)
}

#[pyfunction]
pub(crate) fn scheduler_names() -> Vec<&'static str> {
    sumlink_schedulers::NAMES.to_vec()
}

#[pyfunction]
pub(crate) fn congestion_names() -> Vec<&'static str> {
    sumlink_congestion::NAMES.to_vec()
}
