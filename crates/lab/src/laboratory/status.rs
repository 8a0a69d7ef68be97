//! State and counters of the links of a running laboratory.

use std::time::Duration;

use serde::Serialize;

use crate::config::{Direction, InterfaceState};

/// Bytes that one direction of a link delivered over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireSeries {
    /// The link's name.
    pub link: String,
    /// The direction.
    pub direction: Direction,
    /// Length of each interval; the first one starts at [`Lab::begin`](crate::Lab::begin), or at
    /// the start of the laboratory.
    pub interval: Duration,
    /// Bytes of IP packets, headers included, that were due in each interval; complete intervals
    /// only.
    pub wire_bytes: Vec<u64>,
}

/// Counters of one direction of a link since its start; packets are whole IP packets.
#[derive(Clone, Debug, Serialize)]
pub struct DirectionReport {
    /// The direction.
    pub direction: Direction,
    /// The current rate in bits per second; for a trace its mean.
    pub rate_bps: u64,
    /// Packets offered to the link.
    pub offered_packets: u64,
    /// Packets delivered.
    pub delivered_packets: u64,
    /// Bytes of the delivered packets.
    pub delivered_bytes: u64,
    /// Packets dropped by the policer.
    pub policed_packets: u64,
    /// Packets dropped because the queue was full.
    pub dropped_queue_packets: u64,
    /// Packets lost at random.
    pub lost_packets: u64,
    /// Layer 2 retransmissions caused by an interferer.
    pub layer2_retransmissions: u64,
    /// Packets discarded because the link was not up.
    pub discarded_packets: u64,
    /// Packets currently queued or in transit.
    pub backlog_packets: u64,
}

/// One link's state and counters.
#[derive(Clone, Debug, Serialize)]
pub struct LinkStatus {
    /// The link's name.
    pub name: String,
    /// The link's state.
    pub state: InterfaceState,
    /// Client to server, then server to client.
    pub directions: [DirectionReport; 2],
}
