//! Chooses the next packet of an end.

use super::packet::{Kind, MAX_SACKS, Packet};
use super::scoreboard::Segment;
use super::timer::Timer;
use super::{State, Tcp};
use crate::clock::{Nanos, SECOND, scaled};

impl Tcp {
    /// Returns the next packet; `None` if none can be sent now.
    pub fn poll_transmit(&mut self, now: Nanos) -> Option<Packet> {
        let packet = self.next_packet(now);
        let is_busy = !self.board.is_empty() || self.unsent() > 0;
        self.busy.set(is_busy, now);
        self.shut_out
            .set(is_busy && self.unsent() > 0 && !self.has_room(), now);
        packet
    }

    fn next_packet(&mut self, now: Nanos) -> Option<Packet> {
        if let Some(kind) = self.handshake_due.take() {
            let mut packet = self.packet(kind, 0, 0, now);
            self.receiver.acknowledge(&mut packet);
            return Some(packet);
        }
        if self.state != State::Established {
            return None;
        }
        if let Some(packet) = self.resend_lost(now).or_else(|| self.send_new(now)) {
            return Some(packet);
        }
        if std::mem::take(&mut self.probe_due) {
            // One byte before the window: the peer answers with its current state.
            let mut packet = self.packet(Kind::Data, self.acked.saturating_sub(1), 0, now);
            self.receiver.acknowledge(&mut packet);
            return Some(packet);
        }
        self.receiver.is_due().then(|| {
            let mut packet = self.packet(Kind::Data, self.next, 0, now);
            self.receiver.acknowledge(&mut packet);
            packet
        })
    }

    fn resend_lost(&mut self, now: Nanos) -> Option<Packet> {
        if let Some(id) = self.recovery.take_probe()
            && self.board.holds(id)
        {
            return Some(self.resend(id, now));
        }
        let id = self.board.next_to_resend()?;
        if self.board.in_flight() >= self.cwnd() || self.is_held_back(now) {
            return None;
        }
        Some(self.resend(id, now))
    }

    /// Retransmits a segment.
    fn resend(&mut self, id: u64, now: Nanos) -> Packet {
        let delivery = &mut self.delivery;
        let segment = self.board.resend(id, |segment| {
            delivery.send(segment, false, now);
            segment.sent = now;
        });
        let (seq, len) = segment.map_or((self.acked, 0), |segment| (segment.seq, segment.len));
        self.counters.retransmitted += 1;
        self.recovery.resent(now);
        if self.timer.is_none() {
            self.rearm_timeout(now);
        }
        self.data(seq, len, now)
    }

    fn send_new(&mut self, now: Nanos) -> Option<Packet> {
        let unsent = self.unsent();
        if unsent == 0 {
            return None;
        }
        let probe = self.recovery.take_new_data_probe();
        let in_flight = self.board.in_flight();
        if in_flight == 0 && self.board.is_empty() {
            self.begin_after_idle(now);
        }
        if in_flight >= self.cwnd() && !probe {
            self.note_usage(true);
            return None;
        }
        if self.is_held_back(now) {
            return None;
        }
        let room = self.window_end.saturating_sub(self.next);
        let len = unsent.min(u64::from(self.config.mss));
        if room < len {
            if self.timer.is_none() {
                self.rearm(now);
            }
            return None;
        }
        let mut segment = Segment {
            seq: self.next,
            len: len as u32,
            transmissions: 1,
            sacked: false,
            lost: false,
            resent: false,
            app_limited: false,
            sent: now,
            delivered: 0,
            delivered_at: 0,
            first_sent: 0,
        };
        self.delivery.send(&mut segment, self.board.is_empty(), now);
        let was_empty = self.board.is_empty();
        self.board.push(segment);
        self.next += len;
        self.recovery.sent();
        self.last_sent = now;
        if was_empty {
            self.last_progress = now;
        }
        self.note_usage(self.board.in_flight() >= self.cwnd());
        // Linux: tcp_event_new_data_sent, tcp_schedule_loss_probe
        match self.timer {
            Some((_, Timer::Retransmission | Timer::Reordering)) if !was_empty => {
                if self.may_probe() && self.board.sacked() == 0 && self.board.lost() == 0 {
                    self.rearm(now);
                }
            }
            _ => self.rearm(now),
        }
        Some(self.data(segment.seq, segment.len, now))
    }

    /// Linux: tcp_cwnd_validate. Remembers for a flight whether the window limited the sender.
    fn note_usage(&mut self, limited: bool) {
        let out = self.board.len();
        if self.acked >= self.usage_from || limited || !self.cwnd_limited && out > self.max_out {
            self.cwnd_limited = limited;
            self.max_out = out;
            self.usage_from = self.next;
        }
    }

    /// Whether the congestion window limits the sender (Linux: tcp_is_cwnd_limited).
    pub(super) fn is_cwnd_limited(&self) -> bool {
        self.cwnd_limited
            || self.control.is_in_slow_start() && self.control.cwnd() < 2 * self.max_out
    }

    /// Linux: tcp_slow_start_after_idle_check.
    fn begin_after_idle(&mut self, now: Nanos) {
        let idle = now.saturating_sub(self.last_sent);
        let rto = self.rtt.timeout();
        if self.last_sent > 0 && idle > rto && !self.recovery.is_repairing() {
            self.control.on_idle_end(idle, rto, now);
        }
    }

    /// Creates a packet with data and the current acknowledgment.
    fn data(&mut self, seq: u64, len: u32, now: Nanos) -> Packet {
        if let Some(pause) = self.pause() {
            let part = pause * u64::from(len) / u64::from(self.config.mss);
            self.paced_until = self.paced_until.max(now) + part;
        }
        let mut packet = self.packet(Kind::Data, seq, len, now);
        self.receiver.acknowledge(&mut packet);
        packet
    }

    fn packet(&mut self, kind: Kind, seq: u64, len: u32, now: Nanos) -> Packet {
        self.counters.segments += 1;
        Packet {
            connection: self.connection,
            to: self.side.peer(),
            kind,
            duplicate: 0,
            sack_count: 0,
            options: self.config.options as u8,
            sack_permitted: kind == Kind::Syn && self.sack,
            data_ack: self.data_ack.0,
            len,
            seq,
            ack: 0,
            window: 0,
            sacks: [(0, 0); MAX_SACKS],
            sent: now,
            echo: 0,
        }
    }

    /// Interval between segments, if they are paced.
    fn pause(&self) -> Option<Nanos> {
        let spaced = || {
            let rate = self.pacing_rate();
            let segment = u64::from(self.config.mss);
            (self.is_paced && rate > 0).then(|| scaled(segment, SECOND, rate))
        };
        let pause = self.control.pause().or_else(spaced);
        let least = self
            .max_rate
            .map(|rate| scaled(u64::from(self.config.mss), SECOND, rate.max(1)));
        pause.max(least)
    }

    fn is_held_back(&self, now: Nanos) -> bool {
        self.pause().is_some() && now < self.paced_until
    }

    /// Whether the next segment fits into the peer's window.
    fn has_room(&self) -> bool {
        let len = self.unsent().min(u64::from(self.config.mss));
        self.window_end.saturating_sub(self.next) >= len
    }

    /// Whether a packet waits only because of pacing.
    pub(super) fn is_held_by_pacing(&self) -> bool {
        self.pause().is_some()
            && self.board.in_flight() < self.cwnd()
            && (self.has_room() && self.unsent() > 0 || self.board.next_to_resend().is_some())
    }
}
