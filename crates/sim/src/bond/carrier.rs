//! A carrier over a modeled connection: TLS records, and a socket that the policy of
//! [`sumlink_bond`] drives.
//!
//! All decisions about a carrier are made there, for the daemon's sockets and for these. This
//! module models a Linux socket: how much it accepts, when it is writable, and its TCP_INFO.

use std::collections::VecDeque;

use sumlink_bond::socket::{Report, SEGMENT, Socket};
use sumlink_bond::{CaState, RECORD, RECORD_OVERHEAD, TcpInfo, TcpState};
use sumlink_engine::{PathId, PathSample};

use super::wires::Pipe;
use crate::clock::duration;
use crate::net::{Connection, Net};
use crate::tcp::{self, BuildError, Side};

/// An end of a connection, as a socket of the policy.
#[derive(Debug)]
struct Modeled<'a> {
    net: &'a mut Net,
    connection: Connection,
    side: Side,
}

impl Socket for Modeled<'_> {
    type Error = BuildError;

    fn info(&self) -> Option<TcpInfo> {
        Some(reported(&self.net.info(self.connection, self.side)))
    }

    fn set_notsent_lowat(&mut self, _: u32) -> bool {
        // Nothing to set: the carrier asks the policy for the low-water mark.
        true
    }

    fn pace(&mut self) {
        self.net.pace(self.connection, self.side);
    }

    fn limit(&mut self, rate: Option<u64>) {
        self.net.limit(self.connection, self.side, rate);
    }

    fn set_congestion(&mut self, name: &str) -> Result<(), BuildError> {
        self.net.set_congestion(self.connection, self.side, name)
    }

    fn report(&mut self, _: Report<'_, BuildError>) {}
}

/// One end of a connection after its handshake.
#[derive(Debug)]
pub(super) struct Carrier {
    pub(super) id: PathId,
    pub(super) connection: Connection,
    side: Side,
    policy: sumlink_bond::Carrier,
    /// Largest size of its IP packets, if larger ones seemed to be lost.
    pub(super) packet_limit: Option<u16>,
    /// Data bytes of each record that the socket has not accepted.
    waiting: VecDeque<usize>,
    /// The socket was full and will report when it is writable.
    is_refused: bool,
    /// Bytes read from the socket.
    read: u64,
}

impl Carrier {
    /// Creates a carrier; `chooses` if its congestion control is chosen by measurement.
    pub(super) fn new(
        id: PathId,
        connection: Connection,
        side: Side,
        (chooses, packet_limit): (bool, Option<u16>),
        net: &mut Net,
    ) -> Self {
        let info = reported(&net.info(connection, side));
        let congestion = net.tcp(connection, side).congestion().to_owned();
        let (now, read) = (duration(net.now()), net.tcp(connection, side).received());
        let mut socket = Modeled {
            net,
            connection,
            side,
        };
        let mut policy = sumlink_bond::Carrier::new(congestion, info, &mut socket, now);
        if chooses {
            policy.choose_congestion();
        }
        Self {
            id,
            connection,
            side,
            policy,
            packet_limit,
            waiting: VecDeque::new(),
            is_refused: false,
            read,
        }
    }

    /// Whether the socket, which was full, has become writable.
    pub(super) fn has_become_writable(&mut self, net: &Net) -> bool {
        let woken = self.is_refused && self.is_writable(net);
        self.is_refused &= !woken;
        woken
    }

    /// Whether the unsent bytes in the socket are less than half of the low-water mark
    /// (`sk_stream_memory_free` in Linux).
    fn is_writable(&self, net: &Net) -> bool {
        self.unsent(net) * 2 < u64::from(self.policy.lowat())
    }

    /// Whether the socket accepts more data.
    pub(super) fn poll_writable(&mut self, net: &mut Net, pipe: &mut Pipe) -> bool {
        let now = duration(net.now());
        let mut socket = Modeled {
            net,
            connection: self.connection,
            side: self.side,
        };
        self.policy.look_into_full_socket(&mut socket, now);
        while !self.waiting.is_empty() {
            let flushed = self.flush(net, pipe);
            self.policy.set_refused(!flushed);
            if !flushed {
                self.is_refused = true;
                return false;
            }
        }
        let mut socket = Modeled {
            net,
            connection: self.connection,
            side: self.side,
        };
        if self.policy.must_ask_first(&mut socket, now) && !self.is_writable(net) {
            self.is_refused = true;
            return false;
        }
        true
    }

