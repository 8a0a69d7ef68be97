//! Datagrams through the bond: SOCKS5 UDP ASSOCIATE, forwards, and programs that use UDP.

mod faults;
mod programs;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sumlink_lab::Side;
use sumlink_transport::SessionStatus;

use crate::bond::{Bond, Plan, SOCKS};
use sumlink_test_support::emulated::Bench;

pub(crate) const LINKS: [&str; 2] = ["a:rate=40mbit,delay=5ms", "b:rate=20mbit,delay=15ms"];

/// The echo server.
const ECHO: &str = "10.99.0.1:4000";

/// Longest wait for one answer; far above every delay of these tests.
const PATIENCE: Duration = Duration::from_secs(10);

/// A UDP server in the server's namespace that returns every datagram, with `answer` applied.
struct Echo {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    fn start(bench: &Bench, address: &str) -> Self {
        Self::with(bench, address, |socket, datagram, from| {
            let _ = socket.send_to(datagram, from);
        })
    }

    fn with(
        bench: &Bench,
        address: &str,
        answer: impl Fn(&UdpSocket, &[u8], SocketAddr) + Send + 'static,
    ) -> Self {
        let socket = udp(bench, Side::Server, address);
        socket
            .set_read_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        let stop = Arc::<AtomicBool>::default();
        let until = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            while !until.load(Ordering::Relaxed) {
                if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                    answer(&socket, &buffer[..length], from);
                }
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(crate) fn udp(bench: &Bench, side: Side, address: &str) -> UdpSocket {
    let address: SocketAddr = address.parse().unwrap();
    let bind = move || UdpSocket::bind(address).unwrap();
    let socket = bench.lab.run(side, bind).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// A SOCKS5 association (RFC 1928, section 7).
struct Association {
    _control: TcpStream,
    socket: UdpSocket,
    relay: SocketAddr,
}

impl Association {
    fn open(bench: &Bench) -> Self {
        let dial = || TcpStream::connect(SOCKS).unwrap();
        let mut control = bench.lab.run(Side::Client, dial).unwrap();
        let mut request = vec![5, 1, 0, 5, 3, 0, 1];
        request.extend([0; 6]);
        control.write_all(&request).unwrap();
        let mut reply = [0; 12];
        control.read_exact(&mut reply).unwrap();
        assert_eq!(reply[..6], [5, 0, 5, 0, 0, 1], "UDP ASSOCIATE refused");
        let ip = Ipv4Addr::new(reply[6], reply[7], reply[8], reply[9]);
        let port = u16::from_be_bytes([reply[10], reply[11]]);
        Self {
            _control: control,
            socket: udp(bench, Side::Client, "127.0.0.1:0"),
            relay: SocketAddr::new(ip.into(), port),
        }
    }

    fn send(&self, target: &str, payload: &[u8]) {
        let target: SocketAddrV4 = target.parse().unwrap();
        let mut datagram = vec![0, 0, 0, 1];
        datagram.extend(target.ip().octets());
        datagram.extend(target.port().to_be_bytes());
        datagram.extend(payload);
        self.socket.send_to(&datagram, self.relay).unwrap();
    }

    /// The next datagram, with its source.
    fn receive(&self) -> Option<(SocketAddrV4, Vec<u8>)> {
        let mut buffer = vec![0; 65_536];
        let (length, _) = self.socket.recv_from(&mut buffer).ok()?;
        assert_eq!(buffer[..4], [0, 0, 0, 1]);
        let ip = Ipv4Addr::new(buffer[4], buffer[5], buffer[6], buffer[7]);
        let port = u16::from_be_bytes([buffer[8], buffer[9]]);
        Some((SocketAddrV4::new(ip, port), buffer[10..length].to_vec()))
    }

    /// Sends until an answer arrives, as programs over UDP do; returns it.
    #[track_caller]
    fn ask(&self, target: &str, payload: &[u8]) -> Vec<u8> {
        let patience = Some(Duration::from_secs(1));
        self.socket.set_read_timeout(patience).unwrap();
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            self.send(target, payload);
            if let Some((from, answer)) = self.receive() {
                assert_eq!(from.to_string(), target);
                self.socket.set_read_timeout(Some(PATIENCE)).unwrap();
                return answer;
            }
        }
        panic!("no answer from {target} within {PATIENCE:?}");
    }
}

/// Waits until each link has a datagram path over this carrier.
pub(crate) fn until_over(bond: &Bond, carrier: &str) -> SessionStatus {
    bond.until(
        &format!("every link carries datagrams over {carrier}"),
        |status| {
            let paths = &status.datagram_paths;
            let all = paths.len() == 2 && paths.iter().all(|path| path.carrier == carrier);
            all.then(|| status.clone())
        },
    )
}

/// Where the client forwards datagrams in [`with_forward`].
pub(crate) const FORWARD: &str = "127.0.0.1:4433";

/// A bond with a forward to the first of two sockets, and the second one at the client.
pub(crate) fn with_forward() -> Option<(Bond, UdpSocket, UdpSocket)> {
    let forwards = "links = \"auto\"\nforward = [\"udp:4433=10.99.0.1:4433\"]\n";
    let bond = Plan::new(&LINKS).client(forwards).start()?;
    until_over(&bond, "udp");
    let server = udp(&bond.bench, Side::Server, "10.99.0.1:4433");
    let client = udp(&bond.bench, Side::Client, "127.0.0.1:0");
    Some((bond, server, client))
}

#[test]
fn datagrams_of_every_size_pass_through_socks() {
    let Some(bond) = Plan::new(&LINKS).start() else {
        return;
    };
    let _echo = Echo::start(&bond.bench, ECHO);
    until_over(&bond, "udp");
    let program = Association::open(&bond.bench);
    for size in [0usize, 1, 160, 1200, 1350, 1400, 1452, 1472, 2000] {
        let payload: Vec<u8> = (0..size).map(|byte| byte as u8).collect();
        assert_eq!(program.ask(ECHO, &payload), payload, "{size} bytes");
    }
    let status = bond.status(Side::Client);
    let flow = &status.flows[0];
    assert_eq!(flow.target, ECHO);
    assert!(flow.datagrams_sent >= 9 && flow.datagrams_received >= 9);
    assert!(
        !flow.links.is_empty() && !flow.reason.is_empty(),
        "{flow:?}"
    );
    bond.stop();
}

/// A datagram that no path carries in two parts is dropped and counted; the flow goes on.
#[test]
fn a_datagram_that_no_link_carries_is_counted() {
    let Some(bond) = Plan::new(&LINKS).start() else {
        return;
    };
    let _echo = Echo::start(&bond.bench, ECHO);
    until_over(&bond, "udp");
    let program = Association::open(&bond.bench);
    program.ask(ECHO, b"before");
    // The largest payload of UDP, less the SOCKS5 header before it.
    let sizes = [60_000, 65_507 - 10];
    for size in sizes {
        program.send(ECHO, &vec![7; size]);
    }
    assert_eq!(program.ask(ECHO, b"after"), b"after");
    let dropped = bond.status(Side::Client).flows[0].dropped;
    assert_eq!(dropped, sizes.len() as u64, "{}", bond.logs());
    bond.stop();
}

/// RFC 4787: the mapping and the filter do not depend on the remote, as STUN and WebRTC need.
#[test]
fn one_socket_of_a_program_has_one_address_at_the_server() {
    let Some(bond) = Plan::new(&LINKS).start() else {
        return;
    };
    // Both return the address from which the datagram came, as a STUN server does. The second one
    // answers from another port, too.
    let from = |socket: &UdpSocket, _: &[u8], from: SocketAddr| {
        let _ = socket.send_to(from.to_string().as_bytes(), from);
    };
    let _first = Echo::with(&bond.bench, ECHO, from);
    let other = udp(&bond.bench, Side::Server, "10.99.0.1:4002");
    let _second = Echo::with(
        &bond.bench,
        "10.99.0.1:4001",
        move |socket, datagram, addr| {
            from(socket, datagram, addr);
            let _ = other.send_to(b"hello", addr);
        },
    );
    let program = Association::open(&bond.bench);
    let mapped = program.ask(ECHO, b"who am I");
    program.send("10.99.0.1:4001", b"who am I");
    let mut answers = [program.receive().unwrap(), program.receive().unwrap()];
    answers.sort();
    assert_eq!(answers[0].0.port(), 4001);
    assert_eq!(answers[0].1, mapped);
    assert_eq!(
        answers[1],
        ("10.99.0.1:4002".parse().unwrap(), b"hello".to_vec())
    );
    bond.stop();
}

#[test]
fn the_egress_policy_applies_to_datagrams() {
    let rules = "[egress]\nrules = [\"allow 10.99.0.1:4000\", \"deny *\"]\n";
    let Some(bond) = Plan::new(&LINKS).server_tables(rules).start() else {
        return;
    };
    let _echo = Echo::start(&bond.bench, ECHO);
    let _other = Echo::start(&bond.bench, "10.99.0.1:4001");
    let program = Association::open(&bond.bench);
    program.ask(ECHO, b"allowed");
    program.send("10.99.0.1:4001", b"denied");
    program.ask(ECHO, b"allowed");
    let patience = Some(Duration::from_millis(300));
    program.socket.set_read_timeout(patience).unwrap();
    while let Some((from, _)) = program.receive() {
        assert_eq!(from.to_string(), ECHO, "the denied target has answered");
    }
    bond.stop();
}

#[test]
fn udp_can_be_switched_off() {
    let lines = "links = \"auto\"\nudp = false\n";
    let Some(bond) = Plan::new(&LINKS).client(lines).start() else {
        return;
    };
    let _echo = Echo::start(&bond.bench, ECHO);
    let program = Association::open(&bond.bench);
    program.ask(ECHO, b"hello");
    assert!(
        bond.status(Side::Client)
            .datagram_paths
            .iter()
            .all(|path| path.carrier == "tcp" && path.reason.contains("switched off"))
    );
    bond.stop();
}
