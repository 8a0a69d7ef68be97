//! When a carrier's TCP is to acknowledge at once.
//!
//! It would wait for 40 ms and more for something to send an acknowledgement with (TCP_DELACK_MIN in Linux; RFC 9293, section
//! 3.8.6.3), which the peer takes for the round trip: of paths that carry a request now and then it would not know which one is
//! the shortest.

use std::time::Instant;

use socket2::SockRef;
use tokio::net::TcpStream;

use crate::tcp_info::TcpInfo;

/// More segments than this without a pause are a flow of them: an initial window (RFC 6928).
const FLOW: u64 = 10;

/// What has arrived on a carrier and may not be acknowledged yet.
#[derive(Debug)]
pub(super) struct Acknowledgements {
    /// So little has arrived since something was last sent that TCP may wait.
    is_owed: bool,
    /// When something last arrived, and how much since nothing had for a round trip.
    last: Instant,
    burst: u64,
}

impl Acknowledgements {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            is_owed: false,
            last: now,
            burst: 0,
        }
    }

    /// So many bytes have arrived.
    ///
    /// Of every second segment TCP tells at once, and in a stream of them a segment more or less makes no difference.
    pub(super) fn arrived(&mut self, len: u64, info: &TcpInfo) {
        let now = Instant::now();
        if now.duration_since(self.last) >= info.srtt {
            self.burst = 0;
        }
        self.last = now;
        self.burst += len;
        let mss = u64::from(info.snd_mss);
        self.is_owed = len < 2 * mss && self.burst < FLOW * mss;
    }

    /// Something was sent, and the acknowledgement with it.
    pub(super) fn sent(&mut self) {
        self.is_owed = false;
    }

    /// Has TCP acknowledge what is owed.
    pub(super) fn tell(&mut self, tcp: &TcpStream, info: &TcpInfo) {
        // Where more is under way than a word now and then, there soon is something to send it with.
        let flows = info.unacked_bytes > 2 * u64::from(info.snd_mss);
        if self.is_owed && !flows {
            self.is_owed = false;
            // One that cannot is as before.
            let _ = SockRef::from(tcp).set_tcp_quickack(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::fixture::carrier;
    use super::*;

    /// Else TCP waits for 40 ms, by far more than loopback takes.
    #[tokio::test]
    async fn what_little_arrives_is_acknowledged_before_a_second_segment() {
        let (mut from, mut to) = carrier().await;
        let mut round_trips = Vec::new();
        for message in 0..100 {
            from.send(&[7; 100]).unwrap();
            std::future::poll_fn(|cx| from.poll_writable(cx))
                .await
                .unwrap();
            let mut received = 0;
            while received < 100 {
                let some = std::future::poll_fn(|cx| to.poll_receive(cx, 1000, |_| {}));
                received += some.await.unwrap();
            }
            to.refresh(Instant::now());
            to.acknowledge();
            while from.info.unacked_bytes > 0 || from.handed > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
                from.refresh(Instant::now());
            }
            // TCP acknowledges the first ones at once in any case.
            if message >= 60 {
                round_trips.push(from.info.srtt);
            }
        }
        round_trips.sort();
        let median = round_trips[round_trips.len() / 2];
        assert!(median < Duration::from_millis(20), "{round_trips:?}");
    }

    #[tokio::test]
    async fn a_flow_of_segments_is_left_to_tcp_until_it_pauses() {
        let (carrier, _peer) = carrier().await;
        let mut info = carrier.info;
        (info.srtt, info.snd_mss) = (Duration::from_secs(3600), 1000);
        let mut acknowledgements = Acknowledgements::new(Instant::now());
        let owes: Vec<bool> = (0..20)
            .map(|_| {
                acknowledgements.arrived(900, &info);
                acknowledgements.is_owed
            })
            .collect();
        // As long as they are fewer bytes than ten segments.
        assert_eq!(owes, [vec![true; 11], vec![false; 9]].concat());
        info.srtt = Duration::ZERO;
        acknowledgements.arrived(900, &info);
        assert!(acknowledgements.is_owed, "a pause of a round trip");
        acknowledgements.arrived(2000, &info);
        assert!(!acknowledgements.is_owed, "TCP acknowledges two at once");
    }
}
