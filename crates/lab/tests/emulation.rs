//! Compares the laboratory with its settings, measured with the kernel's own TCP, ping and sockets.
//!
//! Needs root or unprivileged user namespaces; fails where neither is available, unless
//! `SUMLINK_SKIP_NETNS=1` is set.

#![allow(clippy::print_stderr, reason = "a test")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::ops::Deref;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use sumlink_lab::{InterfaceState, Lab, LabConfig, LinkChange, SERVER_V4, SERVER_V6, Side};

/// A laboratory that no other test of this file runs alongside: these tests measure time.
struct Alone {
    lab: Lab,
    _turn: MutexGuard<'static, ()>,
}

impl Deref for Alone {
    type Target = Lab;

    fn deref(&self) -> &Lab {
        &self.lab
    }
}

/// `None` if the user disabled these tests.
fn lab(links: &[&str]) -> Option<Alone> {
    start(config(links))
}

fn config(links: &[&str]) -> LabConfig {
    LabConfig::new(links.iter().map(|link| link.parse().unwrap()).collect())
}

fn start(config: LabConfig) -> Option<Alone> {
    static TURN: Mutex<()> = Mutex::new(());
    if std::env::var_os("SUMLINK_SKIP_NETNS").is_some_and(|value| value == "1") {
        eprintln!("skipped because SUMLINK_SKIP_NETNS=1");
        return None;
    }
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    match Lab::start(config) {
        Ok(lab) => Some(Alone { lab, _turn: turn }),
        Err(error) => panic!("{error}; set SUMLINK_SKIP_NETNS=1 to skip these tests"),
    }
}

fn set(lab: &Lab, link: &str, change: &str) {
    lab.set(link, &[LinkChange::parse_for(link, change).unwrap()])
        .unwrap();
}

