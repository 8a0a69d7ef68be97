//! Features of links beyond a constant rate, with real packets: schedules, traces, groups,
//! super-packets.
//!
//! Needs root or unprivileged user namespaces; fails where neither is available, unless
//! `SUMLINK_SKIP_NETNS=1` is set.

#![allow(clippy::print_stderr, reason = "a test")]

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use sumlink_lab::{
    CouplingGroup, Direction, InterfaceState, Lab, LabConfig, LinkChange, PlannedChange, SERVER_V4,
    SERVER_V6, Side, members,
};
use sumlink_link::Air;

/// These tests measure time, so they take turns. `None` if the user disabled them.
fn turn() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    if std::env::var_os("SUMLINK_SKIP_NETNS").is_some_and(|value| value == "1") {
        eprintln!("skipped because SUMLINK_SKIP_NETNS=1");
        return None;
    }
    Some(TURN.lock().unwrap_or_else(PoisonError::into_inner))
}

fn config(links: &[&str]) -> LabConfig {
    LabConfig::new(links.iter().map(|link| link.parse().unwrap()).collect())
}

fn start(config: LabConfig) -> Lab {
    Lab::start(config)
        .unwrap_or_else(|error| panic!("{error}; set SUMLINK_SKIP_NETNS=1 to skip these tests"))
}

fn plan(at_ms: u64, link: &str, change: &str) -> PlannedChange {
    PlannedChange {
        at: Duration::from_millis(at_ms),
        link: link.to_owned(),
        change: LinkChange::parse_for(link, change).unwrap(),
    }
}

/// A UDP socket of the client that uses one link, and one of the server at the port.
fn udp_pair(lab: &Lab, link: &str, port: u16) -> (UdpSocket, UdpSocket) {
    let server = lab
        .run(Side::Server, move || {
            UdpSocket::bind((SERVER_V4, port)).unwrap()
        })
        .unwrap();
    setsockopt(&server, sockopt::RcvBuf, &(8 << 20)).unwrap();
    let device = OsString::from(link);
    let client = lab
        .run(Side::Client, move || {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
            setsockopt(&socket, sockopt::BindToDevice, &device).unwrap();
            socket.connect((SERVER_V4, port)).unwrap();
            socket
        })
        .unwrap();
    (client, server)
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        thread::yield_now();
    }
}

fn carrier(lab: &Lab, side: Side, link: &str) -> bool {
    let path = format!("/sys/class/net/{link}/carrier");
    let mut command = Command::new("cat");
    command
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let output = lab
        .spawn(side, command)
        .unwrap()
        .wait_with_output()
        .unwrap();
    output.stdout == b"1\n"
}

#[test]
fn scheduled_changes_happen_on_their_own() {
    let Some(_turn) = turn() else { return };
    let mut config = config(&["wifi:rate=0,queue=1MB", "wigig:rate=10mbit"]);
    config.timeline = vec![
        plan(300, "wigig", "state=down"),
        plan(100, "wifi", "up.rate=12mbit"),
        plan(500, "wigig", "state=up"),
    ];
    config.sample_interval = Duration::from_millis(50);
    let lab = start(config);
    let (client, server) = udp_pair(&lab, "wifi", 5700);
    for _ in 0..100 {
        client.send(&[0; 1472]).unwrap();
    }
    server
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    assert!(
        server.recv(&mut [0; 8]).is_err(),
        "rate 0, and no scheduled change before the beginning"
    );
    lab.begin().unwrap();
    server
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    for _ in 0..100 {
        server.recv(&mut [0; 8]).unwrap();
    }
    for (expected, state) in [(false, InterfaceState::Down), (true, InterfaceState::Up)] {
        for side in [Side::Client, Side::Server] {
            wait_until("the carrier follows", || {
                carrier(&lab, side, "wigig") == expected
            });
        }
        assert_eq!(lab.status().unwrap()[1].state, state);
    }
    wait_until("600 ms pass", || {
        lab.series().unwrap()[0].wire_bytes.len() >= 12
    });
    let series = lab.series().unwrap();
    let wifi = &series[0];
    assert_eq!(
        (wifi.link.as_str(), wifi.direction),
        ("wifi", Direction::Up)
    );
    // 1500 bytes take a millisecond: 50 packets in the interval from 100 to 150 ms. At rate 0 no
    // part of the first packet was sent before.
    assert_eq!(wifi.wire_bytes[..2], [0, 0]);
    let sum: u64 = wifi.wire_bytes.iter().sum();
    assert_eq!(sum, 150_000);
    let half: u64 = wifi.wire_bytes[2];
    assert!((72_000..=76_500).contains(&half), "{half} bytes in 50 ms");
}

#[test]
fn a_trace_is_followed_and_starts_over_at_the_beginning() {
    let Some(_turn) = turn() else { return };
    // 10 opportunities in the first 100 ms, then none for 400 ms.
    let file = tempfile::NamedTempFile::new().unwrap();
    let stamps: String = (1..=10).map(|i| format!("{}\n", 10 * i)).collect();
    std::fs::write(&file, stamps + "500\n").unwrap();
    let link = format!("lte:trace={},queue=1MB", file.path().display());
    let mut config = config(&[&link]);
    config.sample_interval = Duration::from_millis(50);
    let lab = start(config);
    let (client, server) = udp_pair(&lab, "lte", 5701);
    lab.begin().unwrap();
    for _ in 0..18 {
        client.send(&[0; 1472]).unwrap();
    }
    server
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    for _ in 0..18 {
        server.recv(&mut [0; 8]).unwrap();
    }
    wait_until("650 ms pass", || {
        lab.series().unwrap()[0].wire_bytes.len() >= 13
    });
    let packets: Vec<_> = lab.series().unwrap()[0]
        .wire_bytes
        .iter()
        .map(|bytes| bytes / 1500)
        .collect();
    // The first opportunities pass before the packets are queued; none falls between 100 and 500
    // ms.
    assert_eq!(packets[3..10], [0; 7], "{packets:?}");
    assert_eq!(packets.iter().sum::<u64>(), 18, "{packets:?}");
    assert!(
        packets[10] >= 5,
        "after the trace has started again: {packets:?}"
    );
}

