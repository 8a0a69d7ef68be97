//! The fields of a path, grouped by subject.

use std::collections::VecDeque;
use std::time::Duration;

use crate::Instant;
use crate::meter::Meter;
use crate::policy::{PathPolicy, PeerPolicy};
use crate::selector::Selection;

use super::drained::OwnQueue;
use super::gap::Gap;
use super::one_way::OneWay;
use super::overdue::{DeliveryProof, MoreRepair};
use super::{Flight, Sent};

/// When the path may carry data: policies, priority and the selector's decision.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// This side's policy for the path.
    pub(crate) policy: PathPolicy,
    /// Version of the peer's POLICY that set it; none before the first one.
    pub(crate) policy_version: Option<u64>,
    /// The policy sent to the peer, and its version.
    pub(crate) sent_policy: Option<(u64, PeerPolicy)>,
    /// The path is secondary, and more data waits than the primary paths deliver soon.
    pub(crate) helps: bool,
    /// The path adds more latency than permitted.
    pub(crate) too_slow: bool,
    /// The selector's decision for the path, and the reason.
    pub(crate) selection: Selection,
    pub(crate) selection_reason: String,
    /// Number of the path's link, if known: paths with the same number share one.
    pub(crate) link: Option<u64>,
}

/// Delays of the path, derived from its samples and the peer's reports.
#[derive(Debug, Default)]
pub(super) struct Delays {
    /// Values derived from the sample that are read often.
    pub(super) delay: Duration,
    pub(super) queued_delay: Duration,
    pub(super) likely_delay: Duration,
    pub(super) likely_queued_delay: Duration,
    /// The part of the smoothed round trip that the path's own bytes waited for.
    pub(super) own_queue: OwnQueue,
    /// One-way delay to the peer, according to its reports.
    pub(super) one_way: OneWay,
    /// Delay of returning reports over the fastest path; none if unknown.
    pub(super) report_trip: Option<Duration>,
    /// The same delay without queues.
    pub(super) report_min_trip: Option<Duration>,
}

/// Frames sent on the path, and those of them in flight.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    /// Frame bytes handed to the carrier.
    pub(crate) sent: u64,
    /// Frame bytes that the peer has reported as received.
    pub(crate) confirmed: u64,
    /// Stream data in flight, in the order sent.
    pub(crate) flights: VecDeque<Flight>,
    /// Control frames in flight, in the order sent.
    pub(crate) control: VecDeque<Sent>,
    /// Time, budget and change count of the last call that found nothing to send.
    pub(crate) idle: Option<(Instant, usize, u64)>,
    /// Time at which data that elicits a report last left on the path.
    pub(crate) last_asked: Option<Instant>,
    /// PINGs in a row on an idle session; at a server, those of the client as well.
    pub(crate) idle_pings: u32,
    /// The session's CLOSE has been handed to the carrier.
    pub(crate) close_sent: bool,
}

/// Frames received on the path.
#[derive(Debug)]
pub(crate) struct Inbound {
    /// Bytes of whole frames received.
    pub(crate) received: u64,
    /// Start of a frame that has not arrived completely.
    pub(crate) partial: Vec<u8>,
    /// Time of the last arrival.
    pub(crate) last_received: Instant,
    /// Token of a PING to answer.
    pub(crate) pong_due: Option<u64>,
    /// At a server, the time of the last PING.
    pub(crate) pinged: Option<Instant>,
}

/// Reports sent to the peer about received data.
#[derive(Debug)]
pub(crate) struct Reports {
    /// Version of the newest change in a report sent on this path.
    pub(crate) version: u64,
    /// Version of this path's own newest receive count.
    pub(crate) receive_version: u64,
    /// When the last report left on this path.
    pub(crate) last_sent: Instant,
    /// Time at which another path reported the first change that this one has not reported yet.
    pub(crate) behind_since: Option<Instant>,
}

/// Evidence that the path delivers, or does not.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Time at which the peer last acknowledged data, or the path first had data to acknowledge.
    pub(crate) acknowledged_at: Instant,
    /// Time at which the path got its first bytes of a stream.
    pub(crate) first_data: Option<Instant>,
    /// Last known time at which TCP got a segment through in either direction.
    pub(crate) last_moved: Option<Instant>,
    /// The gap that TCP is repairing.
    pub(super) gap: Option<Gap>,
    /// The last proof that the path delivers; none if TCP does not report deliveries.
    pub(super) proof: Option<DeliveryProof>,
    /// Additional time that TCP has recently needed for its repairs.
    pub(super) more_repair: MoreRepair,
    /// Time at which TCP last began to pause to measure.
    pub(super) paused_at: Option<Instant>,
    /// Number of stalls, which decays, and the time at which it was last updated.
    pub(super) stalls: f64,
    pub(super) stalls_at: Instant,
    /// Share of lost segments, which decays.
    pub(super) loss: f64,
}

/// The current stall of the path, and the condition for its end.
#[derive(Debug)]
pub(crate) struct Stall {
    /// A stalled path is tried again when this many of its bytes are acknowledged.
    pub(crate) recovers_at: u64,
    /// For a stalled path: the start of the stall.
    pub(crate) began: Instant,
    /// For a stalled path: the time since when its earliest data has been unacknowledged.
    pub(crate) oldest_sent_at: Instant,
    /// The stall has been reported to the peer and the program, and a recovery has not.
    pub(crate) is_reported: bool,
}

/// The peer's state of the path, and this side's state as sent to the peer.
#[derive(Debug, Default)]
pub(crate) struct PeerView {
    /// Number of PATH_STATE frames sent to the peer about the path.
    pub(crate) state_version_sent: u64,
    /// Version of the newest PATH_STATE received.
    pub(crate) state_version_received: u64,
    /// Time since when the peer has reported that its data on the path is not acknowledged.
    pub(crate) stalled_since: Option<Instant>,
    /// The peer has abandoned the path.
    pub(crate) is_abandoned: bool,
}

/// Totals and rates of stream data, for the status.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) data_sent: u64,
    pub(crate) data_received: u64,
    pub(crate) duplicates_sent: u64,
    pub(crate) send_meter: Meter,
    pub(crate) receive_meter: Meter,
}

impl Inbound {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            received: 0,
            partial: Vec::new(),
            last_received: now,
            pong_due: None,
            pinged: None,
        }
    }
}

impl Reports {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            version: 0,
            receive_version: 0,
            last_sent: now,
            behind_since: None,
        }
    }
}

impl Progress {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            acknowledged_at: now,
            first_data: None,
            last_moved: None,
            gap: None,
            proof: None,
            more_repair: MoreRepair::new(now),
            paused_at: None,
            stalls: 0.0,
            stalls_at: now,
            loss: 0.0,
        }
    }
}

impl Stall {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            recovers_at: 0,
            began: now,
            oldest_sent_at: now,
            is_reported: false,
        }
    }
}
