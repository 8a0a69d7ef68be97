//! Window reduction during recovery (RFC 6937, proportional rate reduction).

use super::News;
use crate::tcp::Tcp;

/// State of the reduction.
#[derive(Clone, Debug, Default)]
pub(super) struct Reduction {
    /// cwnd before the reduction.
    pub(super) prior: u32,
    pub(super) delivered: u32,
    pub(super) out: u32,
}

impl Tcp {
    /// RFC 6937, section 3, with the bound of Linux: slow start while recovery makes progress, else
    /// conservative.
    pub(super) fn reduce(&mut self, news: &News, newly_lost: bool) {
        let ssthresh = self.control.ssthresh().unwrap_or(u32::MAX);
        let in_flight = self.board.in_flight();
        let reduction = &mut self.recovery.reduction;
        reduction.delivered += news.delivered;
        let room = i64::from(ssthresh) - i64::from(in_flight);
        let out = i64::from(reduction.out);
        let send = if room < 0 {
            let delivered = u64::from(reduction.delivered) * u64::from(ssthresh);
            delivered.div_ceil(u64::from(reduction.prior.max(1))) as i64 - out
        } else {
            let most = (i64::from(reduction.delivered) - out).max(i64::from(news.delivered));
            let most = most + i64::from(news.advanced && !newly_lost);
            room.min(most)
        };
        // The first segment is retransmitted at once.
        let send = send.max(i64::from(reduction.out == 0)).max(0);
        self.recovery.window = in_flight + send as u32;
    }
}
