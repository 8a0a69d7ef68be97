//! The status of a session: the structures behind `sumlink status --json`.

mod totals;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use crate::api::publish::PublishStatus;
use crate::carrier::keys::PublicKey;
pub use totals::{Durations, PeerTotals};

/// One side's view of a session.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SessionStatus {
    /// `client` or `server`.
    pub role: String,
    /// The session's identifier, 32 hex digits.
    pub session: String,
    /// At a client the server, HOST:PORT as in the configuration or the DNS; empty at the server.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub server: String,
    /// At a client the name of the session's server among those behind one load balancer; empty if
    /// it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub server_name: String,
    /// The peer's public key, followed at a server by the client's name in parentheses if it has
    /// one.
    pub peer: String,
    /// At a server the client's name in the configuration; empty if it has none, and at the client.
    #[serde(default)]
    pub client: String,
    /// Seconds since the session was made.
    pub uptime_s: f64,
    /// Name of the scheduler that decides which path carries which bytes, and the names for classes
    /// with a different scheduler: `fbdt, conversational redundant`.
    pub scheduler: String,
    /// Application bytes taken from local streams since the start.
    pub bytes_sent: u64,
    /// Application bytes delivered to local streams since the start, in order and once.
    pub bytes_received: u64,
    /// Application goodput sent and acknowledged by the peer, over about the last second, in bit/s.
    pub send_goodput_bps: f64,
    /// Application goodput received, over about the last second, in bit/s.
    pub receive_goodput_bps: f64,
    /// Streams open now.
    pub streams_open: u64,
    /// Streams opened since the start.
    pub streams_total: u64,
    /// Open streams by the class of what this side sends; classes without streams are absent.
    #[serde(default)]
    pub streams_by_class: BTreeMap<String, u64>,
    /// Bytes held because earlier bytes are missing.
    pub reorder_bytes: u64,
    /// The highest value of `reorder_bytes`.
    pub reorder_peak_bytes: u64,
    /// 99 % of the bytes received since the start have waited no longer than this for earlier
    /// ones, in milliseconds; up to a fifth too long, and 0 for less than a millisecond.
    #[serde(default)]
    pub in_order_wait_p99_ms: f64,
    /// Bytes received and not yet taken by local readers (reorder memory included).
    pub receive_buffer_bytes: u64,
    /// Bytes written by local programs and not yet acknowledged by the peer.
    pub send_buffer_bytes: u64,
    /// Maximum size of each of the two buffers.
    pub memory_limit_bytes: u64,
    /// Bytes that this side sent more than once.
    pub duplicates_sent_bytes: u64,
    /// Bytes that arrived more than once and were dropped.
    pub duplicates_received_bytes: u64,
    /// The paths, in the order in which they joined.
    pub paths: Vec<PathStatus>,
    /// The links by name, with the totals of all their paths in this session, including former
    /// paths.
    #[serde(default)]
    pub links: Vec<LinkTotals>,
    /// The open streams, in the order of their numbers; at most the first thousand.
    #[serde(default)]
    pub streams: Vec<StreamStatus>,
    /// The paths of datagrams: one for each connected link.
    #[serde(default)]
    pub datagram_paths: Vec<DatagramPathStatus>,
    /// The flows of datagrams, in the order of their numbers; at most the first thousand.
    #[serde(default)]
    pub flows: Vec<FlowStatus>,
    /// Open flows by the class of what this side sends; classes without flows are absent.
    #[serde(default)]
    pub flows_by_class: BTreeMap<String, u64>,
    /// Datagrams dropped because the session or a local program did not take them in time.
    #[serde(default)]
    pub datagrams_dropped: u64,
    /// The published ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<PublishStatus>,
}

/// The path of datagrams over one link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DatagramPathStatus {
    /// The path's number in this session.
    pub id: u32,
    /// The link's name at the client.
    pub link: String,
    /// `udp` for a QUIC connection, `tcp` if datagrams take the link's TCP carrier.
    pub carrier: String,
    /// Why the link has no QUIC connection; empty if it has one, and before the first attempt.
    pub reason: String,
    /// `working`, `suspect` or `failed`.
    pub state: String,
    /// Smoothed round-trip time in milliseconds.
    pub srtt_ms: f64,
    /// Congestion window in bytes; 0 for a TCP carrier.
    pub cwnd_bytes: u64,
    /// Expected delay of a packet to the peer in milliseconds.
    pub delay_ms: f64,
    /// Rate at which the path delivers, in bit/s.
    pub rate_bps: f64,
    /// Largest packet of the path in bytes.
    pub max_datagram_bytes: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets received.
    pub packets_received: u64,
    /// Bytes of packets sent.
    pub bytes_sent: u64,
    /// Bytes of packets received.
    pub bytes_received: u64,
    /// Packets sent that the peer reports as lost.
    pub packets_lost: u64,
    /// Bytes that wait in the QUIC connection; 0 for a TCP carrier.
    pub queued_bytes: u64,
}

