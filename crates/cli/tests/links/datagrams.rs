//! Datagrams through the bond: SOCKS5 UDP ASSOCIATE, forwards, and programs that use UDP.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;
use sumlink_lab::Side;
use sumlink_transport::SessionStatus;

use crate::bond::{Bond, Plan, SOCKS};
use crate::quic;
use sumlink_test_support::emulated::traffic::Pattern;
use sumlink_test_support::emulated::{Bench, finish, is_root};

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

/// A call with 50 datagrams a second in both directions, over two links of which one fails.
///
/// Returns the longest gap between two answers, and the number of missing ones.
fn call_over_a_failing_link(policy: &str) -> Option<(Duration, usize)> {
    let links = ["a:rate=40mbit,delay=10ms", "b:rate=20mbit,delay=15ms"];
    let session = format!("[session.datagrams]\npolicy = \"{policy}\"\n");
    let bond = Plan::new(&links).tables(&session).start()?;
    let _echo = Echo::start(&bond.bench, ECHO);
    until_over(&bond, "udp");
    let program = Association::open(&bond.bench);
    program.ask(ECHO, &[0; 160]);
    let (count, fault) = (300u32, 100);
    let receiver = program.socket.try_clone().unwrap();
    receiver
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    let listening = thread::spawn(move || {
        let (mut arrived, mut buffer) = (Vec::new(), [0; 2048]);
        while let Ok(length) = receiver.recv(&mut buffer) {
            let payload = &buffer[10..length];
            let number = u32::from_be_bytes(payload[..4].try_into().unwrap());
            arrived.push((number, Instant::now()));
            if number == count {
                break;
            }
        }
        arrived
    });
    let begun = Instant::now();
    for number in 1..=count {
        if number == fault {
            bond.bench.set("a", "state=blackhole");
        }
        let mut payload = [0; 160];
        payload[..4].copy_from_slice(&number.to_be_bytes());
        program.send(ECHO, &payload);
        let next = begun + number * Duration::from_millis(20);
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let arrived = listening.join().unwrap();
    let gaps = arrived.windows(2).map(|pair| pair[1].1 - pair[0].1);
    let gap = gaps.max().unwrap();
    let mut numbers: Vec<u32> = arrived.iter().map(|(number, _)| *number).collect();
    let received = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), received, "an answer arrived twice");
    bond.stop();
    Some((gap, count as usize - numbers.len()))
}

#[test]
fn a_call_continues_when_a_link_falls_silent() {
    let Some((gap, missing)) = call_over_a_failing_link("pinned") else {
        return;
    };
    // The bench has the bar of 150 ms; this machine's noise alone can be 200 ms.
    assert!(gap < Duration::from_millis(600), "a gap of {gap:?}");
    assert!(missing <= 15, "{missing} of 300 are missing");
}

#[test]
fn a_duplicated_call_loses_nothing_when_a_link_falls_silent() {
    let Some((_, missing)) = call_over_a_failing_link("duplicate") else {
        return;
    };
    assert_eq!(missing, 0);
}

