//! The single timer of a sender, and its actions.

use super::packet::Kind;
use super::{End, State, Tcp};
use crate::clock::{MILLISECOND, Nanos, SECOND};

/// Purpose of the timer; Linux, too, has a single timer for all of them (`icsk_pending`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// A handshake packet was not answered.
    Handshake,
    /// Nothing was acknowledged for an RTO (RFC 6298).
    Retransmission,
    /// The tail may be lost (RFC 8985, section 7.2).
    LossProbe,
    /// Overtaken segments may be lost (RFC 8985, section 6.3).
    Reordering,
    /// The peer's window is too small for a segment, and its window update may have been lost (RFC
    /// 9293, section 3.8.6.1).
    Persist,
}

/// Period of the kernel's timer clock (CONFIG_HZ of 250): timers fire on a tick, never early.
pub(super) const TICK: Nanos = 4 * MILLISECOND;
/// Added to the wait for a loss probe (TCP_TIMEOUT_MIN).
const TICKS: Nanos = 2 * TICK;
/// Range of the finest level of the kernel's timer wheel, in ticks; then log2 of the factor between
/// levels.
const WHEEL: u64 = 63;
const COARSER: u32 = 3;
/// Longest wait between handshake packets.
const HANDSHAKE_MAX: Nanos = 64 * SECOND;

impl Tcp {
    pub(super) fn fire(&mut self, timer: Timer, now: Nanos) {
        match timer {
            Timer::Handshake => {
                self.syn_sent = 0;
                self.syn_timeout = (self.syn_timeout * 2).min(HANDSHAKE_MAX);
                self.send_handshake(Kind::Syn, now);
            }
            Timer::Retransmission => self.on_timeout(now),
            Timer::LossProbe => self.send_loss_probe(now),
            Timer::Reordering => self.on_reordering_timeout(now),
            Timer::Persist => {
                self.probe_due = true;
                self.rtt.back_off();
                self.set_timer(now, self.rtt.timeout(), Timer::Persist);
            }
        }
    }

    /// Restarts the timer: new data was acknowledged, or data was sent with no timer or a loss
    /// probe pending.
    pub(super) fn rearm(&mut self, now: Nanos) {
        if !self.board.is_empty() {
            match self.probe_after() {
                Some(wait) => self.set_timer(now, wait, Timer::LossProbe),
                None => self.rearm_timeout(now),
            }
        } else if self.is_shut_out() {
            self.set_timer(now, self.rtt.timeout(), Timer::Persist);
        } else {
            self.timer = None;
        }
    }

    /// Whether the next segment exceeds the peer's window.
    fn is_shut_out(&self) -> bool {
        let next = self.unsent().min(u64::from(self.config.mss));
        self.window_end < self.next + next
    }

    /// Restarts the retransmission timer without a loss probe before it.
    pub(super) fn rearm_timeout(&mut self, now: Nanos) {
        self.timer = None;
        if !self.board.is_empty() {
            self.set_timer(now, self.rtt.timeout(), Timer::Retransmission);
        }
    }

    pub(super) fn set_timer(&mut self, now: Nanos, wait: Nanos, timer: Timer) {
        self.timer = Some((expiry(now, wait), timer));
    }

    /// Schedules the next check of overtaken segments after `wait`.
    pub(super) fn rearm_reordering(&mut self, wait: Nanos, now: Nanos) {
        self.set_timer(now, wait + TICKS, Timer::Reordering);
    }

    /// Wait before the tail is probed; `None` if losses are known or suspected.
    fn probe_after(&self) -> Option<Nanos> {
        if !self.may_probe() || self.board.sacked() > 0 || self.board.lost() > 0 {
            return None;
        }
        // Linux: tcp_schedule_loss_probe
        let srtt = self.rtt.srtt();
        let wait = match srtt {
            0 => SECOND,
            srtt if self.board.len() == 1 => 2 * srtt + self.rtt.floor(),
            srtt => 2 * srtt + TICKS,
        };
        Some(wait.min(self.rtt.timeout()))
    }

    /// Probes a silent peer, or gives up the connection (Linux: tcp_keepalive_timer). While data is
    /// unacknowledged, the retransmission timer does this.
    pub(super) fn keep_alive(&mut self, now: Nanos) {
        let Some((wait, again)) = self.config.keepalive else {
            return;
        };
        let silent = now - self.heard;
        let next = if !self.board.is_empty() || self.unsent() > 0 {
            wait
        } else if silent < wait {
            wait - silent
        } else if silent >= self.config.user_timeout && self.is_asked {
            return self.end(End::TimedOut);
        } else {
            self.is_asked = true;
            self.probe_due = true;
            again
        };
        self.keepalive_at = Some((now + next).next_multiple_of(TICK));
    }

    fn on_timeout(&mut self, now: Nanos) {
        if self.board.is_empty() {
            return;
        }
        if now.saturating_sub(self.last_progress) > self.config.user_timeout {
            return self.end(End::TimedOut);
        }
        self.counters.timeouts += 1;
        self.enter_loss(now);
        self.rtt.back_off();
        self.rearm_timeout(now);
    }
}

/// Expiry of a kernel timer: coarser the longer the wait, and never early (`calc_index` in
/// kernel/time/timer.c).
fn expiry(now: Nanos, wait: Nanos) -> Nanos {
    let (now, wait) = (now / TICK, wait.div_ceil(TICK));
    let mut shift = 0;
    while wait >= WHEEL << shift {
        shift += COARSER;
    }
    ((((now + wait) >> shift) + 1) << shift) * TICK
}

impl State {
    /// Whether the connection is over.
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Ended(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_timers_are_coarse_and_none_is_early() {
        let late =
            |now: u64, wait: u64| expiry(now * MILLISECOND, wait * MILLISECOND) / MILLISECOND;
        assert_eq!(late(1001, 8), 1012);
        assert_eq!(late(1000, 248), 1252);
        assert_eq!(late(1000, 252), 1280);
        assert_eq!(late(1000, 1984), 3008);
        assert_eq!(late(1000, 2048), 3072);
        for wait in 0..20_000 {
            let at = late(12_345, wait);
            assert!(
                (12_345 + wait..12_345 + wait + 8 + wait / 4).contains(&at),
                "{wait}: {at}"
            );
        }
    }
}
