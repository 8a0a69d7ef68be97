//! A model of TCP for tests: a server that sends (NewReno, or with SACK a reduced RFC 6675; RTO
//! with backoff, timestamps, window scaling) and a user that receives (with PAWS), with real
//! packets. Neither knows of the node between them.

use std::time::Duration;

use etherparse::TcpOptionElement as Option_;
use sumlink_congestion::{Ack, CongestionControl, Loss, Settings, Siblings, Timeout, build};
use sumlink_engine::RangeSet;

use crate::Instant;
use crate::packet::Segment;
use crate::packet::fixture::Draft;
use crate::seq;

pub(super) const MSS: usize = 1000;
const SCALE: u8 = 7;
/// The user's receive buffer.
const BUFFER: u64 = 1 << 20;
const FIRST_RTO: Duration = Duration::from_millis(500);
const MIN_RTO: Duration = Duration::from_millis(200);
/// Consecutive timeouts after which a connection is given up.
const MAX_TIMEOUTS: u32 = 10;

/// The byte at an offset of the stream.
fn byte(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

fn stamp(now: Instant) -> u32 {
    now.as_millis() as u32 + 1
}

/// The sending end.
pub(super) struct Server {
    start: u32,
    pub(super) total: u64,
    /// All positions count from the byte behind the SYN; the FIN is at `total`.
    pub(super) una: u64,
    next: u64,
    highest: u64,
    permitted: u64,
    opened: bool,
    pub(super) failed: bool,
    control: Box<dyn CongestionControl>,
    duplicates: u32,
    recover: Option<u64>,
    /// End of the data sent when the last recovery or timeout began. Duplicates before an
    /// acknowledgment beyond it come from unnecessary retransmissions (RFC 6582, section 3.2, step
    /// 1).
    guard: Option<u64>,
    /// A partial acknowledgment has already restarted the timer (RFC 6582, the impatient variant).
    impatient: bool,
    sacked: RangeSet,
    again: RangeSet,
    srtt: Option<Duration>,
    pub(super) timer: Option<Instant>,
    timeouts: u32,
    window: u16,
    echo: u32,
    sack: bool,
    pub(super) retransmitted: u64,
    pub(super) out: Vec<Vec<u8>>,
}

impl Server {
    pub(super) fn new(total: u64, start: u32) -> Self {
        Self {
            start,
            total,
            una: 0,
            next: 0,
            highest: 0,
            permitted: 0,
            opened: false,
            failed: false,
            control: build("reno", &Settings::default()).unwrap(),
            duplicates: 0,
            recover: None,
            guard: None,
            impatient: false,
            sacked: RangeSet::new(),
            again: RangeSet::new(),
            srtt: None,
            timer: None,
            timeouts: 0,
            window: 0,
            echo: 0,
            sack: false,
            retransmitted: 0,
            out: Vec::new(),
        }
    }

    pub(super) fn done(&self) -> bool {
        self.una > self.total
    }

    fn rto(&self) -> Duration {
        self.srtt.map_or(FIRST_RTO, |srtt| (2 * srtt).max(MIN_RTO)) * (1 << self.timeouts.min(6))
    }

    pub(super) fn handle(&mut self, segment: &Segment, now: Instant) {
        if segment.flags.rst {
            self.failed = true;
            self.timer = None;
        }
        if self.failed {
            return;
        }
        self.echo = segment.options.timestamps.map_or(0, |(value, _)| value);
        if segment.flags.syn {
            self.sack = segment.options.sack_permitted.is_some();
            return self.syn_ack(now);
        }
        let ack = self.locate(segment.ack);
        assert!(
            ack <= self.highest,
            "an acknowledgment of data that was never sent"
        );
        self.permitted = self
            .permitted
            .max(ack + (u64::from(segment.window) << SCALE));
        if !self.opened {
            self.opened = true;
            self.timer = None;
        }
        for (left, right) in segment.options.sack.iter() {
            let (left, right) = (self.locate(left), self.locate(right));
            assert!(
                self.sack && right <= self.highest,
                "blocks without an offer, or of data that was never sent"
            );
            if left >= self.una {
                self.sacked.insert(left..right);
            }
        }
        if ack > self.una {
            self.new_ack(ack, segment, now);
        } else if ack == self.una
            && self.highest > self.una
            && (segment.window == self.window || !segment.options.sack.is_empty())
        {
            self.duplicate(now);
        }
        self.window = segment.window;
        self.send(now);
    }

    fn locate(&self, number: u32) -> u64 {
        let reference = (1 << 32) + self.una;
        (seq::near(reference, number.wrapping_sub(self.start).wrapping_sub(1)))
            .saturating_sub(1 << 32)
    }

    fn new_ack(&mut self, ack: u64, segment: &Segment, now: Instant) {
        let acked = (ack - self.una).div_ceil(MSS as u64) as u32;
        let echoed = segment
            .options
            .timestamps
            .map(|(_, echo)| stamp(now).wrapping_sub(echo));
        let rtt = echoed.map(|ms| Duration::from_millis(u64::from(ms.min(60_000))));
        if let Some(rtt) = rtt {
            self.srtt = Some(
                self.srtt
                    .map_or(rtt, |srtt| srtt.mul_f64(0.875) + rtt.mul_f64(0.125)),
            );
        }
        self.una = ack;
        self.next = self.next.max(ack);
        self.sacked.remove(0..ack);
        self.timeouts = 0;
        if self.recover.is_some_and(|recover| ack >= recover) {
            self.recover = None;
            self.again = RangeSet::new();
            self.control.on_recovery_exit(now);
        }
        if self.recover.is_some() {
            self.resend(now); // RFC 6582: a partial acknowledgment
            self.duplicates = self.duplicates.saturating_sub(acked);
        } else {
            self.duplicates = 0;
        }
        let srtt = self.srtt.unwrap_or_default();
        let event = Ack {
            now,
            acked,
            rtt,
            srtt,
            acknowledged: ack,
            sent: self.highest,
            cwnd_limited: true,
        };
        self.control.on_ack(&event, &Siblings::NONE);
        if self.una >= self.highest {
            self.timer = None;
        } else if self.recover.is_none() || !self.impatient {
            self.impatient = self.recover.is_some();
            self.timer = Some(now + self.rto());
        }
    }

    fn duplicate(&mut self, now: Instant) {
        self.duplicates += 1;
        if self.recover.is_none()
            && self.duplicates == 3
            && self.guard.is_none_or(|guard| self.una > guard)
        {
            self.recover = Some(self.highest);
            (self.guard, self.impatient) = (Some(self.highest), false);
            self.control.on_loss(&Loss { now }, &Siblings::NONE);
            self.resend(now);
        } else if self.recover.is_some() && self.sack {
            self.resend(now);
        }
    }

    /// Sends the lowest missing segment again: without SACK the first one, with SACK the first one
    /// below the received data that has not been sent again.
    fn resend(&mut self, now: Instant) {
        let mut at = self.una;
        if self.sack && self.again.covers(at..at + 1) {
            let end = self.sacked.last().map_or(at, |last| last.start);
            while at < end && (self.again.covers(at..at + 1) || self.sacked.covers(at..at + 1)) {
                at += MSS as u64;
            }
            if at >= end {
                return;
            }
        }
        let end = (at + MSS as u64).min(self.total.max(at + 1));
        self.again.insert(at..end);
        self.retransmitted += 1;
        self.emit(at, now);
    }

    fn send(&mut self, now: Instant) {
        if !self.opened {
            return;
        }
        loop {
            let arrived = if self.sack {
                self.sacked.total() / MSS as u64
            } else {
                u64::from(self.duplicates)
            };
            let flight = ((self.next - self.una) / MSS as u64).saturating_sub(arrived);
            let end = (self.next + MSS as u64).min(self.total.max(self.next + 1));
            if self.next > self.total
                || flight >= self.control.cwnd() as u64
                || end > self.permitted
            {
                break;
            }
            let at = self.next;
            self.retransmitted += u64::from(at < self.highest);
            self.emit(at, now);
            self.next = end;
            self.highest = self.highest.max(end);
        }
    }

    /// Sends the segment at `at`: data, or the FIN after all data.
    fn emit(&mut self, at: u64, now: Instant) {
        let sequence = self.start.wrapping_add(1).wrapping_add(at as u32);
        let mut draft = Draft::down(sequence)
            .ack(501)
            .option(Option_::Timestamp(stamp(now), self.echo));
        if at >= self.total {
            draft = draft.fin();
        } else {
            let payload: Vec<u8> = (at..(at + MSS as u64).min(self.total)).map(byte).collect();
            draft = draft.payload(&payload);
        }
        self.out.push(draft.packet());
        self.timer.get_or_insert(now + self.rto());
    }

    fn syn_ack(&mut self, now: Instant) {
        let mut draft = Draft::down(self.start)
            .syn()
            .ack(501)
            .option(Option_::MaximumSegmentSize(1460));
        draft = draft
            .option(Option_::WindowScale(SCALE))
            .option(Option_::Timestamp(stamp(now), self.echo));
        if self.sack {
            draft = draft.option(Option_::SelectiveAcknowledgementPermitted);
        }
        self.out.push(draft.packet());
        self.timer = Some(now + self.rto());
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.timer.is_none_or(|at| at > now) {
            return;
        }
        self.timeouts += 1;
        if self.timeouts > MAX_TIMEOUTS {
            self.failed = true;
            self.timer = None;
            return;
        }
        if !self.opened {
            return self.syn_ack(now);
        }
        self.control.on_rto(
            &Timeout {
                now,
                repeated: self.timeouts > 1,
            },
            &Siblings::NONE,
        );
        (self.recover, self.duplicates) = (None, 0);
        (self.sacked, self.again) = (RangeSet::new(), RangeSet::new());
        self.guard = Some(self.highest);
        self.next = self.una;
        self.timer = Some(now + self.rto());
        self.send(now);
    }
}

/// The receiving end. It verifies every byte on arrival.
pub(super) struct User {
    start: Option<u32>,
    pub(super) next: u64,
    arrived: RangeSet,
    latest: Option<(u64, u64)>,
    recent: u32,
    fin: Option<u64>,
    sack: bool,
    pub(super) failed: bool,
    pub(super) finished: bool,
    pub(super) timer: Option<Instant>,
    pub(super) out: Vec<Vec<u8>>,
}

impl User {
    /// A user that opens the connection, with or without SACK.
    pub(super) fn new(sack: bool) -> Self {
        Self {
            start: None,
            next: 0,
            arrived: RangeSet::new(),
            latest: None,
            recent: 0,
            fin: None,
            sack,
            failed: false,
            finished: false,
            timer: Some(Instant::ZERO),
            out: Vec::new(),
        }
    }

    /// The position after the highest byte that it permits.
    pub(super) fn permitted(&self) -> u64 {
        self.next + ((BUFFER >> SCALE) << SCALE)
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.timer.is_some_and(|at| at <= now) {
            let mut syn = Draft::up(500)
                .syn()
                .option(Option_::MaximumSegmentSize(MSS as u16));
            syn = syn
                .option(Option_::WindowScale(SCALE))
                .option(Option_::Timestamp(stamp(now), 0));
            if self.sack {
                syn = syn.option(Option_::SelectiveAcknowledgementPermitted);
            }
            self.out.push(syn.packet());
            self.timer = Some(now + Duration::from_secs(1));
        }
    }

    pub(super) fn handle(&mut self, packet: &[u8], segment: &Segment, now: Instant) {
        if segment.flags.syn {
            self.start = Some(segment.sequence);
            self.sack &= segment.options.sack_permitted.is_some();
            self.timer = None;
            return self.acknowledge(None, now);
        }
        let Some(start) = self.start else { return };
        let number = segment.sequence.wrapping_sub(start).wrapping_sub(1);
        let left = seq::near((1 << 32) + self.next, number).saturating_sub(1 << 32);
        if segment.flags.rst {
            self.failed |= left == self.next; // RFC 5961: only in its place
            return;
        }
        let value = segment.options.timestamps.map_or(0, |(value, _)| value);
        if (value.wrapping_sub(self.recent) as i32) < 0 {
            // PAWS (RFC 7323, section 5.3): older than the latest in-order data.
            return self.acknowledge(None, now);
        }
        let payload = &packet[segment.payload..segment.payload + segment.len];
        let right = left + segment.sequence_len();
        for (n, &value) in payload.iter().enumerate() {
            assert_eq!(
                value,
                byte(left + n as u64),
                "wrong byte at {}",
                left + n as u64
            );
        }
        if segment.flags.fin {
            self.fin = Some(right);
        }
        let duplicate = right <= self.next || self.arrived.covers(left..right);
        if !duplicate {
            self.arrived.insert(left.max(self.next)..right);
        }
        if left <= self.next {
            self.recent = value;
        }
        while let Some(first) = self
            .arrived
            .first()
            .filter(|range| range.start <= self.next)
        {
            self.next = self.next.max(first.end);
            self.arrived.remove(first);
        }
        self.finished = self.fin.is_some_and(|fin| self.next >= fin);
        self.latest = Some((left, right));
        self.acknowledge(duplicate.then_some((left, right)), now);
    }

    fn acknowledge(&mut self, duplicate: Option<(u64, u64)>, now: Instant) {
        let Some(start) = self.start else { return };
        let number = |position: u64| start.wrapping_add(1).wrapping_add(position as u32);
        let mut blocks: Vec<(u32, u32)> = Vec::new();
        if self.sack {
            let block = |range: std::ops::Range<u64>| (number(range.start), number(range.end));
            blocks.extend(duplicate.map(|(left, right)| (number(left), number(right)))); // RFC 2883
            let holds = |range: &std::ops::Range<u64>| {
                self.latest.is_some_and(|(left, _)| range.contains(&left))
            };
            blocks.extend(self.arrived.iter().filter(|range| holds(range)).map(block));
            blocks.extend(self.arrived.iter().filter(|range| !holds(range)).map(block));
            blocks.truncate(3);
        }
        let draft = Draft::up(501)
            .ack(number(self.next))
            .window((BUFFER >> SCALE) as u16);
        self.out.push(
            draft
                .option(Option_::Timestamp(stamp(now), self.recent))
                .sack(&blocks)
                .packet(),
        );
    }
}
