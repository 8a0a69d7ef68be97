//! The stream of events at the control socket.

use std::io;
use std::sync::Arc;

use sumlink_transport::slots::Slot;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::time::timeout;

use super::PATIENCE;
use super::error::Refusal;
use crate::output;

/// Why the stream of a reader ends before the program does.
const DISPLACED: &str = "another reader of events took this place: a program has at most 16";

/// Writes each event on a line, until the reader leaves, takes nothing for too long, or has to make
/// room for another one. Events that it was too slow for are counted.
pub(super) async fn write(
    stream: UnixStream,
    mut events: broadcast::Receiver<Arc<str>>,
    mut slot: Slot,
) -> io::Result<()> {
    let (mut reading, mut writing) = stream.into_split();
    let mut rest = [0; 64];
    loop {
        let line = tokio::select! {
            event = events.recv() => match event {
                Ok(event) => format!("{event}\n"),
                Err(RecvError::Lagged(missed)) => output::missed(missed),
                Err(RecvError::Closed) => return Ok(()),
            },
            read = reading.read(&mut rest) => match read? {
                0 => return Ok(()),
                _ => continue,
            },
            Ok(()) = &mut slot => {
                let refusal = serde_json::to_string(&Refusal::not_here(DISPLACED))?;
                let line = format!("{refusal}\n");
                let written = timeout(PATIENCE, writing.write_all(line.as_bytes())).await;
                return written.unwrap_or(Ok(()));
            }
        };
        let written = timeout(PATIENCE, writing.write_all(line.as_bytes())).await;
        written.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    }
}
