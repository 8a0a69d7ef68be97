//! Sessions with a selector: parked paths carry nothing, and no stream waits forever because of
//! them.

use std::time::Duration;

use super::every::NEAR_AND_FAR;
use super::{Pair, Side};
use crate::{Config, Event, PathId, Role, Selection, selector};

fn pair(scheduler: &str, selector: &str, links: &[(f64, u64)]) -> Pair {
    let config = |role| {
        let mut config = Config::new(role);
        config.scheduler = scheduler.to_owned();
        config.selector = selector.parse().expect("the selector is known");
        config
    };
    let mut pair = Pair::with(config(Role::Client), config(Role::Server));
    pair.connect(links);
    pair
}

/// The decisions about a path, with the side that made them.
fn decisions(pair: &Pair, of: PathId) -> Vec<(Side, Selection, String)> {
    let about = |(side, event): &(Side, Event)| match event {
        Event::PathSelected {
            path,
            selection,
            reason,
        } if *path == of => Some((*side, *selection, reason.clone())),
        _ => None,
    };
    pair.events.iter().filter_map(about).collect()
}

fn carried(pair: &Pair, path: usize) -> u64 {
    pair.server.path_stats_all(pair.now)[path].data_sent
}

#[test]
fn a_parked_path_carries_nothing_until_the_others_fail() {
    let mut pair = pair("linux", "base:probe=3600s", NEAR_AND_FAR);
    let id = pair.open();
    pair.write(Side::Client, id, b"", true);
    pair.write(Side::Server, id, &vec![7; 20_000_000], true);
    let parked = |pair: &Pair| !decisions(pair, PathId(1)).is_empty();
    assert!(pair.run_until(parked, Duration::from_secs(7)));
    // Only the side that sends has paths to select.
    let (side, selection, reason) = decisions(&pair, PathId(1)).remove(0);
    assert_eq!((side, selection), (Side::Server, Selection::Parked));
    let path = pair.server.paths().nth(1).unwrap();
    assert_eq!(path.selection_reason(), reason);
    let before = carried(&pair, 1);
    pair.run_for(Duration::from_millis(500));
    assert_eq!(carried(&pair, 1), before);
    // It still answers, so it is known to deliver.
    let stats = pair.server.path_stats_all(pair.now);
    assert!(stats[1].silent_for < Duration::from_secs(2), "{stats:?}");
    pair.carriers.get_mut(&PathId(0)).unwrap().blackhole = true;
    pair.run_for(Duration::from_secs(3));
    assert!(carried(&pair, 1) > before);
    pair.carriers.get_mut(&PathId(0)).unwrap().blackhole = false;
    pair.run_to_end(Duration::from_secs(60));
}

#[test]
fn without_a_selector_nothing_is_decided() {
    let mut pair = pair("fbdt", "none", NEAR_AND_FAR);
    let id = pair.open();
    pair.write(Side::Client, id, b"", true);
    pair.write(Side::Server, id, &vec![7; 5_000_000], true);
    pair.run_to_end(Duration::from_secs(30));
    let selected = |(_, event): &(Side, Event)| matches!(event, Event::PathSelected { .. });
    assert!(!pair.events.iter().any(selected));
}

#[test]
fn no_reviews_while_nothing_is_waiting() {
    for selector in selector::NAMES {
        let mut pair = pair("fbdt", selector, NEAR_AND_FAR);
        let id = pair.open();
        pair.write(Side::Client, id, b"", true);
        pair.write(Side::Server, id, &vec![7; 3_000_000], true);
        pair.run_to_end(Duration::from_secs(60));
        pair.run_for(Duration::from_secs(30));
        // The next timeout is the PING of a session without streams.
        let due = pair.server.poll_timeout().unwrap() - pair.now;
        assert!(due > Duration::from_millis(150), "{selector}: {due:?}");
    }
}

/// The delays of a program that writes now and then are measured from the write until the peer has
/// the bytes in order.
#[test]
fn delays_are_measured_for_writes_that_do_not_wait() {
    let mut pair = pair("fbdt", "trials", &[(20.0, 40)]);
    let id = pair.open();
    pair.run_for(Duration::from_secs(1));
    let mut waits = Vec::new();
    for _ in 0..10 {
        pair.write(Side::Client, id, &[1; 1000], false);
        assert_eq!(pair.client.streams[&id].send.marks.len(), 1);
        let begun = pair.now;
        let is_there = |pair: &Pair| pair.client.streams[&id].send.marks.is_empty();
        assert!(pair.run_until(is_there, Duration::from_secs(1)));
        waits.push(pair.now - begun);
        pair.run_for(Duration::from_millis(20));
    }
    // A round trip, and the time for a report.
    let expected = Duration::from_millis(80)..Duration::from_millis(120);
    assert!(
        waits.iter().all(|wait| expected.contains(wait)),
        "{waits:?}"
    );
}
