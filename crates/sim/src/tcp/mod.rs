//! TCP, packet by packet: each end of a connection is a [`Tcp`], and its packets travel over
//! simulated links.
//!
//! The model follows Linux, because the laboratory measures Linux: it uses the names of Linux, and
//! each rule cites its source. Received data is in `receiver.rs`, the receive window in
//! `window.rs`, sent data in `scoreboard.rs`. Loss recovery is in `recovery`: RACK-TLP of RFC 8985,
//! SACK of RFC 6675, proportional rate reduction of RFC 6937, timeouts of RFC 6298 and the undoing
//! of spurious reductions after RFC 3522. Round-trip times are in `rtt.rs`, delivery rates in
//! `delivery.rs`. The congestion control decides how much data may be in flight.
//!
//! The model counts bytes but does not store them: a connection reports how many bytes arrived in
//! order, and its user keeps their content.
//!
//! Not modeled: segmentation offload, ECN, growth of the send buffer (it has its final size at
//! once), F-RTO, the adaptive reordering window of RACK, and the closing handshake (a reset ends
//! the connection at once).

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

/// Name of the control without a slow start threshold.
const BBR: &str = "bbr";

/// Configuration of both ends of all connections of a run.
#[derive(Clone, Debug)]
pub struct TcpConfig {
    /// Payload bytes of a packet (the MTU minus [`HEADERS`]).
    pub mss: u32,
    /// Bytes of further options in each packet.
    pub options: u32,
    /// Bytes that a receiver may hold for its program and beyond gaps.
    pub receive_buffer: u64,
    /// Whether the end supports SACK; it is used if both do.
    pub sack: bool,
    /// Whether window reductions are undone after spurious loss detections.
    pub undo: bool,
    /// Name of the congestion control.
    pub congestion: String,
    /// Congestion controls supplied by the caller.
    pub own: Own,
    /// Minimum of the RTO beyond the round-trip time (TCP_RTO_MIN_US).
    pub rto_min: Nanos,
    /// Time without an acknowledgment after which the connection is given up (RFC 5482).
    pub user_timeout: Nanos,
    /// Silence after which the peer is probed, and the interval of further probes; `None` disables
    /// probing.
    pub keepalive: Option<(Nanos, Nanos)>,
}

impl Default for TcpConfig {
    /// CUBIC, an MTU of 1500 bytes, and the retry limit of Linux (`tcp_retries2`), 924 s. The
    /// window is half of a socket buffer of 32 MiB, because Linux reserves the other half for its
    /// own overhead.
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

/// Initial estimate of the peer's segment size in Linux (TCP_MSS_DEFAULT).
const SMALL_SEGMENT: u32 = 536;

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Listening, or not yet connected.
    Idle,
    /// The SYN was sent or is about to be.
    SynSent,
    /// The SYN was answered.
    SynReceived,
    /// Data can flow.
    Established,
    /// The connection has ended.
    Ended(End),
}

/// Reason of the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// This end aborted it.
    Left,
    /// The peer reset it.
    Reset,
    /// Nothing was acknowledged for [`TcpConfig::user_timeout`].
    TimedOut,
}

/// One end of a connection.
///
/// After every call, drain [`Tcp::poll_transmit`], then ask for the [`Tcp::deadline`] and call
/// [`Tcp::on_time`] at that time.
#[derive(Debug)]
pub struct Tcp {
    config: TcpConfig,
    connection: u32,
    side: Side,
    state: State,
    /// A SYN, its answer or a reset must be sent.
    handshake_due: Option<Kind>,
    receiver: Receiver,
    board: Scoreboard,
    rtt: RoundTrip,
    delivery: Delivery,
    recovery: Recovery,
    control: Control,
    timer: Option<(Nanos, Timer)>,
    /// Time of the last received packet; then, when the silence is next checked, and whether the
    /// peer was probed since.
    heard: Nanos,
    keepalive_at: Option<Nanos>,
    is_asked: bool,
    /// Bytes that the program has written.
    written: u64,
    /// The first byte that was never sent.
    next: u64,
    /// The first unacknowledged byte.
    acked: u64,
    /// End of the peer's receive window.
    window_end: u64,
    /// The last flight filled the window (RFC 7661, section 4.1).
    cwnd_limited: bool,
    /// Most segments in flight since `usage_from` was sent.
    max_out: u32,
    usage_from: u64,
    /// Time of the last data packet sent; then of the last acknowledgment of new data.
    last_sent: Nanos,
    last_progress: Nanos,
    /// Send time of the first handshake packet; 0 after a retransmission.
    syn_sent: Nanos,
    /// Timeout of the last handshake packet.
    syn_timeout: Nanos,
    /// Earliest time of the next data packet, if the congestion control paces.
    paced_until: Nanos,
    /// A window probe must be sent.
    probe_due: bool,
    /// Data-level acknowledgment of the MPTCP connection: received here, and reported by the peer.
    data_ack: (u64, u64),
    counters: Counters,
    /// SACK is offered or negotiated.
    sack: bool,
    /// Packets are paced, because the program requested it (SO_MAX_PACING_RATE) or a congestion
    /// control paces.
    is_paced: bool,
    /// Most bytes per second (SO_MAX_PACING_RATE).
    max_rate: Option<u64>,
    /// Payload bytes of the largest received segment.
    largest: u32,
    busy: Chrono,
    shut_out: Chrono,
}

