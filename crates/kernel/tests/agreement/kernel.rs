//! The kernel's sockets, driven by a script.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use sumlink_congestion::script::{Script, Step};
use sumlink_kernel::{Bonds, Group, Member};

use crate::info::{Info, LOSS, OPEN, RECOVERY};
use crate::peer::{MSS, PORT, Peer};
use crate::tun::{Tun, far_end};

/// Minimum retransmission timeout of flows that time out or are idle in a script: longer than the
/// time between two of its other events, even on a busy machine.
const SOON: Duration = Duration::from_secs(1);
/// Minimum retransmission timeout of all other flows, and the time limit of any wait.
const PATIENCE: Duration = Duration::from_secs(20);

/// Send buffer of a socket; the kernel limits it to net.core.wmem_max.
const ROOM: usize = 1 << 20;

/// Maximum number of bytes written to a socket at once.
const MAX: usize = 100_000;

/// An acknowledgment, as reported to the congestion control.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckReport {
    /// State of the flow after it.
    pub(crate) member: Member,
    /// Packets acknowledged for the first time.
    pub(crate) acked: u32,
    /// Bytes acknowledged, and bytes sent before it came.
    pub(crate) acknowledged: u64,
    pub(crate) sent: u64,
    /// Whether no loss or timeout is being repaired after it.
    pub(crate) is_open: bool,
}

/// The bond of all flows of a script.
fn group() -> Group {
    Group::new(1).expect("a number")
}

struct Connection {
    socket: TcpStream,
    peer: Peer,
    rtt: Duration,
    /// Packets in flight at the last loss or timeout.
    lost: u32,
    /// bytes_acked at the establishment.
    established: u64,
}

/// Sockets and their far ends, in a separate network namespace.
pub(crate) struct Kernel<'b> {
    tun: Tun,
    bonds: &'b Bonds,
    /// Whether sockets get only as much data as the window holds, because they are to become idle.
    withholding: bool,
    connections: Vec<Connection>,
}

impl<'b> Kernel<'b> {
    /// Opens one connection for each round-trip time and fills their windows.
    pub(crate) fn new(congestion: &str, script: &Script, bonds: &'b Bonds) -> Self {
        let mut kernel = Self {
            tun: Tun::new(),
            bonds,
            withholding: script
                .steps
                .iter()
                .any(|(_, _, step)| matches!(step, Step::Idle(_))),
            connections: Vec::new(),
        };
        for (flow, &rtt) in script.rtts.iter().enumerate() {
            let far = far_end(flow);
            let of_flow = |step: &(usize, usize, Step)| step.1 == flow && step.2 == Step::Timeout;
            let times_out = script.steps.iter().any(of_flow);
            let least = if times_out || kernel.withholding {
                SOON
            } else {
                PATIENCE
            };
            kernel.tun.set_rto_min(far, least);
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
            socket
                .set_tcp_congestion(congestion.as_bytes())
                .expect("it is loaded");
            socket.set_nonblocking(true).expect("a socket");
            // More than any window here. Small writes would fill the kernel's default buffer too
            // early. That buffer grows only by acknowledgments, so nothing would be sent until the
            // retransmission timer fires.
            socket.set_send_buffer_size(ROOM).expect("a socket");
            let started = socket.connect(&SocketAddr::from((far, PORT)).into());
            assert_eq!(
                started.expect_err("not at once").raw_os_error(),
                Some(libc::EINPROGRESS)
            );
            kernel.connections.push(Connection {
                socket: socket.into(),
                peer: Peer::new(far),
                rtt,
                lost: 0,
                established: 0,
            });
            kernel.wait(flow, "connects", |connection, _| {
                connection.socket.peer_addr().is_ok()
            });
            kernel.connections[flow].established = kernel.info(flow).bytes_acked;
            kernel
                .bonds
                .join(&kernel.connections[flow].socket, group())
                .expect("joins");
            kernel.fill(flow);
        }
        kernel
    }

    /// Sets the round-trip time of packets from now on.
    pub(crate) fn set_rtt(&mut self, flow: usize, rtt: Duration) {
        self.connections[flow].rtt = rtt;
    }

    /// Acknowledges packets once the round-trip time has passed; returns the report to the
    /// congestion control.
    pub(crate) fn acknowledge(&mut self, flow: usize, packets: u32) -> AckReport {
        let report = self.acknowledge_by(flow, packets, |peer| peer.acknowledge(packets));
        self.fill(flow);
        report
    }

    fn acknowledge_by(
        &mut self,
        flow: usize,
        packets: u32,
        acknowledge: impl FnOnce(&mut Peer) -> Vec<u8>,
    ) -> AckReport {
        let connection = &mut self.connections[flow];
        assert!(
            packets <= connection.peer.in_flight(),
            "more packets than are in flight"
        );
        connection.pass();
        let acknowledgment = acknowledge(&mut connection.peer);
        self.send_ack(flow, &acknowledgment, |connection, info| {
            info.bytes_acked - connection.established == connection.peer.bytes()
        })
    }

    /// Acknowledges all packets in flight and writes no more data; returns the report to the
    /// congestion control.
    pub(crate) fn drain(&mut self, flow: usize) -> AckReport {
        let all = self.in_flight(flow);
        let report = self.acknowledge_by(flow, all, |peer| peer.acknowledge(all));
        assert_eq!(self.info(flow).unacked, 0, "data was left to send");
        report
    }

