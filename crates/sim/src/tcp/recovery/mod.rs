//! Loss detection and recovery.
//!
//! Sources: RFC 8985 (RACK-TLP), RFC 6937 (proportional rate reduction), RFC 6298 (timeouts), RFC
//! 3522 and RFC 2883 (spurious retransmissions), RFC 6582 (without SACK), and
//! `net/ipv4/tcp_input.c` and `tcp_recovery.c` of Linux for the states.
//!
//! This module holds the states and the processing of acknowledgments. Loss detection is in
//! `rack.rs`, without SACK in `newreno.rs`; tail loss probes are in `probe.rs`, the window
//! reduction in `reduction.rs` and its reversal in `undo.rs`.

mod newreno;
mod probe;
mod rack;
mod reduction;
mod undo;

use super::Tcp;
use super::control::Acknowledged;
use super::info::CaState;
use super::packet::Packet;
use super::scoreboard::Segment;
use crate::clock::Nanos;
use probe::Probe;
use rack::Rack;
use reduction::Reduction;
use undo::Undo;

/// State of a sender's loss recovery.
#[derive(Clone, Debug, Default)]
pub(super) struct Recovery {
    state: CaState,
    /// The state ends when all bytes before it are acknowledged.
    high: u64,
    /// Most segments in flight during the window reduction.
    window: u32,
    /// Segments in flight at a timeout that are not considered lost.
    kept: u32,
    reduction: Reduction,
    rack: Rack,
    probe: Probe,
    undo: Undo,
}

/// The effect of an acknowledgment.
#[derive(Clone, Copy, Debug, Default)]
struct News {
    /// Segments delivered for the first time.
    delivered: u32,
    /// New data was acknowledged in order.
    advanced: bool,
    /// A duplicate acknowledgment without SACK: one more segment has arrived beyond the gap.
    counted: bool,
    /// Round-trip times of the oldest and of the newest delivered segment that was sent only once;
    /// a cumulative acknowledgment of a retransmission gives none.
    oldest: Option<Nanos>,
    newest: Option<Nanos>,
}

impl News {
    fn deliver(&mut self, segment: &Segment, now: Nanos) {
        self.delivered += 1;
        if segment.transmissions == 1 {
            let rtt = now - segment.sent;
            self.oldest.get_or_insert(rtt);
            self.newest = Some(rtt);
        }
    }
}

impl Recovery {
    pub(super) fn state(&self) -> CaState {
        self.state
    }

    /// Whether losses are being repaired.
    pub(super) fn is_repairing(&self) -> bool {
        self.state >= CaState::Recovery
    }

    /// Most segments in flight, if recovery overrides the congestion control's window.
    pub(super) fn window(&self) -> Option<u32> {
        self.is_reducing().then_some(self.window)
    }

    fn is_reducing(&self) -> bool {
        matches!(self.state, CaState::Cwr | CaState::Recovery)
    }

    /// Segments in flight at a timeout that may still arrive; the congestion control does not count
    /// them.
    pub(super) fn kept(&self) -> u32 {
        self.kept
    }

    /// A segment was sent.
    pub(super) fn sent(&mut self) {
        self.reduction.out += u32::from(self.is_reducing());
    }

    /// A segment was retransmitted.
    pub(super) fn resent(&mut self, now: Nanos) {
        self.sent();
        if self.undo.first == 0 {
            self.undo.first = now;
        }
        *self.undo.resent.get_or_insert(0) += 1;
    }
}

