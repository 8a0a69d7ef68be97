//! Errors of a Python class: the first one ends the run.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use sumlink_sim::Stop;

/// Most characters of a class's text that a message repeats.
const LONGEST: usize = 200;

/// Collects the errors of a run's classes.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    stop: Stop,
    error: Arc<Mutex<Option<PyErr>>>,
}

impl Fault {
    pub(crate) fn new(stop: Stop) -> Self {
        Self {
            stop,
            error: Arc::default(),
        }
    }

    /// A method raised an exception.
    pub(crate) fn raised(&self, py: Python<'_>, place: &str, error: PyErr) {
        let at = line_of(py, &error).map_or_else(String::new, |line| format!(" ({line})"));
        let name = error.get_type(py).name();
        let mut what = name.map_or_else(|_| "exception".to_owned(), |name| name.to_string());
        let text = one_line(&error.value(py).to_string());
        if !text.is_empty() {
            what = format!("{what}: {text}");
        }
        let mut kept = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        if self.stop.reason().is_none() {
            self.stop.now(format!("{place}: {what}{at}"));
            *kept = Some(error);
        }
    }

    /// A method returned an invalid value.
    pub(crate) fn nonsense(&self, place: &str, reason: &str) {
        self.stop.now(format!("{place}: {reason}"));
    }

    /// Whether an error has occurred; then no further method is called.
    pub(crate) fn is_there(&self) -> bool {
        self.stop.reason().is_some()
    }

    pub(crate) fn take(&self) -> Option<PyErr> {
        let mut kept = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        kept.take()
    }
}

/// Describes a Python object for a message.
pub(crate) fn shown(value: &Bound<'_, PyAny>) -> String {
    match value.repr() {
        Ok(text) => one_line(&text.to_string()),
        Err(_) => "a value without a representation".to_owned(),
    }
}

/// Text for a message: one line of limited length.
fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let joined = lines.join(" ");
    let line = joined.trim();
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line.to_owned(),
    }
}

/// File and line of the innermost frame.
fn line_of(py: Python<'_>, error: &PyErr) -> Option<String> {
    let mut frame = error.traceback(py)?.into_any();
    while let Ok(next) = frame.getattr("tb_next")
        && !next.is_none()
    {
        frame = next;
    }
    let line: u32 = frame.getattr("tb_lineno").ok()?.extract().ok()?;
    let code = frame.getattr("tb_frame").ok()?.getattr("f_code").ok()?;
    let file: String = code.getattr("co_filename").ok()?.extract().ok()?;
    Some(format!("{file}:{line}"))
}
