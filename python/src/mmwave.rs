//! Experiments with the initial access of 60 GHz Wi-Fi, one point at a time.

use std::path::PathBuf;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use sumlink_mmwave::MmwaveError;
use sumlink_mmwave::experiment::{Experiment as Inner, Point, Task, Value, rounded};
use sumlink_mmwave::figures::office::{Office, Room};
use sumlink_scenario::experiment::File;

/// A valid experiment with cells.
#[pyclass(frozen, module = "sumlink_sim._native")]
pub(crate) struct Experiment {
    inner: Inner,
}

#[pymethods]
impl Experiment {
    /// The argument of the ValueError is a list of (file, line, reason).
    #[new]
    fn new(text: &str, file: PathBuf) -> PyResult<Self> {
        let problem = |reason: &str| vec![(file.clone(), 1, reason.to_owned())];
        let problems: Vec<(PathBuf, usize, String)> = match File::parse(&file, text) {
            Ok(File::Cells(inner)) => return Ok(Self { inner: *inner }),
            Ok(File::Bond(_)) => problem("kind: bond is not an experiment about cells; use bond()"),
            Err(problems) => {
                let problems = problems.into_iter();
                problems.map(|p| (p.file, p.line, p.reason)).collect()
            }
        };
        Err(PyValueError::new_err((problems,)))
    }

    /// Every combination of a scheme and a varied value.
    #[getter]
    fn tasks(&self) -> Vec<(&'static str, f64)> {
        let tasks = self.inner.tasks().into_iter();
        tasks.map(|task| (task.scheme, task.value)).collect()
    }

    /// The first and the last seed.
    #[getter]
    fn seeds(&self) -> (u64, u64) {
        (*self.inner.seeds.start(), *self.inner.seeds.end())
    }

    /// Results of one task over some seeds, by name.
    fn point<'py>(
        &self,
        py: Python<'py>,
        task: usize,
        seeds: (u64, u64),
    ) -> PyResult<Bound<'py, PyDict>> {
        let experiment = Inner {
            seeds: seeds.0..=seeds.1,
            ..self.inner.clone()
        };
        let tasks = experiment.tasks();
        let task: Task = *tasks
            .get(task)
            .ok_or_else(|| PyValueError::new_err("unknown task"))?;
        let point = py.detach(|| experiment.point(&task)).map_err(wrong)?;
        to_dict(py, &point)
    }
}

fn to_dict<'py>(py: Python<'py>, point: &Point) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in point.values() {
        match value {
            Value::Nothing => dict.set_item(name, py.None())?,
            Value::Count(count) => dict.set_item(name, count)?,
            Value::Number(number) => dict.set_item(name, rounded(*number))?,
            Value::Text(text) => dict.set_item(name, text)?,
        }
    }
    Ok(dict)
}

fn wrong(error: MmwaveError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn office(
    gamma: Option<f64>,
    sectors: usize,
    room: &str,
    draws: usize,
    seed: u64,
) -> PyResult<Office> {
    let room = match room {
        "inh" => Room::Inh,
        "tgad" => Room::Tgad,
        other => {
            let reason = format!("room: '{other}' is not one of inh, tgad");
            return Err(PyValueError::new_err(reason));
        }
    };
    Ok(Office {
        room,
        sectors,
        gamma_db: gamma,
        draws,
        seed,
        ..Office::THESIS
    })
}

#[pyfunction]
pub(crate) fn heat_map(
    py: Python<'_>,
    gamma: Option<f64>,
    sectors: usize,
    room: &str,
    draws: usize,
    seed: u64,
) -> PyResult<Vec<Vec<f64>>> {
    let office = office(gamma, sectors, room, draws, seed)?;
    py.detach(|| office.heat_map()).map_err(wrong)
}

#[pyfunction]
pub(crate) fn good_beams(
    py: Python<'_>,
    gamma: Option<f64>,
    sectors: usize,
    room: &str,
    draws: usize,
    seed: u64,
) -> PyResult<Vec<usize>> {
    let office = office(gamma, sectors, room, draws, seed)?;
    py.detach(|| office.good_beams()).map_err(wrong)
}

#[pyfunction]
pub(crate) fn access_names() -> Vec<&'static str> {
    sumlink_mmwave::cell::SCHEMES.to_vec()
}