impl Tcp {
    /// Processes the acknowledgment of a packet.
    pub(super) fn on_ack(&mut self, packet: &Packet, now: Nanos) {
        if packet.ack > self.next {
            return;
        }
        let is_duplicate = self.is_duplicate(packet);
        let end = packet.ack + u64::from(packet.window);
        self.window_end = self.window_end.max(end);
        if self.is_at_rest(packet) {
            return self.rearm_if_shut_out(now);
        }
        let lost = self.board.lost();
        let mut news = self.note_arrivals(packet, now);
        if is_duplicate {
            self.count_duplicate(&mut news);
        }
        if news.advanced {
            self.rtt.forget_backoff();
            self.last_progress = now;
            self.acked = packet.ack;
        }
        self.measure(&news, packet, now);
        if news.advanced {
            self.rearm(now);
        }
        let undo = &mut self.recovery.undo;
        if let Some(resent) = &mut undo.resent
            && packet.duplicate > undo.from
        {
            *resent = resent.saturating_sub(1);
        }
        self.end_probe(packet, now);
        self.advance_state(&news, packet, now);
        let newly_lost = self.board.lost() > lost;
        if let Some(delivery) = self.delivery.finish(self.rtt.least(), now) {
            self.control.on_delivery(&delivery);
        }
        self.control_window(&news, newly_lost, now);
        self.rearm_if_shut_out(now);
    }

    /// Whether the packet can only change the window: this end has nothing in flight and nothing to
    /// recover, like an end that only receives.
    fn is_at_rest(&self, packet: &Packet) -> bool {
        packet.ack == self.acked
            && packet.duplicate == 0
            && self.board.is_empty()
            && self.recovery.state == CaState::Open
            && self.recovery.probe.high.is_none()
    }

    /// Starts probing the peer's window if it has no room for the waiting data.
    fn rearm_if_shut_out(&mut self, now: Nanos) {
        if self.board.is_empty() && self.unsent() > 0 && self.timer.is_none() {
            self.rearm(now);
        }
    }

    /// Removes acknowledged segments from the scoreboard.
    fn note_arrivals(&mut self, packet: &Packet, now: Nanos) -> News {
        let mut news = News {
            advanced: packet.ack > self.acked,
            ..News::default()
        };
        if packet.sack_count == 0 && !news.advanced {
            return news;
        }
        let highest = self.board.highest_sacked();
        let (rack, delivery) = (&mut self.recovery.rack, &mut self.delivery);
        let least = self.rtt.least();
        let mut selective = News::default();
        if packet.sack_count > 0 {
            self.board.sack(packet.sacks(), |segment| {
                selective.deliver(segment, now);
                rack.update(segment, least, now);
                rack.reordered |= segment.transmissions == 1 && segment.end() < highest;
                delivery.deliver(segment);
            });
        }
        let mut is_ambiguous = false;
        while let Some(segment) = self.board.acknowledge(packet.ack) {
            is_ambiguous |= segment.transmissions > 1;
            if !segment.sacked {
                news.deliver(&segment, now);
                // Linux, too, runs RACK with SACK only (tcp_clean_rtx_queue).
                if self.sack {
                    rack.update(&segment, least, now);
                }
                rack.reordered |= segment.transmissions == 1 && segment.end() < highest;
                delivery.deliver(&segment);
            }
        }
        if is_ambiguous {
            // The retransmission filled a gap. The receiver may have held the segments behind it
            // for long, so their age is not a round-trip time (Linux: FLAG_RETRANS_DATA_ACKED).
            (news.oldest, news.newest) = (None, None);
        }
        if !self.sack && news.delivered > 0 {
            news.delivered = self.board.settle_duplicates(news.delivered);
        }
        news.delivered += selective.delivered;
        news.oldest = news.oldest.or(selective.oldest);
        news.newest = news.newest.or(selective.newest);
        news
    }

    /// Takes round-trip time samples.
    fn measure(&mut self, news: &News, packet: &Packet, now: Nanos) {
        let mut sample = news.oldest;
        if sample.is_none() && news.advanced && packet.echo > 0 {
            // Retransmitted segments are measured by their timestamp (RFC 7323, section 4.1).
            sample = now.checked_sub(packet.echo);
        }
        if let Some(rtt) = news.newest {
            self.rtt.note_min(rtt, now);
        }
        if let Some(rtt) = sample {
            self.rtt.sample(rtt, self.acked, self.next);
        }
    }