/// One flow of datagrams.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowStatus {
    /// The flow's number.
    pub id: u64,
    /// The number of the program's socket; the flows of one socket share it.
    pub source: u64,
    /// The remote: HOST:PORT.
    pub target: String,
    /// The class of the datagrams that this side sends.
    pub class: String,
    /// How this side's datagrams use the paths now: `pinned`, `spread` or `duplicate`.
    pub policy: String,
    /// The reason for it, in one sentence.
    pub reason: String,
    /// The links that carried datagrams of this side within a second before the newest one; the
    /// link of that one comes first. Empty before the first one.
    pub links: Vec<String>,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Datagrams received.
    pub datagrams_received: u64,
    /// Payload bytes sent.
    pub bytes_sent: u64,
    /// Payload bytes received.
    pub bytes_received: u64,
    /// Copies sent over several links, the first ones included, and datagrams sent again because
    /// their path did not deliver.
    pub copies_sent: u64,
    /// Datagrams of this side that were dropped before they left.
    pub dropped: u64,
    /// Of those: its queue was full.
    pub dropped_full: u64,
    /// Of those: they waited for longer than their class permits.
    pub dropped_late: u64,
    /// Of those: a signal to the program that it sends too fast (CoDel, RFC 8289).
    pub dropped_codel: u64,
    /// Of those: no path carries datagrams of their size.
    pub dropped_too_big: u64,
    /// Datagrams of the peer that did not come in time while their order was restored.
    #[serde(default)]
    pub given_up: u64,
    /// Of those: they came later, out of order.
    #[serde(default)]
    pub late: u64,
}

/// The totals of a link since the session began, over all current and former paths.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkTotals {
    /// The link's name at the client; empty for paths of links without a name.
    pub link: String,
    /// The link's label; empty if it has none, and at the server.
    pub label: String,
    /// Number of current paths.
    pub paths: u64,
    /// Number of current and former paths.
    pub paths_total: u64,
    /// Bytes sent, frames included.
    pub bytes_sent: u64,
    /// Bytes received, frames included.
    pub bytes_received: u64,
    /// TCP segments retransmitted.
    pub retransmissions: u64,
    /// Bytes sent that another path had carried before.
    pub duplicates_sent_bytes: u64,
    /// The link's share of all stream bytes that the session has sent, 0..=1.
    pub send_share: f64,
    /// The link's share of all stream bytes that the session has received, 0..=1.
    pub receive_share: f64,
    /// Payload bytes that TCP has sent, TLS and retransmissions included.
    #[serde(default)]
    pub tcp_bytes_sent: u64,
    /// Of those: bytes sent again because TCP took them for lost.
    #[serde(default)]
    pub tcp_bytes_retransmitted: u64,
    /// Packets of datagrams sent.
    #[serde(default)]
    pub datagram_packets_sent: u64,
    /// Packets of datagrams received.
    #[serde(default)]
    pub datagram_packets_received: u64,
    /// Packets of datagrams sent that the peer reports as lost.
    #[serde(default)]
    pub datagram_packets_lost: u64,
    /// Bytes of those sent over UDP; those over TCP are a part of `bytes_sent`.
    #[serde(default)]
    pub datagram_bytes_sent: u64,
    /// Bytes of those received over UDP.
    #[serde(default)]
    pub datagram_bytes_received: u64,
    /// For each stall of a path: how long it had delivered nothing when its unacknowledged data
    /// went to the other paths.
    #[serde(default)]
    pub failovers: Durations,
    /// For each time when the link stalled or lost its last path and came back: how long that took.
    #[serde(default)]
    pub returns: Durations,
}

/// One open stream of a session.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StreamStatus {
    /// The stream's number.
    pub id: u64,
    /// The target: HOST:PORT.
    pub target: String,
    /// The class of the data that this side sends: `conversational`, `streaming`, `interactive` or
    /// `background`.
    pub class: String,
    /// Whether the class was learned from the stream's behavior rather than set.
    pub learned: bool,
    /// Bytes taken from the local program.
    pub bytes_sent: u64,
    /// Bytes delivered to the local program.
    pub bytes_received: u64,
}

