//! SIGINT and SIGTERM: the first one closes gracefully, the second one ends at once.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::CliError;

/// Time limit of a graceful end.
const PATIENCE: Duration = Duration::from_secs(10);

/// The signals that end a daemon.
#[derive(Debug)]
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Handles the two signals from now on.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next signal and returns its name.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }

    /// Waits for `closing`, a second signal or the time limit.
    pub async fn graceful(&mut self, closing: impl Future<Output = ()>) -> Result<(), CliError> {
        tokio::select! {
            done = tokio::time::timeout(PATIENCE, closing) => {
                if done.is_err() {
                    tracing::warn!("the peer did not acknowledge the close within {} s", PATIENCE.as_secs());
                }
                Ok(())
            }
            _ = self.next() => Err(CliError::Interrupted),
        }
    }
}