    /// Linux: tcp_fastretrans_alert.
    fn advance_state(&mut self, news: &News, packet: &Packet, now: Nanos) {
        let is_over = self.acked >= self.recovery.high;
        if self.is_at_the_end_without_sack() {
            return self.try_undo(news, packet, now);
        }
        match self.recovery.state {
            CaState::Recovery | CaState::Loss if is_over => {
                self.try_undo(news, packet, now);
                if self.recovery.is_repairing() {
                    self.leave(now);
                }
            }
            CaState::Cwr if is_over => self.leave(now),
            CaState::Recovery | CaState::Loss => self.try_undo(news, packet, now),
            _ => {}
        }
        let wait = match self.sack {
            true => self.find_lost(now),
            false => {
                self.find_lost_by_duplicates(news);
                None
            }
        };
        if self.board.lost() > 0 {
            if !self.recovery.is_repairing() {
                self.enter_recovery(now);
            }
        } else if !self.recovery.is_reducing() && !self.recovery.is_repairing() {
            self.recovery.state = match self.board.sacked() {
                0 => CaState::Open,
                _ => CaState::Disorder,
            };
        }
        if let Some(wait) = wait {
            self.rearm_reordering(wait, now);
        }
    }

    fn enter_recovery(&mut self, now: Nanos) {
        if !self.recovery.is_reducing() {
            self.recovery.undo = Undo {
                is_possible: self.config.undo,
                from: self.acked,
                ..Undo::default()
            };
            self.recovery.reduction = Reduction {
                prior: self.control.cwnd(),
                ..Reduction::default()
            };
            self.recovery.window = self.board.in_flight();
            self.control.on_loss(now);
        }
        self.recovery.probe.high = None;
        self.recovery.high = self.next;
        self.recovery.state = CaState::Recovery;
        self.rearm_timeout(now);
    }

    /// Leaves recovery: all data that was in flight when the loss was detected is acknowledged.
    fn leave(&mut self, now: Nanos) {
        self.recovery.state = CaState::Open;
        self.recovery.undo = Undo::default();
        self.recovery.kept = 0;
        self.control.on_recovery_exit(now);
    }

    /// The RTO expired: segments sent long enough ago are lost, and slow start begins again.
    pub(super) fn enter_loss(&mut self, now: Nanos) {
        if !self.sack {
            self.board.forget_duplicates();
        }
        let repeated = self.recovery.state == CaState::Loss && self.acked < self.recovery.high;
        let limit = self.recovery.rack.rtt + self.reordering_window();
        let head = self.board.head_id();
        let late: Vec<u64> = self
            .board
            .unsettled()
            .filter(|(id, segment)| Some(*id) == head || segment.sent + limit <= now)
            .map(|(id, _)| id)
            .collect();
        late.into_iter().for_each(|id| self.board.lose(id));
        if !repeated {
            self.recovery.undo = Undo {
                is_possible: self.config.undo,
                from: self.acked,
                ..Undo::default()
            };
        }
        self.recovery.kept = self.board.in_flight();
        self.control.on_timeout(repeated, self.next, now);
        self.recovery.probe = Probe::default();
        self.recovery.high = self.next;
        self.recovery.state = CaState::Loss;
    }

    /// Passes the acknowledgment to the congestion control, or continues the window reduction.
    fn control_window(&mut self, news: &News, newly_lost: bool, now: Nanos) {
        if news.delivered == 0 {
            return;
        }
        let acknowledged = Acknowledged {
            segments: news.delivered,
            rtt: news.newest,
            srtt: self.rtt.srtt(),
            acked: self.acked,
            next: self.next,
            cwnd_limited: self.is_cwnd_limited(),
            is_in_disorder: self.recovery.state == CaState::Disorder,
        };
        if !news.counted {
            self.control.on_ack(&acknowledged, now);
        }
        if self.recovery.is_reducing() {
            self.reduce(news, newly_lost);
        }
    }
}
