//! TCP statistics of a carrier, for the engine's decisions and for usage counters.

use std::time::{Duration, Instant};

use sumlink_bond::{CallCapState, TcpInfo};
use sumlink_engine::PathSample;
use sumlink_qdisc::LocalQueue;

use super::kernel::{Kernel, wire_total};
use super::{Carrier, Moved};

impl Carrier {
    /// Makes [`Carrier::sample`] include the length of the interface's queue from now on.
    pub(crate) fn watch_local_queue(&mut self) {
        match LocalQueue::of(&self.tcp, self.local.ip()) {
            Ok(queue) => self.local_queue = Some(queue),
            Err(error) => {
                let (path, link) = (self.id.0, &self.link);
                tracing::warn!(
                    path,
                    %link,
                    %error,
                    "cannot read the interface's queue; schedulers treat it as empty"
                );
            }
        }
    }

    /// The current TCP statistics: at most 1 ms old, and for a young carrier no older than the last
    /// write.
    pub(crate) fn sample(&mut self, now: Instant) -> PathSample {
        let now = now.saturating_duration_since(self.began);
        let local_queue = (self.local_queue.as_ref().and_then(LocalQueue::bytes)).unwrap_or(0);
        let has_records = self.tls.wants_write();
        let mut kernel = Kernel {
            tcp: &self.tcp,
            path: self.id.0,
            link: &self.link,
        };
        let mut sample = self
            .policy
            .sample(&mut kernel, local_queue, has_records, now);
        if let Some(end_to_end) = &self.end_to_end {
            end_to_end.correct(&mut sample);
        }
        sample
    }

    /// Records the bytes of frames that the carrier has been given, and those of them that the peer
    /// has reported. Only a carrier through a load balancer needs that.
    pub(crate) fn observe_reports(&mut self, progress: Option<(u64, u64)>) {
        let now = self.began.elapsed();
        if let (Some(end_to_end), Some((sent, confirmed))) = (&mut self.end_to_end, progress) {
            end_to_end.observe(sent, confirmed, now);
        }
    }

    /// Reads TCP_INFO.
    pub(super) fn refresh(&mut self, now: Instant) {
        let now = now.saturating_duration_since(self.began);
        let mut kernel = Kernel {
            tcp: &self.tcp,
            path: self.id.0,
            link: &self.link,
        };
        self.policy.refresh(&mut kernel, now);
    }

    /// The newest TCP_INFO.
    pub(crate) fn tcp_info(&self) -> &TcpInfo {
        self.policy.info()
    }

    /// Bytes to hand over at once.
    pub(crate) fn budget(&self) -> usize {
        let budget = self.policy.budget();
        match &self.end_to_end {
            Some(end_to_end) => budget.min(usize::try_from(end_to_end.room()).unwrap_or(budget)),
            None => budget,
        }
    }

    /// Name of the congestion control.
    pub(crate) fn congestion(&self) -> &str {
        self.policy.congestion()
    }

    /// The state of its cap for calls on the link, and the rest of the pause if the cap was given
    /// up.
    pub(crate) fn call_cap(&self) -> (CallCapState, Duration) {
        let now = self.began.elapsed();
        let state = self.policy.call_cap(now);
        let rest = match state {
            CallCapState::GivenUp { until } => until.saturating_sub(now),
            _ => Duration::ZERO,
        };
        (state, rest)
    }

    /// For a carrier without progress: whether its large packets seem to be lost and its small ones
    /// not.
    pub(crate) fn loses_large_packets(&self) -> bool {
        self.policy.loses_large_packets()
    }

    /// Bytes sent and acknowledged, and bytes received.
    pub(crate) fn bytes_moved(&self) -> u64 {
        self.policy.bytes_moved()
    }

    /// Bytes that its packets took on the link since the last call, including the headers of TCP
    /// and IP.
    pub(crate) fn wire_bytes(&mut self) -> Moved {
        self.refresh(Instant::now());
        let total = wire_total(self.policy.info(), self.remote);
        let before = std::mem::replace(&mut self.accounted, total);
        total.since(before)
    }

    /// Whether its packets wait in a queue on the path.
    pub(crate) fn is_queueing(&self) -> bool {
        self.policy.is_queueing()
    }
}
