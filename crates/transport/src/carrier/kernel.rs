//! A carrier's socket as required by the policy of [`sumlink_bond`].

use std::net::SocketAddr;

use sumlink_bond::socket::{Report, Socket};
use tokio::net::TcpStream;

use crate::carrier::Moved;
use crate::carrier::pacing;
use crate::carrier::socket::{self, SocketError};
use crate::carrier::tcp_info::{self, TcpInfo};

/// A socket, and the name of its carrier in the log.
#[derive(Debug)]
pub(super) struct Kernel<'a> {
    pub(super) tcp: &'a TcpStream,
    pub(super) path: u32,
    pub(super) link: &'a str,
}

impl Socket for Kernel<'_> {
    type Error = SocketError;

    fn info(&self) -> Option<TcpInfo> {
        tcp_info::sample(self.tcp).ok()
    }

    fn set_notsent_lowat(&mut self, bytes: u32) -> bool {
        socket::set_notsent_lowat(self.tcp, bytes).is_ok()
    }

    fn pace(&mut self) {
        if let Err(error) = pacing::space(self.tcp) {
            let (path, link) = (self.path, self.link);
            tracing::warn!(
                path,
                %link,
                %error,
                "cannot pace the high-RTT path; short queues may overflow"
            );
        }
    }

    fn limit(&mut self, rate: Option<u64>) {
        if let Err(error) = pacing::limit(self.tcp, rate) {
            let (path, link) = (self.path, self.link);
            tracing::warn!(
                path,
                %link,
                %error,
                "cannot limit the sending rate of the path; it ignores limits and calls"
            );
        }
    }

    fn set_congestion(&mut self, name: &str) -> Result<(), SocketError> {
        socket::set_congestion(self.tcp, name)
    }

    fn report(&mut self, report: Report<'_, SocketError>) {
        let (path, link) = (self.path, self.link);
        match report {
            Report::Changed { to, reason } => {
                tracing::info!(
                    path,
                    %link,
                    congestion = to,
                    "congestion control changed: {reason}"
                );
            }
            Report::ChangeRefused { reason, error } => {
                tracing::warn!(
                    path,
                    %link,
                    "cannot change the congestion control ({reason}): {error}"
                );
            }
            Report::SlowStart { window } => {
                tracing::debug!(path, %link, window, "restarting slow start after an outage");
            }
            Report::NoSlowStart { window, error } => {
                tracing::debug!(
                    path,
                    %link,
                    window,
                    %error,
                    "cannot restart slow start after an outage; the window grows slowly"
                );
            }
            Report::Stays { with, error } => {
                tracing::warn!(
                    path,
                    %link,
                    "cannot restore the congestion control; it stays {with}: {error}"
                );
            }
        }
    }
}

