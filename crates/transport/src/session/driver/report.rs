//! Identifies the session in log lines and events.

use std::time::Instant;

use sumlink_engine::Role;
use tracing::Span;
use tracing::field::display;

use super::Driver;
use crate::api::status::{PathEvent, SessionEvent};
use crate::carrier::keys::PublicKey;

/// Characters of a key and of a session identifier in log lines, enough to distinguish them. Events
/// and status contain them in full.
const SHORT: usize = 8;

/// The tracing span of one session. At a server, `client` is the client's key and configured name.
pub(crate) fn session_span(id: &[u8; 16], client: Option<(&PublicKey, Option<&str>)>) -> Span {
    let key = client.map(|(key, _)| key.to_string());
    let key = key.as_deref().map(|key| display(&key[..SHORT]));
    let name = client.and_then(|(_, name)| name);
    // Level ERROR, so that any filter that keeps a line also keeps the session's name.
    tracing::error_span!("session", client = name, key, id = %&hex(id)[..SHORT])
}

/// A session identifier as 32 hex digits.
pub(super) fn hex(id: &[u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Driver {
    /// Sets the client's name as configured at the server.
    pub(crate) fn with_client(mut self, name: Option<String>) -> Self {
        self.client = name;
        self
    }

    /// Sends an event to all subscribers.
    pub(super) fn report(&self, event: PathEvent) {
        let _ = self.listeners.events.send(SessionEvent {
            session: hex(&self.id),
            peer: self.peer,
            client: self.client.clone(),
            event,
        });
    }

    /// Reports the start of the session at its first path; later paths join it.
    pub(super) fn report_start(&mut self, remote: String) {
        if self.began.is_none() {
            self.began = Some(Instant::now());
            self.report(PathEvent::SessionStart { remote });
        }
    }
}

impl Drop for Driver {
    /// Reports the end of every session whose start was reported, on any way out.
    fn drop(&mut self) {
        self.count_carriers();
        let Some(began) = self.began else { return };
        // After a failure of this task its state is unknown, and a second failure would end the
        // program: the session's counters are then lost.
        if !std::thread::panicking() {
            self.listeners.former.ended(&self.status());
        }
        let stats = self.engine.stats();
        let reason = match (self.ended.take(), self.role) {
            (Some(reason), _) => reason,
            (None, Role::Client) => "the client stopped".to_owned(),
            (None, Role::Server) => "the server stopped".to_owned(),
        };
        let seconds = began.elapsed().as_secs_f64();
        self.report(PathEvent::SessionEnd {
            reason,
            seconds: (seconds * 1000.0).round() / 1000.0,
            bytes_sent: stats.bytes_written,
            bytes_received: stats.bytes_read,
        });
    }
}
