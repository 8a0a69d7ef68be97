//! When a path that had nothing to send is asked again, and the data that readers without a buffer
//! get.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::{Pair, Side};
use crate::scheduler::{Pick, Scheduler, View};
use crate::{Config, Instant, PAGE, PathId, PathSample, Role, Session};

/// Never sends, and counts how often it is asked.
#[derive(Debug)]
struct Idle(Arc<AtomicUsize>);

impl Scheduler for Idle {
    fn name(&self) -> &'static str {
        "idle"
    }

    fn pick(&mut self, _: PathId, _: u64, _: &View<'_>) -> Pick {
        self.0.fetch_add(1, Ordering::Relaxed);
        Pick::Idle
    }
}

#[test]
fn an_idle_path_is_asked_again_after_a_change_or_later() {
    let count = Arc::new(AtomicUsize::new(0));
    let asked = Arc::clone(&count);
    let mut config = Config::new(Role::Client);
    let own = &mut config.own_schedulers;
    own.add("idle", move |_| Box::new(Idle(Arc::clone(&asked))))
        .unwrap();
    config.scheduler = "idle".to_owned();
    let ms = Instant::from_millis;
    let mut session = Session::new(config, ms(0)).unwrap();
    session.path_up(PathId(0), ms(0));
    let ask = |session: &mut Session, now| {
        let before = count.load(Ordering::Relaxed);
        while session.poll_transmit(PathId(0), 10_000, now, &mut Vec::new()) > 0 {}
        count.load(Ordering::Relaxed) - before
    };
    // The first credit and a PING are sent before the path is idle.
    assert!(ask(&mut session, ms(1)) > 0);
    assert_eq!(ask(&mut session, ms(1)), 0, "nothing has changed");
    assert_eq!(ask(&mut session, ms(2)), 1, "time has passed");
    let sample = PathSample {
        cwnd: 20_000,
        ..PathSample::default()
    };
    session.path_stats(PathId(0), sample, ms(2));
    assert_eq!(ask(&mut session, ms(2)), 1, "the path has changed");
    session.path_stats(PathId(0), sample, ms(2));
    assert_eq!(ask(&mut session, ms(2)), 0, "nothing has changed since");
    session.path_up(PathId(1), ms(2));
    assert_eq!(ask(&mut session, ms(2)), 1, "another path has joined");
}

#[test]
fn a_reader_without_a_buffer_is_given_the_same_bytes() {
    let bytes: Vec<u8> = (0..100_000u32).map(|number| (number / 7) as u8).collect();
    let mut pair = Pair::connected(&[(50.0, 5)]);
    let id = pair.open();
    pair.program(Side::Server, id).stalled = true;
    pair.write(Side::Client, id, &bytes, true);
    pair.run_for(Duration::from_secs(2));
    let held = pair.server.held();
    let stats = pair.server.stats();
    assert_eq!(held, stats.send_buffered + stats.receive_memory);
    assert!(held > 0);
    let (mut read, mut longest) = (Vec::new(), 0);
    let outcome = pair.server.read_with(
        id,
        30_000,
        |part| {
            longest = longest.max(part.len());
            read.extend_from_slice(part);
        },
        pair.now,
    );
    let outcome = outcome.unwrap();
    assert_eq!((outcome.len, outcome.finished), (read.len(), false));
    assert!(longest <= PAGE, "{longest}");
    assert!(pair.server.held() < held);
    let now = pair.now;
    pair.server.read(id, usize::MAX, &mut read, now).unwrap();
    assert!(read == bytes[..read.len()] && !read.is_empty());
}
