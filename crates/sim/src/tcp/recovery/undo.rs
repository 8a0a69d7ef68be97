//! Taking back what turns out to have been no loss (RFC 3522, RFC 2883).

use super::News;
use crate::clock::{MILLISECOND, Nanos};
use crate::tcp::Tcp;
use crate::tcp::info::CaState;
use crate::tcp::packet::Packet;

/// What tells whether a reduction was wrong.
#[derive(Clone, Debug, Default)]
pub(super) struct Undo {
    pub(super) is_possible: bool,
    /// What was not acknowledged by then begins here.
    pub(super) from: u64,
    /// Segments sent again since, less those that turned out to have arrived twice; nothing before the first one.
    pub(super) resent: Option<u32>,
    /// When the first one was.
    pub(super) first: Nanos,
}

impl Tcp {
    /// What was taken for lost has arrived: the acknowledgement answers something sent before the first repetition (RFC
    /// 3522), or every repetition arrived as a duplicate (RFC 2883).
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

/// Whether one time stamp is before another: they count milliseconds.
fn is_before(a: Nanos, b: Nanos) -> bool {
    a / MILLISECOND < b / MILLISECOND
}
