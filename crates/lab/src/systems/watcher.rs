//! Something that is done again and again beside a system for as long as it runs.

use std::ops::ControlFlow;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::error::LabError;

/// A thread that does it; dropping this waits for its end.
pub(crate) struct Watcher {
    /// Nothing is ever sent: that it is gone ends the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Does the work so often, until it says that it has ended.
    pub(super) fn start(
        name: &str,
        pause: Duration,
        mut work: impl FnMut() -> ControlFlow<()> + Send + 'static,
    ) -> Result<Self, LabError> {
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                if work().is_break() {
                    return;
                }
            }
        });
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread.map_err(|error| LabError::system("starting a thread", error))?),
        })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
