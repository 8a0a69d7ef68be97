//! Scheduling between the session's task and programs on the same thread.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use sumlink_bond::opens::{OPEN_TIMEOUT, WAITING_PATIENCE};
use sumlink_bond::{Early, Known};
use sumlink_engine::frame::Frame;
use sumlink_engine::{PathId, Role};
use tokio::io::AsyncWriteExt;
use tokio::sync::{broadcast, oneshot};

use super::*;
use crate::SecretKey;
use crate::api::config::SessionConfig;
use crate::session::driver::{LinkStates, Listeners};

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A client's session with one path that accepts no data; its peer allows streams to send 1 MB.
fn driver() -> Driver {
    let listeners = Listeners {
        incoming: None,
        carriers: None,
        wants_traffic: false,
        events: broadcast::channel(1).0,
        former: Default::default(),
        links: LinkStates::default(),
        policies: None,
        account: None,
        max_paths: 1,
        sources: Arc::default(),
        udp: true,
        datagram_exit: None,
    };
    let peer = SecretKey::generate().unwrap().public();
    let config = SessionConfig::default();
    let (mut driver, _) = Driver::new(Role::Client, [0; 16], peer, &config, listeners).unwrap();
    let now = driver.now();
    driver.engine.path_up(PathId(0), now);
    let mut frames = Vec::new();
    for frame in [
        Frame::CreditStreams { limit: 10 },
        Frame::CreditInitial { limit: 1 << 20 },
        Frame::CreditSession { limit: 1 << 24 },
    ] {
        frame.encode(&mut frames);
    }
    driver
        .engine
        .handle_frames(PathId(0), &frames, now)
        .unwrap();
    driver
}

fn opening(early: Early, reply: OpenReply) -> Opening {
    Opening {
        target: Target::new("example.org", 80).unwrap().encode(),
        class: None,
        early: early.into(),
        reply,
        since: Instant::now(),
    }
}

fn open(driver: &mut Driver) -> Stream {
    let (reply, mut opened) = oneshot::channel();
    driver.open(opening(Early::Always, reply));
    opened.try_recv().unwrap().unwrap()
}

/// Whether the session's task yields the thread although it has more work to do.
fn gives_way(driver: &mut Driver) -> bool {
    let flag = Arc::new(Flag::default());
    let waker = Waker::from(Arc::clone(&flag));
    let polled = Pin::new(driver).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    flag.0.load(Ordering::Relaxed)
}

#[tokio::test]
async fn a_fast_writer_gets_its_turn_while_the_engine_has_room() {
    let mut driver = driver();
    let mut stream = open(&mut driver);
    gives_way(&mut driver);
    stream.write_all(&[1; LARGE_WRITE - 1]).await.unwrap();
    assert!(!gives_way(&mut driver), "a short write yields no turn");
    stream.write_all(&[1; LARGE_WRITE]).await.unwrap();
    assert!(gives_way(&mut driver));
    assert!(!gives_way(&mut driver), "one turn per write");
    // The engine accepts 1 MiB of a stream before anything is acknowledged.
    let mut turns = 0;
    for _ in 0..8 {
        stream.write_all(&[1; 4 * LARGE_WRITE]).await.unwrap();
        turns += u32::from(gives_way(&mut driver));
    }
    assert!(
        (1..8).contains(&turns),
        "{turns} turns, and none without room"
    );
}

#[tokio::test]
async fn a_program_with_data_to_read_gets_its_turn() {
    let mut driver = driver();
    let _stream = open(&mut driver);
    gives_way(&mut driver);
    let id = *driver.locals.keys().next().unwrap();
    let mut frames = Vec::new();
    let data = Frame::Data {
        stream: id,
        offset: 0,
        data: b"answer",
    };
    data.encode(&mut frames);
    let now = driver.now();
    driver
        .engine
        .handle_frames(PathId(0), &frames, now)
        .unwrap();
    assert!(gives_way(&mut driver));
    assert!(!gives_way(&mut driver));
}

