//! Finding and repairing losses.
//!
//! Sources: RFC 8985 (RACK-TLP), RFC 6937 (proportional rate reduction), RFC 6298 (timeouts), RFC 3522 and RFC 2883
//! (what turns out to have been no loss), and `net/ipv4/tcp_input.c` and `tcp_recovery.c` of Linux for the states.

use super::Tcp;
use super::control::Acknowledged;
use super::info::CaState;
use super::packet::Packet;
use super::scoreboard::Segment;
use crate::clock::{MILLISECOND, Nanos};

/// Segments received behind a gap after which no reordering is taken into account (TCP_FASTRETRANS_THRESH).
const DUPLICATES: u32 = 3;

/// How far the sender is with repairing losses.
#[derive(Clone, Debug, Default)]
pub(super) struct Recovery {
    state: CaState,
    /// The state ends when everything before is acknowledged.
    high: u64,
    /// Segments that may be in flight while the window is being reduced.
    window: u32,
    /// Segments in flight when a timeout fired that are not taken for lost.
    kept: u32,
    reduction: Reduction,
    rack: Rack,
    probe: Probe,
    undo: Undo,
}

/// RFC 6937.
#[derive(Clone, Debug, Default)]
struct Reduction {
    /// cwnd before.
    prior: u32,
    delivered: u32,
    out: u32,
}

/// RFC 8985, section 5.
#[derive(Clone, Debug, Default)]
struct Rack {
    /// When the newest segment that arrived had been sent, and its end.
    sent: Nanos,
    end: u64,
    /// Its round-trip time.
    rtt: Nanos,
    /// Segments have overtaken each other.
    reordered: bool,
}

/// RFC 8985, section 7.
#[derive(Clone, Debug, Default)]
struct Probe {
    /// The probe is over when everything before is acknowledged.
    high: Option<u64>,
    /// It was something that had been sent before.
    resent: bool,
    /// New data is to be sent as the probe, or this segment once more.
    due: bool,
    segment: Option<u64>,
}

/// What tells whether a reduction was wrong.
#[derive(Clone, Debug, Default)]
struct Undo {
    is_possible: bool,
    /// What was not acknowledged by then begins here.
    from: u64,
    /// Segments sent again since, less those that turned out to have arrived twice; nothing before the first one.
    resent: Option<u32>,
    /// When the first one was.
    first: Nanos,
}

