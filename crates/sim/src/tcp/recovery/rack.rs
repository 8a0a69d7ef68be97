//! Loss detection by transmission time (RFC 8985, RACK).

use super::News;
use crate::clock::Nanos;
use crate::tcp::Tcp;
use crate::tcp::scoreboard::Segment;

/// Segments received beyond a gap from which on reordering is not tolerated
/// (TCP_FASTRETRANS_THRESH).
const DUPLICATES: u32 = 3;

/// RFC 8985, section 5.
#[derive(Clone, Debug, Default)]
pub(super) struct Rack {
    /// Transmission time of the most recently sent segment among those delivered, and its end.
    pub(super) sent: Nanos,
    pub(super) end: u64,
    /// Its round-trip time.
    pub(super) rtt: Nanos,
    /// Reordering was observed.
    pub(super) reordered: bool,
}

impl Rack {
    /// RFC 8985, section 6.2, step 2.
    pub(super) fn update(&mut self, segment: &Segment, least: Nanos, now: Nanos) {
        let rtt = now - segment.sent;
        if segment.transmissions > 1 && rtt < least {
            // The acknowledgment is for an earlier transmission.
            return;
        }
        if (segment.sent, segment.end()) > (self.sent, self.end) {
            (self.sent, self.end, self.rtt) = (segment.sent, segment.end(), rtt);
        }
    }
}

impl Tcp {
    /// RFC 8985, section 6.2, step 5: a segment sent before a delivered one, and long enough ago,
    /// is lost. Returns the time until the next one is lost, if nothing arrives.
    pub(super) fn find_lost(&mut self, now: Nanos) -> Option<Nanos> {
        if self.recovery.rack.sent == 0 {
            return None;
        }
        let window = self.reordering_window();
        let rack = &self.recovery.rack;
        while let Some((id, segment)) = self.board.oldest() {
            if (segment.sent, segment.end()) >= (rack.sent, rack.end) {
                break;
            }
            let lost_at = segment.sent + rack.rtt + window;
            if lost_at > now {
                return Some(lost_at - now);
            }
            self.board.lose(id);
        }
        None
    }

    /// RFC 8985, section 6.2, step 4.
    pub(super) fn reordering_window(&self) -> Nanos {
        let certain = self.recovery.is_repairing() || self.board.sacked() >= DUPLICATES;
        if !self.recovery.rack.reordered && certain {
            return 0;
        }
        (self.rtt.least() / 4).min(self.rtt.srtt())
    }

    /// Linux: tcp_rack_reo_timeout.
    pub(in crate::tcp) fn on_reordering_timeout(&mut self, now: Nanos) {
        let wait = self.find_lost(now);
        if self.board.lost() > 0 && !self.recovery.is_repairing() {
            self.enter_recovery(now);
            self.control_window(
                &News {
                    delivered: 1,
                    ..News::default()
                },
                true,
                now,
            );
        }
        match wait {
            Some(wait) => self.rearm_reordering(wait, now),
            None => self.rearm_timeout(now),
        }
    }
}
