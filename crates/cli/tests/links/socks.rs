//! Connections through SOCKS (RFC 1928), and early answers to programs.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddrV4, TcpStream};

use sumlink_lab::Side;

use crate::bond::{Plan, SOCKS};
use sumlink_test_support::emulated::Bench;
use sumlink_test_support::emulated::traffic::listen;

/// RFC 1928, section 6.
const SUCCEEDED: u8 = 0;
const REFUSED: u8 = 5;

const LINKS: [&str; 2] = ["a:rate=20mbit,delay=5ms", "b:rate=20mbit,delay=10ms"];

/// Requests a connection; returns the reply of the proxy.
pub(crate) fn ask(bench: &Bench, target: SocketAddrV4) -> (TcpStream, u8) {
    let dial = || TcpStream::connect(SOCKS).unwrap();
    let mut stream = bench.lab.run(Side::Client, dial).unwrap();
    let mut request = vec![5, 1, 0, 5, 1, 0, 1];
    request.extend(target.ip().octets());
    request.extend(target.port().to_be_bytes());
    stream.write_all(&request).unwrap();
    let mut reply = [0; 12];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[..3], [5, 0, 5]);
    (stream, reply[3])
}

/// The replies to two requests for a target without a listener; with `before`, the target had one
/// earlier and was connected.
fn replies_for_a_closed_target(before: bool, lines: &str) -> Option<[u8; 2]> {
    let target: SocketAddrV4 = "10.99.0.1:8080".parse().unwrap();
    let bond = Plan::new(&LINKS)
        .client(&format!("links = \"auto\"\n{lines}"))
        .start()?;
    if before {
        let listener = listen(&bond.bench, target.into());
        let (first, reply) = ask(&bond.bench, target);
        assert_eq!(reply, SUCCEEDED);
        drop((listener.accept().unwrap(), listener, first));
    }
    let (mut second, reply) = ask(&bond.bench, target);
    // After an early answer the program finds the connection closed.
    match second.read(&mut [0]) {
        Ok(read) => assert_eq!(read, 0),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
    let (_third, next) = ask(&bond.bench, target);
    bond.stop();
    Some([reply, next])
}

#[test]
fn a_recently_connected_target_gets_an_early_answer() {
    let Some(replies) = replies_for_a_closed_target(true, "") else {
        return;
    };
    assert_eq!(replies, [SUCCEEDED, REFUSED]);
}

#[test]
fn early_always_answers_early_unless_the_target_just_failed() {
    let Some(replies) = replies_for_a_closed_target(false, "early = \"always\"\n") else {
        return;
    };
    assert_eq!(replies, [SUCCEEDED, REFUSED]);
}

#[test]
fn early_never_waits_for_the_server() {
    let Some(replies) = replies_for_a_closed_target(true, "early = \"never\"\n") else {
        return;
    };
    assert_eq!(replies, [REFUSED, REFUSED]);
}
