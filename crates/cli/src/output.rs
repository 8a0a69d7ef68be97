//! Standard output: results for people, JSON for programs.

use std::io::{self, Write};

use serde::Serialize;
use sumlink_transport::PathEvent;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::task::spawn_blocking;

use crate::exit::CliError;

/// Prints text as it is.
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Prints one value on one line.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), CliError> {
    let line = serde_json::to_string(value).map_err(io::Error::from)?;
    print(&format!("{line}\n"))
}

/// Where a daemon's events go: JSON lines on standard output if that was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Events {
    json: bool,
}

impl Events {
    /// Events that are printed if `json`.
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    /// Tells one event. A reader who went away does not stop the daemon.
    pub(crate) fn tell(self, event: &impl Serialize) {
        if self.json
            && let Err(error) = print_json(event)
        {
            tracing::debug!(%error, "standard output");
        }
    }
    /// Tells what happens to paths and sessions, until nothing can happen any more.
    pub(crate) async fn follow(self, mut paths: broadcast::Receiver<PathEvent>) {
        loop {
            match paths.recv().await {
                // A reader who does not read must not hold up the sessions.
                Ok(event) => {
                    let _ = spawn_blocking(move || self.tell(&event)).await;
                }
                Err(RecvError::Lagged(missed)) => tracing::warn!(missed, "path events were missed"),
                Err(RecvError::Closed) => return,
            }
        }
    }
}
