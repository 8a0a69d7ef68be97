//! The packets in flight: round trip, losses and timers (RFC 9002).

use std::collections::BTreeMap;
use std::time::Duration;

use sumlink_bond::datagram::quic::{INITIAL_RTT, PACKET_THRESHOLD};
use sumlink_bond::datagram::{Acked, BoundedCubic};

use super::packet::Ack;
use crate::clock::{MILLISECOND, Nanos, duration, nanos};

/// Granularity of timers (RFC 9002, section 6.1.2).
const GRANULARITY: Nanos = MILLISECOND;

/// Parts of a round trip after which a packet is lost (RFC 9002, section 6.1.2): 9/8.
const TIME_THRESHOLD: (u64, u64) = (9, 8);

/// Probe timeouts without an acknowledgment that make a congestion persistent (RFC 9002, section
/// 7.6.1).
const PERSISTENT: u64 = 3;

/// Packets of a probe (RFC 9002, section 6.2.4).
const PROBES: u32 = 2;

/// Largest exponent of the back-off of probes.
const MAX_BACKOFF: u32 = 16;

/// The congestion control of a sender.
pub(crate) trait Control {
    /// Bytes that may be in flight.
    fn window(&self) -> u64;

    /// Packets were acknowledged.
    fn on_ack(&mut self, acked: &Acked);

    /// A packet sent at `sent` was lost.
    fn on_loss(&mut self, now: Duration, sent: Duration, is_persistent: bool);
}

impl Control for BoundedCubic {
    fn window(&self) -> u64 {
        self.window()
    }

    fn on_ack(&mut self, acked: &Acked) {
        self.on_ack(acked);
    }

    fn on_loss(&mut self, now: Duration, sent: Duration, is_persistent: bool) {
        self.on_loss(now, sent, is_persistent);
    }
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Nanos,
    bytes: u64,
}

/// The round trip (RFC 9002, section 5).
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTrip {
    pub(super) smoothed: Nanos,
    pub(super) variation: Nanos,
    pub(super) least: Nanos,
    latest: Nanos,
}

/// Counters of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Packets that were acknowledged or have to be.
    pub(crate) packets: u64,
    /// Those of them that were lost.
    pub(crate) lost: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Sender<C> {
    pub(crate) control: C,
    /// UDP payload bytes of a full packet.
    mtu: u64,
    /// Longest delay of the peer's acknowledgments.
    ack_delay: Nanos,
    next: u64,
    in_flight: BTreeMap<u64, Sent>,
    bytes: u64,
    /// Most bytes in flight since the previous acknowledgment.
    used: u64,
    highest_acked: Option<u64>,
    rtt: Option<RoundTrip>,
    /// When the first sample was taken: no congestion is persistent before.
    sampled: Nanos,
    last_sent: Nanos,
    /// When the next packet counts as lost.
    loss_at: Option<Nanos>,
    /// Probe timeouts in a row.
    timeouts: u32,
    /// Probes to send.
    pub(crate) probes: u32,
    pub(crate) counters: Counters,
}

impl<C: Control> Sender<C> {
    /// A sender of packets with at most `mtu` bytes to a peer that acknowledges them within
    /// `ack_delay`.
    pub(crate) fn new(control: C, mtu: u16, ack_delay: Duration) -> Self {
        Self {
            control,
            mtu: u64::from(mtu),
            ack_delay: nanos(ack_delay),
            next: 0,
            in_flight: BTreeMap::new(),
            bytes: 0,
            used: 0,
            highest_acked: None,
            rtt: None,
            sampled: 0,
            last_sent: 0,
            loss_at: None,
            timeouts: 0,
            probes: 0,
            counters: Counters::default(),
        }
    }

    /// The congestion window in bytes.
    pub(crate) fn window(&self) -> u64 {
        self.control.window()
    }

