//! One run, which holds Python's lock only while it calls a Python class.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use sumlink_sim::Own;

use crate::congestion::PyCongestion;
use crate::fault::Fault;
use crate::interrupt::Handle;
use crate::scenario::Scenario;
use crate::scheduler::PyScheduler;

/// Interval of the checks for Ctrl-C.
const SIGNALS: Duration = Duration::from_millis(100);

/// The run as JSON, the reason if a custom class ended it, and the exception that the class raised.
type Ended = (String, Option<String>, Option<Py<PyAny>>);

#[pyfunction]
#[pyo3(signature = (scenario, system, seed, schedulers, congestion, trace=None))]
pub(crate) fn run(
    py: Python<'_>,
    scenario: &Scenario,
    system: &str,
    seed: u64,
    schedulers: BTreeMap<String, Py<PyAny>>,
    congestion: BTreeMap<String, Py<PyAny>>,
    trace: Option<PathBuf>,
) -> PyResult<Ended> {
    let mut own = Own::default();
    let fault = Fault::new(own.stop());
    let calls_python = !(schedulers.is_empty() && congestion.is_empty());
    for (name, class) in schedulers {
        let (own_name, fault) = (name.clone(), fault.clone());
        own.add_scheduler(&name, move |_| {
            Box::new(PyScheduler::new(&class, &own_name, fault.clone()))
        })
        .map_err(PyValueError::new_err)?;
    }
    for (name, class) in congestion {
        let (own_name, fault) = (name.clone(), fault.clone());
        own.add_congestion(&name, move || {
            Box::new(PyCongestion::new(&class, &own_name, fault.clone()))
        })
        .map_err(PyValueError::new_err)?;
    }
    let out = trace.map(File::create).transpose()?;
    let out = out.map(|file| Box::new(BufWriter::new(file)) as Box<dyn Write + Send>);
    let is_traced = out.is_some();

    let simulate = || sumlink_sim::run_own(&scenario.inner, system, seed, &own, out);
    let handle = Handle::new(own.stop());
    let _registered = handle.register();
    // Python handles signals only on its main thread, so that thread watches while another one
    // simulates.
    let (result, interrupted) = py.detach(|| {
        thread::scope(|scope| {
            let (done, finished) = channel();
            let of_worker = handle.clone();
            let worker = scope.spawn(move || {
                // Attaching a thread that Python knows already is cheap.
                let result = match calls_python {
                    true => Python::attach(|py| {
                        of_worker
                            .calls_here(py)
                            .map_err(|error| error.to_string())?;
                        py.detach(simulate)
                    }),
                    false => simulate(),
                };
                let _ = done.send(());
                result
            });
            let mut interrupted = None;
            while finished.recv_timeout(SIGNALS) == Err(RecvTimeoutError::Timeout) {
                let checked = Python::attach(|py| {
                    let checked = py.check_signals();
                    checked.or_else(|error| handle.end(py).and(Err(error)))
                });
                interrupted = checked.err().or(interrupted);
            }
            (worker.join(), interrupted)
        })
    });
    if let Some(error) = interrupted {
        return Err(error);
    }
    let result = result.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        PyRuntimeError::new_err(format!(
            "a fault of the simulator: {}",
            text.unwrap_or_default()
        ))
    })?;
    let run = result.map_err(|reason| match is_traced {
        true => PyOSError::new_err(reason),
        false => PyValueError::new_err(reason),
    })?;
    let json =
        serde_json::to_string(&run).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    let raised = fault.take().map(|error| error.into_value(py).into_any());
    Ok((json, own.stop().reason(), raised))
}