/// One path of a session.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PathStatus {
    /// The path's number in this session. A link that rejoins gets a new number; an unconnected one
    /// has none.
    pub id: Option<u32>,
    /// The link's name at the client (`wlan0`); empty at a server that does not know it.
    pub link: String,
    /// The link's label; empty if it has none, and at the server.
    #[serde(default)]
    pub label: String,
    /// The priority of the path at this side: `primary`, `secondary`, `backup` or `never`.
    #[serde(default)]
    pub priority: String,
    /// `connecting`, `active`, `stalled` or `down`.
    pub state: String,
    /// The reason for the state, in one sentence.
    pub reason: String,
    /// Local address and port, empty while not connected.
    pub local: String,
    /// Remote address and port, empty while not connected.
    pub remote: String,
    /// Name of the TCP congestion control in use.
    pub congestion: String,
    /// Maximum size of the path's IP packets in bytes, if larger ones were found to be lost; null
    /// otherwise.
    #[serde(default)]
    pub mtu_bytes: Option<u16>,
    /// Highest rate at which this side sends on the path in bit/s, while a call uses its link and
    /// the link's queue would be long; null otherwise.
    #[serde(default)]
    pub call_cap_bps: Option<f64>,
    /// Why it is capped, or why it is not although a call uses its link and the queue is long;
    /// empty otherwise.
    #[serde(default)]
    pub call_cap_reason: String,
    /// Smoothed round-trip time in milliseconds, measured by TCP.
    pub srtt_ms: f64,
    /// Round-trip time variation in milliseconds, measured by TCP.
    pub rttvar_ms: f64,
    /// TCP congestion window in bytes.
    pub cwnd_bytes: u64,
    /// Bytes that TCP has sent and the peer's TCP has not acknowledged.
    #[serde(default)]
    pub in_flight_bytes: u64,
    /// Bytes waiting in the interface's queue (qdisc); 0 unless a scheduler of the session reads it
    /// (`Scheduler::reads_local_queue`).
    #[serde(default)]
    pub local_queue_bytes: u64,
    /// Rate sent on this path over about the last second, in bit/s, frames included.
    pub send_rate_bps: f64,
    /// Rate received on this path over about the last second, in bit/s, frames included.
    pub receive_rate_bps: f64,
    /// Bytes sent on this path, frames included.
    pub bytes_sent: u64,
    /// Bytes received on this path, frames included.
    pub bytes_received: u64,
    /// TCP segments retransmitted on this path.
    pub retransmissions: u64,
    /// Bytes sent on this path that another path had carried before.
    pub duplicates_sent_bytes: u64,
    /// This path's share of the stream bytes that the current paths have sent, 0..=1.
    pub send_share: f64,
    /// This path's share of the stream bytes that the current paths have received, 0..=1.
    pub receive_share: f64,
    /// The selector's state of the path: `active`, `probing`, `trial` or `parked`; empty without a
    /// selector.
    #[serde(default)]
    pub selection: String,
    /// The selector's reason, in one sentence with figures; empty until it has made a decision
    /// about the path.
    #[serde(default)]
    pub selection_reason: String,
}

/// An event and its session, for monitoring programs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionEvent {
    /// The session's identifier, 32 hex digits. A client that replaces a lost session uses a new
    /// identifier.
    pub session: String,
    /// The peer's public key; at a server, the client's.
    pub peer: PublicKey,
    /// The client's name as configured at the server; absent at the client and for clients without
    /// a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The event.
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
        /// Remote address of that path.
        remote: String,
    },
    /// The session is over; this is its last event.
    SessionEnd {
        /// The reason for the end.
        reason: String,
        /// Duration of the session, in seconds.
        seconds: f64,
        /// Application bytes taken from local streams.
        bytes_sent: u64,
        /// Application bytes delivered to local streams.
        bytes_received: u64,
    },
    /// A path joined the session.
    Up {
        /// The path's number.
        path: u32,
        /// The link's name.
        link: String,
    },
    /// A path makes no progress: its unacknowledged data goes over the others.
    Stalled {
        /// The path's number.
        path: u32,
        /// The link's name.
        link: String,
        /// The missing progress and its duration.
        reason: String,
    },
    /// A stalled path delivers again.
    Recovered {
        /// The path's number.
        path: u32,
        /// The link's name.
        link: String,
    },
    /// The selector has made a decision about a path.
    Selected {
        /// The path's number.
        path: u32,
        /// The link's name.
        link: String,
        /// `active`, `probing`, `trial` or `parked`.
        selection: String,
        /// The reason, in one sentence with figures.
        reason: String,
    },
    /// A path left the session.
    Down {
        /// The path's number.
        path: u32,
        /// The link's name.
        link: String,
        /// The reason for the end.
        reason: String,
    },
    /// The session ends: every stream is reset, and [`PathEvent::SessionEnd`] follows.
    Closed {
        /// The reason for the end.
        reason: String,
    },
}
