//! TCP, packet by packet: both ends of a connection are a [`Tcp`], and what they say travels over links.
//!
//! The model is of Linux, since the laboratory measures Linux: its names are used, and each rule says where it comes
//! from. Its parts: what has arrived (`receiver.rs`) and how much more may (`window.rs`), what is under way
//! (`scoreboard.rs`), how losses are found and repaired (`recovery.rs`: RACK-TLP of RFC 8985, SACK of RFC 6675,
//! proportional rate reduction of RFC 6937, timeouts of RFC 6298, undoing what was no loss after RFC 3522), round trips
//! (`rtt.rs`) and rates (`delivery.rs`). How much may be in flight is the business of the congestion control.
//!
//! Bytes have no content here: a connection says how many arrived in order, and whoever drives it keeps what they are.
//!
//! Not modelled: segmentation offload, ECN, the growing of send buffers (they have their final size at once), F-RTO,
//! the adaptive reordering window of RACK, and the exchange at the end of a connection (a reset ends it at once).

mod bbr;
mod control;
mod delivery;
mod group;
mod hystart;
mod info;
pub(crate) mod packet;
mod receiver;
mod recovery;
pub(crate) mod rtt;
mod scoreboard;
mod timer;
mod transmit;
mod window;

use crate::clock::{Nanos, SECOND};
use crate::own::Own;
use control::Control;
use delivery::Delivery;
use info::Chrono;
use packet::Kind;
use receiver::Receiver;
use recovery::Recovery;
use rtt::RoundTrip;
use scoreboard::Scoreboard;
use timer::Timer;

pub use control::check_congestion;
pub use group::Group;
pub use info::{CaState, TcpInfo};
pub use packet::{HEADERS, Packet, Side};
pub use sumlink_congestion::BuildError;

/// What is the same for both ends and all connections of a run.
#[derive(Clone, Debug)]
pub struct TcpConfig {
    /// Bytes of data in a packet (the MTU less [`HEADERS`]).
    pub mss: u32,
    /// Bytes of options in each packet beside the usual ones.
    pub options: u32,
    /// Bytes that a receiver may hold for its program and behind gaps.
    pub receive_buffer: u64,
    /// Whether it understands SACK; both ends must.
    pub sack: bool,
    /// Whether what turns out to have been no loss is taken back.
    pub undo: bool,
    /// Name of the congestion control.
    pub congestion: String,
    /// Those of the caller's own.
    pub own: Own,
    /// The least retransmission timeout beyond the round-trip time (TCP_RTO_MIN_US).
    pub rto_min: Nanos,
    /// How long nothing may be acknowledged before the connection is given up (RFC 5482).
    pub user_timeout: Nanos,
    /// After how long a silent peer is asked whether it is still there, and how long after that again; `None`: never.
    pub keepalive: Option<(Nanos, Nanos)>,
}

impl Default for TcpConfig {
    /// CUBIC, an MTU of 1500 bytes, half of a socket buffer of 32 MiB as the window (Linux keeps the rest for the memory around the data), and the patience of Linux (`tcp_retries2`), 924 s.
    fn default() -> Self {
        Self {
            mss: 1500 - HEADERS as u32,
            options: 0,
            receive_buffer: 16 << 20,
            sack: true,
            undo: true,
            congestion: "cubic".to_owned(),
            own: Own::default(),
            rto_min: rtt::RTO_MIN,
            user_timeout: 924 * SECOND,
            keepalive: None,
        }
    }
}

/// What Linux takes for the peer's segment before there was a larger one (TCP_MSS_DEFAULT).
const SMALL_SEGMENT: u32 = 536;

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A listener, or not yet connected.
    Idle,
    /// The first packet was sent or is about to be.
    SynSent,
    /// It was answered.
    SynReceived,
    /// Data may flow.
    Established,
    /// It is over.
    Ended(End),
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// This end left.
    Left,
    /// The other end did.
    Reset,
    /// Nothing was acknowledged for too long.
    TimedOut,
}

/// One end of a connection.
///
/// The law: after every call ask [`Tcp::poll_transmit`] until it gives nothing, then [`Tcp::deadline`], and call
/// [`Tcp::on_time`] at that time.
#[derive(Debug)]
pub struct Tcp {
    config: TcpConfig,
    connection: u32,
    side: Side,
    state: State,
    /// A SYN, its answer, or a reset is to be sent.
    handshake_due: Option<Kind>,
    receiver: Receiver,
    board: Scoreboard,
    rtt: RoundTrip,
    delivery: Delivery,
    recovery: Recovery,
    control: Control,
    timer: Option<(Nanos, Timer)>,
    /// When a packet last arrived; when it is looked at whether that is long ago; and whether the peer was asked since.
    heard: Nanos,
    keepalive_at: Option<Nanos>,
    is_asked: bool,
    /// Bytes that the program has written.
    written: u64,
    /// The first byte that was never sent.
    next: u64,
    /// The first byte that was not acknowledged.
    acked: u64,
    /// The first byte that the receiver does not take.
    window_end: u64,
    /// The last flight was as large as the window allowed (RFC 7661, section 4.1).
    cwnd_limited: bool,
    /// The most segments in flight since `usage_from` was sent.
    most_out: u32,
    usage_from: u64,
    /// When data was last sent, and when something new was last acknowledged.
    last_sent: Nanos,
    last_progress: Nanos,
    /// When the first packet of the handshake left; 0 once it was sent again.
    syn_sent: Nanos,
    /// Time that the last handshake packet waits.
    syn_timeout: Nanos,
    /// No packet of data leaves before, where the congestion control paces.
    paced_until: Nanos,
    /// A probe of a closed window is to be sent.
    probe_due: bool,
    /// What has arrived of the connection that this one is a subflow of: here, and at the peer as far as it told.
    data_ack: (u64, u64),
    counters: Counters,
    /// SACK is agreed on, or offered.
    sack: bool,
    /// Its program has asked for packets with pauses between them (SO_MAX_PACING_RATE), or a control has that paces.
    is_paced: bool,
    /// Bytes of data in the largest segment that has arrived.
    largest: u32,
    busy: Chrono,
    shut_out: Chrono,
}

