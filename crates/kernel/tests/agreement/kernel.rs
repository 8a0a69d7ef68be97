//! The kernel's sockets, as a script plays them.

use std::io::{ErrorKind, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::peer::{PORT, Peer, SELECTIVELY};
use crate::script::Script;
use crate::tun::{Tun, there};

/// ssthresh as long as nothing has set it (TCP_INFINITE_SSTHRESH).
pub(crate) const INFINITE: u32 = 0x7fff_ffff;

/// The least retransmission timeout of flows that time out in a script: longer than what lies between two of its other
/// events, on a busy machine too.
const SOON: Duration = Duration::from_secs(1);
/// The least one of the others, and how long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);

// Of enum tcp_ca_state.
const OPEN: u8 = 0;
const RECOVERY: u8 = 3;
const LOSS: u8 = 4;

/// What TCP_INFO says of a socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Info {
    pub(crate) cwnd: u32,
    pub(crate) ssthresh: u32,
    state: u8,
    unacked: u32,
    srtt: Duration,
    bytes_acked: u64,
}

struct Connection {
    socket: TcpStream,
    peer: Peer,
    rtt: Duration,
    /// Packets in flight when the last loss was seen.
    lost: u32,
    /// bytes_acked when it was established.
    established: u64,
}

/// Sockets with their far ends, in a network of their own.
pub(crate) struct Kernel {
    tun: Tun,
    connections: Vec<Connection>,
}

impl Kernel {
    /// One connection for each round-trip time; their windows are full.
    pub(crate) fn new(congestion: &str, script: &Script) -> Self {
        let mut kernel = Self {
            tun: Tun::new(),
            connections: Vec::new(),
        };
        for (flow, &rtt) in script.rtts.iter().enumerate() {
            let far = there(flow);
            let least = if script.times_out(flow) {
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
            kernel.fill(flow);
        }
        kernel
    }

    pub(crate) fn sockets(&self) -> impl Iterator<Item = &TcpStream> {
        self.connections.iter().map(|connection| &connection.socket)
    }

    /// Acknowledges packets once the round-trip time has passed; returns what that measured, and what the kernel made of it.
    pub(crate) fn acknowledge(&mut self, flow: usize, packets: u32) -> (Duration, Duration) {
        let connection = &mut self.connections[flow];
        assert!(
            packets <= connection.peer.in_flight(),
            "so many are not in flight"
        );
        let (first, last) = connection.peer.arrived(packets);
        // The delay of the path, not a wait for something to happen.
        thread::sleep(connection.rtt.saturating_sub(first.elapsed()));
        let rtt = last.elapsed();
        let acknowledgement = connection.peer.acknowledge(packets);
        self.tun.send(&acknowledgement);
        self.wait(flow, "takes the acknowledgement", |connection, info| {
            info.bytes_acked - connection.established == connection.peer.bytes()
                && info.state == OPEN
        });
        let srtt = self.info(flow).srtt;
        self.fill(flow);
        (rtt, srtt)
    }

    /// Has the kernel find out that its oldest packet was lost; returns what [`Kernel::acknowledge`] does.
    pub(crate) fn lose(&mut self, flow: usize) -> (Duration, Duration) {
        let connection = &mut self.connections[flow];
        connection.lost = connection.peer.in_flight();
        let (first, _) = connection.peer.arrived(1 + SELECTIVELY);
        thread::sleep(connection.rtt.saturating_sub(first.elapsed()));
        let rtt = first.elapsed();
        let acknowledgement = connection.peer.acknowledge_selectively();
        self.tun.send(&acknowledgement);
        self.wait(flow, "enters recovery", |_, info| info.state == RECOVERY);
        (rtt, self.info(flow).srtt)
    }

    pub(crate) fn time_out(&mut self, flow: usize) {
        let connection = &mut self.connections[flow];
        connection.lost = connection.peer.in_flight();
        self.wait(flow, "times out", |_, info| info.state == LOSS);
    }

    /// Acknowledges all that was sent before the last loss.
    pub(crate) fn recover(&mut self, flow: usize) -> (Duration, Duration) {
        self.acknowledge(flow, self.connections[flow].lost)
    }

    pub(crate) fn info(&self, flow: usize) -> Info {
        info(&self.connections[flow].socket)
    }

    /// Waits until the window is in flight, and has arrived.
    fn fill(&mut self, flow: usize) {
        self.wait(flow, "fills its window", |connection, info| {
            info.unacked >= info.cwnd && connection.peer.in_flight() == info.unacked
        });
    }

    /// Gives the socket more to send and the packets to their far ends until something is the case.
    fn wait(&mut self, flow: usize, what: &str, done: impl Fn(&Connection, &Info) -> bool) {
        let start = Instant::now();
        loop {
            while let Some(packet) = self.tun.receive() {
                let to = self
                    .connections
                    .iter_mut()
                    .find(|one| one.peer.is_for(&packet));
                // Others are not TCP: the kernel looks for neighbours and routers.
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
            match (&connection.socket).write(&[0; 100_000]) {
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

fn info(socket: &TcpStream) -> Info {
    // struct tcp_info of linux/tcp.h up to tcpi_bytes_acked, which libc's does not have
    let mut bytes = MaybeUninit::<[u8; 128]>::zeroed();
    let mut length = size_of_val(&bytes) as libc::socklen_t;
    // SAFETY: the descriptor is open, and the kernel writes no more than `length` bytes.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    assert_eq!((result, length), (0, 128), "TCP_INFO");
    // SAFETY: every byte was set, to zero at the least.
    let bytes = unsafe { bytes.assume_init() };
    let u32_at = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    Info {
        state: bytes[1],
        unacked: u32_at(24),
        srtt: Duration::from_micros(u32_at(68).into()),
        ssthresh: u32_at(76),
        cwnd: u32_at(80),
        bytes_acked: u64::from_ne_bytes(bytes[120..128].try_into().expect("eight bytes")),
    }
}
