//! Loss detection without SACK: three duplicate acknowledgments (RFC 5681, section 3.2), then
//! partial acknowledgments (RFC 6582). The counters are those of Linux (`tcp_newreno_mark_lost`
//! and its callees).

use super::News;
use crate::tcp::Tcp;
use crate::tcp::info::CaState;
use crate::tcp::packet::Packet;

/// Duplicates that indicate a loss (TCP_FASTRETRANS_THRESH). Linux raises it after reordering,
/// which is not modeled.
const DUPLICATES: u32 = 3;

impl Tcp {
    /// Whether a packet is a duplicate acknowledgment (RFC 5681, section 2): an unknown segment
    /// arrived beyond a gap, and the packet carries nothing new, not even a wider window.
    pub(super) fn is_duplicate(&self, packet: &Packet) -> bool {
        !self.sack
            && packet.len == 0
            && packet.ack == self.acked
            && packet.ack + u64::from(packet.window) <= self.window_end
            && !self.board.is_empty()
    }

    /// Counts a duplicate. After a timeout, duplicates are caused by spurious retransmissions (RFC
    /// 6582, section 3.2).
    pub(super) fn count_duplicate(&mut self, news: &mut News) {
        if self.recovery.state != CaState::Loss {
            self.board.count_duplicate();
            (news.counted, news.delivered) = (true, 1);
        }
    }

    /// Whether all data in flight at the detection of the loss has arrived, and nothing beyond it.
    /// Until something has, all duplicates are caused by retransmissions (Linux:
    /// tcp_is_non_sack_preventing_reopen).
    pub(super) fn is_at_the_end_without_sack(&mut self) -> bool {
        let holds = !self.sack
            && self.recovery.is_repairing()
            && self.acked == self.recovery.high
            && self.board.lost() == 0;
        if holds {
            self.board.forget_duplicates();
        }
        holds
    }

    /// Marks lost the first segment after three duplicates, and the segment at which a partial
    /// acknowledgment stops.
    pub(super) fn find_lost_by_duplicates(&mut self, news: &News) {
        let is_first = !self.recovery.is_repairing();
        if is_first && news.advanced {
            self.board.forget_duplicates();
        }
        let is_partial = self.recovery.state == CaState::Recovery && news.advanced;
        if is_partial || is_first && self.board.sacked() >= DUPLICATES {
            self.board.lose_head();
        }
    }
}