fn output(lab: &Lab, side: Side, words: &[&str]) -> Output {
    let mut command = Command::new(words[0]);
    command
        .args(&words[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    lab.spawn(side, command)
        .unwrap()
        .wait_with_output()
        .unwrap()
}

fn text(lab: &Lab, side: Side, words: &[&str]) -> String {
    let output = output(lab, side, words);
    assert!(
        output.status.success(),
        "{words:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Smallest round-trip time in milliseconds, by ping.
fn smallest_rtt(lab: &Lab, link: &str, target: &str) -> f64 {
    let text = text(
        lab,
        Side::Client,
        &["ping", "-c", "5", "-i", "0.05", "-I", link, target],
    );
    let line = text
        .lines()
        .find(|line| line.starts_with("rtt"))
        .expect(&text);
    line.split('=')
        .nth(1)
        .unwrap()
        .trim()
        .split('/')
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

/// A UDP socket of the client that uses one link, and one of the server at the port.
fn udp_pair(lab: &Lab, link: usize, port: u16) -> (UdpSocket, UdpSocket) {
    let server = lab
        .run(Side::Server, move || {
            UdpSocket::bind((SERVER_V4, port)).unwrap()
        })
        .unwrap();
    let name = lab.links()[link].name.clone();
    let client = lab
        .run(Side::Client, move || {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
            let device = std::ffi::OsString::from(name);
            nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::BindToDevice, &device)
                .unwrap();
            socket.connect((SERVER_V4, port)).unwrap();
            socket
        })
        .unwrap();
    server
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    (client, server)
}

/// Whether a datagram gets from the client to the server within the time.
fn gets_through(pair: &(UdpSocket, UdpSocket), within: Duration) -> bool {
    pair.1.set_read_timeout(Some(within)).unwrap();
    let _ = pair.0.send(b"hello");
    pair.1.recv(&mut [0; 16]).is_ok()
}

#[test]
fn programs_can_be_stopped() {
    // As in the subcommands: the laboratory's own process watches the signal.
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.thread_block().unwrap();
    let Some(lab) = lab(&["wifi:rate=1mbit"]) else {
        return;
    };
    let words = ["grep", "SigBlk", "/proc/self/status"];
    let blocked = text(&lab, Side::Client, &words);
    assert_eq!(blocked.trim(), "SigBlk:\t0000000000000000");
}

#[test]
fn the_delay_matches_its_setting() {
    let Some(lab) = lab(&[
        "wifi:rate=60mbit,delay=10ms",
        "wigig:rate=180mbit,delay=4ms",
    ]) else {
        return;
    };
    for (link, rtt) in [("wifi", 20.0), ("wigig", 8.0)] {
        for target in [SERVER_V4.to_string(), SERVER_V6.to_string()] {
            let measured = smallest_rtt(&lab, link, &target);
            assert!(
                (rtt..rtt + 2.0).contains(&measured),
                "{link} to {target}: {measured} ms"
            );
        }
    }
    set(&lab, "wifi", "delay=25ms");
    let measured = smallest_rtt(&lab, "wifi", &SERVER_V4.to_string());
    assert!(
        (50.0..52.0).contains(&measured),
        "after the change: {measured} ms"
    );
}

#[test]
fn tcp_reaches_the_configured_rate() {
    let Some(lab) = lab(&["link0:rate=50mbit,delay=5ms,up.rate=20mbit"]) else {
        return;
    };
    let listener = lab
        .run(Side::Server, || {
            TcpListener::bind((SERVER_V4, 5201)).unwrap()
        })
        .unwrap();
    let mut client = lab
        .run(Side::Client, || {
            TcpStream::connect((SERVER_V4, 5201)).unwrap()
        })
        .unwrap();
    let (mut server, _) = listener.accept().unwrap();
    // Of 1500 bytes, 52 are headers of IPv4 and of TCP with time stamps.
    let goodput = |rate: f64| rate * 1448.0 / 1500.0;
    let measured = bulk(&mut server, &mut client);
    let ratio = measured / goodput(50.0);
    assert!(
        (0.93..1.05).contains(&ratio),
        "down: {measured:.1} of 50 Mbit/s"
    );
    let measured = bulk(&mut client, &mut server);
    let ratio = measured / goodput(20.0);
    assert!(
        (0.93..1.05).contains(&ratio),
        "up: {measured:.1} of 20 Mbit/s"
    );
    assert_eq!(lab.health().unwrap().overruns, 0);
}

/// Sends as fast as TCP allows for three seconds; returns the goodput of the last two in Mbit/s.
fn bulk(from: &mut TcpStream, to: &mut TcpStream) -> f64 {
    let mut from = from.try_clone().unwrap();
    from.set_write_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    to.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let (stop, stopped) = mpsc::channel::<()>();
    let sender = thread::spawn(move || {
        let block = vec![7; 64 << 10];
        let mut sent = 0u64;
        while stopped.try_recv().is_err() {
            sent += from.write(&block).unwrap() as u64;
        }
        sent
    });
    let mut buffer = vec![0; 64 << 10];
    let start = Instant::now();
    let (mut all, mut counted, mut since) = (0u64, 0u64, None);
    while start.elapsed() < Duration::from_secs(3) {
        let len = to.read(&mut buffer).unwrap() as u64;
        all += len;
        match since {
            None if start.elapsed() >= Duration::from_secs(1) => since = Some(Instant::now()),
            None => {}
            Some(_) => counted += len,
        }
    }
    let seconds = since.unwrap().elapsed().as_secs_f64();
    stop.send(()).unwrap();
    // The sender may be blocked: read the data that it has sent.
    while !sender.is_finished() {
        all += to.read(&mut buffer).unwrap() as u64;
    }
    let sent = sender.join().unwrap();
    while all < sent {
        all += to.read(&mut buffer).unwrap() as u64;
    }
    counted as f64 * 8e-6 / seconds
}

#[test]
fn iperf3_sees_the_rate_through_the_bound_interface() {
    let Some(lab) = lab(&["slow:rate=10mbit,delay=1ms", "fast:rate=100mbit,delay=1ms"]) else {
        return;
    };
    let mut server = Command::new("iperf3");
    server.args(["--server", "--one-off", "--port", "5202"]);
    server.stdin(Stdio::null()).stdout(Stdio::null());
    let mut server = lab
        .spawn(Side::Server, server)
        .expect("iperf3 is installed by scripts/setup.sh test");
    let address = SocketAddr::from((SERVER_V4, 5202));
    let deadline = Instant::now() + Duration::from_secs(10);
    while !lab
        .run(Side::Server, move || {
            let table = std::fs::read_to_string("/proc/thread-self/net/tcp6").unwrap();
            // 1452 is 5202 in hexadecimal, 0A is LISTEN.
            table
                .lines()
                .any(|line| line.contains(":1452 ") && line.contains(" 0A "))
        })
        .unwrap()
    {
        assert!(
            Instant::now() < deadline,
            "iperf3 does not listen at {address}"
        );
        thread::yield_now();
    }
    let json = text(
        &lab,
        Side::Client,
        &[
            "iperf3",
            "-c",
            "10.99.0.1",
            "-p",
            "5202",
            "--bind-dev",
            "fast",
            "-R",
            "-t",
            "3",
            "-O",
            "1",
            "-J",
        ],
    );
    server.wait().unwrap();
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    let measured = report["end"]["sum_received"]["bits_per_second"]
        .as_f64()
        .unwrap()
        / 1e6;
    assert!(
        (88.0..99.0).contains(&measured),
        "{measured:.1} Mbit/s of 100"
    );
}

#[test]
fn the_loss_matches_its_setting() {
    let Some(lab) = lab(&["lossy:rate=100mbit,up.loss=10%,queue=1MB"]) else {
        return;
    };
    let (client, server) = udp_pair(&lab, 0, 5300);
    let sent = 4000u32;
    // In portions, so that neither the queue nor the socket's buffer overflows.
    let mut received = 0;
    for portion in 0..40 {
        for i in 0..100u32 {
            client.send(&(portion * 100 + i).to_be_bytes()).unwrap();
        }
        let deadline = Instant::now() + Duration::from_secs(5);
        while lab.status().unwrap()[0].directions[0].backlog_packets > 0
            || lab.status().unwrap()[0].directions[0].offered_packets
                < u64::from(100 * (portion + 1))
        {
            assert!(Instant::now() < deadline, "the emulator does not read");
        }
        server.set_nonblocking(true).unwrap();
        while server.recv(&mut [0; 16]).is_ok() {
            received += 1;
        }
    }
    let lost = f64::from(sent - received) / f64::from(sent);
    // Five standard deviations: 5 * sqrt(0.1 * 0.9 / 4000) = 0.024.
    assert!(
        (0.076..0.124).contains(&lost),
        "{lost:.3} of the packets lost at 10 %"
    );
}

#[test]
fn a_blackhole_drops_packets_silently() {
    let Some(lab) = lab(&["wifi:rate=60mbit,delay=1ms", "wigig:rate=60mbit,delay=1ms"]) else {
        return;
    };
    let wifi = udp_pair(&lab, 0, 5400);
    let wigig = udp_pair(&lab, 1, 5401);
    let soon = Duration::from_secs(5);
    let state = |lab: &Lab| lab.status().unwrap()[0].state;
    let carrier = |lab: &Lab| {
        text(lab, Side::Client, &["cat", "/sys/class/net/wifi/carrier"])
            .trim()
            .to_owned()
    };
    assert!(gets_through(&wifi, soon) && gets_through(&wigig, soon));

    set(&lab, "wifi", "state=blackhole");
    assert_eq!(
        (state(&lab), carrier(&lab).as_str()),
        (InterfaceState::Blackhole, "1")
    );
    assert!(!gets_through(&wifi, Duration::from_millis(300)));
    assert!(gets_through(&wigig, soon), "the other link is not affected");

    set(&lab, "wifi", "state=down");
    assert_eq!(
        (state(&lab), carrier(&lab).as_str()),
        (InterfaceState::Down, "0")
    );
    assert!(!gets_through(&wifi, Duration::from_millis(300)));

    set(&lab, "wifi", "state=up");
    assert_eq!(
        (state(&lab), carrier(&lab).as_str()),
        (InterfaceState::Up, "1")
    );
    assert!(gets_through(&wifi, soon), "up again");
}

#[test]
fn a_removed_interface_comes_back_with_its_addresses() {
    let Some(lab) = lab(&["wifi:rate=60mbit,delay=1ms", "wigig:rate=60mbit,delay=1ms"]) else {
        return;
    };
    for by_hand in [false, true, false] {
        if by_hand {
            text(&lab, Side::Client, &["ip", "link", "delete", "wifi"]);
            let deadline = Instant::now() + Duration::from_secs(5);
            while lab.status().unwrap()[0].state != InterfaceState::Removed {
                assert!(Instant::now() < deadline, "the emulator does not notice");
                thread::yield_now();
            }
        } else {
            set(&lab, "wifi", "state=removed");
        }
        assert!(
            !output(&lab, Side::Client, &["ip", "link", "show", "wifi"])
                .status
                .success()
        );
        assert!(gets_through(
            &udp_pair(&lab, 1, 5500),
            Duration::from_secs(5)
        ));
        set(&lab, "wifi", "state=up");
        assert!(gets_through(
            &udp_pair(&lab, 0, 5501),
            Duration::from_secs(5)
        ));
    }
}

#[test]
fn links_change_over_the_control_socket() {
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixStream;
    let Some(lab) = lab(&["wifi:rate=60mbit,delay=1ms"]) else {
        return;
    };
    let mut socket = UnixStream::connect(lab.control()).unwrap();
    let mut answers = BufReader::new(socket.try_clone().unwrap());
    let mut ask = |line: &str| {
        writeln!(socket, "{line}").unwrap();
        let mut answer = String::new();
        answers.read_line(&mut answer).unwrap();
        answer.trim().to_owned()
    };
    assert_eq!(ask("set wifi delay=20ms down.rate=5mbit"), "ok");
    assert!(ask("status").starts_with("ok {\"links\":[{\"name\":\"wifi\",\"state\":\"up\""));
    assert_eq!(
        ask("set lte loss=1%"),
        "error there is no link 'lte' (links: wifi)"
    );
    assert!(ask("set wifi loss=1").starts_with("error link 'wifi', loss: '1' has no unit"));
    assert!(ask("hello").starts_with("error say 'set"));
    let measured = smallest_rtt(&lab, "wifi", &SERVER_V4.to_string());
    assert!((40.0..42.0).contains(&measured), "{measured} ms");
}

#[test]
fn unshaped_links_are_cables() {
    // A name that ip takes for an abbreviation where it expects none.
    let cables = LabConfig {
        unshaped: true,
        ..config(&["a:rate=0", "wigig:rate=0"])
    };
    let Some(lab) = start(cables) else {
        return;
    };
    for link in ["a", "wigig"] {
        assert!(smallest_rtt(&lab, link, "10.99.0.1") < 5.0);
    }
    let error = lab.set("a", &[LinkChange::parse_for("a", "rate=1mbit").unwrap()]);
    assert!(error.unwrap_err().to_string().contains("not emulated"));
    assert_eq!(lab.health().unwrap().objection(), None);
}

#[test]
fn sixteen_links_at_once() {
    let links: Vec<_> = (0..16)
        .map(|i| format!("link{i}:rate=10mbit,delay={i}ms"))
        .collect();
    let Some(lab) = lab(&links.iter().map(String::as_str).collect::<Vec<_>>()) else {
        return;
    };
    for i in 0..16 {
        assert!(
            gets_through(&udp_pair(&lab, i, 5600), Duration::from_secs(5)),
            "link{i}"
        );
    }
}
