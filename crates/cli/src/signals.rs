//! SIGINT, SIGTERM and SIGHUP, the end of a terminal: the first one closes gracefully, a later one
//! ends at once.

use std::io;
use std::pin::pin;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, timeout};

use crate::error::CliError;

/// Time limit of a graceful end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time within which another signal repeats the first one: programs such as timeout(1) signal a
/// process and its group.
const REPEATED: Duration = Duration::from_millis(300);

/// The signals that end a daemon or a command.
#[derive(Debug)]
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
    /// Not for a server, which reads its configuration again, nor under nohup(1).
    hangup: Option<Signal>,
}

impl Stop {
    /// Handles the signals from now on.
    pub fn new() -> io::Result<Self> {
        let is_ignored = ignores(SignalKind::hangup());
        let hangup = (!is_ignored).then(|| signal(SignalKind::hangup()));
        Ok(Self {
            hangup: hangup.transpose()?,
            ..Self::without_hangup()?
        })
    }

    /// Handles SIGINT and SIGTERM only.
    pub fn without_hangup() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: None,
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
        let begun = Instant::now();
        let mut closing = pin!(timeout(PATIENCE, closing));
        loop {
            tokio::select! {
                done = &mut closing => {
                    if done.is_err() {
                        let patience = PATIENCE.as_secs();
                        tracing::warn!("the peer did not acknowledge the close within {patience} s");
                    }
                    return Ok(());
                }
                _ = self.next() => {
                    if begun.elapsed() >= REPEATED {
                        return Err(CliError::Interrupted);
                    }
                }
            }
        }
    }
}

/// Whether this process was started with the signal ignored (proc_pid_status(5), `SigIgn`).
fn ignores(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (kind.as_raw_value() - 1) & 1 == 1)
}
