//! Something that is done beside a system for as long as it runs.

use std::ops::ControlFlow;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
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
        Self::spawn(name, move |stopped| {
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                if work().is_break() {
                    return;
                }
            }
        })
    }

    /// Does work that waits for more than a time, and asks itself whether it is over.
    pub(super) fn run(
        name: &str,
        work: impl FnOnce(&dyn Fn() -> bool) + Send + 'static,
    ) -> Result<Self, LabError> {
        Self::spawn(name, move |stopped| {
            work(&|| stopped.try_recv() == Err(TryRecvError::Disconnected));
        })
    }

    fn spawn(
        name: &str,
        work: impl FnOnce(Receiver<()>) + Send + 'static,
    ) -> Result<Self, LabError> {
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || work(stopped));
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
