//! Tail loss probes, where no later segment would reveal a loss (RFC 8985, section 7).

use super::Recovery;
use crate::clock::Nanos;
use crate::tcp::Tcp;
use crate::tcp::info::CaState;
use crate::tcp::packet::Packet;

/// State of a probe.
#[derive(Clone, Debug, Default)]
pub(super) struct Probe {
    /// The probe ends when all bytes before it are acknowledged.
    pub(super) high: Option<u64>,
    /// The probe was a retransmission.
    pub(super) resent: bool,
    /// New data is due as the probe; below, the segment to retransmit instead.
    pub(super) due: bool,
    pub(super) segment: Option<u64>,
}

impl Recovery {
    /// Whether the tail may be probed.
    fn may_probe(&self) -> bool {
        self.state <= CaState::Cwr && self.probe.high.is_none()
    }

    /// Whether new data is due as a probe.
    pub(in crate::tcp) fn take_new_data_probe(&mut self) -> bool {
        std::mem::take(&mut self.probe.due)
    }

    /// The segment to retransmit as a probe.
    pub(in crate::tcp) fn take_probe(&mut self) -> Option<u64> {
        self.probe.segment.take()
    }
}

impl Tcp {
    /// Whether the tail may be probed; Linux requires SACK, which reports the outcome.
    pub(in crate::tcp) fn may_probe(&self) -> bool {
        self.sack && self.recovery.may_probe()
    }

    /// Linux: tcp_send_loss_probe. Sends new data if there is some and the peer's window has room,
    /// else the last segment again.
    pub(in crate::tcp) fn send_loss_probe(&mut self, now: Nanos) {
        let fits = self.window_end.saturating_sub(self.next) >= u64::from(self.config.mss);
        self.recovery.probe.high = Some(self.next);
        if self.unsent() > 0 && fits {
            self.recovery.probe.due = true;
            self.recovery.probe.resent = false;
        } else if let Some(id) = self.board.tail_id() {
            self.recovery.probe.resent = true;
            self.recovery.probe.segment = Some(id);
        }
        self.rearm_timeout(now);
    }

    /// Linux: tcp_process_tlp_ack.
    pub(super) fn end_probe(&mut self, packet: &Packet, now: Nanos) {
        let Some(high) = self.recovery.probe.high.filter(|high| packet.ack >= *high) else {
            return;
        };
        if !self.recovery.probe.resent || packet.duplicate > 0 {
            self.recovery.probe.high = None;
        } else if packet.ack > high {
            self.recovery.probe.high = None;
            // The probe repaired a loss, which is a congestion signal like any other.
            if !self.recovery.is_repairing() {
                self.control.on_loss(now);
                self.control.on_recovery_exit(now);
                self.recovery.state = CaState::Open;
            }
        }
    }
}
