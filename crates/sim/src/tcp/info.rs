//! The state of a connection that a program can query: the fields of TCP_INFO that sumlink reads.

use super::Tcp;
use crate::clock::{MICROSECOND, MILLISECOND, Nanos, SECOND, scaled};

/// State of loss recovery (`enum tcp_ca_state` of Linux).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CaState {
    /// No sign of a loss.
    #[default]
    Open,
    /// Data was received beyond a gap.
    Disorder,
    /// The window was reduced without a loss.
    Cwr,
    /// Fast recovery.
    Recovery,
    /// After a timeout.
    Loss,
}

/// One sample. Bytes are counted in whole segments where the kernel does so; times have the
/// kernel's resolution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// The state of loss recovery.
    pub ca_state: CaState,
    /// Smoothed round-trip time; 0 before the first sample.
    pub srtt: Nanos,
    /// Mean deviation of the round-trip time.
    pub rttvar: Nanos,
    /// Minimum round-trip time of the last minutes; 0 before the first sample.
    pub min_rtt: Nanos,
    /// Retransmission timeout.
    pub rto: Nanos,
    /// Bytes of data in a segment.
    pub mss: u32,
    /// Congestion window in bytes.
    pub cwnd: u64,
    /// Slow start threshold in bytes; `None` before the first loss.
    pub ssthresh: Option<u64>,
    /// Unacknowledged bytes.
    pub unacked: u64,
    /// Bytes written but not yet sent.
    pub unsent: u64,
    /// Recent delivery rate in bytes per second; 0 before the first measurement.
    pub delivery_rate: u64,
    /// Rate in bytes per second at which Linux would pace packets.
    pub pacing_rate: u64,
    /// Bytes acknowledged.
    pub acknowledged: u64,
    /// Bytes received in order.
    pub received: u64,
    /// Segments delivered to the peer.
    pub delivered: u64,
    /// Segments sent.
    pub segments: u64,
    /// Segments retransmitted.
    pub retransmitted: u64,
    /// Time since data was last sent.
    pub since_sent: Nanos,
    /// Bytes sent for the first time.
    pub sent: u64,
    /// Payload bytes of the largest received segment.
    pub largest: u32,
    /// Consecutive timeouts.
    pub backoff: u32,
    /// Time with unsent or unacknowledged data; `shut_out` is the part of it during which the
    /// peer's window was full.
    pub busy: Nanos,
    /// See `busy`.
    pub shut_out: Nanos,
}

/// Total time for which a condition holds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chrono {
    total: Nanos,
    since: Option<Nanos>,
}

impl Chrono {
    /// Sets whether the condition holds from now on.
    pub(super) fn set(&mut self, holds: bool, now: Nanos) {
        match (holds, self.since) {
            (true, None) => self.since = Some(now),
            (false, Some(since)) => {
                self.total += now.saturating_sub(since);
                self.since = None;
            }
            _ => {}
        }
    }

    fn until(&self, now: Nanos) -> Nanos {
        self.total + self.since.map_or(0, |since| now.saturating_sub(since))
    }
}

impl Tcp {
    /// The current state of the connection.
    pub fn info(&self, now: Nanos) -> TcpInfo {
        let mss = u64::from(self.config.mss);
        let micros = |time: Nanos| time / MICROSECOND * MICROSECOND;
        TcpInfo {
            ca_state: self.recovery.state(),
            srtt: micros(self.rtt.srtt()),
            rttvar: micros(self.rtt.deviation()),
            min_rtt: micros(self.rtt.least()),
            rto: self.rtt.timeout(),
            mss: self.config.mss,
            cwnd: u64::from(self.cwnd()) * mss,
            ssthresh: self.control.ssthresh().map(|n| u64::from(n) * mss),
            unacked: u64::from(self.board.len()) * mss,
            unsent: self.unsent(),
            delivery_rate: self.delivery.rate(self.config.mss),
            pacing_rate: self.pacing_rate(),
            acknowledged: self.acked,
            received: self.receiver.next(),
            delivered: self.delivery.delivered(),
            segments: self.counters.segments,
            retransmitted: self.counters.retransmitted,
            since_sent: now.saturating_sub(self.last_sent) / MILLISECOND * MILLISECOND,
            sent: self.next,
            largest: self.largest,
            backoff: self.rtt.backoff(),
            busy: self.busy.until(now),
            shut_out: self.shut_out.until(now),
        }
    }

    /// Linux: tcp_update_pacing_rate, which is computed whether or not it is used.
    pub(super) fn pacing_rate(&self) -> u64 {
        let most = self.max_rate.unwrap_or(u64::MAX);
        self.unlimited_pacing_rate().min(most)
    }

    fn unlimited_pacing_rate(&self) -> u64 {
        let mss = u64::from(self.config.mss);
        if let Some(pause) = self.control.pause() {
            return mss * SECOND / pause.max(1);
        }
        let srtt = self.rtt.srtt();
        if srtt == 0 {
            return 0;
        }
        let cwnd = self.control.cwnd();
        // 200 % in slow start, 120 % in congestion avoidance.
        let is_early = self.control.ssthresh().is_none_or(|half| cwnd < half / 2);
        let percent = if is_early { 200 } else { 120 };
        let window = u64::from(cwnd.max(self.board.len())) * mss;
        scaled(scaled(window, SECOND, srtt), percent, 100)
    }
}
