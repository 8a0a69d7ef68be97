//! Acknowledgments of a closed gap, released at the pace of the links.
//!
//! When the missing packet arrives, the user acknowledges all data held behind it at once. The far
//! end would answer with as much new data at once, which overflows the queues. So the node passes
//! such an acknowledgment on in parts: first as much as the queues have room for, then at the rate
//! at which they drain. It never adds anything: each part acknowledges less than the user did, and
//! permits no more.

use std::time::Duration;

use super::{Edge, Tracked};
use crate::Instant;
use crate::flow::Phase;
use crate::packet::{self, SackBlocks, Segment};
use crate::queue::LinkQueue;
use crate::seq::{self, Position};

/// Least time between two parts.
const INTERVAL: Duration = Duration::from_millis(1);

/// A release ends within about this time, whatever the links' rates are. No sender's timer expires
/// earlier (Linux: at least 200 ms).
const LONGEST: Duration = Duration::from_millis(100);

/// Segments that are acknowledged at once in any case: the initial window (RFC 6928).
const AT_ONCE: u64 = 10;

/// An acknowledgment that is passed on in parts.
#[derive(Clone, Debug)]
pub(super) struct Release {
    /// The user's last acknowledgment, without SACK blocks.
    pub(super) packet: Vec<u8>,
    segment: Segment,
    /// The highest number passed on.
    sent: Position,
    /// When the last part was passed on, and when the next one is due.
    last: Instant,
    pub(super) at: Instant,
    /// When the release ends at the latest.
    until: Instant,
}

impl Edge {
    /// Passes an acknowledgment of `packet` on in parts if it acknowledges much more than
    /// `conveyed`, the highest number sent to the far end before. Returns whether it did.
    pub(super) fn release(
        &mut self,
        tracked: &mut Tracked,
        packet: &[u8],
        segment: &Segment,
        conveyed: Option<Position>,
        now: Instant,
    ) -> bool {
        let flow = &tracked.flow;
        let (Some(acked), Some(conveyed)) = (flow.acked(), conveyed) else {
            return false;
        };
        let mss = u64::from(flow.mss());
        let is_plain = segment.len == 0
            && !(segment.flags.syn || segment.flags.fin || segment.flags.rst)
            && !segment.flags.marked;
        let before = tracked.release.take();
        if !is_plain
            || flow.phase() != Phase::Open
            || conveyed < tracked.recovers_until
            || before.is_none() && acked <= conveyed
        {
            return false;
        }
        let sent = before.as_ref().map_or(conveyed, |release| release.sent);
        let room: usize = self.up_links().map(LinkQueue::available).sum();
        let at_once = (room as u64 / 2 / self.busy.len().max(1) as u64).max(AT_ONCE) * mss;
        if before.is_none() && acked - sent <= at_once {
            return false;
        }
        let (last, until, at_once) = match &before {
            Some(release) => (release.last, release.until, 0),
            None => (now, now + LONGEST, at_once),
        };
        let at = before.as_ref().map_or(now + INTERVAL, |release| release.at);
        let mut packet = packet.to_vec();
        packet::set_sack_blocks(&mut packet, segment, &SackBlocks::default());
        let mut segment = segment.clone();
        segment.options.sack = SackBlocks::default();
        tracked.release = Some(Box::new(Release {
            packet,
            segment,
            sent,
            last,
            at,
            until,
        }));
        if at_once > 0 {
            self.pass_part(tracked, sent + at_once, now);
        }
        true
    }

    /// Passes the next part on if it is due.
    pub(super) fn continue_release(&mut self, tracked: &mut Tracked, now: Instant) {
        let Some(release) = tracked.release.as_ref().filter(|release| release.at <= now) else {
            return;
        };
        let elapsed = now.saturating_sub(release.last);
        let rate: f64 = self.up_links().filter_map(LinkQueue::rate).sum();
        let drained = (rate * elapsed.as_secs_f64()) as u64;
        let left = tracked
            .flow
            .acked()
            .unwrap_or(0)
            .saturating_sub(release.sent);
        let end = match now < release.until {
            true => release.sent + drained.min(left),
            false => release.sent + left,
        };
        self.pass_part(tracked, end, now);
    }

    fn pass_part(&mut self, tracked: &mut Tracked, end: Position, now: Instant) {
        let Some(acked) = tracked.flow.acked() else {
            return;
        };
        let Some(release) = &mut tracked.release else {
            return;
        };
        let scale = tracked.flow.scale().unwrap_or(0);
        // Windows count in units of the scale. A part that ends a whole number of them before the
        // user's number states the right edge of the user's window exactly; rounded down, the edge
        // would move back.
        let units = acked.saturating_sub(end).div_ceil(1 << scale);
        let number = acked.saturating_sub(units << scale);
        release.at = now + INTERVAL;
        if number > release.sent {
            (release.sent, release.last) = (number, now);
            let mut packet = release.packet.clone();
            let segment = &release.segment;
            packet::set_ack(&mut packet, segment, seq::wrapped(number));
            let behind = tracked.flow.locate(segment.ack).saturating_sub(number);
            let window = (u64::from(segment.window) << scale) + behind;
            packet::set_window(&mut packet, segment, (window >> scale).min(0xffff) as u16);
            tracked.last_passed = Some(now);
            self.far.push_back(packet);
        }
        if number >= acked {
            tracked.release = None;
        }
    }

    fn up_links(&self) -> impl Iterator<Item = &LinkQueue> {
        self.links.iter().filter(|link| link.is_up())
    }
}
