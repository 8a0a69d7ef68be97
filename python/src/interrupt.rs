//! Ends runs early, even if a Python class does not return.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use sumlink_sim::Stop;

/// All runs in progress in this process.
static RUNNING: Mutex<BTreeMap<u64, Handle>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Ends a run.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    stop: Stop,
    /// Python's identifier of the thread that calls classes; 0 if none.
    thread: Arc<AtomicU64>,
}

impl Handle {
    pub(crate) fn new(stop: Stop) -> Self {
        Self {
            stop,
            thread: Arc::default(),
        }
    }

    /// Records that classes are called on this thread.
    pub(crate) fn calls_here(&self, py: Python<'_>) -> PyResult<()> {
        let number: u64 = py
            .import("threading")?
            .call_method0("get_ident")?
            .extract()?;
        self.thread.store(number, Ordering::Release);
        Ok(())
    }

    /// Ends the run before its next event, and a class that is executing with KeyboardInterrupt.
    pub(crate) fn end(&self, py: Python<'_>) -> PyResult<()> {
        self.stop.now("interrupted");
        let thread = self.thread.load(Ordering::Acquire);
        if thread == 0 {
            return Ok(());
        }
        let ctypes = py.import("ctypes")?;
        let number = ctypes.call_method1("c_ulong", (thread,))?;
        let raised = ctypes.call_method1("py_object", (py.get_type::<PyKeyboardInterrupt>(),))?;
        let python = ctypes.getattr("pythonapi")?;
        python.call_method1("PyThreadState_SetAsyncExc", (number, raised))?;
        Ok(())
    }

    /// Makes the run reachable by [`interrupt`] until the returned value is dropped.
    pub(crate) fn register(&self) -> Registered {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        running().insert(number, self.clone());
        Registered(number)
    }
}

/// A run that [`interrupt`] can reach.
#[derive(Debug)]
pub(crate) struct Registered(u64);

impl Drop for Registered {
    fn drop(&mut self) {
        running().remove(&self.0);
    }
}

fn running() -> MutexGuard<'static, BTreeMap<u64, Handle>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends all runs of this process, as Ctrl-C ends those of the main thread.
#[pyfunction]
pub(crate) fn interrupt(py: Python<'_>) -> PyResult<()> {
    let all: Vec<Handle> = running().values().cloned().collect();
    all.iter().try_for_each(|handle| handle.end(py))
}