#[test]
fn coupled_links_share_the_air() {
    let Some(_turn) = turn() else { return };
    let mut config = config(&["a:rate=20mbit,queue=4MB", "b:rate=20mbit,queue=4MB"]);
    config.groups.push(CouplingGroup {
        members: members(Direction::Up, ["a", "b"]),
        air: Air::uniform(2, 1.0).unwrap(),
    });
    let lab = start(config);
    let pairs = [udp_pair(&lab, "a", 5702), udp_pair(&lab, "b", 5703)];
    lab.begin().unwrap();
    // Two seconds for each alone; together at most the capacity of one link and its back-offs.
    let packets = 1600;
    for _ in 0..packets {
        for (client, _) in &pairs {
            client.send(&[0; 1472]).unwrap();
        }
    }
    wait_until("a second passes", || {
        lab.series().unwrap()[0].wire_bytes.len() >= 10
    });
    let carried: u64 = lab
        .series()
        .unwrap()
        .iter()
        .flat_map(|series| series.wire_bytes[..10].to_vec())
        .sum();
    let megabits = carried as f64 * 8e-6;
    assert!(
        (15.0..25.0).contains(&megabits),
        "{megabits:.1} Mbit/s of 20 that exclude each other"
    );
}

/// Sends a pattern and checks that it arrives unchanged; returns the reads of the far end.
fn transfer(mut from: TcpStream, mut to: TcpStream, bytes: usize) {
    let byte = |i: usize| (i * 7 + i / 251) as u8;
    let sender = thread::spawn(move || {
        let data: Vec<u8> = (0..bytes).map(byte).collect();
        from.write_all(&data).unwrap();
    });
    to.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut received = Vec::new();
    to.read_to_end(&mut received).unwrap();
    sender.join().unwrap();
    assert_eq!(received.len(), bytes);
    assert!(received.iter().enumerate().all(|(i, b)| *b == byte(i)));
}

#[test]
fn super_packets_are_cut_and_joined_and_each_packet_can_be_lost() {
    let Some(_turn) = turn() else { return };
    let mut config = config(&["fast:rate=4gbit,delay=1ms,loss=0.1%,queue=20ms"]);
    config.gso = true;
    let lab = start(config);
    for v6 in [false, true] {
        let address = if v6 {
            std::net::IpAddr::from(SERVER_V6)
        } else {
            SERVER_V4.into()
        };
        for down in [false, true] {
            let listener = lab
                .run(Side::Server, move || {
                    TcpListener::bind((address, 5704)).unwrap()
                })
                .unwrap();
            let client = lab
                .run(Side::Client, move || {
                    TcpStream::connect((address, 5704)).unwrap()
                })
                .unwrap();
            let (server, _) = listener.accept().unwrap();
            let (from, to) = if down {
                (server, client)
            } else {
                (client, server)
            };
            transfer(from, to, 20 << 20);
        }
    }
    for report in &lab.status().unwrap()[0].directions {
        // At least two times 20 MiB in packets of at most 1500 bytes, and one in a thousand is
        // lost.
        assert!(report.offered_packets > 28_000, "{report:?}");
        assert!(report.lost_packets > 5, "{report:?}");
        let mean = report.delivered_bytes / report.delivered_packets;
        assert!(mean <= 1500, "{report:?}");
    }
    // Datagrams with checksums that the receiver verifies or completes.
    let (client, server) = udp_pair(&lab, "fast", 5705);
    server
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    setsockopt(&client, sockopt::UdpGsoSegment, &1000).unwrap();
    let sent: Vec<u8> = (0..10_000u32).map(|i| (i % 251) as u8).collect();
    let mut buffer = [0; 2000];
    let mut attempts = 0;
    // All ten get through unless one in a thousand is lost.
    loop {
        client.send(&sent).unwrap();
        let mut received = Vec::new();
        while received.len() < sent.len() {
            let Ok(len) = server.recv(&mut buffer) else {
                break;
            };
            assert_eq!(len, 1000);
            received.extend_from_slice(&buffer[..len]);
        }
        if received == sent {
            break;
        }
        attempts += 1;
        assert!(attempts < 3, "{} of {} bytes", received.len(), sent.len());
    }
}

#[test]
fn excessive_rates_are_reported_in_advance() {
    let refused = config(&["wifi:rate=8gbit"])
        .check()
        .unwrap_err()
        .to_string();
    assert!(refused.contains("8gbit is more than the emulator carries packet by packet"));
    assert!(refused.contains("--gso"), "{refused}");
    let many = config(&["a:rate=2gbit", "b:rate=2gbit"]);
    assert!(many.check().is_ok());
    assert!(many.warning().unwrap().contains("add up to 4gbit"));
    let mut removed = config(&["a:rate=2gbit"]);
    removed.timeline = vec![plan(0, "a", "state=removed")];
    assert!(
        removed
            .check()
            .unwrap_err()
            .to_string()
            .contains("cannot be scheduled")
    );
    removed.timeline = vec![plan(0, "a", "rate=80gbit")];
    assert!(removed.check().is_err());
}