    /// Writes records to the socket; returns false if it is full.
    fn flush(&mut self, net: &mut Net, pipe: &mut Pipe) -> bool {
        if self.unsent(net) >= u64::from(self.policy.lowat()) {
            return false;
        }
        let mut wire = 0;
        let start = net.tcp(self.connection, self.side).written();
        // Linux checks the low-water mark once for each segment of its queue (tcp_sendmsg_locked).
        while wire < u64::from(SEGMENT)
            && let Some(len) = self.waiting.pop_front()
        {
            wire += len as u64 + RECORD_OVERHEAD;
            pipe.seal(start + wire, len);
        }
        net.write(self.connection, self.side, wire);
        self.policy.handed(wire, !self.waiting.is_empty());
        true
    }

    /// Encrypts frames into records; [`Carrier::poll_writable`] writes them.
    pub(super) fn send(&mut self, frames: Vec<u8>, pipe: &mut Pipe) {
        self.policy.queued(frames.len() as u64);
        let records = frames.chunks(RECORD as usize).map(<[u8]>::len);
        self.waiting.extend(records);
        pipe.keep(frames);
    }

    /// Reads all bytes before `received` from the socket.
    pub(super) fn read(&mut self, received: u64, net: &mut Net) {
        let len = received - self.read;
        self.read = received;
        self.policy.arrived(len, duration(net.now()));
        net.read(self.connection, self.side, received);
    }

    /// Acknowledges small amounts of received data at once, unless data that is about to be sent
    /// carries the acknowledgment.
    pub(super) fn acknowledge(&mut self, net: &mut Net) {
        if self.policy.acknowledges_now(!self.waiting.is_empty()) {
            net.acknowledge_waiting(self.connection, self.side);
        }
    }

    /// Bytes that may be written at once.
    pub(super) fn budget(&self) -> usize {
        self.policy.budget()
    }

    /// Records that a call uses the carrier's link, with the number of the session's carriers over
    /// it; `None` if no call does.
    pub(super) fn set_call(&mut self, carriers: Option<u32>, net: &mut Net) {
        let mut socket = Modeled {
            net,
            connection: self.connection,
            side: self.side,
        };
        self.policy.set_call(carriers, &mut socket);
    }

    /// The current statistics of TCP. The laboratory's interfaces have no queue.
    pub(super) fn sample(&mut self, net: &mut Net) -> PathSample {
        let now = duration(net.now());
        let mut socket = Modeled {
            net,
            connection: self.connection,
            side: self.side,
        };
        let has_records = !self.waiting.is_empty();
        self.policy.sample(&mut socket, 0, has_records, now)
    }

    /// Whether large packets seem to be lost and small ones do not.
    pub(super) fn loses_large_packets(&self) -> bool {
        self.policy.loses_large_packets()
    }

    /// Sum of the acknowledged and the received bytes.
    pub(super) fn bytes_moved(&self) -> u64 {
        self.policy.bytes_moved()
    }

    /// Whether packets wait in a queue on the path.
    pub(super) fn is_queueing(&self) -> bool {
        self.policy.is_queueing()
    }

    fn unsent(&self, net: &Net) -> u64 {
        net.tcp(self.connection, self.side).unsent()
    }
}

/// Converts TCP_INFO of a modeled connection. The model retransmits only after a loss, so the
/// policy needs only the bytes sent for the first time.
fn reported(info: &tcp::TcpInfo) -> TcpInfo {
    TcpInfo {
        state: TcpState::Established,
        ca_state: match info.ca_state {
            tcp::CaState::Open => CaState::Open,
            tcp::CaState::Disorder => CaState::Disorder,
            tcp::CaState::Cwr => CaState::Cwr,
            tcp::CaState::Recovery => CaState::Recovery,
            tcp::CaState::Loss => CaState::Loss,
        },
        srtt: duration(info.srtt),
        rttvar: duration(info.rttvar),
        min_rtt: (info.min_rtt > 0).then(|| duration(info.min_rtt)),
        rto: duration(info.rto),
        backoff: info.backoff.min(u32::from(u8::MAX)) as u8,
        snd_mss: info.mss,
        rcv_mss: info.largest,
        snd_cwnd_bytes: info.cwnd,
        snd_ssthresh_bytes: info.ssthresh,
        unacked_bytes: info.unacked,
        notsent_bytes: info.unsent,
        delivery_rate_bytes_per_s: info.delivery_rate,
        pacing_rate_bytes_per_s: (info.pacing_rate > 0).then_some(info.pacing_rate),
        bytes_acked: info.acknowledged,
        bytes_received: info.received,
        bytes_sent: info.sent,
        segs_out: info.segments as u32,
        total_retrans: info.retransmitted as u32,
        delivered: info.delivered as u32,
        busy: duration(info.busy),
        rwnd_limited: duration(info.shut_out),
        since_data_sent: duration(info.since_sent),
        ..TcpInfo::default()
    }
}