#[tokio::test]
async fn an_early_stream_does_not_wait_forever() {
    let mut driver = driver();
    let stream = open(&mut driver);
    gives_way(&mut driver);
    let now = driver.now();
    driver.end_unconfirmed(now);
    assert_eq!(driver.locals.len(), 1);
    driver.end_unconfirmed(now + OPEN_TIMEOUT);
    assert_eq!(stream.failed().await, OpenError::TimedOut);
    assert!(driver.locals.is_empty() && driver.unconfirmed_due().is_none());
    // A stream that the peer has confirmed stays.
    driver.known = Known::default();
    let _stream = open(&mut driver);
    let id = *driver.locals.keys().next().unwrap();
    driver.accepted(id);
    driver.end_unconfirmed(now + 2 * OPEN_TIMEOUT);
    assert_eq!(driver.locals.len(), 1);
    assert!(driver.unconfirmed_due().is_none());
}

#[tokio::test]
async fn no_stream_opens_early_while_no_path_delivers() {
    let mut driver = driver();
    let now = driver.now();
    driver.engine.path_down(PathId(0), now);
    let (reply, mut opened) = oneshot::channel();
    driver.open(opening(Early::Always, reply));
    assert!(opened.try_recv().is_err(), "the open waits for the server");
}

#[tokio::test]
async fn goodput_counts_acknowledged_bytes() {
    let mut driver = driver();
    let mut stream = open(&mut driver);
    let id = *driver.locals.keys().next().unwrap();
    let start = Instant::now();
    let at = |tenths| start + Duration::from_millis(100) * tenths;
    driver.rates.note(at(0), &driver.engine);
    // A program writes ahead in one go; the pipe holds all of it.
    const WRITTEN: usize = 128 * 1024;
    stream.write_all(&vec![1; WRITTEN]).await.unwrap();
    gives_way(&mut driver);
    driver.rates.note(at(1), &driver.engine);
    let sent = |driver: &Driver, tenths| {
        let stats = driver.engine.stats();
        let rates = &driver.rates;
        rates
            .rates(at(tenths), stats.bytes_delivered, stats.bytes_read)
            .0
    };
    assert_eq!(driver.engine.stats().bytes_written, WRITTEN as u64);
    assert_eq!(sent(&driver, 1), 0.0);
    let (mut frames, now) = (Vec::new(), driver.now());
    while driver
        .engine
        .poll_transmit(PathId(0), 1 << 20, now, &mut frames)
        > 0
    {}
    // A tenth of it every 0.1 s.
    for tenths in 2..12 {
        frames.clear();
        let ack = sumlink_engine::frame::Ack {
            stream: id,
            cumulative: (WRITTEN * (tenths as usize - 1) / 10) as u64,
            complete: false,
            ranges: Vec::new(),
        };
        Frame::Ack(ack).encode(&mut frames);
        let now = driver.now();
        driver
            .engine
            .handle_frames(PathId(0), &frames, now)
            .unwrap();
        driver.rates.note(at(tenths), &driver.engine);
    }
    let (rate, expected) = (sent(&driver, 11), WRITTEN as f64 * 8.0);
    assert!((rate / expected - 1.0).abs() < 0.15, "{rate} of {expected}");
}

#[tokio::test]
async fn a_stream_beyond_the_limit_is_refused_when_none_has_ended_in_time() {
    let mut driver = driver();
    let mut streams: Vec<Stream> = (0..10).map(|_| open(&mut driver)).collect();
    let ask = |driver: &mut Driver, since| {
        let (reply, answer) = oneshot::channel();
        driver.open(Opening {
            target: Target::new("example.org", 80).unwrap().encode(),
            class: None,
            early: Some(Early::Always),
            reply,
            since,
        });
        answer
    };
    // The session is old enough for a stream to have waited.
    driver.epoch -= WAITING_PATIENCE;
    let now = Instant::now();
    let mut early = ask(&mut driver, now - WAITING_PATIENCE);
    let mut late = ask(&mut driver, now);
    assert_eq!(driver.waiting_due(), Some(now - driver.epoch));
    gives_way(&mut driver);
    assert_eq!(
        early.try_recv().unwrap().unwrap_err(),
        OpenError::LimitReached
    );
    assert!(
        late.try_recv().is_err(),
        "another stream may still end and make room"
    );
    let mut frames = Vec::new();
    Frame::CreditStreams { limit: 11 }.encode(&mut frames);
    let at = driver.now();
    driver.engine.handle_frames(PathId(0), &frames, at).unwrap();
    gives_way(&mut driver);
    streams.push(late.try_recv().unwrap().unwrap());
    assert_eq!(driver.waiting_due(), None);
}
