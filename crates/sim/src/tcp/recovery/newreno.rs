//! What is lost where SACK was not agreed on: three duplicate acknowledgements (RFC 5681, section 3.2), and after them what
//! partial acknowledgements stop at (RFC 6582). The counts are those of Linux (`tcp_newreno_mark_lost` and what it calls).

use super::News;
use crate::tcp::Tcp;
use crate::tcp::info::CaState;
use crate::tcp::packet::Packet;

/// Duplicates that are a loss (TCP_FASTRETRANS_THRESH). Linux raises it where it has seen reordering; that is not modelled.
const DUPLICATES: u32 = 3;

impl Tcp {
    /// Whether an acknowledgement says that something has arrived behind a gap, and not what (RFC 5681, section 2): nothing
    /// is new in it, not even a wider window.
    pub(super) fn is_duplicate(&self, packet: &Packet) -> bool {
        !self.sack
            && packet.len == 0
            && packet.ack == self.acked
            && packet.ack + u64::from(packet.window) <= self.window_end
            && !self.board.is_empty()
    }

    /// Counts it. After a timeout duplicates are of what was sent again for nothing (RFC 6582, section 3.2).
    pub(super) fn count_duplicate(&mut self, news: &mut News) {
        if self.recovery.state != CaState::Loss {
            self.board.count_duplicate();
            (news.counted, news.delivered) = (true, 1);
        }
    }

    /// Everything that was under way when the loss was found has arrived, and nothing behind it: until something has, all
    /// duplicates are of what was sent again (Linux: tcp_is_non_sack_preventing_reopen).
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

    /// The first segment is lost after three duplicates, and what a partial acknowledgement stops at.
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