/// Where UDP does not pass, the TCP carriers take the datagrams, and UDP is tried again.
#[test]
fn datagrams_take_tcp_where_udp_is_blocked() {
    if !is_root() {
        return;
    }
    let plan = Plan::new(&LINKS);
    let Some(bench) = plan.bench() else {
        return;
    };
    let rules = "table inet block { chain in { type filter hook input priority 0; \
                 udp dport 7000 drop; }; }";
    bench.run(Side::Server, &["nft", rules]);
    let bond = plan.start_on(bench);
    let _echo = Echo::start(&bond.bench, ECHO);
    until_over(&bond, "tcp");
    let program = Association::open(&bond.bench);
    for size in [1usize, 1400, 9000] {
        let payload = vec![size as u8; size];
        assert_eq!(program.ask(ECHO, &payload), payload, "{size} bytes");
    }
    bond.until("the reason is shown", |status| {
        let paths = &status.datagram_paths;
        paths
            .iter()
            .all(|path| path.reason.contains("UDP is blocked on the way"))
            .then_some(())
    });
    bond.bench.run(Side::Server, &["nft", "flush", "ruleset"]);
    let over = |status: &SessionStatus| {
        let paths = &status.datagram_paths;
        paths.iter().all(|path| path.carrier == "udp").then_some(())
    };
    bond.until("UDP is used as soon as it passes", over);
    assert_eq!(program.ask(ECHO, b"still here"), b"still here");
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

/// A restarted server has lost the session; the program's socket works on.
#[test]
fn a_program_survives_a_restart_of_the_server() {
    let Some(mut bond) = Plan::new(&LINKS).start() else {
        return;
    };
    let _echo = Echo::start(&bond.bench, ECHO);
    let program = Association::open(&bond.bench);
    program.ask(ECHO, b"before");
    bond.server.signal("TERM");
    bond.server.wait();
    let server = bond
        .bench
        .sumlink("server-2", &["server", "--config", "server.toml"]);
    server.event("listening");
    bond.server = server;
    assert_eq!(program.ask(ECHO, b"after"), b"after");
    bond.stop();
}

#[test]
fn iperf3_sends_datagrams_through_forwards() {
    let forwards =
        "links = \"auto\"\nforward = [\"5201=10.99.0.1:5201\", \"udp:5201=10.99.0.1:5201\"]\n";
    let Some(mut bond) = Plan::new(&LINKS).client(forwards).start() else {
        return;
    };
    let server = ["iperf3", "-s", "-B", "10.99.0.1"];
    let server = bond.bench.spawn(Side::Server, &server);
    bond.keep(server);
    bond.bench.until_listening(Side::Server, 5201);
    until_over(&bond, "udp");
    for direction in [&[][..], &["-R"]] {
        let words = [
            "iperf3",
            "-u",
            "-c",
            "127.0.0.1",
            "-b",
            "10M",
            "-l",
            "1200",
            "-t",
            "2",
        ];
        let words = [&words[..], direction, &["--json"]].concat();
        let report: Value = serde_json::from_str(&bond.bench.run(Side::Client, &words)).unwrap();
        let sum = &report["end"]["sum"];
        let lost = sum["lost_percent"].as_f64().unwrap();
        assert!(lost < 5.0, "{direction:?}: {lost} % lost");
        let rate = sum["bits_per_second"].as_f64().unwrap();
        assert!(rate > 8e6, "{direction:?}: {rate} bit/s");
    }
    bond.stop();
}

/// A name server that knows one name, as in RFC 1035: it repeats the question and adds one answer.
fn name_server(bench: &Bench, address: &str) -> Echo {
    Echo::with(bench, address, |socket, query, from| {
        let question = &query[12..];
        let end = question.iter().position(|&byte| byte == 0).unwrap() + 5;
        let mut answer = query[..2].to_vec();
        answer.extend([0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        answer.extend(&question[..end]);
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 77]);
        let _ = socket.send_to(&answer, from);
    })
}

#[test]
fn dig_asks_a_name_server_through_a_forward() {
    let forwards = "links = \"auto\"\nforward = [\"udp:5353=10.99.0.1:53\"]\n";
    let Some(bond) = Plan::new(&LINKS).client(forwards).start() else {
        return;
    };
    let _server = name_server(&bond.bench, "10.99.0.1:53");
    let dig = [
        "dig",
        "+short",
        "+noedns",
        "-p",
        "5353",
        "@127.0.0.1",
        "bond.example",
        "A",
    ];
    let answer = bond.bench.run(Side::Client, &dig);
    // dig prints a line for a lost datagram, and asks again.
    assert_eq!(answer.lines().last(), Some("192.0.2.77"));
    bond.stop();
}

/// Live video over SRT, which repairs losses itself, to a receiver that listens at the server.
#[test]
fn ffmpeg_pushes_live_video_over_srt() {
    let forwards = "links = \"auto\"\nforward = [\"udp:9000=10.99.0.1:9000\"]\n";
    let Some(bond) = Plan::new(&LINKS).client(forwards).start() else {
        return;
    };
    until_over(&bond, "udp");
    let quiet = ["ffmpeg", "-nostdin", "-loglevel", "error", "-y"];
    let listen = [
        "-i",
        "srt://10.99.0.1:9000?mode=listener",
        "-c",
        "copy",
        "received.ts",
    ];
    let receiver = [&quiet[..], &listen].concat();
    let receiving = bond.bench.spawn(Side::Server, &receiver);
    // A caller tries again until the listener is there (3 s by default).
    let camera = "testsrc=size=320x240:rate=25";
    let source = [
        "-re",
        "-f",
        "lavfi",
        "-i",
        camera,
        "-t",
        "4",
        "-c:v",
        "mpeg2video",
    ];
    let target = ["-f", "mpegts", "srt://127.0.0.1:9000?mode=caller"];
    let sender = [&quiet[..], &source, &target].concat();
    bond.bench.run(Side::Client, &sender);
    finish(&receiver, receiving);
    let count = [
        "ffprobe",
        "-v",
        "error",
        "-count_frames",
        "-select_streams",
        "v:0",
        "-show_entries",
        "stream=nb_read_frames",
        "-of",
        "csv=p=0",
        "received.ts",
    ];
    let frames = bond.bench.run(Side::Server, &count);
    // ffprobe lists a stream once more for its program.
    let frames = frames.lines().next().unwrap().trim_end_matches(',');
    let frames: u32 = frames.parse().unwrap();
    assert!(frames >= 95, "{frames} of 100 frames arrived");
    bond.stop();
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

/// A QUIC download: the protocol of HTTP/3, with its own loss recovery and congestion control.
///
/// A few losses are the signals that end its slow start. A bond that reordered datagrams, or whose
/// queue overflowed, would cause many more.
#[test]
fn a_quic_download_passes_without_damage() {
    let Some((bond, server, client)) = with_forward() else {
        return;
    };
    let expected = Pattern::bytes(11, 4_000_000);
    let download = quic::download(server, client, FORWARD, expected.clone());
    assert!(download.bytes == expected, "the download is damaged");
    println!(
        "{} congestion events, {} of {} lost",
        download.congestion_events, download.lost_packets, download.sent_packets
    );
    assert!(
        // 0.1 %, with 2 to 4 reductions of the window, also on a busy machine. A program that runs
        // very late loses up to 32 datagrams at once at its own socket: 1 %.
        download.lost_packets * 50 < download.sent_packets,
        "{} of {} packets of the server were lost",
        download.lost_packets,
        download.sent_packets
    );
    assert!(download.congestion_events <= 10);
    bond.stop();
}
