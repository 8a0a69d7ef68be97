//! Which session a log line or an event is about.

use std::time::Instant;

use sumlink_engine::Role;
use tracing::Span;
use tracing::field::display;

use super::Driver;
use crate::keys::PublicKey;
use crate::status::{PathEvent, SessionEvent};

/// Characters of a key and of a session's identifier in log lines: enough to tell one from another. Events and status
/// have them whole.
const SHORT: usize = 8;

/// The span around everything of one session. At a server, `client` is its key and the name that the server has for it.
pub(crate) fn session_span(id: &[u8; 16], client: Option<(&PublicKey, Option<&str>)>) -> Span {
    let key = client.map(|(key, _)| key.to_string());
    let key = key.as_deref().map(|key| display(&key[..SHORT]));
    let name = client.and_then(|(_, name)| name);
    // Of the highest level, so that a filter which keeps a line also keeps the name of its session.
    tracing::error_span!("session", client = name, key, id = %&hex(id)[..SHORT])
}

/// A session's identifier as text, 32 hex digits.
pub(super) fn hex(id: &[u8; 16]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Driver {
    /// Gives the session the name that the server has for its client.
    pub(crate) fn with_client(mut self, name: Option<String>) -> Self {
        self.client = name;
        self
    }

    /// Tells whoever listens what has happened.
    pub(super) fn report(&self, event: PathEvent) {
        let _ = self.listeners.events.send(SessionEvent {
            session: hex(&self.id),
            peer: self.peer,
            client: self.client.clone(),
            event,
        });
    }

    /// The first path makes the session; those that follow join it.
    pub(super) fn report_start(&mut self, remote: String) {
        if self.began.is_none() {
            self.began = Some(Instant::now());
            self.report(PathEvent::SessionStart { remote });
        }
    }
}

impl Drop for Driver {
    /// However the session ends, its end is reported if its beginning was.
    fn drop(&mut self) {
        let Some(began) = self.began else { return };
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
