//! Whether packets of full size get through: where a router on the way drops those that are too large for its next link, and
//! its word for that (ICMP, RFC 1191 and RFC 8201) is lost, small ones do and large ones never.

use crate::{CaState, TcpInfo};

/// What is known of a carrier's large segments.
#[derive(Debug, Default)]
pub(crate) struct Large {
    /// The peer has acknowledged some.
    are_delivered: bool,
    /// Bytes acknowledged and segments delivered when that was last looked at.
    acked: u64,
    delivered: u32,
}

impl Large {
    /// Takes a newer sample into account.
    pub(crate) fn observe(&mut self, info: &TcpInfo) {
        if self.are_delivered {
            return;
        }
        let bytes = info.bytes_acked.saturating_sub(self.acked);
        let segments = info.delivered.saturating_sub(self.delivered);
        (self.acked, self.delivered) = (info.bytes_acked, info.delivered);
        self.are_delivered = segments > 0 && bytes >= u64::from(segments) * large(info);
    }

    /// Whether it looks as if large segments were lost and none else, on a carrier that makes no progress: none has ever got
    /// through in the direction that is stuck, and enough is waiting there to fill one.
    pub(crate) fn are_lost(&self, info: &TcpInfo) -> bool {
        let is_sending = info.unacked_bytes > 0;
        if is_sending && (info.ca_state == CaState::Loss || info.backoff > 0) {
            let sent = info.bytes_sent.saturating_sub(info.bytes_retrans);
            let waiting = sent.saturating_sub(info.bytes_acked);
            return !self.are_delivered && waiting >= large(info);
        }
        u64::from(info.rcv_mss) < large(info)
    }
}

/// The least size of a segment that counts as a large one: above what fits into the packets of the next smaller size in use
/// ([`crate::Packets`]), and below what TCP cuts a flow of bytes into.
fn large(info: &TcpInfo) -> u64 {
    u64::from(info.snd_mss) * 7 / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> TcpInfo {
        TcpInfo {
            snd_mss: 1448,
            rcv_mss: 536,
            ..TcpInfo::default()
        }
    }

    /// A carrier whose newest bytes are lost and sent again.
    fn stuck(sent: u64, acked: u64, delivered: u32) -> TcpInfo {
        TcpInfo {
            bytes_sent: sent + 1448,
            bytes_retrans: 1448,
            bytes_acked: acked,
            delivered,
            unacked_bytes: 1448,
            backoff: 2,
            ca_state: CaState::Loss,
            ..info()
        }
    }

    #[test]
    fn large_segments_are_lost_where_small_ones_only_were_acknowledged() {
        let mut large = Large::default();
        large.observe(&stuck(3_000, 3_000, 10));
        assert!(large.are_lost(&stuck(20_000, 3_000, 10)));
        // A question that waits for its answer is a small one.
        assert!(!large.are_lost(&stuck(3_100, 3_000, 10)));
        large.observe(&stuck(20_000, 3_000 + 1448, 11));
        assert!(!large.are_lost(&stuck(20_000, 3_000 + 1448, 11)));
    }

    #[test]
    fn what_the_peer_cannot_send_is_known_by_what_has_arrived() {
        let (large, mut info) = (Large::default(), info());
        assert!(large.are_lost(&info));
        info.rcv_mss = 1228;
        assert!(large.are_lost(&info), "as small ones are");
        info.rcv_mss = 1448;
        assert!(!large.are_lost(&info));
    }
}
