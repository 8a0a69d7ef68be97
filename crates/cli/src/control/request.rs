//! What can be asked for at the control socket: one JSON object on one line.

use serde::{Deserialize, Serialize};
use sumlink_transport::LinkPolicy;

/// Longest request, in bytes.
pub(crate) const MAX_REQUEST: usize = 4096;

/// A request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "cmd", rename_all = "snake_case")]
pub(crate) enum Request {
    /// The whole report.
    Status {},
    /// One link of a client.
    Link {
        /// Its name.
        name: String,
        /// What is to become of its policy; without it, it is only shown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        change: Option<LinkChange>,
    },
    /// What a link of an edge node carries.
    Rate(LinkRate),
}

/// What is to become of a link's policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkChange {
    /// The whole new one; without it what the configuration says counts again.
    pub policy: Option<LinkPolicy>,
    /// Whether it outlives the client.
    #[serde(default)]
    pub keep: bool,
}

/// What a link of an edge node is given at the most.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkRate {
    /// The link.
    pub name: String,
    /// Bits per second of UDP packets with their IP headers; 0: it waits; nothing: what its socket takes.
    pub rate_bps: Option<u64>,
}

impl Request {
    /// Reads a request from what came in up to the end of its line; the error says in one sentence what is wrong.
    pub(crate) fn decode(line: &[u8]) -> Result<Self, String> {
        if line.is_empty() {
            return Err("no request arrived: the connection ended first".to_owned());
        }
        if !line.ends_with(b"\n") && line.len() >= MAX_REQUEST {
            return Err(format!("the request is longer than {MAX_REQUEST} bytes"));
        }
        serde_json::from_slice(line).map_err(|error| format!("unknown request: {error}"))
    }
}
