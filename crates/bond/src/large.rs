//! Detects whether packets of full size get through. If a router drops packets that are too large
//! for its next link, and its reports (ICMP, RFC 1191 and RFC 8201) are lost, small packets arrive
//! and large ones never do.

use crate::{CaState, TcpInfo};

/// Observations of a carrier's large segments.
#[derive(Debug, Default)]
pub(crate) struct Large {
    /// The peer has acknowledged a large segment.
    are_delivered: bool,
    /// Bytes acknowledged and segments delivered at the last observation.
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

    /// Whether only large segments seem to be lost, on a carrier without progress: none has ever
    /// got through in the stalled direction, and enough data waits there to fill one.
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

/// The size from which a segment counts as large: above the packets of the next smaller size in use
/// ([`crate::Packets`]), and below the segments into which TCP divides a flow of bytes.
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

    /// A carrier whose latest bytes are lost and retransmitted.
    fn stalled(sent: u64, acked: u64, delivered: u32) -> TcpInfo {
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
    fn large_segments_are_lost_if_only_small_ones_were_acknowledged() {
        let mut large = Large::default();
        large.observe(&stalled(3_000, 3_000, 10));
        assert!(large.are_lost(&stalled(20_000, 3_000, 10)));
        // A request that waits for its answer is small.
        assert!(!large.are_lost(&stalled(3_100, 3_000, 10)));
        large.observe(&stalled(20_000, 3_000 + 1448, 11));
        assert!(!large.are_lost(&stalled(20_000, 3_000 + 1448, 11)));
    }

    #[test]
    fn the_peers_lost_segments_are_detected_from_received_ones() {
        let (large, mut info) = (Large::default(), info());
        assert!(large.are_lost(&info));
        info.rcv_mss = 1228;
        assert!(large.are_lost(&info), "the segments are small, too");
        info.rcv_mss = 1448;
        assert!(!large.are_lost(&info));
    }
}
