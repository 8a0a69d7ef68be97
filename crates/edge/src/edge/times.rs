//! Timestamps of packets that overtake each other (RFC 7323), for flows that the node repairs.
//!
//! A user discards a packet with a timestamp older than the latest one received in order (PAWS,
//! section 5.3). A retransmission from the far end has a later timestamp than all packets sent
//! since the original, which may still be in flight on a slower link. Once the retransmission
//! arrives, the user would discard all of them. So the node keeps timestamps from decreasing along
//! the stream: a retransmission gets the timestamp of the packet that it repeats. The node's own
//! copies keep theirs, unless the user has seen a later one.
//!
//! The far end, however, infers from the echo which of its packets arrived (section 4.1; RFC 3522).
//! It would consider every retransmission unnecessary, and would take the time since the first
//! attempt for a round trip. So when a packet's timestamp was changed, its echo is changed back to
//! the far end's own.

use std::sync::Arc;

use crate::flow::Kept;
use crate::packet::{self, Parsed, Segment};

/// Timestamp state of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    /// The latest timestamp that the user has echoed; the user discards older ones.
    seen: Option<u32>,
    /// The value that the far end expects in its place.
    expected: Option<u32>,
}

impl Times {
    /// Sets the timestamp of a far-end packet to that of `before`: the copy of the same data, or of
    /// the next data if the queues had no room for it. Without a copy, the packet keeps its
    /// timestamp.
    pub(super) fn keep(self, packet: &mut [u8], segment: &mut Segment, before: Option<&Kept>) {
        let before = before.and_then(|kept| kept.timestamp);
        let (Some((value, echo)), Some(before)) = (segment.options.timestamps, before) else {
            return;
        };
        let wanted = self.seen.filter(|seen| is_later(*seen, before));
        let wanted = wanted.unwrap_or(before);
        if is_later(value, wanted) {
            packet::set_timestamp(packet, segment, wanted);
            segment.options.timestamps = Some((wanted, echo));
        }
    }

    /// Prepares a copy for sending: if the user has seen a later timestamp, the copy gets that one.
    pub(super) fn renew(self, kept: &mut Kept) {
        let (Some(own), Some(seen)) = (kept.timestamp, self.seen) else {
            return;
        };
        if !is_later(seen, own) {
            return;
        }
        let mut edited = kept.packet.to_vec();
        if let Parsed::Tcp(segment) = packet::parse(&edited, false) {
            packet::set_timestamp(&mut edited, &segment, seen);
            kept.packet = Arc::from(edited);
            kept.timestamp = Some(seen);
        }
    }

    /// Restores the far end's own timestamp in a user's acknowledgment. `first` is the copy of the
    /// packet that the user was waiting for, if it has arrived now: the echo refers to that packet,
    /// whatever else has arrived (section 4.3). Only the latest acknowledgments (`is_latest`) show
    /// what the user has seen; older ones cannot have a later timestamp.
    pub(super) fn answer(
        &mut self,
        packet: &mut [u8],
        segment: &mut Segment,
        first: Option<&Kept>,
        is_latest: bool,
    ) {
        let Some((value, echo)) = segment.options.timestamps.filter(|_| segment.flags.ack) else {
            return;
        };
        if is_latest && self.seen.is_none_or(|seen| is_later(echo, seen)) {
            (self.seen, self.expected) = (Some(echo), None);
        }
        if self.seen != Some(echo) {
            return;
        }
        if let Some(first) = first.filter(|first| first.timestamp == Some(echo)) {
            self.expected = first.theirs;
        }
        if let Some(theirs) = self.expected.filter(|theirs| *theirs != echo) {
            packet::set_timestamp_echo(packet, segment, theirs);
            segment.options.timestamps = Some((value, theirs));
        }
    }
}

/// Compares two timestamps, which wrap around.
pub(super) fn is_later(one: u32, other: u32) -> bool {
    one.wrapping_sub(other) as i32 > 0
}
