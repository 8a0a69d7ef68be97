//! Timestamps of packets that overtake each other (RFC 7323), for flows that are repaired from here.
//!
//! A user throws away what has an older timestamp than the latest that arrived in order (PAWS, section 5.3). What a far end
//! sends again has a later one than all that it sent in between, which may still be under way over a slower link: once the
//! repetition has arrived, all of that would be thrown away. So timestamps never decrease along the stream here: a repetition
//! gets the time of the packet that it repeats, and copies of this node's keep theirs, unless the user has seen a later one.
//!
//! The far end, though, reads from the echo which of its packets arrived (section 4.1; RFC 3522): it would take every
//! repetition for one that was not needed, and the time since the first attempt for a round trip. So the echo of a packet
//! that got another time here becomes that of the far end's own again.

use std::sync::Arc;

use crate::flow::Kept;
use crate::packet::{self, Parsed, Segment};

/// What is known of a flow's timestamps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    /// The latest that the user has echoed: what is older is thrown away there.
    seen: Option<u32>,
    /// What the far end wants to read instead of it.
    told: Option<u32>,
}

impl Times {
    /// The far end's packet with the data from some position on has come: gives it the time of `before`, which is the packet
    /// that is kept of it, or the one behind it where there was no room in a queue for the first. Where neither is, it keeps
    /// its own.
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

    /// A copy is about to be sent: if the user has seen a later time than the copy's, it gets that one.
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

    /// An acknowledgement of the user's: puts the far end's own time into it. `first` is what is kept of the packet that the
    /// user had asked for before, if it has arrived now; the echo is that packet's, whatever else has (section 4.3). Only the
    /// latest acknowledgements (`is_latest`) say what the user has seen: no older one can have a later time.
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
            (self.seen, self.told) = (Some(echo), None);
        }
        if self.seen != Some(echo) {
            return;
        }
        if let Some(first) = first.filter(|first| first.timestamp == Some(echo)) {
            self.told = first.theirs;
        }
        if let Some(told) = self.told.filter(|told| *told != echo) {
            packet::set_timestamp_echo(packet, segment, told);
            segment.options.timestamps = Some((value, told));
        }
    }
}

/// Of two timestamps, which wrap around.
fn is_later(one: u32, other: u32) -> bool {
    one.wrapping_sub(other) as i32 > 0
}
