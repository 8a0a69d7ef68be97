//! What an end tells of itself.

use serde::{Deserialize, Serialize};
use sumlink_edge::Counters;
use sumlink_edge::lwa::ReorderStats;

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
    pub core: Counters,
    /// Numbered packets that have come.
    pub reorder: ReorderStats,
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
