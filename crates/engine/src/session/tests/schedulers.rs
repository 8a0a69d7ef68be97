//! Sessions with a scheduler that waits, or with several: no data waits forever, and classes take
//! turns. `every.rs` has the rules for every scheduler.

use std::time::Duration;

use super::{Pair, Side};
use crate::scheduler::{Pick, Scheduler, View, lowest_unsent};
use crate::{Class, Config, Event, PathId, Role};

fn config(role: Role, name: &str) -> Config {
    let mut config = Config::new(role);
    config.scheduler = name.to_owned();
    config
}

fn pair(name: &str, links: &[(f64, u64)]) -> Pair {
    let configs = [Role::Client, Role::Server].map(|role| config(role, name));
    let [client, server] = configs;
    let mut pair = Pair::with(client, server);
    pair.connect(links);
    pair
}

/// Leaves every path but the first one idle.
#[derive(Debug)]
struct Waiting;

impl Scheduler for Waiting {
    fn name(&self) -> &'static str {
        "waiting"
    }

    fn pick(&mut self, path: PathId, budget: u64, view: &View<'_>) -> Pick {
        match path {
            PathId(0) => lowest_unsent(view, budget),
            _ => Pick::Idle,
        }
    }
}

#[test]
fn a_session_with_waiting_data_and_an_idle_path_asks_again_soon() {
    // The slow path stays idle for a fast one that is full, and nothing else is due for a long
    // time.
    let [client, server] = [Role::Client, Role::Server].map(|role| {
        let mut config = config(role, "waiting");
        let own = &mut config.own_schedulers;
        own.add("waiting", |_| Box::new(Waiting)).unwrap();
        config
    });
    let mut pair = Pair::with(client, server);
    pair.connect(&[(20.0, 5), (20.0, 500)]);
    let id = pair.open();
    pair.run_for(Duration::from_secs(2));
    let now = pair.now;
    pair.client.write(id, &[7; 40_000], now).unwrap();
    let fast = *pair.client.paths().next().unwrap().sample();
    let full = crate::PathSample {
        full: true,
        in_flight: fast.cwnd,
        ..fast
    };
    pair.client.path_stats(PathId(0), full, now);
    let mut out = Vec::new();
    pair.client.poll_transmit(PathId(1), 16_000, now, &mut out);
    let due = pair.client.poll_timeout().unwrap();
    assert!(pair.client.stats().send_buffered == 40_000 && due <= now + Duration::from_millis(10));
    // When everything has been sent, paths are asked less often.
    pair.client.path_stats(PathId(0), fast, now);
    pair.run_for(Duration::from_millis(200));
    let due = pair.client.poll_timeout().unwrap();
    assert!(
        due > pair.now + Duration::from_millis(10),
        "{due:?} {pair:?}"
    );
}

#[test]
fn every_class_can_have_a_scheduler_of_its_own() {
    let configs = [Role::Client, Role::Server].map(|role| {
        let mut config = config(role, "fbdt");
        let redundant = "redundant".to_owned();
        config
            .class_schedulers
            .insert(Class::Conversational, redundant);
        config
    });
    let [client, server] = configs;
    let mut pair = Pair::with(client, server);
    pair.connect(&[(50.0, 5), (50.0, 5)]);
    let now = pair.now;
    let call = pair
        .client
        .open_stream(b"t", Class::Conversational, now)
        .unwrap();
    let bulk = pair
        .client
        .open_stream(b"t", Class::Background, now)
        .unwrap();
    pair.write(Side::Client, bulk, &vec![1; 4_000_000], true);
    pair.write(Side::Client, call, &[2; 100_000], true);
    for id in [call, bulk] {
        pair.write(Side::Server, id, b"", true);
    }
    // The call does not wait for the bulk, and every byte of it goes over both paths.
    let heard = |pair: &Pair| {
        let program = pair.programs.get(&(Side::Server, call));
        program.is_some_and(|program| program.received.len() == 100_000)
    };
    assert!(
        pair.run_until(heard, Duration::from_millis(150)),
        "{pair:?}"
    );
    pair.run_to_end(Duration::from_secs(10));
    let twice = pair.client.stats().duplicates_sent;
    let budget = 128 * 1024 + 4_000_000 / 100;
    assert!((50_000..100_000 + budget).contains(&twice), "{twice}");
    assert!(pair.events.iter().any(|(_, event)| {
        matches!(
            event,
            Event::Opened {
                class: Some(Class::Conversational),
                ..
            }
        )
    }));
}

#[test]
fn both_sides_use_the_class_that_the_opener_has_set() {
    let mut pair = pair("fbdt", &[(50.0, 5)]);
    let reported = Class::ALL.map(|class| (pair.open_as(class), Some(class)));
    let learned = pair.open_as(None::<Class>);
    pair.run_for(Duration::from_millis(50));
    for (id, class) in reported.into_iter().chain([(learned, None)]) {
        let heard = pair.events.iter().find_map(|(_, event)| match event {
            Event::Opened { stream, class, .. } if *stream == id => Some(*class),
            _ => None,
        });
        assert_eq!(heard, Some(class));
        for session in [&pair.client, &pair.server] {
            let first = class.unwrap_or(crate::learn::FIRST);
            assert_eq!(session.streams[&id].class(), first, "{class:?}");
        }
    }
}

#[test]
fn speech_does_not_wait_for_two_hundred_bulk_streams() {
    let mut pair = pair("fbdt", &[(50.0, 5)]);
    pair.end_slow_start();
    for _ in 0..200 {
        let bulk = pair.open_as(Class::Background);
        pair.write(Side::Client, bulk, &vec![1; 50_000], true);
    }
    let call = pair.open_as(Class::Conversational);
    for round in 1..=20 {
        pair.run_for(Duration::from_millis(20));
        let begin = pair.now;
        pair.write(Side::Client, call, &[2; 160], false);
        let heard = |pair: &Pair| {
            let program = pair.programs.get(&(Side::Server, call));
            program.is_some_and(|program| program.received.len() == round * 160)
        };
        // The socket's bytes, a piece, and the delay: 5 + 5 + 2 ms. A turn of all the others would
        // be 400 ms.
        assert!(pair.run_until(heard, Duration::from_millis(15)), "{round}");
        assert!(pair.now - begin < Duration::from_millis(15));
    }
}

#[test]
fn redundancy_survives_the_loss_of_either_path_without_a_pause() {
    for lost in [0, 1] {
        let mut pair = pair("redundant", &[(50.0, 5), (50.0, 8)]);
        let id = pair.open();
        pair.write(Side::Client, id, b"", true);
        pair.write(Side::Server, id, &vec![7; 1_000_000], true);
        pair.run_for(Duration::from_millis(100));
        pair.carriers.get_mut(&PathId(lost)).unwrap().blackhole = true;
        let begin = pair.now;
        pair.run_to_end(Duration::from_secs(20));
        // 1 MB takes 160 ms; a path counts as stalled only after 170 ms.
        let time = pair.program(Side::Client, id).done_at - begin;
        assert!(time < Duration::from_millis(160), "{time:?}");
    }
}
