//! Work that is repeated alongside a running system.

use std::ops::ControlFlow;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::error::LabError;

/// The thread that does the work; dropping this waits for its end.
pub(crate) struct Watcher {
    /// Nothing is ever sent: closing the channel ends the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Repeats the work at this interval until it reports its end.
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
