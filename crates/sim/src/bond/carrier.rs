//! A carrier as sumlink's daemon drives it: TLS records, how much may wait in the socket, and the samples of TCP_INFO.
//!
//! What is here is what `sumlink-transport` does in `carrier.rs` and `carrier/`, with its constants: the engine is told the same of a
//! modelled connection as of a real one. A change there belongs here as well.

use std::collections::VecDeque;
use std::time::Duration;

use sumlink_engine::{LossState, PathId, PathSample};

use super::acknowledgements::Acknowledgements;
use super::wires::{Pipe, RECORD, RECORD_OVERHEAD};
use crate::clock::{MILLISECOND, Nanos, SECOND, duration};
use crate::net::{Connection, Net};
use crate::tcp::{CaState, Side, TcpInfo};

/// TCP_INFO is not older than this when a decision is made with it.
const SAMPLE_AGE: Nanos = MILLISECOND;
/// What may wait unsent in the socket: this long at the present rate ...
const LOWAT_TIME: Nanos = 3 * MILLISECOND;
/// ... within these bounds.
const LOWAT: std::ops::RangeInclusive<u64> = 12 * 1024..=512 * 1024;
/// The low-water mark is changed no more often than this, unless twice as much is wanted.
const LOWAT_PAUSE: Nanos = 50 * MILLISECOND;
/// A carrier is young until so much of what it sends has been acknowledged.
const YOUTH: u64 = 256 * 1024;
/// The low-water mark of a young carrier.
const YOUNG_LOWAT: u64 = 2;
/// Most bytes handed over at once.
const MOST_AT_ONCE: u64 = 64 * 1024;
/// Fewest bytes of frames.
const LEAST_AT_ONCE: u64 = 512;

/// A segment of the socket's queue, for which the low-water mark is looked at once (`tcp_sendmsg_locked`).
const SOCKET_SEGMENT: u64 = 64 * 1024;

/// One end of a connection past its handshake.
#[derive(Debug)]
pub(super) struct Carrier {
    pub(super) id: PathId,
    pub(super) connection: Connection,
    side: Side,
    info: TcpInfo,
    sampled: Nanos,
    lowat: u64,
    lowat_set: Nanos,
    young_until: u64,
    /// Bytes handed to the socket since TCP_INFO was taken.
    handed: u64,
    /// Records that the socket has not taken: the data of each.
    waiting: VecDeque<usize>,
    /// Frame bytes in them, as counted by the daemon.
    unwritten: u64,
    /// The socket was full and is to tell when it is not.
    is_refused: bool,
    /// Bytes that were taken from the socket.
    read: u64,
    acknowledgements: Acknowledgements,
}

impl Carrier {
    pub(super) fn new(id: PathId, connection: Connection, side: Side, net: &Net) -> Self {
        let info = net.info(connection, side);
        Self {
            id,
            connection,
            side,
            sampled: net.now(),
            lowat: YOUNG_LOWAT,
            lowat_set: net.now(),
            young_until: info.acknowledged + YOUTH,
            info,
            handed: 0,
            waiting: VecDeque::new(),
            unwritten: 0,
            is_refused: false,
            read: net.tcp(connection, side).received(),
            acknowledgements: Acknowledgements::new(net.now()),
        }
    }

    /// Whether the socket, which was full, has told that it takes something.
    pub(super) fn has_become_writable(&mut self, net: &Net) -> bool {
        let woken = self.is_refused && self.unsent(net) * 2 < self.lowat;
        self.is_refused &= !woken;
        woken
    }

    /// Whether the socket takes more.
    pub(super) fn poll_writable(&mut self, net: &mut Net, pipe: &mut Pipe) -> bool {
        while !self.waiting.is_empty() {
            if !self.flush(net, pipe) {
                self.is_refused = true;
                return false;
            }
        }
        if self.is_parked(net) && self.unsent(net) * 2 >= self.lowat {
            self.is_refused = true;
            return false;
        }
        true
    }

    /// Whether the socket is asked before it is given anything: of a young carrier, when something waits there for TCP's
    /// window to open; of others, when the low-water mark is small, since TCP by itself would take far more.
    fn is_parked(&mut self, net: &Net) -> bool {
        if self.is_young() && (self.handed > 0 || self.info.unsent > 0) {
            self.refresh(net);
        }
        match self.is_young() {
            true => self.info.unsent > 0,
            false => self.is_exact(),
        }
    }

    /// Whether its low-water mark is so small that TCP by itself would take far more.
    fn is_exact(&self) -> bool {
        self.lowat < 2 * SOCKET_SEGMENT
    }

    /// Hands records to the socket; false when it is full.
    fn flush(&mut self, net: &mut Net, pipe: &mut Pipe) -> bool {
        if self.unsent(net) >= self.lowat {
            return false;
        }
        let mut wire = 0;
        let start = net.tcp(self.connection, self.side).written();
        while wire < SOCKET_SEGMENT
            && let Some(len) = self.waiting.pop_front()
        {
            wire += len as u64 + RECORD_OVERHEAD;
            pipe.seal(start + wire, len);
        }
        net.write(self.connection, self.side, wire);
        self.handed += wire;
        self.acknowledgements.sent();
        if self.waiting.is_empty() {
            self.unwritten = 0;
        }
        true
    }