/// Bytes that a carrier's packets take on the link, including the headers of TCP and IP with the
/// timestamps that nearly every connection uses (RFC 7323).
pub(super) fn wire_total(info: &TcpInfo, remote: SocketAddr) -> Moved {
    let header = if remote.is_ipv4() { 52 } else { 72 };
    Moved {
        sent: info.bytes_sent + u64::from(info.segs_out) * header,
        received: info.bytes_received + u64::from(info.segs_in) * header,
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;
    use std::time::{Duration, Instant};

    use sumlink_bond::Carrier as Policy;

    use super::super::fixture::carrier;
    use super::*;
    use sumlink_test_support::netns::Netns;

    fn kernel(tcp: &TcpStream) -> Kernel<'_> {
        let (path, link) = (0, "lo");
        Kernel { tcp, path, link }
    }

    /// Otherwise TCP waits for 40 ms, far longer than a round trip over loopback.
    #[tokio::test]
    async fn little_data_is_acknowledged_before_a_second_segment() {
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
            while from.policy.info().unacked_bytes > 0 || from.policy.is_handed() {
                tokio::time::sleep(Duration::from_millis(1)).await;
                from.refresh(Instant::now());
            }
            // TCP acknowledges the first messages at once in any case.
            if message >= 60 {
                round_trips.push(from.policy.info().srtt);
            }
        }
        round_trips.sort();
        let median = round_trips[round_trips.len() / 2];
        assert!(median < Duration::from_millis(20), "{round_trips:?}");
    }

    #[tokio::test]
    async fn unsent_data_stays_below_the_low_water_mark() {
        let (mut carrier, mut peer) = carrier().await;
        // Slow enough for the smallest low-water mark; reads until the carrier is no longer young.
        carrier.limit(Some(2_000_000));
        let reader = tokio::spawn(async move {
            let mut received = 0;
            while received < 600_000 {
                let some = std::future::poll_fn(|cx| peer.poll_receive(cx, 1 << 20, |_| {}));
                received += some.await.unwrap();
            }
            peer
        });
        let fill = |carrier: &mut super::super::Carrier, cx: &mut std::task::Context<'_>| {
            loop {
                carrier.sample(Instant::now());
                if carrier.poll_writable(cx)?.is_pending() {
                    return std::io::Result::Ok(());
                }
                carrier.send(&vec![0; carrier.budget()])?;
            }
        };
        while !reader.is_finished() {
            std::future::poll_fn(|cx| Poll::Ready(fill(&mut carrier, cx)))
                .await
                .unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let _peer = reader.await.unwrap();
        assert_eq!(carrier.policy.lowat(), 12 * 1024);
        std::future::poll_fn(|cx| Poll::Ready(fill(&mut carrier, cx)))
            .await
            .unwrap();
        let waits = tcp_info::sample(&carrier.tcp).unwrap().notsent_bytes;
        let most = carrier.policy.wakes_at() + carrier.budget() as u64 + 64;
        assert!((1..=most).contains(&waits), "{waits} bytes of {most}");
    }

    #[tokio::test]
    async fn pacing_works_and_a_limit_replaces_it() {
        let (mut carrier, _peer) = carrier().await;
        assert!(!pacing::is_spaced(&carrier.tcp));
        kernel(&carrier.tcp).pace();
        assert!(pacing::is_spaced(&carrier.tcp));
        carrier.limit(Some(1_000_000));
        assert_eq!(pacing::bound(&carrier.tcp).unwrap(), 1_000_000);
        carrier.limit(None);
        assert_eq!(
            pacing::bound(&carrier.tcp).unwrap(),
            libc::c_ulong::MAX,
            "no limit"
        );
    }

    #[tokio::test]
    async fn a_call_on_an_idle_link_changes_no_socket() {
        let (mut carrier, _peer) = carrier().await;
        let before = pacing::bound(&carrier.tcp).unwrap();
        carrier.set_call(Some(1));
        carrier.refresh(Instant::now());
        assert_eq!(pacing::bound(&carrier.tcp).unwrap(), before);
        assert_eq!(carrier.call_cap().0, sumlink_bond::CallCapState::Off);
    }

    #[test]
    fn linux_forgets_the_threshold_of_a_connection_in_use() {
        let Some(ns) = Netns::new() else {
            return;
        };
        let ip = ns.commands();
        ns.run(async move || {
            let (mut carrier, _peer) = carrier().await;
            socket::set_congestion(&carrier.tcp, "cubic").unwrap();
            let info = tcp_info::sample(&carrier.tcp).unwrap();
            let mut kernel_of = kernel(&carrier.tcp);
            let now = Duration::ZERO;
            let mut policy = Policy::new("cubic".to_owned(), info, &mut kernel_of, now);
            ip("link set lo down");
            carrier.send(&[0; 20_000]).unwrap();
            carrier.flush().unwrap();
            let until = async |wanted: bool| {
                let threshold = || tcp_info::sample(&carrier.tcp).unwrap().snd_ssthresh_bytes;
                while threshold().is_some() != wanted {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            let limit = Duration::from_secs(20);
            let timed_out = tokio::time::timeout(limit, until(true)).await;
            timed_out.expect("data sent over a dead link is lost");
            ip("link set lo up");
            policy.begin_slow_start(&mut kernel(&carrier.tcp));
            if !policy.can_restart() {
                println!("this kernel has no BBR");
                return;
            }
            let forgotten = tokio::time::timeout(limit, until(false)).await;
            forgotten.expect("BBR forgets the threshold");
            assert_eq!(socket::congestion_name(&carrier.tcp).unwrap(), "cubic");
            assert_eq!(policy.congestion(), "cubic");
        });
    }
}
