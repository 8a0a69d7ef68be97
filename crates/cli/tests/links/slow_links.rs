//! Programs that write faster than slow links deliver: sumlink accepts little data ahead of the
//! links, and loses none of it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddrV4};
use std::thread;
use std::time::{Duration, Instant};

use socket2::SockRef;
use sumlink_test_support::emulated::traffic::{Pattern, listen};

use sumlink_lab::Side;

use crate::bond::{Bond, Plan};
use crate::memory::{pair, write_on};
use crate::socks::ask;

/// Bytes in one write. Every write is a whole block.
const BLOCK: usize = 4096;

/// Send buffer of the program's own socket. By default the kernel accepts some 400 kB, which takes
/// a second over these links.
const OWN_BUFFER: usize = 32 * 1024;

/// The time in which rates and windows settle.
const SETTLED: Duration = Duration::from_secs(3);

/// Longest time for which a write may take no byte while the links deliver.
const BLOCKED: Duration = Duration::from_secs(2);

/// The times of an upload that a program writes as fast as it can.
struct Upload {
    start: Instant,
    /// When each block had been written, and when the target had read it.
    written: Vec<Instant>,
    delivered: Vec<Instant>,
    /// The longest time that one write took.
    blocked: Duration,
}

impl Upload {
    /// Writes for `time` to a port of the server's machine; returns when the target has read
    /// everything, and fails if a byte is missing or differs.
    fn run(bond: &Bond, port: u16, time: Duration) -> Self {
        let target = SocketAddrV4::new([10, 99, 0, 1].into(), port);
        let listener = listen(&bond.bench, target.into());
        let (mut near, reply) = ask(&bond.bench, target);
        assert_eq!(reply, 0);
        SockRef::from(&near)
            .set_send_buffer_size(OWN_BUFFER)
            .unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let reader = thread::spawn(move || {
            let (mut pattern, mut delivered) = (Pattern::new(3), Vec::new());
            let (mut expected, mut block) = ([0; BLOCK], [0; BLOCK]);
            loop {
                match far.read_exact(&mut block) {
                    Ok(()) => delivered.push(Instant::now()),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
                        return delivered;
                    }
                }
                pattern.fill(&mut expected);
                assert!(block == expected, "block {} differs", delivered.len());
            }
        });
        let start = Instant::now();
        let (mut pattern, mut block) = (Pattern::new(3), [0; BLOCK]);
        let (mut written, mut blocked) = (Vec::new(), Duration::ZERO);
        while start.elapsed() < time {
            pattern.fill(&mut block);
            let before = Instant::now();
            near.write_all(&block).unwrap();
            blocked = blocked.max(before.elapsed());
            written.push(Instant::now());
        }
        near.shutdown(Shutdown::Write).unwrap();
        let delivered = reader.join().unwrap();
        assert_eq!(delivered.len(), written.len(), "blocks are missing");
        Self {
            start,
            written,
            delivered,
            blocked,
        }
    }

    /// Largest number of bytes that were accepted and not delivered.
    fn ahead(&self) -> usize {
        let blocks = self.written.iter().enumerate().map(|(index, written)| {
            let delivered = self.delivered.partition_point(|at| at <= written);
            (index + 1).saturating_sub(delivered)
        });
        blocks.max().unwrap_or(0) * BLOCK
    }

    /// The 99th percentile of the time from write to delivery, once the rates have settled.
    fn lag(&self) -> Duration {
        let times = self.written.iter().zip(&self.delivered);
        let mut lags: Vec<Duration> = times
            .filter(|(written, _)| **written >= self.start + SETTLED)
            .map(|(written, delivered)| delivered.saturating_duration_since(*written))
            .collect();
        lags.sort();
        assert!(lags.len() >= 100, "{} writes", lags.len());
        lags[lags.len() * 99 / 100]
    }

    fn print(&self, what: &str) {
        println!(
            "{what}: {} bytes, {} ahead at most, lag {:?}, blocked {:?}",
            self.written.len() * BLOCK,
            self.ahead(),
            self.lag(),
            self.blocked
        );
    }
}

fn start(links: &[&str], class: &str) -> Option<Bond> {
    let rule = format!("links = \"auto\"\n[[class]]\nport = \"8080\"\nclass = \"{class}\"\n");
    let bond = Plan::new(links).client(&rule).start()?;
    bond.until_active(&["a", "b"][..links.len()]);
    Some(bond)
}

#[test]
fn a_live_stream_notices_within_a_second_that_the_links_are_slow() {
    let links = ["a:rate=4mbit,delay=12ms", "b:rate=2mbit,delay=12ms"];
    let Some(bond) = start(&links, "streaming") else {
        return;
    };
    let upload = Upload::run(&bond, 8080, Duration::from_secs(12));
    upload.print("streaming");
    // 1.2 s of data at 6 Mbit/s. The goal is 600 ms to delivery; a busy machine adds to it.
    assert!(upload.ahead() <= 900_000, "{} bytes", upload.ahead());
    assert!(upload.lag() <= Duration::from_secs(1), "{:?}", upload.lag());
    bond.stop();
}

/// Reads of a program over a link of 1 Mbit/s, on which a full record takes 130 ms.
#[test]
fn a_slow_link_delivers_single_segments() {
    let Some(bond) = start(&["a:rate=1mbit,delay=10ms"], "background") else {
        return;
    };
    let target = SocketAddrV4::new([10, 99, 0, 1].into(), 8080);
    let listener = listen(&bond.bench, target.into());
    let (mut reader, writer) = pair(&bond.bench, &listener, target, Side::Client);
    let written = write_on(writer);
    // The first 256 KiB come in the records of a growing window, and take 2.2 s.
    let (start, mut reads, mut piece) = (Instant::now(), Vec::new(), vec![0; 64 * 1024]);
    while start.elapsed() < 3 * SETTLED {
        let len = reader.read(&mut piece).unwrap();
        reads.push((start.elapsed(), len));
    }
    reads.retain(|(at, _)| *at > SETTLED);
    let mut sizes: Vec<usize> = reads.iter().map(|(_, len)| *len).collect();
    let mut gaps: Vec<Duration> = reads.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    sizes.sort_unstable();
    gaps.sort_unstable();
    let (size, gap) = (sizes[sizes.len() / 2], gaps[gaps.len() / 2]);
    println!(
        "{} reads, half of at most {size} bytes after {gap:?}",
        sizes.len()
    );
    assert!(size <= 1448, "{size}");
    drop((reader, written));
    bond.stop();
}

#[test]
fn policed_links_block_a_bulk_writer_for_seconds_at_most_and_deliver_everything() {
    let links = [
        "a:rate=100mbit,policer=2mbit:32kB",
        "b:rate=100mbit,policer=1mbit:32kB",
    ];
    let Some(bond) = start(&links, "background") else {
        return;
    };
    let upload = Upload::run(&bond, 8080, Duration::from_secs(15));
    upload.print("background");
    assert!(upload.blocked <= BLOCKED, "{:?}", upload.blocked);
    bond.stop();
}
