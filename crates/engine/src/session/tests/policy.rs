//! The policies of link owners are followed, on this side and by the peer that receives them.

use std::time::Duration;

use super::{Pair, Side};
use crate::{Class, Event, PathId, PathPolicy, PeerPolicy, Priority};

const FIRST: PathId = PathId(0);
const SECOND: PathId = PathId(1);

fn priority(priority: Priority) -> PathPolicy {
    PathPolicy {
        priority,
        ..PathPolicy::default()
    }
}

/// Stream bytes that one side has sent over a path.
fn carried(pair: &Pair, side: Side, path: PathId) -> u64 {
    let session = match side {
        Side::Client => &pair.client,
        Side::Server => &pair.server,
    };
    let all = session.path_stats_all(pair.now);
    let path = all.iter().find(|stats| stats.id == path);
    path.map_or(0, |stats| stats.data_sent)
}

/// The client sends `bytes` bytes on a new stream, to the end.
fn upload(pair: &mut Pair, bytes: usize) {
    let id = pair.open_as(Class::Background);
    pair.write(Side::Client, id, &vec![7; bytes], true);
    pair.write(Side::Server, id, b"", true);
    pair.run_to_end(Duration::from_secs(60));
}

#[test]
fn a_path_with_priority_never_carries_no_data_even_as_the_last_one() {
    let mut pair = Pair::connected(&[(50.0, 5), (50.0, 5)]);
    pair.client.set_policy(SECOND, priority(Priority::Never));
    upload(&mut pair, 1_000_000);
    assert_eq!(carried(&pair, Side::Client, SECOND), 0);
    // The stream waits for another path, as if no path existed.
    pair.kill_path(FIRST);
    let id = pair.open_as(Class::Background);
    pair.write(Side::Client, id, b"late", true);
    pair.write(Side::Server, id, b"", true);
    pair.run_for(Duration::from_secs(5));
    assert!(pair.program(Side::Server, id).received.is_empty());
    pair.add_path(50.0, 5);
    pair.run_to_end(Duration::from_secs(5));
    assert_eq!(pair.program(Side::Server, id).received, b"late");
    assert_eq!(carried(&pair, Side::Client, SECOND), 0);
}

#[test]
fn a_secondary_path_helps_with_much_data_and_not_with_little() {
    let mut pair = Pair::connected(&[(20.0, 5), (20.0, 5)]);
    pair.end_slow_start();
    pair.client
        .set_policy(SECOND, priority(Priority::Secondary));
    // The primary path finishes these within a tenth of a second.
    for _ in 0..10 {
        upload(&mut pair, 50_000);
    }
    assert_eq!(carried(&pair, Side::Client, SECOND), 0);
    let before = pair.now;
    upload(&mut pair, 5_000_000);
    // Over one path alone it takes two seconds.
    let took = pair.now - before;
    assert!(took < Duration::from_millis(1400), "{took:?}");
    assert!(carried(&pair, Side::Client, SECOND) > 1_500_000);
    let after = carried(&pair, Side::Client, SECOND);
    pair.run_for(Duration::from_secs(2));
    upload(&mut pair, 50_000);
    assert_eq!(carried(&pair, Side::Client, SECOND), after);
}

#[test]
fn a_secondary_path_works_before_a_backup_does() {
    let mut pair = Pair::connected(&[(20.0, 5), (20.0, 5), (20.0, 5)]);
    let backup = PathId(2);
    pair.client
        .set_policy(SECOND, priority(Priority::Secondary));
    pair.client.set_policy(backup, priority(Priority::Backup));
    pair.kill_path(FIRST);
    upload(&mut pair, 1_000_000);
    assert!(carried(&pair, Side::Client, SECOND) >= 1_000_000);
    assert_eq!(carried(&pair, Side::Client, backup), 0);
    pair.kill_path(SECOND);
    upload(&mut pair, 1_000_000);
    assert!(carried(&pair, Side::Client, backup) >= 1_000_000);
}

#[test]
fn a_path_above_its_latency_limit_is_a_backup_until_it_is_fast_again() {
    let mut pair = Pair::connected(&[(20.0, 5), (20.0, 100)]);
    let bound = PathPolicy {
        max_added_latency: Some(Duration::from_millis(50)),
        ..PathPolicy::default()
    };
    pair.client.set_policy(SECOND, bound);
    // Until the first answer its delay is unknown.
    upload(&mut pair, 300_000);
    let before = carried(&pair, Side::Client, SECOND);
    upload(&mut pair, 1_000_000);
    assert_eq!(carried(&pair, Side::Client, SECOND), before);
    let second = |pair: &mut Pair, ms| {
        let carrier = pair.carriers.get_mut(&SECOND).unwrap();
        carrier.delay = Duration::from_millis(ms);
    };
    second(&mut pair, 10);
    pair.run_for(Duration::from_secs(15));
    upload(&mut pair, 1_000_000);
    assert!(carried(&pair, Side::Client, SECOND) > before);
}

#[test]
fn a_path_that_becomes_a_backup_loses_the_forward_role() {
    let mut pair = Pair::connected(&[(50.0, 5), (50.0, 6)]);
    let id = pair.open_as(Class::Background);
    pair.write(Side::Client, id, &vec![7; 20_000_000], true);
    pair.run_for(Duration::from_millis(500));
    pair.client.set_policy(FIRST, priority(Priority::Backup));
    // The data in flight on both arrives.
    pair.run_for(Duration::from_millis(100));
    let mut held = 0;
    for _ in 0..100 {
        pair.run_for(Duration::from_millis(2));
        held = held.max(pair.server.stats().reorder);
    }
    // One path delivers in order. Backwards it would hold a whole window of 280 kB except its first
    // piece.
    assert_eq!(held, 0);
}

#[test]
fn the_peer_follows_its_policy_and_limits_its_carrier() {
    let mut pair = Pair::connected(&[(50.0, 5), (50.0, 5)]);
    let now = pair.now;
    let only_up = PeerPolicy {
        policy: priority(Priority::Never),
        rate: Some(125_000),
    };
    pair.client.send_policy(SECOND, only_up, now);
    pair.run_for(Duration::from_millis(100));
    let limited = Event::PathLimited {
        path: SECOND,
        rate: Some(125_000),
    };
    assert!(pair.events.contains(&(Side::Server, limited)));
    let id = pair.open_as(Class::Background);
    pair.write(Side::Client, id, &vec![1; 1_000_000], true);
    pair.write(Side::Server, id, &vec![2; 1_000_000], true);
    pair.run_to_end(Duration::from_secs(20));
    assert_eq!(carried(&pair, Side::Server, SECOND), 0);
    assert!(carried(&pair, Side::Client, SECOND) > 0);
}

#[test]
fn the_newest_policy_counts_in_any_order_of_arrival() {
    let mut pair = Pair::connected(&[(50.0, 5), (50.0, 5)]);
    let word = |name| PeerPolicy {
        policy: priority(name),
        rate: None,
    };
    pair.server.on_policy(SECOND, 2, word(Priority::Backup));
    pair.server.on_policy(SECOND, 1, word(Priority::Never));
    let policy = |pair: &Pair, id| pair.server.paths[&id].standing.policy.priority;
    assert_eq!(policy(&pair, SECOND), Priority::Backup);
    // Also for a path that has not joined here yet.
    let third = PathId(2);
    pair.server.on_policy(third, 2, word(Priority::Secondary));
    pair.server.on_policy(third, 1, word(Priority::Never));
    assert_eq!(pair.add_path(10.0, 5), third);
    assert_eq!(policy(&pair, third), Priority::Secondary);
}
