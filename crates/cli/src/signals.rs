//! SIGINT and SIGTERM: the first one closes gracefully, the second one ends at once. A command
//! that leaves something behind also handles SIGHUP, the end of its terminal.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::CliError;

/// Time limit of a graceful end.
const PATIENCE: Duration = Duration::from_secs(10);

/// The signals that end a daemon or a command.
#[derive(Debug)]
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
    /// Only for commands: daemons read their configuration again.
    hangup: Option<Signal>,
}

impl Stop {
    /// Handles SIGINT and SIGTERM from now on.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: None,
        })
    }

    /// Handles SIGHUP as well, for a command that does not run until it is stopped.
    pub fn of_command() -> io::Result<Self> {
        Ok(Self {
            hangup: Some(signal(SignalKind::hangup())?),
            ..Self::new()?
        })
    }

    /// Waits for the next signal and returns its name.
    pub async fn next(&mut self) -> &'static str {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            _ = hangup => "SIGHUP",
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