    /// Bytes in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        self.bytes
    }

    /// The round trip, once measured.
    pub(crate) fn rtt(&self) -> Option<RoundTrip> {
        self.rtt
    }

    /// The smoothed round trip, or the assumed one.
    pub(crate) fn srtt(&self) -> Duration {
        self.rtt.map_or(INITIAL_RTT, |rtt| duration(rtt.smoothed))
    }

    /// Whether the window takes another packet. Like quinn, it takes one only if the window exceeds
    /// what is in flight with it.
    pub(crate) fn has_window(&self) -> bool {
        self.bytes + self.mtu < self.window()
    }

    /// The number of the next packet, which leaves now; one that asks for an acknowledgment is in
    /// flight.
    pub(crate) fn send(&mut self, bytes: u64, is_eliciting: bool, now: Nanos) -> u64 {
        let number = self.next;
        self.next += 1;
        if is_eliciting {
            self.counters.packets += 1;
            self.in_flight.insert(number, Sent { at: now, bytes });
            self.bytes += bytes;
            self.used = self.used.max(self.bytes);
            self.last_sent = now;
        }
        number
    }

    /// A sample of the round trip from the handshake or from an acknowledgment, which its sender
    /// has delayed by `delay`.
    pub(crate) fn sample(&mut self, latest: Nanos, delay: Nanos, now: Nanos) -> Nanos {
        let Some(rtt) = &mut self.rtt else {
            self.sampled = now;
            self.rtt = Some(RoundTrip {
                smoothed: latest,
                variation: latest / 2,
                least: latest,
                latest,
            });
            return latest;
        };
        rtt.least = rtt.least.min(latest);
        rtt.latest = latest;
        let delay = delay.min(self.ack_delay);
        let adjusted = match latest >= rtt.least + delay {
            true => latest - delay,
            false => latest,
        };
        rtt.variation = (3 * rtt.variation + rtt.smoothed.abs_diff(adjusted)) / 4;
        rtt.smoothed = (7 * rtt.smoothed + adjusted) / 8;
        adjusted
    }

    /// An acknowledgment has arrived; `waits` if datagrams wait for the window. Returns the packets
    /// that turned out to be lost.
    pub(crate) fn acknowledge(&mut self, ack: &Ack, waits: bool, now: Nanos) -> Vec<u64> {
        let mut acked: Vec<(u64, Sent)> = Vec::new();
        for range in &ack.ranges {
            let numbers = self.in_flight.range(range.clone());
            acked.extend(numbers.map(|(number, sent)| (*number, *sent)));
        }
        acked.sort_unstable_by_key(|(number, _)| *number);
        for (number, sent) in &acked {
            self.in_flight.remove(number);
            self.bytes -= sent.bytes;
        }
        let highest = ack.ranges[0].end - 1;
        self.highest_acked = self.highest_acked.max(Some(highest));
        let Some((last, newest)) = acked.last().copied() else {
            return Vec::new();
        };
        let sample = (last == highest).then(|| self.sample(now - newest.at, ack.delay, now));
        self.timeouts = 0;
        self.probes = 0;
        self.control.on_ack(&Acked {
            now: duration(now),
            sent: duration(newest.at),
            bytes: acked.iter().map(|(_, sent)| sent.bytes).sum(),
            rtt: sample.map(duration),
            srtt: self.srtt(),
            used: self.used,
            waits,
        });
        self.used = self.bytes;
        let acked: Vec<u64> = acked.into_iter().map(|(number, _)| number).collect();
        self.detect_losses(&acked, now)
    }

    /// Finds lost packets; `acked` are those acknowledged now, in order.
    fn detect_losses(&mut self, acked: &[u64], now: Nanos) -> Vec<u64> {
        self.loss_at = None;
        let (Some(highest), Some(rtt)) = (self.highest_acked, self.rtt) else {
            return Vec::new();
        };
        let (times, parts) = TIME_THRESHOLD;
        let patience = (rtt.smoothed.max(rtt.latest) * times / parts).max(GRANULARITY);
        let mut lost: Vec<(u64, Sent)> = Vec::new();
        for (number, sent) in self.in_flight.range(..highest) {
            let is_late = sent.at + patience <= now;
            if is_late || *number + u64::from(PACKET_THRESHOLD) <= highest {
                lost.push((*number, *sent));
            } else {
                self.loss_at = Some(sent.at + patience);
                break;
            }
        }
        let Some((_, newest)) = lost.last().copied() else {
            return Vec::new();
        };
        for (number, sent) in &lost {
            self.in_flight.remove(number);
            self.bytes -= sent.bytes;
        }
        self.counters.lost += lost.len() as u64;
        let is_persistent = self.is_persistent(&lost, acked);
        self.control
            .on_loss(duration(now), duration(newest.at), is_persistent);
        lost.into_iter().map(|(number, _)| number).collect()
    }

    /// Whether everything was lost for a long time (RFC 9002, section 7.6).
    fn is_persistent(&self, lost: &[(u64, Sent)], acked: &[u64]) -> bool {
        let limit = PERSISTENT * self.timeout();
        let mut first: Option<(u64, Nanos)> = None;
        for (number, sent) in lost.iter().filter(|(_, sent)| sent.at >= self.sampled) {
            let (begin, at) = *first.get_or_insert((*number, sent.at));
            let is_broken = acked.iter().any(|acked| (begin..*number).contains(acked));
            if is_broken {
                first = Some((*number, sent.at));
            } else if sent.at - at > limit {
                return true;
            }
        }
        false
    }

    /// The probe timeout without back-off.
    fn timeout(&self) -> Nanos {
        let delay = self.ack_delay;
        match self.rtt {
            Some(rtt) => rtt.smoothed + (4 * rtt.variation).max(GRANULARITY) + delay,
            None => 3 * nanos(INITIAL_RTT) + delay,
        }
    }

    /// When [`Sender::on_time`] is due.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        if self.loss_at.is_some() {
            return self.loss_at;
        }
        let wait = self.timeout() << self.timeouts.min(MAX_BACKOFF);
        (!self.in_flight.is_empty()).then_some(self.last_sent + wait)
    }

    /// A timer has expired: packets are lost, which it returns, or the path is probed.
    pub(crate) fn on_time(&mut self, now: Nanos) -> Vec<u64> {
        if self.deadline().is_none_or(|at| at > now) {
            return Vec::new();
        }
        if self.loss_at.is_some() {
            return self.detect_losses(&[], now);
        }
        self.timeouts += 1;
        self.probes = PROBES;
        // The next timeout counts from the probes, which may not leave at once.
        self.last_sent = now;
        Vec::new()
    }
}

