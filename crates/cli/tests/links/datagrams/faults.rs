//! Datagrams continue when a link, UDP or the server fails.

use std::thread;
use std::time::{Duration, Instant};

use sumlink_lab::Side;
use sumlink_transport::SessionStatus;

use super::{Association, ECHO, Echo, LINKS, until_over};
use crate::bond::Plan;
use sumlink_test_support::emulated::is_root;

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