/// What an acknowledgement brought.
#[derive(Clone, Copy, Debug, Default)]
struct News {
    /// Segments delivered for the first time.
    delivered: u32,
    /// Something new was acknowledged in order.
    advanced: bool,
    /// Round-trip times of the oldest and of the newest segment among them that was sent once only.
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

impl Rack {
    /// RFC 8985, section 6.2, step 2.
    fn update(&mut self, segment: &Segment, least: Nanos, now: Nanos) {
        let rtt = now - segment.sent;
        if segment.transmissions > 1 && rtt < least {
            // An earlier transmission arrived.
            return;
        }
        if (segment.sent, segment.end()) > (self.sent, self.end) {
            (self.sent, self.end, self.rtt) = (segment.sent, segment.end(), rtt);
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

    /// Segments that may be in flight, where that is not the congestion control's window.
    pub(super) fn window(&self) -> Option<u32> {
        self.is_reducing().then_some(self.window)
    }

    fn is_reducing(&self) -> bool {
        matches!(self.state, CaState::Cwr | CaState::Recovery)
    }

    /// Whether the tail may be probed.
    pub(super) fn may_probe(&self) -> bool {
        self.state <= CaState::Cwr && self.probe.high.is_none()
    }

    /// Whether new data is to be sent as a probe.
    pub(super) fn take_new_data_probe(&mut self) -> bool {
        std::mem::take(&mut self.probe.due)
    }

    /// The segment that is to be sent again as a probe.
    pub(super) fn take_probe(&mut self) -> Option<u64> {
        self.probe.segment.take()
    }

    /// Segments in flight that the congestion control does not know of: a timeout fired, and they may yet arrive.
    pub(super) fn kept(&self) -> u32 {
        self.kept
    }

    /// A segment was sent.
    pub(super) fn sent(&mut self) {
        self.reduction.out += u32::from(self.is_reducing());
    }

    /// A segment was sent again.
    pub(super) fn resent(&mut self, now: Nanos) {
        self.sent();
        if self.undo.first == 0 {
            self.undo.first = now;
        }
        *self.undo.resent.get_or_insert(0) += 1;
    }
}

impl Tcp {
    /// What a packet says of what this end has sent.
    pub(super) fn on_ack(&mut self, packet: &Packet, now: Nanos) {
        if packet.ack > self.next {
            return;
        }
        let end = packet.ack + u64::from(packet.window);
        self.window_end = self.window_end.max(end);
        let lost = self.board.lost();
        let news = self.note_arrivals(packet, now);
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
        self.control_window(&news, newly_lost, now);
        self.delivery.finish(self.rtt.least(), now);
        if self.board.is_empty() && self.unsent() > 0 && self.timer.is_none() {
            self.rearm(now);
        }
    }

    /// Takes out of the scoreboard what has arrived.
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
        while let Some(segment) = self.board.acknowledge(packet.ack) {
            if !segment.sacked {
                news.deliver(&segment, now);
                rack.update(&segment, least, now);
                rack.reordered |= segment.transmissions == 1 && segment.end() < highest;
                delivery.deliver(&segment);
            }
        }
        news.delivered += selective.delivered;
        news.oldest = news.oldest.or(selective.oldest);
        news.newest = news.newest.or(selective.newest);
        news
    }

    /// Round-trip times.
    fn measure(&mut self, news: &News, packet: &Packet, now: Nanos) {
        let mut sample = news.oldest;
        if sample.is_none() && news.advanced && packet.echo > 0 {
            // What was sent again is measured by its time stamp (RFC 7323, section 4.1).
            sample = now.checked_sub(packet.echo);
        }
        if let Some(rtt) = news.newest {
            self.rtt.note_least(rtt, now);
        }
        if let Some(rtt) = sample {
            self.rtt.sample(rtt, self.acked, self.next);
        }
    }

    /// Linux: tcp_process_tlp_ack.
    fn end_probe(&mut self, packet: &Packet, now: Nanos) {
        let Some(high) = self.recovery.probe.high.filter(|high| packet.ack >= *high) else {
            return;
        };
        if !self.recovery.probe.resent || packet.duplicate > 0 {
            self.recovery.probe.high = None;
        } else if packet.ack > high {
            self.recovery.probe.high = None;
            // The probe repaired a loss, which is a sign of congestion like any other.
            if !self.recovery.is_repairing() {
                self.control.on_loss(now);
                self.control.on_recovery_exit(now);
                self.recovery.state = CaState::Open;
            }
        }
    }

    /// Linux: tcp_fastretrans_alert.
    fn advance_state(&mut self, news: &News, packet: &Packet, now: Nanos) {
        let is_over = self.acked >= self.recovery.high;
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
        let wait = self.find_lost(now);
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

    /// RFC 8985, section 6.2, step 5: what was sent before something that has arrived, and long enough ago, is lost. Says
    /// after what time the next one will be, if nothing arrives.
    fn find_lost(&mut self, now: Nanos) -> Option<Nanos> {
        if self.recovery.rack.sent == 0 {
            return None;
        }
        let window = self.reordering_window();
        let rack = &self.recovery.rack;
        while let Some((id, segment)) = self.board.oldest() {
            if (segment.sent, segment.end()) >= (rack.sent, rack.end) {
                break;
            }
            let lost_at = segment.sent + rack.rtt + window;
            if lost_at > now {
                return Some(lost_at - now);
            }
            self.board.lose(id);
        }
        None
    }

    /// RFC 8985, section 6.2, step 4.
    fn reordering_window(&self) -> Nanos {
        let certain = self.recovery.is_repairing() || self.board.sacked() >= DUPLICATES;
        if !self.recovery.rack.reordered && certain {
            return 0;
        }
        (self.rtt.least() / 4).min(self.rtt.srtt())
    }

    fn enter_recovery(&mut self, now: Nanos) {
        if !self.recovery.is_reducing() {
            self.recovery.undo = Undo {
                is_possible: true,
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

    /// Everything that was in flight when the loss was found is acknowledged.
    fn leave(&mut self, now: Nanos) {
        self.recovery.state = CaState::Open;
        self.recovery.undo = Undo::default();
        self.recovery.kept = 0;
        self.control.on_recovery_exit(now);
    }

    /// What was taken for lost has arrived: the acknowledgement answers something sent before the first repetition (RFC
    /// 3522), or every repetition arrived as a duplicate (RFC 2883).
    fn try_undo(&mut self, news: &News, packet: &Packet, now: Nanos) {
        let undo = &self.recovery.undo;
        let answers_original = news.advanced
            && undo.first > 0
            && packet.echo > 0
            && is_before(packet.echo, undo.first);
        if undo.is_possible && (answers_original || undo.resent == Some(0)) {
            self.board.unlose();
            self.recovery.state = CaState::Open;
            self.recovery.undo = Undo::default();
            self.recovery.kept = 0;
            self.control.on_spurious_loss(now);
        }
    }

    /// The timeout fired: what was sent long enough ago is lost, and slow start begins again.
    pub(super) fn enter_loss(&mut self, now: Nanos) {
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
                is_possible: true,
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

    /// Linux: tcp_rack_reo_timeout.
    pub(super) fn on_reordering_timeout(&mut self, now: Nanos) {
        let wait = self.find_lost(now);
        if self.board.lost() > 0 && !self.recovery.is_repairing() {
            self.enter_recovery(now);
            self.control_window(
                &News {
                    delivered: 1,
                    ..News::default()
                },
                true,
                now,
            );
        }
        match wait {
            Some(wait) => self.rearm_reordering(wait, now),
            None => self.rearm_timeout(now),
        }
    }

    /// Linux: tcp_send_loss_probe. New data if there is some that the peer takes, else the last segment once more.
    pub(super) fn send_loss_probe(&mut self, now: Nanos) {
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

    /// Tells the congestion control, or reduces the window step by step.
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
        };
        self.control.on_ack(&acknowledged, now);
        if self.recovery.is_reducing() {
            self.reduce(news, newly_lost);
        }
    }

    /// RFC 6937, section 3, with the bound of Linux: slow start where recovery makes progress, else conservative.
    fn reduce(&mut self, news: &News, newly_lost: bool) {
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
        // The first segment is sent again at once.
        let send = send.max(i64::from(reduction.out == 0)).max(0);
        self.recovery.window = in_flight + send as u32;
    }
}

/// Whether one time stamp is before another: they count milliseconds.
fn is_before(a: Nanos, b: Nanos) -> bool {
    a / MILLISECOND < b / MILLISECOND
}
