//! What of an acknowledgement the far end is told: its number, window, time and SACK blocks, or nothing.

use std::time::Duration;

use super::{Edge, Tracked};
use crate::Instant;
use crate::flow::Acknowledgement;
use crate::packet::{self, SackBlocks, Segment};
use crate::seq::{self, Position};

/// What the far end was told is told again after so long, if the user says it again: no sender's timer runs out before (Linux has 200 ms
/// at the least).
const LONGEST_SILENCE: Duration = Duration::from_millis(100);

impl Edge {
    /// Whether it answers something that was sent again from here, and says nothing that the far end was not told of late.
    ///
    /// A user answers what it has already with the number that it has said before (RFC 9293, section 3.10.7.4). Of a packet that was
    /// only late and is sent again, two arrive, so that there is one such answer to each. It is about no hole where the user has all
    /// that the node has received, or all but the newest packet. But the far end may have sent more by then, and takes the third of
    /// them for a loss (RFC 5681, section 3.2); what it sends again thereupon is answered so, too. It may have missed the number, so
    /// that it is told it again, but later. What a user asks (keepalives, probes of a closed window) has a number of its own before
    /// the next.
    pub(super) fn is_unneeded(
        &self,
        tracked: &Tracked,
        segment: &Segment,
        acknowledgement: Acknowledgement,
        now: Instant,
    ) -> bool {
        let is_about_no_hole = match acknowledgement {
            Acknowledgement::Repeated => true,
            Acknowledgement::Duplicate { window_moves } => {
                !window_moves && misses_the_newest(tracked)
            }
            _ => false,
        };
        let wait = self.repair_wait().min(LONGEST_SILENCE);
        let within = |at: Option<Instant>, wait| at.is_some_and(|at| now < at + wait);
        is_about_no_hole
            && within(tracked.told, wait)
            && within(tracked.again, self.repair_wait() * 2)
            && !segment.flags.marked
            && tracked.flow.user_next() == Some(segment.sequence)
            && told_blocks(tracked, segment, tracked.flow.locate(segment.ack)).is_empty()
    }

    /// Passes a duplicate on. After a boost it goes as it came, as in line 31: it is below what the far end was told, who
    /// ignores it. As a duplicate of what it was told it would ask for a packet that nobody misses, while the one that is
    /// missing is this node's to send.
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

    /// Makes an acknowledgement consistent with what the far end was told before: number, window, SACK blocks (`silent`:
    /// none of them) and, where `echo` is given, the timestamp.
    pub(super) fn rewrite(
        &self,
        tracked: &Tracked,
        packet: &mut [u8],
        segment: &Segment,
        echo: Option<u32>,
        silent: bool,
    ) {
        let flow = &tracked.flow;
        let (ack, told) = (flow.locate(segment.ack), flow.told());
        if told > ack {
            packet::set_ack(packet, segment, seq::wrapped(told));
            // The same right edge from a later number on: the far end may send no more than the user permitted.
            let scale = flow.scale().unwrap_or(0);
            let window = (u64::from(segment.window) << scale).saturating_sub(told - ack) >> scale;
            packet::set_window(packet, segment, window as u16);
        }
        if let Some(echo) = echo {
            packet::set_timestamp_echo(packet, segment, echo);
        }
        if !segment.options.sack.is_empty() {
            let blocks = if silent {
                SackBlocks::default()
            } else {
                told_blocks(tracked, segment, ack)
            };
            if blocks != segment.options.sack {
                packet::set_sack_blocks(packet, segment, &blocks);
            }
        }
    }
}

/// Whether the node knows of nothing behind the missing packet. Then duplicates are no sign of a hole, as far as it can tell: they answer
/// what came once more. A FIN counts as something behind it.
fn misses_the_newest(tracked: &Tracked) -> bool {
    let flow = &tracked.flow;
    let missing = flow.acked().and_then(|acked| tracked.copies.holding(acked));
    missing.is_some_and(|(_, kept)| kept.end == flow.highest())
}

/// The SACK blocks that the far end is told: what lies below its acknowledgement goes, or it would be read as the report of
/// something received twice (RFC 2883, section 4); so do such reports of what was sent again from here.
fn told_blocks(tracked: &Tracked, segment: &Segment, ack: Position) -> SackBlocks {
    let told = tracked.flow.told();
    let mut blocks = SackBlocks::default();
    for (left, right) in segment.options.sack.iter() {
        let (left, right) = (seq::near(ack, left), seq::near(ack, right));
        if right <= ack {
            let ours = tracked.repaired.total_within(left..right.max(left)) > 0;
            if !ours {
                blocks.push(seq::wrapped(left), seq::wrapped(right));
            }
        } else if right > told && right > left {
            blocks.push(seq::wrapped(left.max(told)), seq::wrapped(right));
        }
    }
    blocks
}
