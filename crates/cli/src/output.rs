//! Standard output: results for people, JSON for programs.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use serde::Serialize;
use sumlink_transport::PathEvent;
use tokio::sync::broadcast::{self, error::RecvError};

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

/// So many events wait for a reader who does not read; what comes beyond is missed.
const WAITING: usize = 1024;
/// How long the end of a daemon waits for such a reader.
const LAST: Duration = Duration::from_secs(1);

/// Where a daemon's events go: JSON lines on standard output if that was asked for.
///
/// They are written by a thread of their own: a reader who does not read holds up nobody but that.
#[derive(Clone, Debug)]
pub(crate) struct Events {
    lines: Option<SyncSender<Line>>,
    /// Events since the last one that found room.
    missed: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Line {
    Event(String),
    /// To be told when all before it has been written.
    Mark(SyncSender<()>),
}

impl Events {
    /// Events that are printed if `json`.
    pub(crate) fn new(json: bool) -> io::Result<Self> {
        let mut events = Self {
            lines: None,
            missed: Arc::default(),
        };
        if json {
            let (sender, lines) = sync_channel(WAITING);
            thread::Builder::new()
                .name("events".to_owned())
                .spawn(move || write(&lines))?;
            events.lines = Some(sender);
        }
        Ok(events)
    }

    /// Tells one event. Neither a reader who went away nor one who does not read stops the daemon.
    pub(crate) fn tell(&self, event: &impl Serialize) {
        let Some(lines) = &self.lines else { return };
        let line = match serde_json::to_string(event) {
            Ok(line) => line,
            Err(error) => return tracing::debug!(%error, "an event"),
        };
        if let Err(TrySendError::Full(_)) = lines.try_send(Line::Event(line)) {
            if self.missed.fetch_add(1, Ordering::Relaxed) == 0 {
                tracing::warn!("events are missed: nobody reads standard output");
            }
            return;
        }
        let missed = self.missed.swap(0, Ordering::Relaxed);
        if missed > 0 {
            tracing::warn!(missed, "events were missed");
        }
    }

    /// How a daemon ended, after what it told has been written. Whoever does not read is not waited for for long: the reason of a
    /// failure goes to the log then.
    pub(crate) fn end(&self, ended: Result<(), CliError>) -> Result<(), CliError> {
        let Some(lines) = &self.lines else {
            return ended;
        };
        let missed = self.missed.load(Ordering::Relaxed);
        if missed > 0 {
            tracing::warn!(missed, "events were missed");
        }
        if matches!(ended, Err(CliError::Interrupted)) {
            return ended;
        }
        let (mark, written) = sync_channel(1);
        let is_written =
            lines.try_send(Line::Mark(mark)).is_ok() && written.recv_timeout(LAST).is_ok();
        if is_written {
            return ended;
        }
        ended.map_err(|error| {
            tracing::error!("{error}");
            CliError::Told(error.exit())
        })
    }

    /// Tells what happens to paths and sessions, until nothing can happen any more.
    pub(crate) async fn follow(self, mut paths: broadcast::Receiver<PathEvent>) {
        loop {
            match paths.recv().await {
                Ok(event) => self.tell(&event),
                Err(RecvError::Lagged(missed)) => tracing::warn!(missed, "path events were missed"),
                Err(RecvError::Closed) => return,
            }
        }
    }
}

fn write(lines: &Receiver<Line>) {
    for line in lines {
        match line {
            Line::Event(line) => {
                if let Err(error) = print(&format!("{line}\n")) {
                    tracing::debug!(%error, "standard output");
                }
            }
            Line::Mark(mark) => {
                let _ = mark.send(());
            }
        }
    }
}
