//! A model of a QUIC connection that carries datagrams (RFC 9221), packet by packet: one end.
//!
//! The model has all parts that affect datagrams: a handshake with address validation (RFC 9000,
//! section 8.1.2), acknowledgments and loss detection (RFC 9002), pacing, probes, keep-alives and
//! the idle timeout, with the parameters of [`sumlink_bond::datagram::quic`] and with
//! [`BoundedCubic`](sumlink_bond::datagram::BoundedCubic) as the congestion control. Lost datagrams
//! are not repeated. Not in the model: streams after the handshake, the search for the largest
//! packet, ECN, migration.

mod pacer;
mod packet;
mod receiver;
mod sender;

use std::collections::VecDeque;

use bytes::Bytes;
use sumlink_bond::datagram::quic::{ACK_DELAY, HANDSHAKE_PATIENCE, IDLE_TIMEOUT, KEEP_ALIVE};
use sumlink_bond::datagram::{BoundedCubic, Room};
use sumlink_engine::DatagramSample;

use crate::clock::{Nanos, duration, nanos};
use crate::tcp::Side;
use packet::{Content, FLIGHTS, FRAMES, LARGEST, MTU, framed};
use sender::handshake_wait;

pub(crate) use pacer::Pacer;
pub(crate) use packet::{Ack, Packet};
pub(crate) use receiver::{AckRules, Receiver};
pub(crate) use sender::{Control, Sender};

/// Overhead of a datagram in the buffer of a connection, in bytes: that of quinn.
const BUFFERED_OVERHEAD: usize = size_of::<Bytes>();

/// The state of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The client asks, or the server has not been asked.
    Joining,
    /// It carries datagrams.
    Joined,
    /// The client got no answer.
    Blocked,
    /// It has ended: by either side, or because nothing arrived.
    Ended,
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Quic {
    connection: u32,
    side: Side,
    state: State,
    begun: Nanos,
    /// The client's present flight, or the server's last answer.
    flight: usize,
    /// The flight leaves with the next packet.
    must_send_flight: bool,
    flight_sent: Nanos,
    /// Times that the flight was repeated.
    repeats: u32,
    sender: Sender<BoundedCubic>,
    receiver: Receiver,
    pacer: Pacer,
    /// When pacing lets the next packet leave.
    paced: Option<Nanos>,
    /// Datagrams that wait for the window or for pacing.
    waiting: VecDeque<Bytes>,
    buffered: usize,
    /// The owner waits until no more bytes than these are buffered.
    refill_at: Option<usize>,
    arrived: VecDeque<Bytes>,
    /// When a packet arrived last, or the first packet after it left.
    heard: Nanos,
    has_asked_since: bool,
    must_ping: bool,
    must_close: bool,
}

