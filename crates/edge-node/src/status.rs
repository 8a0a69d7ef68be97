//! Status reports of an end.

use serde::{Deserialize, Serialize};
use sumlink_edge::Counters;
use sumlink_edge::lwa::ReorderStats;

/// Status of an end since its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// `node` or `user`.
    pub role: String,
    /// How it carries packets: `lwip`, `lwa` or `lwip+visible`.
    pub mode: String,
    /// The steering policy.
    pub steering: String,
    /// The TUN device.
    pub device: String,
    /// Seconds since the start.
    pub uptime_s: f64,
    /// The links, in the order of the configuration.
    pub links: Vec<LinkStatus>,
    /// Counters of the core.
    pub core: Counters,
    /// Counters of numbered packets received.
    pub reorder: ReorderStats,
    /// Packets that the TUN device refused.
    pub device_refused: u64,
    /// The most recently used TCP flows, at most 32.
    pub flows: Vec<FlowStatus>,
}

/// A TCP flow. Fields of VISIBLE are 0 without it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowStatus {
    /// The server's address and port.
    pub far: String,
    /// The user's address and port.
    pub user: String,
    /// Bytes sent to the user and not acknowledged.
    pub outstanding_bytes: u64,
    /// Bytes acknowledged to the server that the user has not acknowledged.
    pub owed_bytes: u64,
    /// Bytes of packet copies for retransmission.
    pub kept_bytes: usize,
    /// P: duplicate acknowledgments of the current gap.
    pub duplicates: u32,
    /// PH^a: duplicates per gap, smoothed.
    pub held_average: f64,
    /// H: how long duplicates have been held, in milliseconds.
    pub held_ms: f64,
    /// RT: how often the node has repaired the missing packet.
    pub retransmissions: u32,
}

/// A link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkStatus {
    /// Name of the link.
    pub name: String,
    /// `new` until the remote end answers for the first time, then `up` or `down`.
    pub state: String,
    /// Smoothed round-trip time of probes in milliseconds, with the wait in queues below the node
    /// but not in its own.
    pub rtt_ms: Option<f64>,
    /// LTT: time from a packet's entry into the queue to its acknowledgment, in milliseconds.
    pub trip_ms: Option<f64>,
    /// Packets queued now.
    pub queue_packets: usize,
    /// Bytes queued now.
    pub queue_bytes: usize,
    /// Capacity of the queue in packets.
    pub queue_limit: usize,
    /// Bytes in the queueing discipline of the interface, including those of other programs, at the
    /// last query; `None` if the kernel does not report it.
    pub interface_queue_bytes: Option<u64>,
    /// Rate limit in bits per second, including all headers; `None`: limited by the socket only.
    pub rate_bps: Option<u64>,
    /// Measured service rate of the backlogged queue in bits per second, excluding tunnel headers.
    pub service_bps: Option<f64>,
    /// Datagrams sent, including probes.
    pub sent_packets: u64,
    /// Bytes of those, including all headers.
    pub sent_bytes: u64,
    /// Datagrams received.
    pub received_packets: u64,
    /// Bytes of those, including all headers.
    pub received_bytes: u64,
    /// Probes sent.
    pub probes: u64,
    /// Answers received.
    pub answers: u64,
    /// Datagrams that the kernel refused.
    pub refused: u64,
    /// Datagrams from the remote address that do not belong to this tunnel.
    pub foreign: u64,
}
