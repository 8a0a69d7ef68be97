//! Decides when a carrier's TCP acknowledges at once.
//!
//! TCP waits 40 ms or longer for data that can carry an acknowledgment (TCP_DELACK_MIN in Linux;
//! RFC 9293, section 3.8.6.3). The peer counts that wait as a part of the round trip. It then
//! cannot know which of several paths is the shortest while they only carry occasional requests.

use crate::{Instant, TcpInfo};

/// More segments than this without a pause are a flow: an initial window (RFC 6928).
const FLOW: u64 = 10;

/// Data that has arrived on a carrier and may not be acknowledged yet.
#[derive(Clone, Debug)]
pub(crate) struct Acknowledgments {
    /// The data since the last transmission is too short for TCP to acknowledge it at once.
    is_owed: bool,
    /// When data last arrived, and how many bytes have arrived since a pause of a round trip.
    last: Instant,
    burst: u64,
}

impl Acknowledgments {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            is_owed: false,
            last: now,
            burst: 0,
        }
    }

    /// Notes that `len` bytes have arrived.
    ///
    /// TCP acknowledges every second segment at once, and in a flow one segment makes no
    /// difference.
    pub(crate) fn arrived(&mut self, len: u64, info: &TcpInfo, now: Instant) {
        if now.saturating_sub(self.last) >= info.srtt {
            self.burst = 0;
        }
        self.last = now;
        self.burst += len;
        let mss = u64::from(info.snd_mss);
        self.is_owed = len < 2 * mss && self.burst < FLOW * mss;
    }

    /// Notes a transmission, which carries the acknowledgment.
    pub(crate) fn sent(&mut self) {
        self.is_owed = false;
    }

    /// Whether TCP should acknowledge now; true once for each arrival.
    pub(crate) fn take_due(&mut self, info: &TcpInfo) -> bool {
        // With more than a few segments in flight, data that can carry the acknowledgment follows
        // soon.
        let flows = info.unacked_bytes > 2 * u64::from(info.snd_mss);
        let is_due = self.is_owed && !flows;
        self.is_owed &= !is_due;
        is_due
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::START;

    #[test]
    fn tcp_acknowledges_a_flow_until_it_pauses() {
        let mut info = TcpInfo {
            srtt: Duration::from_secs(3600),
            snd_mss: 1000,
            ..TcpInfo::default()
        };
        let mut acknowledgments = Acknowledgments::new(START);
        let owes: Vec<bool> = (0..20)
            .map(|_| {
                acknowledgments.arrived(900, &info, START);
                acknowledgments.is_owed
            })
            .collect();
        // As long as they are fewer bytes than ten segments.
        assert_eq!(owes, [vec![true; 11], vec![false; 9]].concat());
        info.srtt = Duration::ZERO;
        acknowledgments.arrived(900, &info, START);
        assert!(acknowledgments.is_owed, "after a pause of a round trip");
        acknowledgments.arrived(2000, &info, START);
        assert!(!acknowledgments.is_owed, "TCP acknowledges two at once");
    }

    #[test]
    fn an_acknowledgment_is_requested_once_and_not_in_a_flow() {
        let mut info = TcpInfo {
            snd_mss: 1000,
            ..TcpInfo::default()
        };
        let mut acknowledgments = Acknowledgments::new(START);
        assert!(!acknowledgments.take_due(&info), "nothing has arrived");
        acknowledgments.arrived(100, &info, START);
        info.unacked_bytes = 2001;
        assert!(!acknowledgments.take_due(&info));
        info.unacked_bytes = 2000;
        assert!(acknowledgments.take_due(&info));
        assert!(!acknowledgments.take_due(&info));
        acknowledgments.arrived(100, &info, START);
        acknowledgments.sent();
        assert!(!acknowledgments.take_due(&info));
    }
}