    /// Waits until no flow has sent data for this long, and has each send one packet. Returns, for
    /// each flow, the idle time and the retransmission timeout that the kernel applied.
    pub(crate) fn idle(&mut self, lasted: Duration) -> Vec<(Duration, Duration)> {
        for flow in 0..self.connections.len() {
            while let Some(rest) = lasted.checked_sub(self.info(flow).silent) {
                thread::sleep(rest + Duration::from_millis(1));
            }
        }
        let mut times = Vec::new();
        for flow in 0..self.connections.len() {
            let before = self.info(flow);
            let sent = (&self.connections[flow].socket).write(&[0; MSS as usize]);
            assert_eq!(sent.expect("the buffer has room"), MSS as usize);
            times.push((before.silent, before.rto));
        }
        times
    }

    /// Makes the kernel detect the loss of its oldest packet, by acknowledging `behind` packets
    /// after it.
    pub(crate) fn lose(&mut self, flow: usize, behind: u32) -> AckReport {
        let connection = &mut self.connections[flow];
        connection.lost = connection.peer.in_flight();
        assert!(behind < connection.lost, "more packets than are in flight");
        connection.pass();
        let acknowledgment = connection.peer.acknowledge_selectively(behind);
        self.send_ack(flow, &acknowledgment, |_, info| info.state == RECOVERY)
    }

    pub(crate) fn time_out(&mut self, flow: usize) {
        let connection = &mut self.connections[flow];
        connection.lost = connection.peer.in_flight();
        self.wait(flow, "times out", |_, info| info.state == LOSS);
    }

    /// Acknowledges all data sent before the last loss.
    pub(crate) fn recover(&mut self, flow: usize) -> AckReport {
        let report = self.acknowledge(flow, self.connections[flow].lost);
        assert!(report.is_open, "flow {flow} has not recovered");
        report
    }

    /// Like [`Kernel::recover`], and reports that the presumed lost packet has arrived twice.
    pub(crate) fn undo(&mut self, flow: usize) -> AckReport {
        let all = self.connections[flow].lost;
        let report = self.acknowledge_by(flow, all, |peer| peer.acknowledge_with_a_duplicate(all));
        self.fill(flow);
        assert!(report.is_open, "flow {flow} has not recovered");
        report
    }

    /// Unacknowledged packets.
    pub(crate) fn in_flight(&self, flow: usize) -> u32 {
        self.connections[flow].peer.in_flight()
    }

    /// Sends an acknowledgment and waits for its effect.
    fn send_ack(
        &mut self,
        flow: usize,
        acknowledgment: &[u8],
        done: impl Fn(&Connection, &Info) -> bool,
    ) -> AckReport {
        let before = self.info(flow);
        let seen = self.members().map(|member| member.seen).max();
        // All packets are full, so this equals the kernel's snd_nxt.
        let sent = before.bytes_acked - self.connections[flow].established
            + u64::from(before.unacked * MSS);
        self.tun.send(acknowledgment);
        self.wait(flow, "takes the acknowledgment", done);
        let after = self.info(flow);
        let mut new = self.members().filter(|member| Some(member.seen) > seen);
        let member = new
            .next()
            .expect("the twin has published the acknowledgment");
        assert_eq!(new.next(), None, "one acknowledgment, one flow");
        AckReport {
            member,
            acked: after.delivered - before.delivered,
            acknowledged: after.bytes_acked - self.connections[flow].established,
            sent,
            is_open: after.state == OPEN,
        }
    }

    fn members(&self) -> impl Iterator<Item = Member> {
        let members = self.bonds.members(group());
        members.expect("the flows").into_iter()
    }

    pub(crate) fn info(&self, flow: usize) -> Info {
        Info::of(&self.connections[flow].socket)
    }

    /// Waits until the window is in flight, and has arrived.
    pub(crate) fn fill(&mut self, flow: usize) {
        self.wait(flow, "fills its window", |connection, info| {
            info.unacked >= info.cwnd && connection.peer.in_flight() == info.unacked
        });
    }

    /// Writes data to the socket and delivers packets to their far ends until `done` returns true.
    fn wait(&mut self, flow: usize, what: &str, done: impl Fn(&Connection, &Info) -> bool) {
        let start = Instant::now();
        loop {
            while let Some(packet) = self.tun.receive() {
                let to = self
                    .connections
                    .iter_mut()
                    .find(|one| one.peer.is_for(&packet));
                // Other packets are not TCP: the kernel looks for neighbors and routers.
                if let Some(answer) = to.and_then(|connection| connection.peer.receive(&packet)) {
                    self.tun.send(&answer);
                }
            }
            let connection = &self.connections[flow];
            let info = self.info(flow);
            if done(connection, &info) {
                return;
            }
            let peer = &connection.peer;
            assert!(
                start.elapsed() < PATIENCE,
                "flow {flow} never {what}: {info:?}, {} arrived",
                peer.in_flight()
            );
            // Room in the window, without the data already in the socket.
            let room = (info.cwnd.saturating_sub(info.unacked) * MSS).saturating_sub(info.waiting);
            let more = if self.withholding { room as usize } else { MAX };
            match (&connection.socket).write(&[0; MAX][..more.min(MAX)]) {
                Err(error)
                    if !matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::NotConnected
                    ) =>
                {
                    panic!("flow {flow} is broken: {error}")
                }
                _ => thread::yield_now(),
            }
        }
    }
}

impl Connection {
    /// Waits until the next packet has been in flight for the round-trip time: the delay of the
    /// path, not a wait for an event.
    fn pass(&self) {
        thread::sleep(self.rtt.saturating_sub(self.peer.arrived().elapsed()));
    }
}
