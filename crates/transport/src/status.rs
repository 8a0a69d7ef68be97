//! What a session tells about itself: the structures behind `sumlink status --json`.

use serde::{Deserialize, Serialize};

use crate::keys::PublicKey;

/// One side's view of a session.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SessionStatus {
    /// `client` or `server`.
    pub role: String,
    /// The session's identifier, 32 hex digits.
    pub session: String,
    /// The peer's public key; at a server that has a name for it also that, in parentheses.
    pub peer: String,
    /// At a server the client's name by its configuration; empty where it has none, and at the client.
    #[serde(default)]
    pub client: String,
    /// Seconds since the session was made.
    pub uptime_s: f64,
    /// Name of the scheduler that decides which path carries which bytes, and those of classes that have another one:
    /// `fbdt, conversational redundant`.
    pub scheduler: String,
    /// Application bytes taken from local streams since the start.
    pub bytes_sent: u64,
    /// Application bytes handed to local streams since the start, in order and once.
    pub bytes_received: u64,
    /// Application goodput sent, as far as the peer has acknowledged it, over the last second or so, in bit/s.
    pub send_goodput_bps: f64,
    /// Application goodput received, over the last second or so, in bit/s.
    pub receive_goodput_bps: f64,
    /// Streams open now.
    pub streams_open: u64,
    /// Streams opened since the start.
    pub streams_total: u64,
    /// Bytes held because something before them is missing.
    pub reorder_bytes: u64,
    /// The most that `reorder_bytes` has been.
    pub reorder_peak_bytes: u64,
    /// Bytes received and not yet taken by local readers (reorder memory included).
    pub receive_buffer_bytes: u64,
    /// Bytes written by local programs and not yet acknowledged by the peer.
    pub send_buffer_bytes: u64,
    /// What each of the two buffers may hold at most.
    pub memory_limit_bytes: u64,
    /// Bytes that this side sent more than once.
    pub duplicates_sent_bytes: u64,
    /// Bytes that arrived more than once and were dropped.
    pub duplicates_received_bytes: u64,
    /// The paths, in the order in which they joined.
    pub paths: Vec<PathStatus>,
    /// The links by name, with all that their paths have carried in this session, also those that are gone.
    #[serde(default)]
    pub links: Vec<LinkTotals>,
    /// The open streams, in the order of their numbers; of very many the first thousand.
    #[serde(default)]
    pub streams: Vec<StreamStatus>,
}

/// What a link has carried since the session began, over all paths that it has had.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkTotals {
    /// The link's name at the client; empty for paths of links without a name.
    pub link: String,
    /// What its owner calls it; empty where it has no label, and at the server.
    pub label: String,
    /// Paths that it has now.
    pub paths: u64,
    /// Paths that it has had, those that it has now included.
    pub paths_total: u64,
    /// Bytes sent, frames included.
    pub bytes_sent: u64,
    /// Bytes received, frames included.
    pub bytes_received: u64,
    /// TCP segments retransmitted.
    pub retransmissions: u64,
    /// Bytes sent that another path had carried before.
    pub duplicates_sent_bytes: u64,
    /// The link's part of all stream bytes that the session has sent, 0..=1.
    pub send_share: f64,
    /// The link's part of all stream bytes that the session has received, 0..=1.
    pub receive_share: f64,
}

/// One open stream of a session.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StreamStatus {
    /// The stream's number.
    pub id: u64,
    /// Where it leads: HOST:PORT.
    pub target: String,
    /// `conversational`, `streaming`, `interactive` or `background`: how what this side sends is treated.
    pub class: String,
    /// Whether that was learnt from what the stream does, rather than told.
    pub learnt: bool,
    /// Bytes taken from the local program.
    pub bytes_sent: u64,
    /// Bytes handed to the local program.
    pub bytes_received: u64,
}