    /// Makes records of frames; [`Carrier::poll_writable`] writes them.
    pub(super) fn send(&mut self, frames: Vec<u8>, pipe: &mut Pipe) {
        self.unwritten += frames.len() as u64;
        let records = frames.chunks(RECORD).map(<[u8]>::len);
        self.waiting.extend(records);
        pipe.keep(frames);
    }

    /// Takes everything before `received` from the socket.
    pub(super) fn read(&mut self, received: u64, net: &mut Net) {
        let len = received - self.read;
        self.read = received;
        self.acknowledgements.arrived(len, &self.info, net.now());
        net.read(self.connection, self.side, received);
    }

    /// Has TCP acknowledge what little has arrived, unless that goes along with what is sent.
    pub(super) fn acknowledge(&mut self, net: &mut Net) {
        if self.waiting.is_empty() && self.acknowledgements.are_to_be_told(&self.info) {
            net.acknowledge_waiting(self.connection, self.side);
        }
    }

    /// Bytes to hand over at once.
    pub(super) fn budget(&self) -> usize {
        if self.is_young() {
            // As in the daemon, up to the end of a segment.
            let info = &self.info;
            let (waits, segment) = (info.unsent + self.unwritten, u64::from(info.mss));
            let room = info.cwnd.saturating_sub(info.unacked + waits);
            let end = (waits + room) / segment * segment + segment;
            let wire = match end - waits {
                crumb if crumb < LEAST_AT_ONCE + RECORD_OVERHEAD => crumb + segment,
                wire => wire.min(MOST_AT_ONCE),
            };
            let records = wire.div_ceil(RECORD as u64 + RECORD_OVERHEAD);
            return wire
                .saturating_sub(records * RECORD_OVERHEAD)
                .max(LEAST_AT_ONCE) as usize;
        }
        (self.lowat / 2).clamp(8 * 1024, MOST_AT_ONCE) as usize
    }

    fn is_young(&self) -> bool {
        self.info.acknowledged < self.young_until
    }

    /// What TCP knows now: at most a millisecond old, and of a young carrier no older than what was last sent.
    pub(super) fn sample(&mut self, net: &Net) -> PathSample {
        let is_old = net.now() - self.sampled >= SAMPLE_AGE;
        let known = self.info.unacked + self.info.unsent;
        let is_behind = self.handed > known || self.handed > 0 && self.is_young();
        if is_old || is_behind || self.info.srtt == 0 {
            self.refresh(net);
        }
        let info = &self.info;
        PathSample {
            srtt: duration(info.srtt),
            rttvar: duration(info.rttvar),
            min_rtt: duration(info.min_rtt),
            mss: info.mss,
            cwnd: info.cwnd,
            ssthresh: info.ssthresh,
            loss: match info.ca_state {
                CaState::Open => LossState::Open,
                CaState::Loss => LossState::Timeout,
                CaState::Disorder | CaState::Cwr | CaState::Recovery => LossState::Recovery,
            },
            in_flight: info.unacked,
            unsent: info.unsent + self.unwritten,
            // The interfaces of the laboratory keep no queue.
            local_queue: 0,
            full: !self.waiting.is_empty() || self.is_exact() && info.unsent * 2 >= self.lowat,
            // No control of the simulator does.
            pauses: false,
            delivery_rate: info.delivery_rate,
            pacing_rate: info.pacing_rate,
            // No scenario limits what a link may carry.
            limit: 0,
            segments: info.segments,
            retransmitted: info.retransmitted,
            delivered: info.delivered,
            received: info.received,
        }
    }

    fn unsent(&self, net: &Net) -> u64 {
        net.tcp(self.connection, self.side).unsent()
    }

    fn refresh(&mut self, net: &Net) {
        let now = net.now();
        (self.sampled, self.handed) = (now, 0);
        self.info = net.info(self.connection, self.side);
        if self.info.since_sent > self.info.rto && self.info.unacked == 0 {
            self.young_until = self.info.acknowledged + YOUTH;
        }
        match self.is_young() {
            true => self.set_lowat(YOUNG_LOWAT, now),
            false => self.adapt_lowat(now),
        }
    }

    fn adapt_lowat(&mut self, now: Nanos) {
        let info = &self.info;
        let mut rate = info.delivery_rate as f64;
        if info.ssthresh.is_none() {
            // In slow start what was measured is the rate of the window before.
            let srtt = Duration::from_nanos(info.srtt).as_secs_f64();
            rate = rate.max(info.cwnd as f64 / srtt.max(1e-6));
        }
        let time = LOWAT_TIME as f64 / SECOND as f64;
        let wanted = ((rate * time) as u64).clamp(*LOWAT.start(), *LOWAT.end());
        let is_due = now - self.lowat_set >= LOWAT_PAUSE;
        let has_grown = wanted / 2 >= self.lowat;
        if has_grown || is_due && wanted.abs_diff(self.lowat) > self.lowat / 4 {
            self.set_lowat(wanted, now);
        }
    }

    fn set_lowat(&mut self, lowat: u64, now: Nanos) {
        if lowat != self.lowat {
            self.lowat_set = now;
            self.lowat = lowat;
        }
    }
}
