//! A LAN behind a gateway that is a plain router.
//!
//! Needs root or unprivileged user namespaces; fails where neither is available, unless
//! `SUMLINK_SKIP_NETNS=1` is set.

#![allow(clippy::print_stderr, reason = "a test")]

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use sumlink_lab::{
    Capture, INTERNET_V4, INTERNET_V6, LAN_V4, LAN_V6, Lab, LabConfig, LanConfig, Packet,
    ReversePath, Side, client_v4,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// `None` if the user disabled these tests.
fn lab(lan: LanConfig) -> Option<Lab> {
    if std::env::var_os("SUMLINK_SKIP_NETNS").is_some_and(|value| value == "1") {
        eprintln!("skipped because SUMLINK_SKIP_NETNS=1");
        return None;
    }
    let links = ["wifi:rate=50mbit,delay=2ms", "lte:rate=20mbit,delay=10ms"];
    let config = LabConfig {
        lan: Some(lan),
        ..LabConfig::new(links.map(|link| link.parse().unwrap()).to_vec())
    };
    match Lab::start(config) {
        Ok(lab) => Some(lab),
        Err(error) => panic!("{error}; set SUMLINK_SKIP_NETNS=1 to skip these tests"),
    }
}

/// Sends some bytes from the LAN host to the internet host and back; the address that the internet
/// host saw.
fn exchange(lab: &Lab, address: IpAddr) -> IpAddr {
    let listener = lab.run(Side::Internet, move || {
        TcpListener::bind(SocketAddr::new(address, 8000)).unwrap()
    });
    let listener = listener.unwrap();
    let server = thread::spawn(move || {
        let (mut stream, peer) = listener.accept().unwrap();
        let mut question = [0; 4];
        stream.read_exact(&mut question).unwrap();
        stream.write_all(&question).unwrap();
        peer.ip()
    });
    let connected = lab.run(Side::Lan, move || {
        TcpStream::connect_timeout(&SocketAddr::new(address, 8000), PATIENCE)
    });
    let mut client = connected.unwrap().unwrap();
    client.write_all(b"ping").unwrap();
    let mut answer = [0; 4];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"ping");
    server.join().unwrap()
}

fn output(lab: &Lab, side: Side, words: &[&str]) -> String {
    let mut command = Command::new(words[0]);
    command
        .args(&words[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let child = lab.spawn(side, command).unwrap();
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn is_between(packet: &Packet, source: IpAddr, destination: IpAddr) -> bool {
    (packet.source, packet.destination) == (source, destination)
}

#[test]
fn a_plain_gateway_forwards_over_the_first_link_with_its_own_address() {
    let Some(lab) = lab(LanConfig::default()) else {
        return;
    };
    // Nothing passes a host that is no router.
    let refused = lab.run(Side::Lan, || {
        let target = SocketAddr::from((INTERNET_V4, 8000));
        TcpStream::connect_timeout(&target, Duration::from_millis(300)).is_err()
    });
    assert!(refused.unwrap());
    lab.forward().unwrap();
    lab.forward().unwrap();
    let links = ["wifi", "lte"];
    let captures = links.map(|link| Capture::start(&lab, Side::Client, Some(link)).unwrap());
    assert_eq!(
        exchange(&lab, INTERNET_V4.into()),
        IpAddr::from(client_v4(0))
    );
    let v6 = exchange(&lab, INTERNET_V6.into());
    assert_eq!(v6.to_string(), "fd77:1::2");
    let [wifi, lte] = captures.map(|capture| capture.finish().unwrap());
    let own = IpAddr::from(client_v4(0));
    let there = |packet: &&Packet| packet.outgoing && is_between(packet, own, INTERNET_V4.into());
    let back = |packet: &&Packet| !packet.outgoing && is_between(packet, INTERNET_V4.into(), own);
    assert!(wifi.iter().filter(there).count() >= 3, "{wifi:?}");
    assert!(wifi.iter().filter(back).count() >= 2, "{wifi:?}");
    let of_tcp = |packet: &&Packet| packet.protocol == 6;
    assert_eq!(lte.iter().filter(of_tcp).count(), 0, "{lte:?}");
    let inside = [LAN_V4.into(), LAN_V6.into()];
    let is_inside = |packet: &&Packet| inside.contains(&packet.source);
    assert_eq!(wifi.iter().filter(is_inside).count(), 0, "{wifi:?}");
}

#[test]
fn hosts_ask_the_name_server_of_the_internet() {
    let Some(lab) = lab(LanConfig::default()) else {
        return;
    };
    lab.forward().unwrap();
    for side in [Side::Lan, Side::Client, Side::Server] {
        let found = output(&lab, side, &["getent", "ahostsv4", "h9.example.test"]);
        assert!(found.starts_with("203.0.113.9 "), "{side:?}: {found}");
    }
    let questions = lab.questions();
    let asked = |from: IpAddr| {
        let mut all = questions.iter();
        all.any(|question| question.name == "h9.example.test" && question.from.ip() == from)
    };
    assert!(asked(client_v4(0).into()), "{questions:?}");
    assert!(asked([198, 51, 100, 1].into()), "{questions:?}");
    assert!(
        questions
            .iter()
            .all(|question| !question.over_tcp && question.kind == 1)
    );
}

#[test]
fn the_files_of_a_gateway_are_its_own() {
    let Some(lab) = lab(LanConfig::default()) else {
        return;
    };
    let write = "mkdir /run/sumlink && echo here > /run/sumlink/test-of-lab";
    output(&lab, Side::Client, &["sh", "-c", write]);
    let read = ["cat", "/run/sumlink/test-of-lab"];
    assert_eq!(output(&lab, Side::Client, &read), "here\n");
    let read = ["sh", "-c", "test ! -e /run/sumlink/test-of-lab"];
    output(&lab, Side::Server, &read);
    assert!(!std::path::Path::new("/run/sumlink/test-of-lab").exists());
    // The laboratory's own socket is in reach.
    let socket = ["sh", "-c", "test -S $SUMLINK_LAB_CONTROL"];
    output(&lab, Side::Client, &socket);
}

#[test]
fn the_filter_of_source_addresses_is_that_of_the_gateway() {
    let strict = LanConfig {
        rp_filter: ReversePath::Strict,
    };
    let Some(lab) = lab(strict) else {
        return;
    };
    let filter = |side, interface: &str| {
        let path = format!("/proc/sys/net/ipv4/conf/{interface}/rp_filter");
        output(&lab, side, &["cat", &path])
    };
    for interface in ["all", "lan0", "wifi", "lte"] {
        assert_eq!(filter(Side::Client, interface), "1\n", "{interface}");
    }
    assert_eq!(filter(Side::Server, "all"), "0\n");
    // Packets of the first link pass: it is the way to everything.
    lab.forward().unwrap();
    exchange(&lab, INTERNET_V4.into());
}

#[test]
fn a_laboratory_without_a_lan_has_no_such_sides() {
    if std::env::var_os("SUMLINK_SKIP_NETNS").is_some_and(|value| value == "1") {
        return;
    }
    let lab = Lab::start(LabConfig::new(vec!["wifi:rate=10mbit".parse().unwrap()])).unwrap();
    assert_eq!(lab.sides(), [Side::Client, Side::Server]);
    assert_eq!(lab.namespace(Side::Lan), None);
    let error = lab.run(Side::Internet, || ()).unwrap_err().to_string();
    assert!(error.contains("no side internet"), "{error}");
    let error = lab.forward().unwrap_err().to_string();
    assert!(error.contains("no side lan"), "{error}");
    assert!(lab.questions().is_empty());
}