/// One path of a session.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PathStatus {
    /// The path's number in this session; a link that rejoins gets a new one, one that is not connected has none.
    pub id: Option<u32>,
    /// The link's name at the client (`wlan0`); empty at a server that was not told.
    pub link: String,
    /// What its owner calls the link; empty where it has no label, and at the server.
    #[serde(default)]
    pub label: String,
    /// When this side gives it work: `primary`, `secondary`, `backup` or `never`.
    #[serde(default)]
    pub priority: String,
    /// `connecting`, `active`, `stalled` or `down`.
    pub state: String,
    /// Why it is in that state, in one sentence.
    pub reason: String,
    /// Local address and port, empty while not connected.
    pub local: String,
    /// Remote address and port, empty while not connected.
    pub remote: String,
    /// Name of the TCP congestion control in use.
    pub congestion: String,
    /// The most that its IP packets have, in bytes, where larger ones were found to be lost on the way; null otherwise.
    #[serde(default)]
    pub mtu_bytes: Option<u16>,
    /// Smoothed round-trip time in milliseconds, by TCP.
    pub srtt_ms: f64,
    /// Round-trip time variation in milliseconds, by TCP.
    pub rttvar_ms: f64,
    /// TCP congestion window in bytes.
    pub cwnd_bytes: u64,
    /// Bytes that wait in the interface's queue (qdisc); read for the schedulers `qaware` and `qdepl` only, otherwise 0.
    #[serde(default)]
    pub local_queue_bytes: u64,
    /// Rate sent on this path over the last second or so, in bit/s, frames included.
    pub send_rate_bps: f64,
    /// Rate received on this path over the last second or so, in bit/s, frames included.
    pub receive_rate_bps: f64,
    /// Bytes sent on this path, frames included.
    pub bytes_sent: u64,
    /// Bytes received on this path, frames included.
    pub bytes_received: u64,
    /// TCP segments retransmitted on this path.
    pub retransmissions: u64,
    /// Bytes sent on this path that another path had carried before.
    pub duplicates_sent_bytes: u64,
    /// This path's part of the stream bytes that the present paths have sent, 0..=1.
    pub send_share: f64,
    /// This path's part of the stream bytes that the present paths have received, 0..=1.
    pub receive_share: f64,
    /// What the selector has made of the path: `active`, `probing`, `trial` or `parked`; empty where nobody said so.
    #[serde(default)]
    pub selection: String,
    /// Why, in one sentence with figures; empty while the selector has decided nothing about it.
    #[serde(default)]
    pub selection_reason: String,
}

/// What happened, and in which session: for programs that watch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionEvent {
    /// The session's identifier, 32 hex digits. A client that makes a lost session anew has a new one.
    pub session: String,
    /// The peer's public key: at a server the client's.
    pub peer: PublicKey,
    /// The name that the server has for this client; only at a server, and only if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// What happened.
    #[serde(flatten)]
    pub event: PathEvent,
}

/// A change in the state of a path or of the session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum PathEvent {
    /// The session has its first path.
    SessionStart {
        /// The other end of that path.
        remote: String,
    },
    /// The session is over: nothing follows from it.
    SessionEnd {
        /// What ended it.
        reason: String,
        /// How long it lasted, in seconds.
        seconds: f64,
        /// Application bytes taken from local streams.
        bytes_sent: u64,
        /// Application bytes handed to local streams.
        bytes_received: u64,
    },
    /// A path joined the session.
    Up {
        /// The path's number.
        path: u32,
        /// The link's name.
        link: String,
    },
    /// A path makes no progress: its unacknowledged bytes go over the others.
    Stalled {
        /// The path's number.
        path: u32,
        /// The link's name.
        link: String,
        /// What was missing and for how long.
        reason: String,
    },
    /// A stalled path delivers again.
    Recovered {
        /// The path's number.
        path: u32,
        /// The link's name.
        link: String,
    },
    /// The selector has decided something about a path.
    Selected {
        /// The path's number.
        path: u32,
        /// The link's name.
        link: String,
        /// `active`, `probing`, `trial` or `parked`.
        selection: String,
        /// Why, in one sentence with figures.
        reason: String,
    },
    /// A path left the session.
    Down {
        /// The path's number.
        path: u32,
        /// The link's name.
        link: String,
        /// What ended it.
        reason: String,
    },
    /// The session ends: every stream is reset, and [`PathEvent::SessionEnd`] follows.
    Closed {
        /// What ended it.
        reason: String,
    },
}
