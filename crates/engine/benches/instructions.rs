//! Instructions that the engine's hot paths take, counted by callgrind. On a shared machine this is
//! the only figure that is the same in every run.
//!
//! `make instructions` prints the counts next to the recorded ones in `instructions.txt` beside
//! this file.

#![expect(missing_docs, reason = "the macros make public items")]

mod fixture;

use std::hint::black_box;
use std::time::Duration;

use gungraun::{library_benchmark, library_benchmark_group, main};
use sumlink_engine::frame::Frame;
use sumlink_engine::{Class, Event, Instant, PathId, Role, Session, StreamId};

use fixture::session;

/// Stream bytes that each benchmark moves.
const BYTES: usize = 1 << 20;

/// Bytes of a stream that are read before the measurement. Credit grows as the reader reads, and a
/// new stream has less than [`BYTES`] of it.
const FIRST: usize = 256 * 1024;

/// Bytes that a carrier accepts per call.
const BUDGET: usize = 64 * 1024;

/// A client with a megabyte to send to a server.
struct Pair {
    client: Session,
    server: Session,
    stream: StreamId,
    now: Instant,
    /// Frames in transit, with the path that carries them.
    carried: Vec<(PathId, Vec<u8>)>,
}

fn pair(scheduler: &str, paths: u32) -> Pair {
    let mut pair = Pair {
        client: session(Role::Client, scheduler, paths),
        server: session(Role::Server, scheduler, paths),
        stream: 0,
        now: Instant::from_millis(1),
        carried: Vec::new(),
    };
    pair.greet(paths);
    pair.stream = pair
        .client
        .open_stream(b"t", Class::Background, pair.now)
        .expect("streams are available");
    pair.greet(paths);
    // The first piece gives the stream enough credit for the rest.
    pair.write(FIRST);
    pair.send(paths);
    pair.arrive();
    pair.read(FIRST);
    pair.greet(paths);
    pair.write(BYTES);
    pair
}

impl Pair {
    /// Exchanges the frames that precede stream data.
    fn greet(&mut self, paths: u32) {
        for id in (0..paths).map(PathId).cycle().take(4 * paths as usize) {
            self.now += Duration::from_millis(20);
            let mut frames = Vec::new();
            self.client.poll_transmit(id, BUDGET, self.now, &mut frames);
            self.server
                .handle_frames(id, &frames, self.now)
                .expect("a well-behaved peer");
            frames.clear();
            self.server.poll_transmit(id, BUDGET, self.now, &mut frames);
            self.client
                .handle_frames(id, &frames, self.now)
                .expect("a well-behaved peer");
        }
        while self.client.poll_event().is_some() || self.server.poll_event().is_some() {}
    }

    fn write(&mut self, len: usize) {
        let written = self.client.write(self.stream, &vec![7; len], self.now);
        assert_eq!(written, Ok(len), "the send buffer has space");
    }

    /// Takes everything that the client has to send, from each path in turn.
    fn send(&mut self, paths: u32) {
        let mut idle = 0;
        for id in (0..paths).map(PathId).cycle() {
            let mut frames = Vec::with_capacity(BUDGET + 1024);
            if self.client.poll_transmit(id, BUDGET, self.now, &mut frames) == 0 {
                idle += 1;
            } else {
                idle = 0;
                self.carried.push((id, frames));
            }
            if idle == paths {
                return;
            }
        }
    }

    /// Delivers the frames in transit to the server, those of the last path first.
    fn arrive(&mut self) {
        self.carried.sort_by_key(|(id, _)| std::cmp::Reverse(id.0));
        for (id, frames) in std::mem::take(&mut self.carried) {
            self.server
                .handle_frames(id, &frames, self.now)
                .expect("a well-behaved peer");
        }
    }

