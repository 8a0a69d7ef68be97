//! Programs that do not read block only their own streams, and use no more memory than allowed.

use std::io::{Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use socket2::SockRef;
use sumlink_lab::Side;

use crate::bond::{Bond, Plan};
use crate::socks::ask;
use sumlink_test_support::emulated::traffic::{Pattern, Transfer, listen};
use sumlink_test_support::emulated::{Bench, until};

const LINKS: [&str; 2] = ["a:rate=60mbit,delay=5ms", "b:rate=40mbit,delay=10ms"];

/// Memory limit of a session in each direction; a stream may use half of it.
const LIMIT: u64 = 8 << 20;

/// Additional memory of reads, records and sockets, as the process reports it.
const SLACK: u64 = 16 << 20;

/// A connection through SOCKS.
fn connect(bench: &Bench, target: SocketAddrV4) -> TcpStream {
    let (stream, reply) = ask(bench, target);
    assert_eq!(reply, 0);
    stream
}

/// Both ends of a connection through the session: the one on the side `stalls`, and the other one.
pub(crate) fn pair(
    bench: &Bench,
    listener: &TcpListener,
    target: SocketAddrV4,
    stalls: Side,
) -> (TcpStream, TcpStream) {
    let near = connect(bench, target);
    let (far, _) = listener.accept().unwrap();
    match stalls {
        Side::Client => (near, far),
        Side::Server => (far, near),
        side => panic!("no program of the session runs on {side:?}"),
    }
}

/// Writes without end; returns the counter of written bytes.
pub(crate) fn write_on(mut stream: TcpStream) -> Arc<AtomicU64> {
    let written = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&written);
    thread::spawn(move || {
        let bytes = Pattern::bytes(1, 64 * 1024);
        while stream.write_all(&bytes).is_ok() {
            counter.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
    });
    written
}

/// Waits until a writer has made no progress for a while.
fn until_stuck(written: &AtomicU64) {
    let (mut last, mut since) = (0, Instant::now());
    until("the writer is stuck", || {
        let now = written.load(Ordering::Relaxed);
        if now != last {
            (last, since) = (now, Instant::now());
        }
        (now > 0 && since.elapsed() > Duration::from_secs(2)).then_some(())
    });
}

/// Neither side may hold more than the limit, by its own report and by the kernel's.
#[track_caller]
fn assert_bounded(bond: &Bond, before: [u64; 2]) {
    assert_within(bond, before, LIMIT, SLACK);
}

#[track_caller]
fn assert_within(bond: &Bond, before: [u64; 2], limit: u64, slack: u64) {
    for (side, daemon, before) in [
        (Side::Client, &bond.client, before[0]),
        (Side::Server, &bond.server, before[1]),
    ] {
        let session = bond.status(side);
        assert_eq!(session.memory_limit_bytes, limit);
        let (received, sent) = (session.receive_buffer_bytes, session.send_buffer_bytes);
        assert!(
            received <= limit,
            "{side:?} holds {received} received bytes"
        );
        assert!(sent <= limit, "{side:?} holds {sent} sent bytes");
        let grown = daemon.resident().saturating_sub(before);
        assert!(
            grown < 2 * limit + slack,
            "{side:?} has grown by {grown} bytes"
        );
    }
}

/// Rate of a download, in bytes per second.
fn speed(bond: &Bond, server: &str) -> f64 {
    let download = Transfer::download(&bond.bench, server.parse().unwrap());
    download.goes_on(2_000_000);
    let (start, before) = (Instant::now(), download.received());
    download.goes_on(16_000_000);
    let speed = (download.received() - before) as f64 / start.elapsed().as_secs_f64();
    download.finish();
    speed
}

/// A connection that the side `stalls` does not read, while another download must keep a rate of
/// the same order: on a busy machine two rates in a row differ by more than half.
fn stalled(stalls: Side) {
    let Some(bond) = Plan::new(&LINKS).memory("8MiB", "4MiB").start() else {
        return;
    };
    bond.until_active(&["a", "b"]);
    let address = "10.99.0.1:8080".parse().unwrap();
    let alone = speed(&bond, "10.99.0.1:8081");
    let before = [bond.client.resident(), bond.server.resident()];

    let listener: TcpListener = listen(&bond.bench, SocketAddr::V4(address));
    let (reader, writer) = pair(&bond.bench, &listener, address, stalls);
    let written = write_on(writer);
    until_stuck(&written);
    assert_bounded(&bond, before);

    let beside = speed(&bond, "10.99.0.1:8082");
    assert!(
        beside > 0.2 * alone,
        "{beside:.0} bytes/s beside the stalled one, {alone:.0} without"
    );
    assert_bounded(&bond, before);

    // No data was dropped: the reader gets every byte in order when it reads.
    let (expected, mut total) = (Pattern::bytes(1, 64 * 1024), 0);
    let mut piece = vec![0; expected.len()];
    let goal = written.load(Ordering::Relaxed) + 4_000_000;
    let mut reader = reader;
    while total < goal {
        reader.read_exact(&mut piece).unwrap();
        assert!(piece == expected, "after {total} bytes");
        total += piece.len() as u64;
    }
    drop(reader);
    bond.stop();
}

#[test]
fn a_program_that_does_not_read_blocks_only_its_stream() {
    stalled(Side::Client);
}

#[test]
fn a_target_that_does_not_read_blocks_only_its_stream() {
    stalled(Side::Server);
}

/// Stalls more streams than fit in the session's memory at a stream's limit.
fn many_stalled(stalls: Side) {
    let Some(bond) = Plan::new(&LINKS).memory("8MiB", "4MiB").start() else {
        return;
    };
    bond.until_active(&["a", "b"]);
    let address = "10.99.0.1:8080".parse().unwrap();
    let before = [bond.client.resident(), bond.server.resident()];
    let listener: TcpListener = listen(&bond.bench, SocketAddr::V4(address));
    let mut readers = Vec::new();
    for _ in 0..5 {
        let (reader, writer) = pair(&bond.bench, &listener, address, stalls);
        readers.push(reader);
        until_stuck(&write_on(writer));
    }
    assert_bounded(&bond, before);
    // Others still make progress, if not at full speed.
    let download = Transfer::download(&bond.bench, "10.99.0.1:8081".parse().unwrap());
    download.goes_on(1_000_000);
    download.finish();
    assert_bounded(&bond, before);
    drop(readers);
    bond.stop();
}

#[test]
fn many_programs_that_do_not_read_leave_memory_for_others() {
    many_stalled(Side::Client);
}

#[test]
fn many_targets_that_do_not_read_leave_memory_for_others() {
    many_stalled(Side::Server);
}

/// Stalls far more streams than fit in the session's memory, so that each gets almost none.
fn hundreds_stalled(stalls: Side) {
    const STREAMS: usize = 500;
    const LIMIT: u64 = 12 << 20;
    /// Memory of a connection's task, socket and entry in the session, besides its bytes.
    const PER_STREAM: u64 = 8 << 10;
    let links = ["a:rate=300mbit,delay=2ms", "b:rate=200mbit,delay=4ms"];
    let plan = Plan::new(&links).memory_for(STREAMS + 12, "12MiB", "6MiB");
    let Some(bond) = plan.start() else {
        return;
    };
    bond.until_active(&["a", "b"]);
    let address = "10.99.0.1:8080".parse().unwrap();
    let before = [bond.client.resident(), bond.server.resident()];
    let listener: TcpListener = listen(&bond.bench, SocketAddr::V4(address));
    let (mut readers, mut writers) = (Vec::new(), Vec::new());
    for _ in 0..STREAMS {
        let (reader, writer) = pair(&bond.bench, &listener, address, stalls);
        // Memory of the kernel is not counted, and a thousand full sockets would burden other
        // tests.
        SockRef::from(&writer)
            .set_send_buffer_size(32 << 10)
            .unwrap();
        writer.set_nonblocking(true).unwrap();
        readers.push(reader);
        writers.push(writer);
    }
    let bytes = Pattern::bytes(1, 16 * 1024);
    let (mut total, mut since) = (0, Instant::now());
    until("all writers are stuck", || {
        for writer in &mut writers {
            while let Ok(written) = writer.write(&bytes) {
                total += written;
                since = Instant::now();
            }
        }
        (since.elapsed() > Duration::from_secs(3)).then_some(())
    });
    let slack = SLACK + STREAMS as u64 * PER_STREAM;
    assert_within(&bond, before, LIMIT, slack);
    assert_eq!(bond.status(stalls).streams_open, STREAMS as u64);
    let download = Transfer::download(&bond.bench, "10.99.0.1:8081".parse().unwrap());
    download.goes_on(1_000_000);
    download.finish();
    assert_within(&bond, before, LIMIT, slack);
    println!("{total} bytes written into {STREAMS} streams");
    drop(readers);
    bond.stop();
}

#[test]
fn hundreds_of_programs_that_do_not_read_share_the_memory() {
    hundreds_stalled(Side::Client);
}

#[test]
fn hundreds_of_targets_that_do_not_read_share_the_memory() {
    hundreds_stalled(Side::Server);
}
