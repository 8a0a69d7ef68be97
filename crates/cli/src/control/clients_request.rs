//! Requests about the clients of a server; `clients` has the answers.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sumlink_store::Quota;

/// A question about the clients of a server, or a change of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum ClientsRequest {
    /// All clients; the answer is a list of `ClientReport`.
    List {},
    /// One client; the answer to this and to each change is a `ClientReport`.
    Show {
        /// Its name.
        name: String,
    },
    /// It may not connect; its sessions end.
    Disable {
        /// Its name.
        name: String,
    },
    /// It may connect again.
    Enable {
        /// Its name.
        name: String,
    },
    /// Forgets it; its sessions end. An open invitation ends.
    Remove {
        /// Its name.
        name: String,
    },
    /// Sets its quota; `None` removes it.
    Quota {
        /// Its name.
        name: String,
        /// The quota.
        #[serde(deserialize_with = "Option::deserialize")]
        quota: Option<Quota>,
    },
    /// Sets the time after which it may no longer connect.
    Expire {
        /// Its name.
        name: String,
        /// Seconds from now; `None` for no limit.
        #[serde(deserialize_with = "Option::deserialize")]
        seconds: Option<u64>,
    },
    /// Copies the store to a new file; the answer names it.
    Backup {
        /// The file, an absolute path at the server.
        file: PathBuf,
    },
    /// Makes an invitation; the answer is an `InviteReport`.
    Invite(InviteRequest),
}

/// A request for an invitation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InviteRequest {
    /// The name of the client; `None` lets the server choose one.
    pub name: Option<String>,
    /// How long the invitation is valid, in seconds.
    pub seconds: u64,
    /// The quota of the client.
    pub quota: Option<Quota>,
    /// How long the client may connect, in seconds from now; `None` for no limit.
    pub client_seconds: Option<u64>,
    /// The server's addresses; those of its configuration, or of its machine, if empty.
    #[serde(default)]
    pub addresses: Vec<String>,
}
