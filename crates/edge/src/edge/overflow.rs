//! Packets that find all queues full.
//!
//! A far end that fills the queues must slow down, and a lost packet shows it that. But at the end
//! of its slow start it sends as many packets too many as the queues hold. Without SACK it repairs
//! them one per round trip (RFC 6582), and its window stays small for seconds. So the node drops
//! only the first of them, for which the far end reduces its window once, as for any number of
//! losses in one window. It keeps the others, and sends them when the far end repeats the first,
//! hence has slowed down. Packets that find the queues full after that follow at once.
//!
//! Packets behind the first one may make the user's window grow. Such acknowledgments are no
//! duplicates (RFC 5681), and the far end would wait for its timer. So the window that the user had
//! before is passed on until the first packet arrives.
//!
//! From the echo of a timestamp older than its repetition, the far end would conclude that the
//! reduction was unnecessary, and undo it (RFC 3522): it would fill the queues without end. So data
//! from before the repetition is echoed as if sent with it.
//!
//! A far end with SACK repairs any number of losses within a round trip; it needs no help.

use std::sync::Arc;

use super::Edge;
use super::down::Data;
use crate::flow::{FlowId, Kept, Phase};
use crate::packet::Segment;
use crate::{Instant, LinkId, Sack};

impl Edge {
    /// No link has room for a packet.
    pub(super) fn keep_dropped(
        &mut self,
        data: Data,
        segment: &Segment,
        packet: Arc<[u8]>,
        now: Instant,
    ) {
        if !self.visible() || !self.config.visible.proof {
            return;
        }
        let room = self.has_memory(packet.len(), now);
        let most = self.config.kept_per_flow;
        let strips = self.config.sack == Sack::Strip;
        let Data {
            flow,
            position,
            theirs,
            is_new,
        } = data;
        let end = position + segment.len as u64;
        let has_slowed = self.with(flow, now, |_, tracked| {
            let flow = &tracked.flow;
            let (highest, open) = (flow.highest(), flow.phase() == Phase::Open);
            let Some(acked) = flow.acked().filter(|acked| *acked < end) else {
                return false;
            };
            if flow.sealed() || !open || !(flow.lacks_sack() || strips) {
                return false;
            }
            if !is_new {
                tracked.recovers_until = highest;
                tracked.note_repetition(position..end, theirs);
            } else if tracked.signal.is_none_or(|signal| signal < acked) {
                tracked.signal = Some(position);
                tracked.window_at_signal = None;
                return false;
            }
            let has_slowed = !is_new
                || tracked
                    .signal
                    .is_some_and(|signal| signal < tracked.recovers_until);
            if let Some(before) = tracked.copies.at_mut(position)
                && before.end >= end
            {
                (before.again, before.repeated, before.theirs) = (true, true, theirs);
                return has_slowed; // the node repairs it if it is lost
            }
            let fits = room && tracked.copies.bytes() + packet.len() <= most;
            // A copy of acknowledged data stays unchanged.
            if !fits || tracked.flow.owed() > 0 && tracked.flow.ack_sent() > position {
                return has_slowed;
            }
            tracked.copies.keep(
                position,
                Kept {
                    end,
                    packet,
                    timestamp: segment.options.timestamps.map(|(value, _)| value),
                    theirs,
                    sent: (now, LinkId(0)),
                    urgent: false,
                    again: true,
                    repeated: !is_new,
                    repaired: 0,
                    waits: true,
                },
            );
            has_slowed
        });
        if has_slowed == Some(true) {
            self.send_waiting(flow, now);
        }
    }

    /// The far end has repeated a packet, so it has slowed down: the packets that had no room
    /// follow, as room appears.
    pub(super) fn send_waiting(&mut self, flow: FlowId, now: Instant) {
        let waiting = self.in_passing(flow, |_, tracked| tracked.copies.take_waiting());
        let waiting = waiting.unwrap_or_default().into_iter();
        self.unsent
            .extend(waiting.map(|(position, sent)| (flow, position, sent)));
        self.send_unsent(now);
    }

    /// Whether there is memory for a copy of `bytes`.
    pub(super) fn has_memory(&mut self, bytes: usize, now: Instant) -> bool {
        if self.kept + bytes > self.config.kept {
            self.make_room(bytes, now);
        }
        self.kept + bytes <= self.config.kept
    }
}