/// Counters since the start of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Segments sent, with and without data.
    pub segments: u64,
    /// Segments retransmitted.
    pub retransmitted: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
}

impl Tcp {
    /// Creates a listening end; [`Tcp::connect`] makes it a client.
    ///
    /// # Errors
    ///
    /// The congestion control does not exist.
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
            max_out: 0,
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
            max_rate: None,
            largest: SMALL_SEGMENT,
            busy: Chrono::default(),
            shut_out: Chrono::default(),
            config: config.clone(),
        })
    }

    /// Adds the sender to a group of siblings, for coupled congestion controls.
    pub fn join(&mut self, group: &Group) {
        self.control.join(group);
    }

    /// Paces packets from now on (SO_MAX_PACING_RATE); this cannot be undone.
    pub fn pace(&mut self) {
        self.is_paced = true;
        self.control.set_paced();
    }

    /// Limits the rate in bytes per second (SO_MAX_PACING_RATE). Pacing stays on without a limit.
    pub fn limit(&mut self, rate: Option<u64>) {
        if rate.is_some() {
            self.pace();
        }
        self.max_rate = rate;
    }

    /// Name of the congestion control.
    pub fn congestion(&self) -> &str {
        &self.config.congestion
    }

    /// Changes the congestion control (TCP_CONGESTION).
    ///
    /// # Errors
    ///
    /// The congestion control does not exist.
    pub fn set_congestion(&mut self, name: &str) -> Result<(), BuildError> {
        self.control.change(name, &self.config.own)?;
        name.clone_into(&mut self.config.congestion);
        if self.control.pause().is_some() || name == BBR {
            // Linux continues pacing after a control that paces was replaced (sk_pacing_status).
            self.pace();
        }
        Ok(())
    }

    /// Starts the handshake as a client.
    pub fn connect(&mut self, now: Nanos) {
        self.state = State::SynSent;
        self.send_handshake(Kind::Syn, now);
        self.syn_sent = now.max(1);
    }

    /// The state of the connection.
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether data can flow.
    pub fn is_established(&self) -> bool {
        self.state == State::Established
    }

    /// The program writes `bytes` more.
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

    /// Bytes written but not yet sent.
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

    /// The program has read all bytes before `offset`.
    pub fn read(&mut self, offset: u64, now: Nanos) {
        self.receiver.read(offset, now);
    }

    /// Sends a delayed acknowledgment at once (TCP_QUICKACK).
    pub fn acknowledge_waiting(&mut self) {
        self.receiver.acknowledge_waiting();
    }

    /// Bytes of data that arrived more than once.
    pub fn repeated(&self) -> u64 {
        self.receiver.repeated()
    }

    /// Acknowledges all bytes before `offset` of the MPTCP connection of this subflow. The next
    /// packet carries the acknowledgment; with a time, a packet is sent within the delay of
    /// acknowledgments.
    pub fn set_data_ack(&mut self, offset: u64, now: Option<Nanos>) {
        self.data_ack.0 = offset;
        if let Some(now) = now {
            self.receiver.acknowledge_later(now);
        }
    }

    /// The peer's last data-level acknowledgment.
    pub fn data_acknowledged(&self) -> u64 {
        self.data_ack.1
    }

    /// Counters since the start of the connection.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Aborts the connection and sends a reset to the peer.
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

    /// Handles a packet from the peer.
    pub fn receive(&mut self, packet: &Packet, now: Nanos) {
        match (self.state, packet.kind) {
            // RFC 9293, section 3.10.7.1: a closed end answers with a reset.
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
                // The last packet of the handshake was lost.
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
            // A probe or an old packet: the peer does not know the state of this end.
            self.receiver.acknowledge_now();
        }
        self.on_ack(packet, now);
    }

    /// Negotiates SACK from the peer's SYN.
    fn agree(&mut self, packet: &Packet) {
        self.sack &= packet.sack_permitted;
        if !self.sack {
            self.receiver.disable_sack();
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
            self.rtt.note_min(rtt, now);
        }
    }

    fn send_handshake(&mut self, kind: Kind, now: Nanos) {
        self.handshake_due = Some(kind);
        self.set_timer(now, self.syn_timeout, Timer::Handshake);
    }

    /// Most segments in flight.
    fn cwnd(&self) -> u32 {
        self.recovery
            .window()
            .filter(|_| !self.control.owns_window())
            .unwrap_or_else(|| self.control.cwnd() + self.recovery.kept())
    }

    /// Time of the next timer.
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

    /// Fires expired timers.
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