/// Counts since the connection began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Segments sent, with data and without.
    pub segments: u64,
    /// Segments sent again.
    pub retransmitted: u64,
    /// Timeouts.
    pub timeouts: u64,
}

impl Tcp {
    /// An end that waits: [`Tcp::connect`] makes it a client.
    ///
    /// # Errors
    ///
    /// A congestion control that there is not.
    pub fn new(connection: u32, side: Side, config: &TcpConfig) -> Result<Self, BuildError> {
        Ok(Self {
            connection,
            side,
            state: State::Idle,
            handshake_due: None,
            receiver: Receiver::new(config.receive_buffer, config.mss),
            board: Scoreboard::default(),
            rtt: RoundTrip::new(config.rto_min),
            delivery: Delivery::default(),
            recovery: Recovery::default(),
            control: Control::new(&config.congestion, &config.own)?,
            timer: None,
            heard: 0,
            keepalive_at: None,
            is_asked: false,
            written: 0,
            next: 0,
            acked: 0,
            window_end: 0,
            cwnd_limited: false,
            most_out: 0,
            usage_from: 0,
            last_sent: 0,
            last_progress: 0,
            syn_sent: 0,
            syn_timeout: rtt::RTO_INITIAL,
            paced_until: 0,
            probe_due: false,
            data_ack: (0, 0),
            counters: Counters::default(),
            sack: config.sack,
            is_paced: false,
            largest: SMALL_SEGMENT,
            busy: Chrono::default(),
            shut_out: Chrono::default(),
            config: config.clone(),
        })
    }

    /// Makes what it sends one of a group of siblings, which coupled congestion controls look at.
    pub fn join(&mut self, group: &Group) {
        self.control.join(group);
    }

    /// From now on what it sends has pauses between the packets (SO_MAX_PACING_RATE), for good.
    pub fn pace(&mut self) {
        self.is_paced = true;
        self.control.set_paced();
    }

    /// Name of the congestion control.
    pub fn congestion(&self) -> &str {
        &self.config.congestion
    }

    /// Another congestion control from now on (TCP_CONGESTION).
    ///
    /// # Errors
    ///
    /// One that there is not.
    pub fn set_congestion(&mut self, name: &str) -> Result<(), BuildError> {
        self.control.change(name, &self.config.own)?;
        name.clone_into(&mut self.config.congestion);
        if self.control.pause().is_some() || name == control::BBR {
            // Linux goes on pacing when a control that does has gone (sk_pacing_status).
            self.pace();
        }
        Ok(())
    }

    /// Connects.
    pub fn connect(&mut self, now: Nanos) {
        self.state = State::SynSent;
        self.send_handshake(Kind::Syn, now);
        self.syn_sent = now.max(1);
    }

    /// How far it is.
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether data may flow.
    pub fn is_established(&self) -> bool {
        self.state == State::Established
    }

    /// The program writes so many bytes more.
    pub fn write(&mut self, bytes: u64) {
        // Linux: tcp_rate_check_app_limited in tcp_sendmsg
        let in_flight = self.board.in_flight();
        if self.unsent() < u64::from(self.config.mss)
            && in_flight < self.cwnd()
            && self.board.next_to_resend().is_none()
        {
            self.delivery.limited_by_program(in_flight);
        }
        self.written += bytes;
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Bytes written and never sent.
    pub fn unsent(&self) -> u64 {
        self.written - self.next
    }

    /// Bytes that the peer has acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.acked
    }

    /// Bytes that have arrived in order.
    pub fn received(&self) -> u64 {
        self.receiver.next()
    }

    /// The program has taken everything before `offset`.
    pub fn read(&mut self, offset: u64, now: Nanos) {
        self.receiver.read(offset, now);
    }

    /// The program wants what waits to be acknowledged to be acknowledged at once (TCP_QUICKACK).
    pub fn acknowledge_waiting(&mut self) {
        self.receiver.acknowledge_waiting();
    }

    /// Bytes of data that arrived more than once.
    pub fn repeated(&self) -> u64 {
        self.receiver.repeated()
    }

