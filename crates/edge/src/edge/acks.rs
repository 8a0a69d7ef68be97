//! Rewrites or drops the acknowledgments sent to the far end: number, window, timestamp and SACK
//! blocks.

use std::time::Duration;

use super::{Edge, Tracked};
use crate::Instant;
use crate::flow::Acknowledgment;
use crate::packet::{self, SackBlocks, Segment};
use crate::seq::{self, Position};

/// A repeated acknowledgment is passed on again after this time. No sender's timer expires earlier
/// (Linux: at least 200 ms).
const REPEAT_AFTER: Duration = Duration::from_millis(100);

impl Edge {
    /// Whether an acknowledgment only answers a copy from the node and repeats what the far end
    /// received recently.
    ///
    /// A user answers data that it already has with its previous acknowledgment number (RFC 9293,
    /// section 3.10.7.4). When a packet was only late and is sent again, two copies arrive, and
    /// each such pair causes one answer. The answer reports no gap if the user has all data that
    /// the node has received, or all but the newest packet. But the far end may have sent more by
    /// then. It treats the third duplicate as a loss (RFC 5681, section 3.2), and its
    /// retransmission causes another such answer. The far end may have missed the number, so it is
    /// repeated, but later. Packets that request an answer (keepalives, probes of a closed window)
    /// have the number before the next one.
    pub(super) fn is_unneeded(
        &self,
        tracked: &Tracked,
        segment: &Segment,
        acknowledgment: Acknowledgment,
        now: Instant,
    ) -> bool {
        let is_about_no_gap = match acknowledgment {
            Acknowledgment::Repeated => true,
            Acknowledgment::Duplicate { window_moves } => {
                !window_moves && only_newest_is_missing(tracked)
            }
            _ => false,
        };
        let wait = self.repair_wait().min(REPEAT_AFTER);
        let within = |at: Option<Instant>, wait| at.is_some_and(|at| now < at + wait);
        is_about_no_gap
            && within(tracked.last_passed, wait)
            && within(tracked.again, self.repair_wait() * 2)
            && !segment.flags.marked
            && tracked.flow.user_next() == Some(segment.sequence)
            && blocks_for_far(tracked, segment, tracked.flow.locate(segment.ack)).is_empty()
    }

    /// Passes a duplicate on. After a boost it is passed on unchanged, as in line 31: its number is
    /// below the last one sent to the far end, which ignores it. Rewritten to that last number, it
    /// would request a packet that is not missing, while the node itself must send the missing one.
    pub(super) fn pass_duplicate(
        &self,
        tracked: &Tracked,
        packet: &mut [u8],
        segment: &Segment,
        silent: bool,
    ) {
        if tracked.flow.owed() == 0 {
            self.rewrite(tracked, packet, segment, None, silent);
        } else if !segment.options.sack.is_empty() {
            packet::set_sack_blocks(packet, segment, &SackBlocks::default());
        }
    }

    /// Makes an acknowledgment consistent with those sent to the far end before: number, window,
    /// SACK blocks (`silent` removes them) and, if `echo` is given, the timestamp.
    pub(super) fn rewrite(
        &self,
        tracked: &Tracked,
        packet: &mut [u8],
        segment: &Segment,
        echo: Option<u32>,
        silent: bool,
    ) {
        let flow = &tracked.flow;
        let (ack, last_sent) = (flow.locate(segment.ack), flow.ack_sent());
        if last_sent > ack {
            packet::set_ack(packet, segment, seq::wrapped(last_sent));
            // Keeps the right edge of the window for the higher number: the far end may not send
            // more than the user permitted.
            let scale = flow.scale().unwrap_or(0);
            let window =
                (u64::from(segment.window) << scale).saturating_sub(last_sent - ack) >> scale;
            packet::set_window(packet, segment, window as u16);
        }
        if let Some(echo) = echo {
            let echo = tracked.echo(last_sent.max(ack), echo);
            packet::set_timestamp_echo(packet, segment, echo);
        }
        if !segment.options.sack.is_empty() {
            let blocks = if silent {
                SackBlocks::default()
            } else {
                blocks_for_far(tracked, segment, ack)
            };
            if blocks != segment.options.sack {
                packet::set_sack_blocks(packet, segment, &blocks);
            }
        }
    }
}

/// Whether the node has received nothing behind the missing packet. Then duplicates do not indicate
/// a gap: they answer packets that arrived twice. A FIN counts as data behind it.
fn only_newest_is_missing(tracked: &Tracked) -> bool {
    let flow = &tracked.flow;
    let missing = flow.acked().and_then(|acked| tracked.copies.holding(acked));
    missing.is_some_and(|(_, kept)| kept.end == flow.highest())
}

/// The SACK blocks for the far end. Blocks below its acknowledgment are removed, since it would
/// read them as reports of duplicates (RFC 2883, section 4). Genuine reports of duplicates caused
/// by the node's copies are removed, too.
fn blocks_for_far(tracked: &Tracked, segment: &Segment, ack: Position) -> SackBlocks {
    let last_sent = tracked.flow.ack_sent();
    let mut blocks = SackBlocks::default();
    for (left, right) in segment.options.sack.iter() {
        let (left, right) = (seq::near(ack, left), seq::near(ack, right));
        if right <= ack {
            let ours = tracked.repaired.total_within(left..right.max(left)) > 0;
            if !ours {
                blocks.push(seq::wrapped(left), seq::wrapped(right));
            }
        } else if right > last_sent && right > left {
            blocks.push(seq::wrapped(left.max(last_sent)), seq::wrapped(right));
        }
    }
    blocks
}