impl Quic {
    /// An end of a connection; the client asks at once.
    pub(crate) fn new(connection: u32, side: Side, now: Nanos) -> Self {
        Self {
            connection,
            side,
            state: State::Joining,
            begun: now,
            flight: 0,
            must_send_flight: side == Side::Client,
            flight_sent: now,
            repeats: 0,
            sender: Sender::new(BoundedCubic::new(MTU), MTU, ACK_DELAY),
            receiver: Receiver::new(AckRules::CARRIER),
            pacer: Pacer::new(),
            paced: None,
            waiting: VecDeque::new(),
            buffered: 0,
            refill_at: None,
            arrived: VecDeque::new(),
            heard: now,
            has_asked_since: false,
            must_ping: false,
            must_close: false,
        }
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Accepts a datagram; `Err` gives it back if there is no room for it.
    pub(crate) fn send(&mut self, datagram: Bytes) -> Result<(), Bytes> {
        if self.left() <= datagram.len() {
            return Err(datagram);
        }
        self.buffered += datagram.len() + BUFFERED_OVERHEAD;
        self.waiting.push_back(datagram);
        Ok(())
    }

    /// Whether one of the largest datagrams has room. If not, [`Quic::is_refilled`] follows.
    pub(crate) fn poll_writable(&mut self) -> bool {
        let is_writable = self.left() > LARGEST;
        self.refill_at = (!is_writable).then(|| self.room().refill_at());
        is_writable
    }

    /// Whether a part of the waiting datagrams has left since [`Quic::poll_writable`].
    pub(crate) fn is_refilled(&mut self) -> bool {
        let is_refilled = self.refill_at.is_some_and(|most| self.buffered <= most);
        if is_refilled {
            self.refill_at = None;
        }
        is_refilled
    }

    /// The next datagram that has arrived.
    pub(crate) fn poll_received(&mut self) -> Option<Bytes> {
        self.arrived.pop_front()
    }

    /// Whether datagrams have arrived.
    pub(crate) fn has_received(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// The largest datagram in bytes.
    pub(crate) fn max_datagram(&self) -> usize {
        LARGEST
    }

    /// The measurements of the connection.
    pub(crate) fn sample(&self) -> DatagramSample {
        let rtt = self.sender.rtt();
        DatagramSample {
            srtt: self.sender.srtt(),
            min_rtt: rtt.map_or_else(|| self.sender.srtt(), |rtt| duration(rtt.least)),
            rttvar: rtt.map_or_else(Default::default, |rtt| duration(rtt.variation)),
            cwnd: self.sender.window(),
            in_flight: self.sender.in_flight(),
            max_datagram: LARGEST,
            space: self.left() as u64,
        }
    }

    /// Packets sent and lost.
    #[cfg(test)]
    fn counters(&self) -> sender::Counters {
        self.sender.counters
    }

    /// Ends the connection; the peer learns of it if the packet arrives.
    pub(crate) fn close(&mut self) {
        let is_over = matches!(self.state, State::Ended | State::Blocked);
        self.must_close |= !is_over;
        self.end(State::Ended);
    }

    fn end(&mut self, state: State) {
        self.state = state;
        self.waiting.clear();
        self.buffered = 0;
        self.must_send_flight = false;
    }

    fn room(&self) -> Room {
        let window = self.sender.window();
        let open = window.saturating_sub(self.sender.in_flight());
        let srtt = self.sender.rtt().map(|rtt| duration(rtt.smoothed));
        Room::new(window, open, srtt, (LARGEST, BUFFERED_OVERHEAD))
    }

    fn left(&self) -> usize {
        match self.state {
            State::Joined => self.room().left(self.buffered),
            _ => 0,
        }
    }

    /// A packet has arrived.
    pub(crate) fn receive(&mut self, packet: &Packet, now: Nanos) {
        if matches!(self.state, State::Ended | State::Blocked) {
            return;
        }
        (self.heard, self.has_asked_since) = (now, false);
        match &packet.content {
            Content::Handshake(flight) => self.on_flight(*flight, now),
            Content::Close => self.end(State::Ended),
            // Data before the end of the handshake is lost.
            Content::Data { .. } if self.state != State::Joined => {}
            Content::Data {
                number,
                datagrams,
                ping,
                ack,
            } => {
                let asks = packet.is_eliciting();
                if !self.receiver.arrive(*number, asks, *ping, now) {
                    return;
                }
                self.arrived.extend(datagrams.iter().cloned());
                if let Some(ack) = ack {
                    let waits = !self.waiting.is_empty();
                    self.sender.acknowledge(ack, waits, now);
                }
            }
        }
    }

    fn on_flight(&mut self, flight: usize, now: Nanos) {
        match self.side {
            Side::Server if flight >= self.flight => {
                if flight > self.flight && self.repeats == 0 {
                    self.sender.sample(now - self.flight_sent, 0, now);
                }
                self.repeats = u32::from(flight == self.flight && flight > 0);
                self.flight = flight;
                self.must_send_flight = true;
                if flight + 1 == FLIGHTS.len() {
                    self.state = State::Joined;
                }
            }
            Side::Client if flight == self.flight && self.state == State::Joining => {
                if self.repeats == 0 {
                    self.sender.sample(now - self.flight_sent, 0, now);
                }
                self.repeats = 0;
                if flight + 1 == FLIGHTS.len() {
                    self.state = State::Joined;
                } else {
                    self.flight += 1;
                    self.must_send_flight = true;
                }
            }
            // An old one.
            _ => {}
        }
    }

    /// The next packet that leaves now.
    pub(crate) fn poll_transmit(&mut self, now: Nanos) -> Option<Packet> {
        self.paced = None;
        if std::mem::take(&mut self.must_close) {
            return Some(self.packet(Content::Close));
        }
        if std::mem::take(&mut self.must_send_flight) {
            self.flight_sent = now;
            return Some(self.packet(Content::Handshake(self.flight)));
        }
        if self.state != State::Joined {
            return None;
        }
        if self.sender.probes > 0 {
            self.sender.probes -= 1;
            return Some(self.data(true, now));
        }
        if std::mem::take(&mut self.must_ping) {
            return Some(self.data(true, now));
        }
        if !self.waiting.is_empty() && self.sender.has_window() {
            let path = (self.sender.window(), self.sender.srtt());
            let mtu = u64::from(MTU);
            self.paced = self.pacer.due(mtu, path, mtu, now);
            if self.paced.is_none() {
                return Some(self.data(false, now));
            }
        }
        let is_due = self.receiver.due().is_some_and(|due| due <= now);
        is_due.then(|| self.acknowledgment(now))
    }

    /// A packet of datagrams, with an acknowledgment if it has room for one; a ping if none waits
    /// and `is_probe`.
    fn data(&mut self, is_probe: bool, now: Nanos) -> Packet {
        let mut left = FRAMES;
        let ack = self.receiver.ack(now).filter(|ack| {
            let first = self.waiting.front().map_or(0, |first| framed(first.len()));
            self.receiver.waits() && ack.len() + first <= left
        });
        if let Some(ack) = &ack {
            left -= ack.len();
            self.receiver.acknowledged();
        }
        let mut datagrams = Vec::new();
        while let Some(first) = self.waiting.front()
            && framed(first.len()) <= left
            && let Some(datagram) = self.waiting.pop_front()
        {
            left -= framed(datagram.len());
            self.buffered -= datagram.len() + BUFFERED_OVERHEAD;
            datagrams.push(datagram);
        }
        let mut packet = self.packet(Content::Data {
            number: 0,
            ping: is_probe && left > 0,
            datagrams,
            ack,
        });
        self.number(&mut packet, now);
        self.pacer.sent(packet.payload());
        if !std::mem::replace(&mut self.has_asked_since, true) {
            // The idle time begins again (RFC 9000, section 10.1).
            self.heard = now;
        }
        packet
    }

    fn acknowledgment(&mut self, now: Nanos) -> Packet {
        let ack = self.receiver.ack(now);
        self.receiver.acknowledged();
        let mut packet = self.packet(Content::Data {
            number: 0,
            datagrams: Vec::new(),
            ping: false,
            ack,
        });
        self.number(&mut packet, now);
        packet
    }

    fn number(&mut self, packet: &mut Packet, now: Nanos) {
        let next = self
            .sender
            .send(packet.payload(), packet.is_eliciting(), now);
        if let Content::Data { number, .. } = &mut packet.content {
            *number = next;
        }
    }

    fn packet(&self, content: Content) -> Packet {
        Packet {
            connection: self.connection,
            to: self.side.peer(),
            content,
        }
    }

    /// When [`Quic::on_time`] is due.
    pub(crate) fn deadline(&self) -> Option<Nanos> {
        match self.state {
            State::Ended | State::Blocked => None,
            State::Joining if self.side == Side::Server && self.flight == 0 => None,
            State::Joining if self.side == Side::Server => Some(self.idle_at()),
            State::Joining => Some(self.repeat_at().min(self.patience_ends())),
            State::Joined => {
                let all = [
                    Some(self.idle_at()),
                    self.keep_alive_at(),
                    self.sender.deadline(),
                    self.receiver.due(),
                    self.paced,
                ];
                all.into_iter().flatten().min()
            }
        }
    }

    /// Does what is due.
    pub(crate) fn on_time(&mut self, now: Nanos) {
        match (self.state, self.side) {
            (State::Joining, Side::Client) if now >= self.patience_ends() => {
                self.end(State::Blocked);
            }
            (State::Joining, Side::Client) if now >= self.repeat_at() => {
                self.repeats += 1;
                self.must_send_flight = true;
            }
            (State::Joining, Side::Client) | (State::Ended | State::Blocked, _) => {}
            (State::Joining | State::Joined, _) => {
                if now >= self.idle_at() {
                    return self.end(State::Ended);
                }
                if self.keep_alive_at().is_some_and(|at| now >= at) {
                    self.must_ping = true;
                }
                self.sender.on_time(now);
            }
        }
    }

    fn repeat_at(&self) -> Nanos {
        self.flight_sent + handshake_wait(self.sender.rtt(), self.repeats)
    }

    fn patience_ends(&self) -> Nanos {
        self.begun + nanos(HANDSHAKE_PATIENCE)
    }

    fn idle_at(&self) -> Nanos {
        self.heard + nanos(IDLE_TIMEOUT)
    }

    /// The client keeps the mapping of a NAT alive.
    fn keep_alive_at(&self) -> Option<Nanos> {
        let is_idle = self.side == Side::Client && !self.has_asked_since;
        is_idle.then(|| self.heard + nanos(KEEP_ALIVE))
    }
}

#[cfg(test)]
mod tests;
