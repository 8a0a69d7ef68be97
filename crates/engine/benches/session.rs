//! Cost of a session per byte, without a carrier: the sender's side, the receiver's side, and both.
//!
//! The simulated carriers deliver at once, so all measured time is the engine's. Throughput counts
//! stream bytes.

mod fixture;

use std::time::{Duration, Instant as Clock};

use criterion::{BenchmarkId, Criterion, Throughput};
use sumlink_engine::{Class, Event, Instant, PathId, Role, Session, StreamId};

use fixture::session;

/// Stream bytes in one transfer.
const BYTES: u64 = 64 << 20;

/// Bytes that a program writes or reads per call.
const CHUNK: usize = 128 * 1024;

/// Bytes that a carrier accepts per call.
const BUDGET: usize = 64 * 1024;

struct Pair {
    client: Session,
    server: Session,
    paths: u32,
    now: Instant,
    /// Time spent in each side's engine.
    client_time: Duration,
    server_time: Duration,
    frames: Vec<u8>,
}

impl Pair {
    fn new(scheduler: &str, paths: u32) -> Self {
        let (client, server) = (
            session(Role::Client, scheduler, paths),
            session(Role::Server, scheduler, paths),
        );
        let (now, zero) = (Instant::from_millis(1), Duration::ZERO);
        let frames = Vec::with_capacity(2 * BUDGET);
        let mut pair = Self {
            client,
            server,
            paths,
            now,
            client_time: zero,
            server_time: zero,
            frames,
        };
        pair.exchange();
        pair
    }

    /// Sends one piece on each path in each direction; returns whether anything moved.
    fn exchange(&mut self) -> bool {
        let mut moved = false;
        self.now += Duration::from_micros(100);
        for id in (0..self.paths).map(PathId) {
            let (now, frames) = (self.now, &mut self.frames);
            frames.clear();
            let start = Clock::now();
            self.client.poll_transmit(id, BUDGET, now, frames);
            let sent = Clock::now();
            self.server
                .handle_frames(id, frames, now)
                .expect("a well-behaved peer");
            moved |= !frames.is_empty();
            frames.clear();
            self.server.poll_transmit(id, BUDGET, now, frames);
            let answered = Clock::now();
            self.client
                .handle_frames(id, frames, now)
                .expect("a well-behaved peer");
            moved |= !frames.is_empty();
            self.client_time += (sent - start) + answered.elapsed();
            self.server_time += answered - sent;
        }
        moved
    }

    fn transfer(&mut self, bytes: u64) {
        let stream: StreamId = self
            .client
            .open_stream(b"t", Class::Background, self.now)
            .expect("streams are available");
        let data = vec![7; CHUNK];
        let mut text = Vec::with_capacity(CHUNK);
        let (mut written, mut read) = (0, 0);
        while read < bytes {
            let start = Clock::now();
            while written < bytes {
                let most = (bytes - written).min(CHUNK as u64) as usize;
                match self.client.write(stream, &data[..most], self.now) {
                    Ok(0) | Err(_) => break,
                    Ok(len) => written += len as u64,
                }
            }
            if written == bytes {
                let _ = self.client.finish(stream, self.now);
            }
            while self.client.poll_event().is_some() {}
            self.client_time += start.elapsed();
            self.exchange();
            let start = Clock::now();
            let mut readable = false;
            while let Some(event) = self.server.poll_event() {
                readable |= matches!(event, Event::Readable { .. });
            }
            while readable {
                text.clear();
                let outcome = self
                    .server
                    .read(stream, CHUNK, &mut text, self.now)
                    .expect("the stream exists");
                read += outcome.len as u64;
                readable = outcome.len == CHUNK;
            }
            self.server_time += start.elapsed();
        }
        let _ = self.server.finish(stream, self.now);
        while self.exchange() {}
        while self.client.poll_event().is_some() || self.server.poll_event().is_some() {}
    }
}

fn transfers(criterion: &mut Criterion) {
    for side in ["sender", "receiver", "both"] {
        let mut group = criterion.benchmark_group(side);
        group
            .throughput(Throughput::Bytes(BYTES))
            .sample_size(10)
            .measurement_time(Duration::from_secs(3));
        for (scheduler, paths) in [("fbdt", 1), ("fbdt", 2), ("fbdt", 4), ("minrtt", 2)] {
            let name = BenchmarkId::new(scheduler, format!("{paths} paths"));
            group.bench_function(name, |bencher| {
                let mut pair = Pair::new(scheduler, paths);
                bencher.iter_custom(|iterations| {
                    (pair.client_time, pair.server_time) = (Duration::ZERO, Duration::ZERO);
                    (0..iterations).for_each(|_| pair.transfer(BYTES));
                    match side {
                        "sender" => pair.client_time,
                        "receiver" => pair.server_time,
                        _ => pair.client_time + pair.server_time,
                    }
                });
            });
        }
        group.finish();
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    transfers(&mut criterion);
    criterion.final_summary();
}
