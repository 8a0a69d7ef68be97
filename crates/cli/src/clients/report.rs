//! The answers to requests about the clients of a server.

use serde::{Deserialize, Serialize};
use sumlink_store::{Client, Invitation, Now, Standing, format_beyond};
use sumlink_transport::policy::Beyond;

/// A client, as `sumlink clients --json` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientReport {
    /// Name; may be empty for a client of the configuration.
    pub name: String,
    /// Public key.
    pub key: String,
    /// `store`, `configuration` for a `[[client]]` block or `--authorize`, or `invitation` for an
    /// open one, which has no key yet.
    pub source: String,
    /// `invited`, `good`, `disabled`, `expired`, `blocked` (by its quota) or `limited` (by it, to a
    /// rate).
    pub state: String,
    /// When it joined, in seconds since 1970.
    pub created: Option<u64>,
    /// When it may no longer connect, in seconds since 1970.
    pub expires: Option<u64>,
    /// Bytes that it may move in a month, both directions together.
    pub quota_bytes: Option<u64>,
    /// The day on which its month begins.
    pub reset_day: u8,
    /// The action beyond the quota: `block`, or a rate.
    pub beyond: String,
    /// Bytes sent to it since it joined.
    pub sent_bytes: u64,
    /// Bytes received from it since it joined.
    pub received_bytes: u64,
    /// Bytes sent to it in this month.
    pub month_sent_bytes: u64,
    /// Bytes received from it in this month.
    pub month_received_bytes: u64,
}

/// A new invitation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InviteReport {
    /// The line for `sumlink join`.
    pub invitation: String,
    /// The name that the client gets.
    pub name: String,
    /// When the invitation ends, in seconds since 1970.
    pub expires: u64,
    /// The server's addresses in it.
    pub addresses: Vec<String>,
}

impl ClientReport {
    /// The holder of an open invitation, which ends when it `expires`.
    pub(super) fn invited(open: &Invitation, default: Beyond) -> Self {
        let beyond = open.quota.and_then(|quota| quota.beyond);
        Self {
            name: open.name.clone(),
            source: "invitation".to_owned(),
            state: "invited".to_owned(),
            created: Some(open.created),
            expires: Some(open.expires),
            quota_bytes: open.quota.map(|quota| quota.bytes),
            reset_day: open.quota.map_or(1, |quota| quota.reset_day),
            beyond: format_beyond(beyond.unwrap_or(default)),
            ..Self::configured("", String::new())
        }
    }

    /// A client of the store.
    pub(super) fn of(client: &Client, now: Now, default: Beyond) -> Self {
        let (month_sent_bytes, month_received_bytes) = client.month(now);
        let beyond = client.quota.and_then(|quota| quota.beyond);
        let beyond = beyond.unwrap_or(default);
        let state = match client.standing(now) {
            Standing::Good => "good",
            Standing::Disabled => "disabled",
            Standing::Expired => "expired",
            Standing::UsedUp(_) if matches!(beyond, Beyond::Limit(_)) => "limited",
            Standing::UsedUp(_) => "blocked",
        };
        Self {
            name: client.name.clone(),
            key: client.key.to_string(),
            source: "store".to_owned(),
            state: state.to_owned(),
            created: Some(client.created),
            expires: client.expires,
            quota_bytes: client.quota.map(|quota| quota.bytes),
            reset_day: client.reset_day(),
            beyond: format_beyond(beyond),
            sent_bytes: client.traffic.sent,
            received_bytes: client.traffic.received,
            month_sent_bytes,
            month_received_bytes,
        }
    }

    /// A client of the configuration, which the store does not count.
    pub(super) fn configured(name: &str, key: String) -> Self {
        Self {
            name: name.to_owned(),
            key,
            source: "configuration".to_owned(),
            state: "good".to_owned(),
            created: None,
            expires: None,
            quota_bytes: None,
            reset_day: 1,
            beyond: String::new(),
            sent_bytes: 0,
            received_bytes: 0,
            month_sent_bytes: 0,
            month_received_bytes: 0,
        }
    }
}
