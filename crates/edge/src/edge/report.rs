//! Events, counters and flow reports.

use std::time::Duration;

use super::Tracked;
use crate::LinkId;
use crate::flow::{FlowKey, Phase};

/// An event of interest to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A link went down. Packets in its queue were moved to other links.
    LinkDown {
        /// The link or flow concerned.
        link: LinkId,
        /// Packets moved to other links.
        moved: usize,
        /// Packets dropped because no other link had room.
        lost: usize,
    },
    /// A link came up.
    LinkUp {
        /// The link or flow concerned.
        link: LinkId,
    },
    /// Both ends of a flow are sent a reset. The user's is the next packet on the first link that
    /// can take one.
    FlowReset {
        /// The link or flow concerned.
        flow: FlowKey,
        /// The reason.
        reason: Reset,
        /// Bytes acknowledged to the far end that the user did not receive.
        undelivered: u64,
    },
}

/// Why a flow was reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// Data acknowledged in advance could not be delivered.
    Undeliverable,
    /// An earlier node acknowledged data that it did not deliver.
    Orphaned,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
pub struct Counters {
    /// Flows tracked now.
    pub flows: usize,
    /// Of those, flows with outstanding data and a recent acknowledgment, and flows with owed bytes
    /// (N).
    pub busy_flows: usize,
    /// Of those, flows with owed bytes: a segment was acknowledged to the sender that the user has
    /// not acknowledged.
    pub owed_flows: usize,
    /// Bytes of packet copies now.
    pub kept_bytes: usize,
    /// Flows forgotten for lack of room.
    pub forgotten: u64,
    /// Packets of flows that the table had no room for; they are steered but not tracked.
    pub not_tracked: u64,
    /// Flows reset by the node.
    pub resets: u64,
    /// Packets from both sides that could not be parsed. They are forwarded if they have an IP
    /// header.
    pub malformed: u64,
    /// Packets for users.
    pub down_packets: u64,
    /// Of those, packets dropped because no queue had room.
    pub dropped: u64,
    /// Packets from users.
    pub up_packets: u64,
    /// Duplicate acknowledgments.
    pub duplicates: u64,
    /// Of those, passed on as acknowledgments of the missing packet.
    pub boosted: u64,
    /// Of those, held.
    pub held: u64,
    /// Acknowledgments not passed on because the far end received the same one recently: users'
    /// replies to data that they already have.
    pub unneeded: u64,
    /// Packets that the node sent again because of an acknowledgment.
    pub repaired: u64,
    /// Packets that the node sent again because their link lost them behind the first gap.
    pub repaired_behind: u64,
    /// Packets that the node sent again because of a timer.
    pub repaired_late: u64,
    /// Packets not copied because memory was full.
    pub not_kept: u64,
    /// LWA: packets without a sequence number, because their address cannot be read or too many
    /// other users have numbers.
    pub not_numbered: u64,
}

impl Counters {
    /// Packets that the node sent again, for any reason.
    pub fn sent_again(&self) -> u64 {
        self.repaired + self.repaired_behind + self.repaired_late
    }
}

/// The current state of a flow. Symbols are those of table I.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowReport {
    /// Phase of the connection.
    pub phase: Phase,
    /// Bytes from the user's acknowledgment to the highest data that the node has received.
    pub outstanding: u64,
    /// A^s - A^r: bytes acknowledged to the far end that the user has not acknowledged.
    pub owed: u64,
    /// The node has copies of all owed bytes.
    pub deliverable: bool,
    /// P.
    pub duplicates: u32,
    /// PH^a.
    pub held_average: f64,
    /// H.
    pub held_for: Duration,
    /// RT.
    pub retransmissions: u32,
    /// Bytes of packet copies.
    pub kept: usize,
}

impl FlowReport {
    pub(super) fn of(tracked: &Tracked) -> Self {
        let Tracked {
            flow,
            copies,
            visible,
            ..
        } = tracked;
        let acked = flow.acked().unwrap_or(flow.ack_sent());
        Self {
            phase: flow.phase(),
            outstanding: flow.outstanding(),
            owed: flow.owed(),
            deliverable: flow.has_received(flow.ack_sent()) && copies.cover(acked, flow.ack_sent()),
            duplicates: visible.duplicates(),
            held_average: visible.held_average(),
            held_for: visible.held_for(),
            retransmissions: visible.retransmissions(),
            kept: copies.bytes(),
        }
    }
}
