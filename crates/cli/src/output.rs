//! Output of the programs: results for people, JSON for programs, notes on standard error.
//!
//! The print macros of the standard library panic when writing fails; clippy refuses them in this
//! workspace.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use sumlink_transport::SessionEvent;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use crate::error::CliError;
use crate::logging;
use crate::spool::{self, Spool};

/// Prints text unchanged.
///
/// # Errors
///
/// Standard output cannot be written.
pub fn print(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

/// Prints one value on one line.
///
/// # Errors
///
/// Standard output cannot be written.
pub fn print_json(value: &impl Serialize) -> Result<(), CliError> {
    let line = serde_json::to_string(value).map_err(io::Error::from)?;
    print(&format!("{line}\n"))
}

/// Writes a note for people to standard error, such as a warning beside a result. Text that cannot
/// be written is dropped.
pub fn note(text: &str) {
    logging::note(text);
}

/// Events that wait for each receiver of [`Events::subscribe`].
const FEED: usize = 256;

/// Time for which a daemon that ends waits for the reader of its events.
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);

/// A daemon's events: JSON lines on standard output if `--json` was given.
///
/// A separate thread writes them (`spool`), so a reader that does not read blocks nothing.
/// Events that do not fit in the queue are counted and dropped.
#[derive(Clone, Debug)]
pub struct Events {
    lines: Option<Spool>,
    /// Events dropped since the last one that fitted in the queue.
    missed: Arc<AtomicU64>,
    /// The same events for later subscribers.
    feed: broadcast::Sender<Arc<str>>,
}

impl Events {
    /// Events are printed if `json`.
    pub fn new(json: bool) -> io::Result<Self> {
        let lines = match json {
            true => Some(Spool::new("events", spool::unlocked(io::stdout())?, missed)),
            false => None,
        };
        Ok(Self {
            lines,
            missed: Arc::default(),
            feed: broadcast::channel(FEED).0,
        })
    }

    /// Queues one event. A reader that has gone away or does not read does not stop the daemon.
    pub fn emit(&self, event: &impl Serialize) {
        if self.lines.is_none() && self.feed.receiver_count() == 0 {
            return;
        }
        let mut event = match serde_json::to_value(event) {
            Ok(event) => event,
            Err(error) => return tracing::debug!(%error, "cannot serialize an event"),
        };
        if let Some(event) = event.as_object_mut() {
            event.insert("time".to_owned(), now().into());
        }
        let event = event.to_string();
        // Without a receiver the send fails, and nothing is lost.
        let _ = self.feed.send(event.as_str().into());
        let Some(lines) = &self.lines else { return };
        if !lines.push(format!("{event}\n").as_bytes()) {
            if self.missed.fetch_add(1, Ordering::Relaxed) == 0 {
                tracing::warn!("events dropped: standard output is not read");
            }
            return;
        }
        let missed = self.missed.swap(0, Ordering::Relaxed);
        if missed > 0 {
            tracing::warn!(missed, "events dropped");
        }
    }

    /// The events from now on, each as one JSON object. A receiver that lags by more than 256
    /// misses the oldest and gets their number.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<str>> {
        self.feed.subscribe()
    }

    /// Waits until the events have been written and returns the result of the daemon. After 1 s
    /// without a reader, the reason of a failure goes to the log.
    pub fn end(&self, ended: Result<(), CliError>) -> Result<(), CliError> {
        let Some(lines) = &self.lines else {
            return ended;
        };
        let missed = self.missed.load(Ordering::Relaxed);
        if missed > 0 {
            tracing::warn!(missed, "events dropped");
        }
        if matches!(ended, Err(CliError::Interrupted)) || lines.finish(FINISH_TIMEOUT) {
            return ended;
        }
        ended.map_err(|error| {
            tracing::error!("{error}");
            CliError::AlreadyReported(error.exit())
        })
    }

    /// Emits the events of paths and sessions until [`Following::end`], or until their channel
    /// closes.
    pub fn follow(&self, mut sessions: broadcast::Receiver<SessionEvent>) -> Following {
        let events = self.clone();
        let (stop, mut stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            loop {
                let next = tokio::select! {
                    // Events that have happened are emitted before the end.
                    biased;
                    next = sessions.recv() => next,
                    _ = &mut stopped => return,
                };
                match next {
                    Ok(event) => events.emit(&event),
                    Err(RecvError::Lagged(missed)) => {
                        tracing::warn!(
                            missed,
                            "events dropped: they came faster than they were passed on"
                        );
                    }
                    Err(RecvError::Closed) => return,
                }
            }
        });
        Following { stop, task }
    }
}

/// A task that emits the events of paths and sessions.
#[derive(Debug)]
pub struct Following {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Following {
    /// Returns when all events up to now have been emitted.
    pub async fn end(self) {
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}

/// The current time in UTC, as in RFC 3339.
fn now() -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    text
}

/// The line that reports dropped events at the place where they are missing.
pub(crate) fn missed(events: u64) -> String {
    format!(
        "{}\n",
        json!({ "event": "missed", "events": events, "time": now() })
    )
}
