//! What an end tells of itself.

use serde::{Deserialize, Serialize};

/// An end, since its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// `node` or `user`.
    pub role: String,
    /// How it sends: `lwip`, `lwa` or `lwip+visible`.
    pub mode: String,
    /// The steering policy.
    pub steering: String,
    /// The TUN device.
    pub device: String,
    /// Seconds since the start.
    pub uptime_s: f64,
    /// The links, in the order of the configuration.
    pub links: Vec<LinkStatus>,
    /// What the core has counted.
    pub core: CoreStatus,
    /// Numbered packets that have come.
    pub reorder: ReorderStatus,
    /// Packets that the kernel did not take from here.
    pub device_refused: u64,
}

/// A link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkStatus {
    /// What people call it.
    pub name: String,
    /// `new` until the other end has answered for the first time, `up`, or `down`.
    pub state: String,
    /// Smoothed time of a probe and its answer in milliseconds; queues below count, the node's own do not.
    pub rtt_ms: Option<f64>,
    /// LTT: time from a packet's entry into the queue to its acknowledgement, in milliseconds.
    pub trip_ms: Option<f64>,
    /// Packets that wait now.
    pub queue_packets: usize,
    /// Bytes of them.
    pub queue_bytes: usize,
    /// Packets that may wait.
    pub queue_limit: usize,
    /// Bits per second at which the queue is served while something waits, as measured, without the tunnel's headers.
    pub service_bps: Option<f64>,
    /// Datagrams sent, probes among them.
    pub sent_packets: u64,
    /// Bytes of them with all headers.
    pub sent_bytes: u64,
    /// Datagrams that have come.
    pub received_packets: u64,
    /// Bytes of them with all headers.
    pub received_bytes: u64,
    /// Probes sent.
    pub probes: u64,
    /// Answers that have come.
    pub answers: u64,
    /// Datagrams that the kernel did not take.
    pub refused: u64,
    /// Datagrams from the right address that are none of this tunnel's.
    pub foreign: u64,
}

/// [`sumlink_edge::Counters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is documented where it is counted")]
pub struct CoreStatus {
    pub flows: usize,
    pub busy_flows: usize,
    pub kept_bytes: usize,
    pub forgotten: u64,
    pub resets: u64,
    pub malformed: u64,
    pub down_packets: u64,
    pub dropped: u64,
    pub up_packets: u64,
    pub duplicates: u64,
    pub boosted: u64,
    pub held: u64,
    pub repaired: u64,
    pub repaired_late: u64,
    pub not_kept: u64,
}

impl From<sumlink_edge::Counters> for CoreStatus {
    fn from(counters: sumlink_edge::Counters) -> Self {
        let sumlink_edge::Counters {
            flows,
            busy_flows,
            kept_bytes,
            forgotten,
            resets,
            malformed,
            down_packets,
            dropped,
            up_packets,
            duplicates,
            boosted,
            held,
            repaired,
            repaired_late,
            not_kept,
        } = counters;
        Self {
            flows,
            busy_flows,
            kept_bytes,
            forgotten,
            resets,
            malformed,
            down_packets,
            dropped,
            up_packets,
            duplicates,
            boosted,
            held,
            repaired,
            repaired_late,
            not_kept,
        }
    }
}

/// [`sumlink_edge::lwa::ReorderStats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each is documented where it is counted")]
pub struct ReorderStatus {
    pub delivered: u64,
    pub reordered: u64,
    pub duplicates: u64,
    pub late: u64,
    pub missing: u64,
    pub timeouts: u64,
    pub malformed: u64,
}

impl From<sumlink_edge::lwa::ReorderStats> for ReorderStatus {
    fn from(stats: sumlink_edge::lwa::ReorderStats) -> Self {
        let sumlink_edge::lwa::ReorderStats {
            delivered,
            reordered,
            duplicates,
            late,
            missing,
            timeouts,
            malformed,
        } = stats;
        Self {
            delivered,
            reordered,
            duplicates,
            late,
            missing,
            timeouts,
            malformed,
        }
    }
}
