//! What a running laboratory tells about its links.

use std::time::Duration;

use serde::Serialize;

use crate::config::{Direction, InterfaceState};

/// What one direction of a link delivered over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireSeries {
    /// The link's name.
    pub link: String,
    /// Which way.
    pub direction: Direction,
    /// Length of each interval; the first one starts at [`Lab::begin`](crate::Lab::begin), or at the start of the laboratory.
    pub interval: Duration,
    /// Bytes of IP packets, headers included, that were due in each interval; complete intervals only.
    pub wire_bytes: Vec<u64>,
}

/// What passed in one direction of a link since the start; packets are whole IP packets.
#[derive(Clone, Debug, Serialize)]
pub struct DirectionReport {
    /// Which one.
    pub direction: Direction,
    /// What it carries now in bits per second; of a trace the mean.
    pub rate_bps: u64,
    /// Packets that came in.
    pub offered_packets: u64,
    /// Packets that came out.
    pub delivered_packets: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Packets that the policer dropped.
    pub policed_packets: u64,
    /// Packets that found the queue full.
    pub dropped_queue_packets: u64,
    /// Packets lost at random.
    pub lost_packets: u64,
    /// Transmissions that layer 2 repeated because of an interferer.
    pub layer2_retransmissions: u64,
    /// Packets discarded because the link was not up.
    pub discarded_packets: u64,
    /// Packets queued or on their way now.
    pub backlog_packets: u64,
}

/// One link's state and counters.
#[derive(Clone, Debug, Serialize)]
pub struct LinkStatus {
    /// Its name.
    pub name: String,
    /// Its state.
    pub state: InterfaceState,
    /// Client to server, then server to client.
    pub directions: [DirectionReport; 2],
}