    /// Reads `len` bytes at the server and checks that nothing is left.
    fn read(&mut self, len: usize) {
        let mut text = Vec::with_capacity(BYTES);
        while let Some(event) = self.server.poll_event() {
            if let Event::Readable { .. } = event {
                let outcome = self.server.read(self.stream, BYTES, &mut text, self.now);
                outcome.expect("the stream exists");
            }
        }
        assert_eq!(text.len(), len, "all bytes have arrived");
    }

    /// Delivers the server's acknowledgments and reports to the client.
    fn report(&mut self, paths: u32) {
        for id in (0..paths).map(PathId) {
            self.now += Duration::from_millis(20);
            let mut frames = Vec::new();
            self.server.poll_transmit(id, BUDGET, self.now, &mut frames);
            self.carried.push((id, frames));
        }
    }
}

fn sent(scheduler: &str, paths: u32) -> Pair {
    let mut pair = pair(scheduler, paths);
    pair.send(paths);
    pair
}

fn reported(scheduler: &str, paths: u32) -> Pair {
    let mut pair = sent(scheduler, paths);
    pair.arrive();
    pair.read(BYTES);
    pair.report(paths);
    pair
}

// Schedule and encode: one megabyte becomes frames on the paths.
#[library_benchmark(setup = pair)]
#[bench::fbdt_1("fbdt", 1)]
#[bench::fbdt_2("fbdt", 2)]
#[bench::fbdt_8("fbdt", 8)]
#[bench::minrtt_2("minrtt", 2)]
fn schedule(mut pair: Pair) -> Pair {
    let paths = pair.client.path_stats_all(pair.now).len() as u32;
    pair.send(paths);
    black_box(pair)
}

/// One path and `streams` streams with 16 KiB each to send.
fn many_streams(streams: u64) -> Pair {
    let mut pair = pair("fbdt", 1);
    pair.send(1);
    for _ in 1..streams {
        let opened = pair.client.open_stream(b"t", Class::Background, pair.now);
        pair.stream = opened.expect("streams are available");
        pair.write(BYTES / 64);
    }
    pair.carried.clear();
    pair
}

// Schedule and encode with many streams: one megabyte of their data.
#[library_benchmark(setup = many_streams)]
#[bench::streams_64(65)]
#[bench::streams_250(251)]
#[bench::streams_1000(1001)]
fn schedule_crowd(mut pair: Pair) -> Pair {
    let mut sent = 0;
    while sent < BYTES {
        let mut frames = Vec::with_capacity(BUDGET + 1024);
        sent += pair
            .client
            .poll_transmit(PathId(0), BUDGET, pair.now, &mut frames);
        pair.carried.push((PathId(0), frames));
    }
    black_box(pair)
}

// Decode and reassemble: the megabyte arrives, the last path's part first, and is read.
#[library_benchmark(setup = sent)]
#[bench::paths_1("fbdt", 1)]
#[bench::paths_2("fbdt", 2)]
#[bench::paths_8("fbdt", 8)]
fn reassemble(mut pair: Pair) -> Pair {
    pair.arrive();
    pair.read(BYTES);
    black_box(pair)
}

// Acknowledge: the client processes the acknowledgments of the megabyte.
#[library_benchmark(setup = reported)]
#[bench::paths_1("fbdt", 1)]
#[bench::paths_2("fbdt", 2)]
#[bench::paths_8("fbdt", 8)]
fn acknowledge(mut pair: Pair) -> Pair {
    for (id, frames) in std::mem::take(&mut pair.carried) {
        pair.client
            .handle_frames(id, &frames, pair.now)
            .expect("a well-behaved peer");
    }
    black_box(pair)
}

// Encode: a thousand frames without data.
#[library_benchmark]
fn encode() -> Vec<u8> {
    let mut out = Vec::with_capacity(64 * 1024);
    for number in 0..1000 {
        let limit = black_box(number << 20);
        let stream = black_box(number);
        Frame::CreditStream { stream, limit }.encode(&mut out);
    }
    out
}

library_benchmark_group!(
    name = engine,
    benchmarks = [schedule, schedule_crowd, reassemble, acknowledge, encode]
);
main!(library_benchmark_groups = engine);
