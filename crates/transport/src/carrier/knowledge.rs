//! What a carrier's TCP knows: for the engine's decisions, for its congestion control, and for accounts.

use std::time::{Duration, Instant};

use sumlink_engine::{LossState, PathSample, SustainedRate};
use sumlink_qdisc::LocalQueue;

use super::Carrier;
use super::room::{YOUNG_LOWAT, YOUTH};
use crate::congestion;
use crate::socket;
use crate::tcp_info::{CaState, TcpInfo};

/// TCP_INFO is not older than this when a decision is made with it.
const SAMPLE_AGE: Duration = Duration::from_millis(1);

impl Carrier {
    /// Has [`Carrier::sample`] tell what waits in the interface's queue, from now on.
    pub(crate) fn watch_local_queue(&mut self) {
        match LocalQueue::of(&self.tcp, self.local.ip()) {
            Ok(queue) => self.local_queue = Some(queue),
            Err(error) => {
                let (path, link) = (self.id.0, &self.link);
                tracing::warn!(path, %link, %error, "what waits in the interface's queue is not known");
            }
        }
    }

    /// What TCP knows now: at most a millisecond old, and of a young carrier no older than what was last sent.
    pub(crate) fn sample(&mut self, now: Instant) -> PathSample {
        let is_old = now.duration_since(self.sampled) >= SAMPLE_AGE;
        // Else what was just handed over, of which TCP_INFO knows nothing yet, would look as if it were acknowledged, and
        // what comes behind it would be expected as soon as if nothing were before it.
        let known = self.info.unacked_bytes + self.info.notsent_bytes;
        let is_behind = self.handed > known || self.handed > 0 && self.is_young();
        if is_old || is_behind || self.info.srtt.is_zero() {
            self.refresh(now);
        }
        let info = &self.info;
        PathSample {
            srtt: info.srtt,
            rttvar: info.rttvar,
            min_rtt: info.min_rtt.unwrap_or_default(),
            mss: info.snd_mss,
            cwnd: info.snd_cwnd_bytes,
            ssthresh: info.snd_ssthresh_bytes,
            loss: match info.ca_state {
                CaState::Open => LossState::Open,
                CaState::Loss => LossState::Timeout,
                CaState::Disorder | CaState::Cwr | CaState::Recovery => LossState::Recovery,
            },
            in_flight: info.unacked_bytes,
            unsent: info.notsent_bytes + self.unwritten as u64,
            local_queue: (self.local_queue.as_ref().and_then(LocalQueue::bytes)).unwrap_or(0),
            full: self.tls.wants_write()
                || self.is_exact() && info.notsent_bytes >= self.wakes_at(),
            pauses: self.is_model_based() && pauses(info),
            delivery_rate: info.delivery_rate_bytes_per_s.min(self.most_sustained()),
            pacing_rate: info.pacing_rate_bytes_per_s.unwrap_or(0),
            limit: self.limit.unwrap_or(0),
            segments: u64::from(info.segs_out),
            retransmitted: u64::from(info.total_retrans),
            delivered: u64::from(info.delivered),
            received: info.bytes_received,
        }
    }

    pub(super) fn refresh(&mut self, now: Instant) {
        (self.sampled, self.handed) = (now, 0);
        if let Ok(info) = TcpInfo::sample(&self.tcp) {
            let delivered = u64::from(info.delivered) * u64::from(info.snd_mss);
            let is_backlogged = info.notsent_bytes > 0;
            let since = now.saturating_duration_since(self.began);
            self.sustained
                .observe(since, delivered, is_backlogged, info.srtt);
            self.info = info;
            self.large.observe(&self.info);
        }
        if self.refused {
            self.reserve.visited(self.info.notsent_bytes == 0, now);
        }
        // BBR keeps its window through a pause.
        let forgets = !self.is_model_based();
        if forgets && self.info.since_data_sent > self.info.rto && self.info.unacked_bytes == 0 {
            self.young_until = self.info.bytes_acked + YOUTH;
        }
        match self.is_young() {
            true => self.set_lowat(YOUNG_LOWAT, now),
            false => self.adapt_lowat(now),
        }
        self.settle_spacing();
        self.adapt_congestion(now);
        self.regain_window(now);
    }

    /// Notes under BBR whether a socket that was full has run empty, once in a sample's age.
    pub(super) fn look_into_socket(&mut self) {
        let now = Instant::now();
        if self.is_model_based() && now.duration_since(self.sampled) >= SAMPLE_AGE {
            self.refresh(now);
        }
    }

    /// The highest rate that a measurement of TCP may show, in bytes per second.
    ///
    /// BBR empties the path's queue in order to measure, and a token bucket fills meanwhile. Loss-based controls keep the bucket
    /// empty: what they measure is the path's rate.
    pub(super) fn most_sustained(&self) -> u64 {
        if !self.is_model_based() {
            return u64::MAX;
        }
        let info = &self.info;
        let (ssthresh, cwnd) = (info.snd_ssthresh_bytes, info.snd_cwnd_bytes);
        match SustainedRate::is_growing(ssthresh, cwnd, info.bytes_acked) {
            true => u64::MAX,
            false => self.sustained.bound(u64::MAX),
        }
    }

    pub(super) fn is_model_based(&self) -> bool {
        self.congestion == congestion::MODEL_BASED
    }

    /// Of one that makes no progress: whether it looks as if its large packets were lost and the small ones were not.
    pub(crate) fn loses_large_packets(&self) -> bool {
        self.large.are_lost(&self.info)
    }

    /// Bytes sent and acknowledged, and bytes received.
    pub(crate) fn bytes_moved(&self) -> u64 {
        self.info.bytes_acked + self.info.bytes_received
    }

    /// Bytes that its packets took on the link since this was last asked, both ways, with the headers of TCP and IP.
    pub(crate) fn wire_bytes(&mut self) -> u64 {
        self.refresh(Instant::now());
        // With the timestamps that nearly every connection has (RFC 7323).
        let header = if self.remote.is_ipv4() { 52 } else { 72 };
        let info = &self.info;
        let packets = u64::from(info.segs_out) + u64::from(info.segs_in);
        let total = info.bytes_sent + info.bytes_received + packets * header;
        let before = std::mem::replace(&mut self.accounted, total);
        total.saturating_sub(before)
    }

    /// Whether packets wait in a queue on their way.
    pub(crate) fn is_queueing(&self) -> bool {
        let least = self.info.min_rtt.unwrap_or(self.info.srtt);
        congestion::is_queueing(self.info.srtt.saturating_sub(least), least)
    }

    pub(super) fn adapt_congestion(&mut self, now: Instant) {
        let Some(chooser) = &mut self.chooser else {
            return;
        };
        let Some(change) = chooser.observe(now, &self.info) else {
            return;
        };
        match socket::set_congestion(&self.tcp, change.to) {
            Ok(()) => {
                tracing::info!(path = self.id.0, link = %self.link, congestion = change.to, "{}", change.reason);
                change.to.clone_into(&mut self.congestion);
            }
            Err(error) => {
                tracing::warn!(path = self.id.0, link = %self.link, "{}, but: {error}", change.reason);
                chooser.refused(now);
            }
        }
    }
}

/// Whether BBR sends next to nothing in order to see the least round trip: with four segments (PROBE_RTT of its first version;
/// later ones go on with half of their window).
fn pauses(info: &TcpInfo) -> bool {
    let window = 4 * u64::from(info.snd_mss);
    info.ca_state == CaState::Open && info.snd_cwnd_bytes <= window
}