    /// Everything before `offset` has arrived of the connection that this one is a subflow of: the next packet tells, and
    /// there is one within the delay of acknowledgements if a time is given.
    pub fn set_data_ack(&mut self, offset: u64, now: Option<Nanos>) {
        self.data_ack.0 = offset;
        if let Some(now) = now {
            self.receiver.acknowledge_later(now);
        }
    }

    /// What the peer has told in that way.
    pub fn data_acknowledged(&self) -> u64 {
        self.data_ack.1
    }

    /// Counts since the connection began.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Ends the connection at once, and tells the peer as far as a packet gets there.
    pub fn abort(&mut self) {
        if matches!(self.state, State::Ended(_)) {
            return;
        }
        self.end(End::Left);
        self.handshake_due = Some(Kind::Reset);
    }

    fn end(&mut self, how: End) {
        self.state = State::Ended(how);
        self.control.leave();
        self.timer = None;
        self.keepalive_at = None;
        self.handshake_due = None;
        self.board = Scoreboard::default();
    }

    /// A packet from the peer.
    pub fn receive(&mut self, packet: &Packet, now: Nanos) {
        match (self.state, packet.kind) {
            // RFC 9293, section 3.10.7.1: who is not there answers with a reset.
            (State::Ended(_), Kind::Data | Kind::Syn) => {
                self.handshake_due = Some(Kind::Reset);
                return;
            }
            (State::Ended(_), Kind::Reset) | (State::SynSent, Kind::Data) => return,
            (State::Idle, Kind::Data) => {
                self.handshake_due = Some(Kind::Reset);
                return;
            }
            (State::Idle, Kind::Reset) => return,
            (_, Kind::Reset) => return self.end(End::Reset),
            (State::Idle, Kind::Syn) => {
                self.state = State::SynReceived;
                self.syn_sent = now.max(1);
                self.window_end = packet.ack + u64::from(packet.window);
                self.agree(packet);
                self.send_handshake(Kind::Syn, now);
                return;
            }
            (State::SynReceived, Kind::Syn) => {
                self.syn_sent = 0;
                self.send_handshake(Kind::Syn, now);
                return;
            }
            (State::SynSent, Kind::Syn) => {
                self.agree(packet);
                self.establish(now);
                self.receiver.acknowledge_now();
            }
            (State::Established, Kind::Syn) => {
                // The answer to the handshake's answer was lost.
                self.receiver.acknowledge_now();
                return;
            }
            (State::SynReceived, Kind::Data) => self.establish(now),
            (State::Established, Kind::Data) => {}
        }
        (self.heard, self.is_asked) = (now, false);
        self.data_ack.1 = self.data_ack.1.max(packet.data_ack);
        if packet.len > 0 && self.receiver.is_outdated(packet) {
            self.receiver.acknowledge_now();
            return;
        }
        self.receiver.note_time(packet);
        self.largest = self.largest.max(packet.len);
        if packet.len > 0 {
            let timeout = self.rtt.timeout();
            self.receiver.arrive(packet, self.rtt.srtt(), timeout, now);
        } else if packet.seq < self.receiver.next() {
            // A probe, or an old packet: the peer does not know how far this end is.
            self.receiver.acknowledge_now();
        }
        self.on_ack(packet, now);
    }

    /// The other end's SYN says whether it understands SACK.
    fn agree(&mut self, packet: &Packet) {
        self.sack &= packet.sack_permitted;
        if !self.sack {
            self.receiver.tell_no_ranges();
        }
    }

    fn establish(&mut self, now: Nanos) {
        self.state = State::Established;
        self.timer = None;
        self.heard = now;
        self.keepalive_at = self.config.keepalive.map(|(wait, _)| now + wait);
        self.last_progress = now;
        if self.syn_sent > 0 {
            let rtt = now - self.syn_sent;
            self.rtt.sample(rtt, 0, 0);
            self.rtt.note_least(rtt, now);
        }
    }

    fn send_handshake(&mut self, kind: Kind, now: Nanos) {
        self.handshake_due = Some(kind);
        self.set_timer(now, self.syn_timeout, Timer::Handshake);
    }

    /// Segments that may be in flight.
    fn cwnd(&self) -> u32 {
        self.recovery
            .window()
            .filter(|_| !self.control.owns_window())
            .unwrap_or_else(|| self.control.cwnd() + self.recovery.kept())
    }

    /// When something is due without a packet arriving.
    pub fn deadline(&self) -> Option<Nanos> {
        if matches!(self.state, State::Ended(_)) {
            return None;
        }
        let timer = self.timer.map(|(at, _)| at);
        let paced = self.is_held_by_pacing().then_some(self.paced_until);
        timer
            .into_iter()
            .chain(self.receiver.deadline())
            .chain(paced)
            .chain(self.keepalive_at)
            .min()
    }

    /// Time has passed.
    pub fn on_time(&mut self, now: Nanos) {
        self.receiver.on_time(now);
        if let Some((at, timer)) = self.timer
            && at <= now
        {
            self.timer = None;
            self.fire(timer, now);
        }
        if self.keepalive_at.is_some_and(|at| at <= now) {
            self.keep_alive(now);
        }
    }
}
