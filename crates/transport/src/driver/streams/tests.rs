//! Whose turn it is: the session's task, or a program on the same thread.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use sumlink_engine::frame::Frame;
use sumlink_engine::{PathId, Role};
use tokio::io::AsyncWriteExt;
use tokio::sync::{broadcast, oneshot};

use super::*;
use crate::config::SessionConfig;
use crate::driver::{LinkStates, Listeners};
use crate::{Early, SecretKey};

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A client's session with one path that is given nothing, whose peer lets streams send a megabyte.
fn driver() -> Driver {
    let listeners = Listeners {
        incoming: None,
        carriers: None,
        wants_traffic: false,
        events: broadcast::channel(1).0,
        links: LinkStates::default(),
        policies: None,
        max_paths: 1,
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

fn open(driver: &mut Driver) -> Stream {
    let (reply, mut opened) = oneshot::channel();
    driver.open(Opening {
        target: Target::new("example.org", 80).unwrap().encode(),
        class: None,
        early: Early::Always,
        reply,
    });
    opened.try_recv().unwrap().unwrap()
}

/// Whether the session's task gives up the thread although it has more to do at once.
fn gives_way(driver: &mut Driver) -> bool {
    let flag = Arc::new(Flag::default());
    let waker = Waker::from(Arc::clone(&flag));
    let polled = Pin::new(driver).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    flag.0.load(Ordering::Relaxed)
}

#[tokio::test]
async fn who_writes_much_has_its_turn_as_long_as_the_engine_has_room() {
    let mut driver = driver();
    let mut stream = open(&mut driver);
    gives_way(&mut driver);
    stream.write_all(&[1; MUCH - 1]).await.unwrap();
    assert!(!gives_way(&mut driver), "what is short comes as it comes");
    stream.write_all(&[1; MUCH]).await.unwrap();
    assert!(gives_way(&mut driver));
    assert!(!gives_way(&mut driver), "once for what was written");
    // 1 MiB is what the engine takes of a stream before anything is acknowledged.
    let mut turns = 0;
    for _ in 0..8 {
        stream.write_all(&[1; 4 * MUCH]).await.unwrap();
        turns += u32::from(gives_way(&mut driver));
    }
    assert!(
        (1..8).contains(&turns),
        "{turns} turns, and none without room"
    );
}

#[tokio::test]
async fn who_is_given_something_to_read_has_its_turn() {
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
