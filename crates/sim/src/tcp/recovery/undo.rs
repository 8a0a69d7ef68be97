//! Reverses a window reduction after a spurious loss detection (RFC 3522, RFC 2883).

use super::News;
use crate::clock::{MILLISECOND, Nanos};
use crate::tcp::Tcp;
use crate::tcp::info::CaState;
use crate::tcp::packet::Packet;

/// Evidence for or against a reduction.
#[derive(Clone, Debug, Default)]
pub(super) struct Undo {
    pub(super) is_possible: bool,
    /// Start of the unacknowledged data at the reduction.
    pub(super) from: u64,
    /// Retransmitted segments since then, less those that were reported as duplicates; `None`
    /// before the first one.
    pub(super) resent: Option<u32>,
    /// Time of the first retransmission.
    pub(super) first: Nanos,
}

impl Tcp {
    /// Undoes the reduction if the segments considered lost had arrived: the acknowledgment
    /// answers a packet sent before the first retransmission (RFC 3522), or every retransmission
    /// arrived as a duplicate (RFC 2883).
    pub(super) fn try_undo(&mut self, news: &News, packet: &Packet, now: Nanos) {
        let undo = &self.recovery.undo;
        let answers_original = news.advanced
            && undo.first > 0
            && packet.echo > 0
            && is_before(packet.echo, undo.first);
        if undo.is_possible && (answers_original || undo.resent == Some(0)) {
            self.board.unlose();
            if !self.sack {
                self.board.forget_duplicates();
            }
            self.recovery.state = CaState::Open;
            self.recovery.undo = Undo::default();
            self.recovery.kept = 0;
            self.control.on_spurious_loss(now);
        }
    }
}

/// Whether one timestamp is before another: timestamps count milliseconds.
fn is_before(a: Nanos, b: Nanos) -> bool {
    a / MILLISECOND < b / MILLISECOND
}