/// The wait for an answer in the handshake, after `timeouts` that passed without one.
pub(crate) fn handshake_wait(rtt: Option<RoundTrip>, timeouts: u32) -> Nanos {
    let first = match rtt {
        Some(rtt) => rtt.smoothed + (4 * rtt.variation).max(GRANULARITY),
        None => 3 * nanos(INITIAL_RTT),
    };
    first << timeouts.min(MAX_BACKOFF)
}

#[cfg(test)]
mod tests {
    use sumlink_bond::datagram::quic::ACK_DELAY;

    use super::super::packet::MTU;
    use super::*;

    const RTT: Nanos = 20 * MILLISECOND;

    fn ack(range: std::ops::Range<u64>) -> Ack {
        Ack {
            ranges: std::iter::once(range).collect(),
            delay: 0,
        }
    }

    /// A sender with ten packets in flight, sent a millisecond apart.
    fn sender() -> Sender<BoundedCubic> {
        let mut sender = Sender::new(BoundedCubic::new(MTU), MTU, ACK_DELAY);
        sender.sample(RTT, 0, 0);
        for number in 0..10 {
            assert_eq!(sender.send(1000, true, number * MILLISECOND), number);
        }
        sender
    }

    #[test]
    fn three_later_packets_make_one_lost() {
        let mut sender = sender();
        let window = sender.window();
        sender.acknowledge(&ack(1..3), true, RTT + 2 * MILLISECOND);
        assert_eq!(sender.counters.lost, 0);
        sender.acknowledge(&ack(1..4), true, RTT + 3 * MILLISECOND);
        assert_eq!(sender.counters.lost, 1);
        assert_eq!(sender.in_flight(), 6000);
        assert!(sender.window() < window);
    }

    #[test]
    fn nine_eighths_of_a_round_trip_make_one_lost() {
        let mut sender = sender();
        sender.acknowledge(&ack(1..2), true, RTT + MILLISECOND);
        let due = sender.deadline().unwrap();
        assert_eq!(due, RTT * 9 / 8);
        sender.on_time(due - 1);
        assert_eq!(sender.counters.lost, 0);
        sender.on_time(due);
        assert_eq!(sender.counters.lost, 1);
    }

    #[test]
    fn probes_back_off_until_something_is_acknowledged() {
        let mut sender = sender();
        let (mut now, mut waits) = (9 * MILLISECOND, Vec::new());
        for _ in 0..4 {
            let due = sender.deadline().unwrap();
            waits.push((due - now) / MILLISECOND);
            now = due;
            sender.on_time(now);
            assert_eq!(sender.probes, 2);
        }
        // 20 ms, four variations of 10 ms, and the delay of acknowledgments.
        assert_eq!(waits, [65, 130, 260, 520]);
        assert_eq!(sender.counters.lost, 0);
        sender.acknowledge(&ack(0..10), true, now);
        assert_eq!((sender.in_flight(), sender.deadline()), (0, None));
    }

    #[test]
    fn a_long_outage_is_a_persistent_congestion() {
        let mut sender = sender();
        sender.send(1000, true, 900 * MILLISECOND);
        let number = sender.send(1000, true, 901 * MILLISECOND);
        sender.send(1000, true, 902 * MILLISECOND);
        let last = sender.send(1000, true, 903 * MILLISECOND);
        sender.acknowledge(&ack(last..last + 1), true, 903 * MILLISECOND + RTT);
        assert_eq!(sender.counters.lost, number);
        assert!(sender.window() <= 4 * u64::from(MTU), "{}", sender.window());
    }
}
