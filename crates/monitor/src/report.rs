//! The report of a running program, as `sumlink status --json` prints it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sumlink_transport::status::PeerTotals;
use sumlink_transport::{LinkReport, SessionStatus};

use crate::process::Process;

/// Report of a client, server or edge node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Version of the running program.
    pub version: String,
    /// `client`, `server` or `edge`.
    pub role: String,
    /// Process id.
    pub pid: u32,
    /// Why there is no session, or the attempt to open one; empty otherwise.
    pub note: String,
    /// The sessions; a client has at most one.
    pub sessions: Vec<SessionStatus>,
    /// The counters of each peer since the program began.
    #[serde(default)]
    pub totals: Vec<PeerTotals>,
    /// A client's links: policy and usage.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<LinkReport>,
    /// Connections that a server has refused since it began, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, u64>,
    /// Lines that the log lacks.
    #[serde(default)]
    pub log: LogCounts,
    /// What the process takes of the machine.
    #[serde(default)]
    pub process: Process,
    /// Report of an edge node, in a form that only its own program knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge: Option<serde_json::Value>,
    /// Report of a gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<serde_json::Value>,
}

/// Log lines that were not written, since the program began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogCounts {
    /// Lines dropped because standard error was not read or could not be written.
    pub dropped: u64,
    /// Lines beyond the limit on lines of one kind and client.
    pub suppressed: u64,
}

impl Report {
    /// Makes a report of this process.
    pub fn new(role: &str, note: String, sessions: Vec<SessionStatus>) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            role: role.to_owned(),
            pid: std::process::id(),
            note,
            sessions,
            process: Process::now(),
            ..Self::default()
        }
    }

    /// Whether the program does its work: a server while it runs, a client while a path delivers.
    pub fn is_healthy(&self) -> bool {
        self.role == "server" || self.note.is_empty()
    }
}
