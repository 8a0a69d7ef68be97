//! A scheduler implemented by a Python class.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBool;
use sumlink_engine::scheduler::{Pick, RepeatLimit, Scheduler, View as EngineView};
use sumlink_engine::{PathId, StreamId};

use crate::fault::{Fault, shown};
use crate::view::{Path, View};

/// An instance of the class, at one end of a session.
#[derive(Debug)]
pub(crate) struct PyScheduler {
    /// `None` if the constructor failed, which ends the run.
    instance: Option<Py<PyAny>>,
    /// "the scheduler NAME", for messages.
    place: String,
    max_paths: Option<usize>,
    repeats_all: bool,
    wants_flights: bool,
    fault: Fault,
}

impl PyScheduler {
    pub(crate) fn new(class: &Py<PyAny>, name: &str, fault: Fault) -> Self {
        let place = format!("the scheduler {name}");
        Python::attach(|py| {
            let made = make(py, class);
            let (instance, (max_paths, repeats_all, wants_flights)) = match made {
                Ok((instance, options)) => (Some(instance), options),
                Err(error) => {
                    fault.raised(py, &format!("{place}, __init__"), error);
                    (None, (None, false, false))
                }
            };
            Self {
                instance,
                place,
                max_paths,
                repeats_all,
                wants_flights,
                fault,
            }
        })
    }

    /// Calls a method; an error ends the run.
    fn call<T>(
        &self,
        method: &str,
        call: impl FnOnce(Python<'_>, &Bound<'_, PyAny>) -> PyResult<T>,
    ) -> Option<T> {
        let instance = self.instance.as_ref()?;
        if self.fault.is_there() {
            return None;
        }
        Python::attach(|py| match call(py, instance.bind(py)) {
            Ok(answer) => Some(answer),
            Err(error) => {
                let place = format!("{}, {method}", self.place);
                self.fault.raised(py, &place, error);
                None
            }
        })
    }
}

type Options = (Option<usize>, bool, bool);

fn make(py: Python<'_>, class: &Py<PyAny>) -> PyResult<(Py<PyAny>, Options)> {
    let instance = class.bind(py).call0()?;
    let options = (
        max_paths(&instance.getattr("max_paths")?)?,
        flag(&instance, "repeats_all")?,
        flag(&instance, "wants_flights")?,
    );
    Ok((instance.unbind(), options))
}

fn max_paths(value: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    if value.is_none() {
        return Ok(None);
    }
    match value.extract() {
        Ok(number) if number > 0 && !value.is_instance_of::<PyBool>() => Ok(Some(number)),
        _ => Err(PyValueError::new_err(format!(
            "max_paths is {}; it must be a whole number of at least 1, or None",
            shown(value)
        ))),
    }
}

fn flag(instance: &Bound<'_, PyAny>, name: &str) -> PyResult<bool> {
    let value = instance.getattr(name)?;
    value.extract().map_err(|_| {
        PyValueError::new_err(format!(
            "{name} is {}; it must be True or False",
            shown(&value)
        ))
    })
}

impl Scheduler for PyScheduler {
    fn name(&self) -> &'static str {
        "python"
    }

    fn pick(&mut self, path: PathId, budget: u64, view: &EngineView<'_>) -> Pick {
        let answer = self.call("pick", |py, instance| {
            let Some(asking) = view.path(path) else {
                return Ok(Ok(Pick::Idle));
            };
            let asking = Path::of(py, asking, view, self.wants_flights)?;
            let seen = View::of(py, view, self.wants_flights)?;
            let answer = instance.call_method1("pick", (asking, budget, seen))?;
            Ok(parse(&answer))
        });
        match answer {
            Some(Ok(pick)) => pick,
            Some(Err(reason)) => {
                self.fault
                    .nonsense(&format!("{}, pick", self.place), &reason);
                Pick::Idle
            }
            None => Pick::Idle,
        }
    }

    fn paths_changed(&mut self) {
        self.call("paths_changed", |_, instance| {
            instance.call_method0("paths_changed").map(drop)
        });
    }

    fn stream_gone(&mut self, stream: StreamId) {
        self.call("stream_gone", |_, instance| {
            instance.call_method1("stream_gone", (stream,)).map(drop)
        });
    }

    fn max_paths(&self) -> Option<usize> {
        self.max_paths
    }

    fn repeat_limit(&self) -> RepeatLimit {
        match self.repeats_all {
            true => RepeatLimit::OncePerPath,
            false => RepeatLimit::Share,
        }
    }
}

/// `None`, or a tuple of a word and three numbers.
fn parse(answer: &Bound<'_, PyAny>) -> Result<Pick, String> {
    if answer.is_none() {
        return Ok(Pick::Idle);
    }
    let nonsense = || {
        let text = shown(answer);
        format!(
            "answered {text}, which is neither None nor \
             ('send', 'repeat' or 'race', stream, start, end)"
        )
    };
    let (kind, stream, start, end): (String, u64, u64, u64) =
        answer.extract().map_err(|_| nonsense())?;
    let range = start..end;
    match kind.as_str() {
        "send" => Ok(Pick::Send { stream, range }),
        "repeat" => Ok(Pick::Repeat { stream, range }),
        "race" => Ok(Pick::Race { stream, range }),
        _ => Err(nonsense()),
    }
}
