//! What the node tells of itself.

use std::time::Duration;

use super::Tracked;
use crate::LinkId;
use crate::flow::{FlowKey, Phase};

/// Something that somebody may want to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A link went down; so many packets that waited for it went to others.
    LinkDown {
        /// Which.
        link: LinkId,
        /// Packets that others took.
        moved: usize,
        /// Packets that nobody had room for.
        lost: usize,
    },
    /// A link came up.
    LinkUp {
        /// Which.
        link: LinkId,
    },
    /// Both ends of a flow are sent a reset; its user with the next packet of whichever link carries any.
    FlowReset {
        /// Which.
        flow: FlowKey,
        /// Why.
        reason: Reset,
        /// Bytes that the far end had been told of and the user has not got.
        undelivered: u64,
    },
}

/// Why a flow was reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// What had been acknowledged in advance could not be delivered.
    Undeliverable,
    /// A node before this one had acknowledged what it did not deliver.
    Orphaned,
}

/// Numbers since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default)
)]
pub struct Counters {
    /// Flows that are known now.
    pub flows: usize,
    /// Of them, those with something outstanding and an acknowledgement of late, and those that are owed something (N).
    pub busy_flows: usize,
    /// Of them, those that are owed something: their senders were told of a segment that their users have not acknowledged.
    pub owed_flows: usize,
    /// Bytes of packets that are kept now.
    pub kept_bytes: usize,
    /// Flows forgotten for want of room.
    pub forgotten: u64,
    /// Packets of flows that there was no room for: they are steered and no more is known of them.
    pub not_tracked: u64,
    /// Flows reset from here.
    pub resets: u64,
    /// Packets that could not be read, of both sides. They are passed on where they have an IP header.
    pub malformed: u64,
    /// Packets for users.
    pub down_packets: u64,
    /// Of them, those that no queue had room for.
    pub dropped: u64,
    /// Packets of users.
    pub up_packets: u64,
    /// Duplicate acknowledgements.
    pub duplicates: u64,
    /// Of them, those passed on as acknowledgements of the missing packet.
    pub boosted: u64,
    /// Of them, those held.
    pub held: u64,
    /// Acknowledgements not passed on, as the far end was told the same of late: what users say to that which they have already.
    pub unneeded: u64,
    /// Packets sent again from here, because of an acknowledgement.
    pub repaired: u64,
    /// Packets sent again from here, because their link had lost them behind the first hole.
    pub repaired_behind: u64,
    /// Packets sent again from here, because time had passed.
    pub repaired_late: u64,
    /// Packets not kept because memory was full.
    pub not_kept: u64,
    /// LWA: packets without a sequence number, because they have no address that can be read, or too many others have numbers.
    pub not_numbered: u64,
}

impl Counters {
    /// Packets sent again from here, for whatever reason.
    pub fn sent_again(&self) -> u64 {
        self.repaired + self.repaired_behind + self.repaired_late
    }
}

/// What is known of a flow now. Symbols are those of table I.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowReport {
    /// How far it has come.
    pub phase: Phase,
    /// Bytes from the user's acknowledgement to the highest data that the node has received.
    pub outstanding: u64,
    /// A^s - A^r: bytes that the far end was told of and the user has not acknowledged.
    pub owed: u64,
    /// Of the owed bytes, none is missing here.
    pub deliverable: bool,
    /// P.
    pub duplicates: u32,
    /// PH^a.
    pub held_average: f64,
    /// H.
    pub held_for: Duration,
    /// RT.
    pub retransmissions: u32,
    /// Bytes of packets kept.
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
        let acked = flow.acked().unwrap_or(flow.told());
        Self {
            phase: flow.phase(),
            outstanding: flow.outstanding(),
            owed: flow.owed(),
            deliverable: flow.has_received(flow.told()) && copies.cover(acked, flow.told()),
            duplicates: visible.duplicates(),
            held_average: visible.held_average(),
            held_for: visible.held_for(),
            retransmissions: visible.retransmissions(),
            kept: copies.bytes(),
        }
    }
}
