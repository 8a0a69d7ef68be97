//! Counters of flows, of datagram paths and of all datagrams.

use std::time::Duration;

use super::{DatagramCarrier, DatagramPolicy, FlowId, PathHealth};
use crate::policy::PathPolicy;
use crate::{Class, Instant, PathId};

/// Counters of the datagrams of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatagramStats {
    /// Flows now.
    pub flows: u64,
    /// Flows opened by either side.
    pub flows_opened: u64,
    /// Flows that ended after they were idle for their timeout.
    pub flows_expired: u64,
    /// Flows that made room for others.
    pub flows_evicted: u64,
    /// Flows of the peer that found no room.
    pub flows_refused: u64,
    /// Packets that could not be decoded to their end.
    pub malformed: u64,
    /// Packets for no path, or that have arrived before.
    pub ignored: u64,
    /// Datagrams of flows that the peer cannot have or has not opened.
    pub unknown: u64,
    /// Datagrams of flows that have ended.
    pub ended: u64,
    /// Datagrams that have arrived before.
    pub duplicates: u64,
    /// Datagrams that arrived too late to know whether they had arrived before.
    pub too_old: u64,
    /// Received datagrams that were dropped because nothing took them.
    pub unread: u64,
    /// Half datagrams that were dropped without their other half.
    pub halves_given_up: u64,
    /// Bytes in the queues of all flows now.
    pub queued_bytes: u64,
    /// Bytes of half datagrams now.
    pub fragment_bytes: u64,
    /// Bytes that wait for earlier datagrams now.
    pub reorder_bytes: u64,
    /// The peer has sent at least one packet, so it understands datagrams.
    pub peer_speaks: bool,
}

/// Datagrams of a flow that this side has dropped, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowDrops {
    /// The flow's queue was full.
    pub full: u64,
    /// They waited for longer than their class permits, or their path ended and no other one took
    /// them.
    pub late: u64,
    /// CoDel's signal to a sender that sends too fast.
    pub codel: u64,
    /// They fit no path, not even in two parts.
    pub too_big: u64,
}

impl FlowDrops {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.full + self.late + self.codel + self.too_big
    }
}

/// Counters of a flow. "Sent" refers to this side.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowStats {
    /// The flow.
    pub id: FlowId,
    /// The program's socket.
    pub source: u64,
    /// The destination.
    pub target: Vec<u8>,
    /// The class of the datagrams that this side sends.
    pub class: Class,
    /// Whether the class was learned instead of set.
    pub learned: bool,
    /// The policy that applies now.
    pub policy: DatagramPolicy,
    /// The reason for it, in one sentence.
    pub reason: String,
    /// Paths that carried this side's datagrams within a second before the newest one; the path of
    /// that one comes first.
    pub paths: Vec<PathId>,
    /// Datagrams sent, each counted once, with its first copy.
    pub sent: u64,
    /// Payload bytes sent, copies included.
    pub bytes_sent: u64,
    /// Copies of datagrams sent over several links, the first ones included.
    pub copies_sent: u64,
    /// Datagrams sent again because their path did not deliver.
    pub rescued: u64,
    /// Payload bytes of these repetitions, and of all copies after the first one that left.
    pub bytes_repeated: u64,
    /// Datagrams delivered to the program.
    pub received: u64,
    /// Their payload bytes.
    pub bytes_received: u64,
    /// Datagrams dropped before they were sent. With [`FlowStats::sent`] and the waiting ones, they
    /// are all that [`Session::send_datagram`](crate::Session::send_datagram) was given.
    pub drops: FlowDrops,
    /// Bytes that wait to be sent.
    pub queued_bytes: u64,
    /// Bytes that wait for earlier datagrams.
    pub reorder_bytes: u64,
    /// Datagrams of the peer that did not come in time while the order was restored, ...
    pub given_up: u64,
    /// ... and those of them that came later.
    pub late: u64,
    /// When it last carried a datagram.
    pub active_at: Instant,
}

/// Counters of a datagram path.
#[derive(Clone, Debug, PartialEq)]
pub struct DatagramPathStats {
    /// The path.
    pub id: PathId,
    /// Its carrier.
    pub carrier: DatagramCarrier,
    /// Number of its link.
    pub link: u64,
    /// How well it delivers.
    pub health: PathHealth,
    /// Whether it carries datagrams now; if not, better paths do or its policy forbids it.
    pub in_use: bool,
    /// This side's policy for it.
    pub policy: PathPolicy,
    /// Smoothed round-trip time of its carrier.
    pub srtt: Duration,
    /// Expected delay to the peer.
    pub delay: Duration,
    /// Rate at which it delivers, in bytes per second.
    pub rate: f64,
    /// Share of lost packets, from 0 to 1.
    pub loss: f64,
    /// Largest packet in bytes.
    pub max_packet: usize,
    /// Packets sent.
    pub packets_sent: u64,
    /// Bytes of packets sent.
    pub bytes_sent: u64,
    /// Packets received.
    pub packets_received: u64,
    /// Bytes of packets received.
    pub bytes_received: u64,
    /// Packets that the peer has reported.
    pub packets_reported: u64,
    /// Packets that turned out to be lost.
    pub packets_lost: u64,
    /// How often a report was overdue.
    pub times_suspect: u64,
    /// Time since it joined.
    pub age: Duration,
}
