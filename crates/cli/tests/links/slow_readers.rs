//! A program that reads slowly slows its sender, on either side: the links carry little more than
//! it reads.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use sumlink_lab::Side;

use crate::bond::{Bond, Plan, SOCKS};
use crate::memory::{pair, write_on};
use sumlink_test_support::emulated::traffic::listen;

const LINKS: [&str; 2] = ["a:rate=40mbit,delay=8ms", "b:rate=20mbit,delay=8ms"];

/// Two round trips of both links without queues, and 1 MB.
const AHEAD: u64 = 2 * 120_000 + 1_000_000;

/// The same after a reader that was as fast as the links has stopped: six rounds, which the
/// receiver allows it while its rate grows, and the bytes that sockets accept.
const AHEAD_OF_FAST: u64 = 6 * 120_000 + 1_000_000 + 1024 * 1024;

/// Factor for frames and duplicates.
const OVERHEAD: f64 = 1.03;

/// Most growth of the daemons' memory at the end: what the C library's heap keeps, and little more.
const MAX_GROWTH: u64 = 24 << 20;

/// Bytes that the links have delivered to one side.
fn arrived(bond: &Bond, side: Side) -> u64 {
    let paths = bond.status(side).paths;
    paths.iter().map(|path| path.bytes_received).sum()
}

#[track_caller]
fn assert_follows(bond: &Bond, side: Side, before: u64, read: u64, ahead: u64, what: &str) {
    let carried = arrived(bond, side) - before;
    let most = (read as f64 * OVERHEAD) as u64 + ahead;
    println!("{what}: read {read}, carried {carried}");
    assert!(
        carried <= most,
        "{what}: {read} bytes read, {carried} carried, which is more than {most}"
    );
}

/// Reads at a rate in bytes per second; returns the number of bytes.
fn read_at(stream: &mut TcpStream, rate: u64, time: Duration) -> u64 {
    let (start, mut read) = (Instant::now(), 0);
    let mut piece = vec![0; 16 * 1024];
    while start.elapsed() < time {
        let due = (rate as f64 * start.elapsed().as_secs_f64()) as u64;
        if read >= due {
            thread::sleep(Duration::from_millis(5));
            continue;
        }
        read += stream.read(&mut piece).unwrap() as u64;
    }
    read
}

/// A stream that `reads` reads slowly, then not at all, then as fast as it can.
fn follows(reads: Side) {
    let Some(bond) = Plan::new(&LINKS).start() else {
        return;
    };
    bond.until_active(&["a", "b"]);
    let address = "10.99.0.1:8080".parse().unwrap();
    let listener = listen(&bond.bench, SocketAddr::V4(address));
    let before = [bond.client.resident(), bond.server.resident()];
    let arrived_before = arrived(&bond, reads);
    let (mut reader, writer) = pair(&bond.bench, &listener, address, reads);
    let written = write_on(writer);
    let second = Duration::from_secs(1);
    thread::sleep(second);
    assert_follows(&bond, reads, arrived_before, 0, AHEAD, "nothing is read");
    let mut read = read_at(&mut reader, 250_000, 4 * second);
    assert_follows(&bond, reads, arrived_before, read, AHEAD, "read slowly");
    read += read_at(&mut reader, 1 << 40, 2 * second);
    thread::sleep(second);
    assert_follows(&bond, reads, arrived_before, read, AHEAD_OF_FAST, "stopped");
    assert!(read > 4_000_000, "{read} bytes in two seconds of 7.5 MB/s");
    drop((reader, written));
    for (daemon, before) in [(&bond.client, before[0]), (&bond.server, before[1])] {
        let grown = daemon.resident().saturating_sub(before);
        println!("grown by {grown}");
        assert!(grown < MAX_GROWTH, "grown by {grown} bytes");
    }
    bond.stop();
}

#[test]
fn the_links_carry_only_what_a_slow_program_reads() {
    follows(Side::Client);
}

#[test]
fn the_links_carry_only_what_a_slow_target_reads() {
    follows(Side::Server);
}

#[test]
fn curl_with_a_limited_rate_limits_the_links() {
    let Some(mut bond) = Plan::new(&LINKS).start() else {
        return;
    };
    bond.until_active(&["a", "b"]);
    bond.serve_files();
    let file = bond.bench.path("www").join("file");
    std::fs::File::create(file)
        .unwrap()
        .set_len(1 << 30)
        .unwrap();
    for rate in ["1k", "250k", "3m", "6m"] {
        let arrived_before = arrived(&bond, Side::Client);
        let words = [
            "curl",
            "-sS",
            "--limit-rate",
            rate,
            "--max-time",
            "6",
            "--socks5-hostname",
            SOCKS,
            "http://10.99.0.1/file",
        ];
        let mut command = bond.bench.command(&words);
        command.stdout(Stdio::piped());
        let mut curl: Child = bond.bench.lab.spawn(Side::Client, command).unwrap();
        let mut read = 0;
        let mut output = curl.stdout.take().unwrap();
        let mut piece = vec![0; 64 * 1024];
        while let Ok(len @ 1..) = output.read(&mut piece) {
            read += len as u64;
        }
        curl.wait().unwrap();
        assert!(rate == "1k" || read > 1_000_000, "{rate}: {read}");
        assert_follows(&bond, Side::Client, arrived_before, read, AHEAD, rate);
    }
    bond.stop();
}
