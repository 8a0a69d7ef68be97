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
    /// The TCP flows used last, 32 at the most.
    pub flows: Vec<FlowStatus>,
}

/// A TCP flow. What only VISIBLE counts is 0 without it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowStatus {
    /// The server's address and port.
    pub far: String,
    /// The user's.
    pub user: String,
    /// Bytes that have gone to the user and are not acknowledged.
    pub outstanding_bytes: u64,
    /// Bytes that the server was told of and the user has not acknowledged.
    pub owed_bytes: u64,
    /// Bytes of copies that could be sent again from here.
    pub kept_bytes: usize,
    /// P: duplicate acknowledgements of the present hole.
    pub duplicates: u32,
    /// PH^a: duplicates held for each hole, smoothed.
    pub held_average: f64,
    /// H: how long they are held for, in milliseconds.
    pub held_ms: f64,
    /// RT: times that the missing packet was sent again from here.
    pub retransmissions: u32,
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
    /// Bytes that wait in the queueing discipline of the interface below, other programs' among them, when the kernel was last
    /// asked; nothing where it does not tell.
    pub interface_queue_bytes: Option<u64>,
    /// Bits per second that the link is given at the most, with all headers; nothing: what its socket takes.
    pub rate_bps: Option<u64>,
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
