//! No stream starves: a stream with bytes to send and a reader gets its share, whatever the others
//! do.
//!
//! Memory is small in proportion to the paths' rates, so that streams wait for credit and for each
//! other. `every.rs` has the same property with changing rates, for every scheduler.

use std::time::Duration;

use proptest::prelude::*;

use super::every::{READY, fill, read, with_memory};
use super::{Pair, Side, turns};
use crate::{Class, Config, Role, StreamId};

fn session_with(scheduler: &str, role: Role, memory: u64, stream_memory: u64) -> Config {
    let mut config = Config::new(role);
    config.scheduler = scheduler.to_owned();
    with_memory(config, memory, stream_memory)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 40,
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    })]

    // At the end of a transfer no further data follows: its last bytes must not wait for any.
    #[test]
    fn every_transfer_ends_beside_unread_streams(
        links in prop::collection::vec((10.0..100.0f64, 0..50u64), 1..4),
        stalled in 1..4usize,
        sizes in prop::collection::vec(1..12_000_000usize, 1..3),
        pauses in prop::collection::vec((1..500u64, any::<bool>(), 10..500u64), 0..10),
        memory in prop_oneof![
            Just((8u64 << 20, 4u64 << 20)),
            Just((2 << 20, 1 << 20)),
            Just((0, 1 << 18)),
        ],
    ) {
        let (session, stream) = memory;
        let side = |role| session_with("fbdt", role, session, stream);
        let mut pair = Pair::with(side(Role::Client), side(Role::Server));
        pair.connect(&links);
        for _ in 0..stalled {
            // It has read some bytes, and so has been given more than a new stream's credit.
            stall(&mut pair, Duration::from_millis(200));
        }
        pair.run_for(Duration::from_secs(2));
        let transfers: Vec<StreamId> = sizes.iter().map(|_| pair.open()).collect();
        for (&id, &size) in transfers.iter().zip(&sizes) {
            pair.write(Side::Client, id, &vec![7; size], true);
        }
        let ended = |pair: &Pair| transfers.iter().all(|id| has_ended(pair, *id));
        for (after, client, ms) in pauses {
            pair.run_until(ended, Duration::from_millis(after));
            let side = if client { Side::Client } else { Side::Server };
            pair.pause(side, Duration::from_millis(ms));
        }
        let over = pair.run_until(ended, Duration::from_secs(600));
        prop_assert!(over, "not done: {pair:?}");
    }
}

/// Found end to end: once the end of a stream was known to fit its limit, its reader sent no more
/// grants, and a sender that shares the rest of the session's credit waited for one.
#[test]
fn the_last_bytes_do_not_wait_beside_an_unread_stream() {
    for size in (3_000_000..6_000_000).step_by(200_000) {
        let config = |role| session_with("fbdt", role, 7 << 20, 4 << 20);
        let mut pair = Pair::with(config(Role::Client), config(Role::Server));
        pair.connect(&[(50.0, 10), (30.0, 20)]);
        stall(&mut pair, Duration::from_millis(100));
        pair.run_for(Duration::from_secs(3));
        assert_ends(&mut pair, size);
    }
}

/// Found by the property above: the peer had a sufficient grant for a stream while much credit was
/// left. Then streams without a reader took some of the rest, and the stream's last byte waited
/// forever.
#[test]
fn the_last_byte_does_not_wait_when_others_take_the_remaining_credit() {
    for size in (300_000..420_000).step_by(5_000).chain([360_295]) {
        let config = |role| session_with("fbdt", role, 8 << 20, 4 << 20);
        let mut pair = Pair::with(config(Role::Client), config(Role::Server));
        pair.connect(&[(76.919, 0), (74.269, 32)]);
        for _ in 0..2 {
            stall(&mut pair, Duration::from_millis(200));
        }
        pair.run_for(Duration::from_secs(2));
        assert_ends(&mut pair, size);
    }
}

/// A stream with a reader that stops after `after`.
fn stall(pair: &mut Pair, after: Duration) {
    let id = pair.open();
    pair.write(Side::Client, id, &vec![7; READY], false);
    pair.run_for(after);
    pair.program(Side::Server, id).stalled = true;
}

#[track_caller]
fn assert_ends(pair: &mut Pair, size: usize) {
    let id = pair.open();
    pair.write(Side::Client, id, &vec![7; size], true);
    let over = pair.run_until(|pair| has_ended(pair, id), Duration::from_secs(60));
    assert!(over, "{size} bytes: {pair:?}");
}

fn has_ended(pair: &Pair, id: StreamId) -> bool {
    let program = pair.programs.get(&(Side::Server, id));
    program.is_some_and(|program| program.finished)
}

/// Found by the property in `every.rs`: three streams took turns of 16 KiB, and the fourth one
/// always got the rest of each budget, a few bytes, as its turn.
#[test]
fn no_stream_is_limited_to_the_rest_of_budgets() {
    let config = |role| {
        let mut config = session_with(turns::NAME, role, 8 << 20, 4 << 20);
        config.own_schedulers = turns::schedulers(32 << 10);
        let classes = &mut config.class_schedulers;
        classes.insert(Class::Conversational, "minrtt".to_owned());
        config
    };
    let mut pair = Pair::with(config(Role::Client), config(Role::Server));
    pair.connect(&[(1.0, 0)]);
    let streams: Vec<StreamId> = (0..4).map(|_| pair.open()).collect();
    pair.open();
    pair.run_for(Duration::from_millis(500));
    for _ in 0..100 {
        fill(&mut pair, &streams);
        pair.run_for(Duration::from_millis(50));
    }
    let read = read(&mut pair, &streams);
    let least = read.iter().min().copied().unwrap_or_default();
    assert!(
        least >= read.iter().sum::<usize>() / read.len() / 4,
        "{read:?}"
    );
}

/// The longest time in which a reader gets nothing new, for streams of the same length with much
/// left to send.
fn longest_wait(links: &[(f64, u64)], classes: &[Class], len: usize) -> Duration {
    let mut pair = Pair::connected(links);
    let warm = pair.open();
    pair.write(Side::Client, warm, b"GET", true);
    pair.write(Side::Server, warm, &vec![7; 4_000_000], true);
    pair.run_to_end(Duration::from_secs(60));
    pair.end_slow_start();
    let start = pair.now;
    let streams: Vec<StreamId> = classes.iter().map(|class| pair.open_as(*class)).collect();
    for id in &streams {
        pair.write(Side::Client, *id, b"GET", true);
        pair.write(Side::Server, *id, &vec![7; len], true);
    }
    pair.run_to_end(Duration::from_secs(60));
    let waits = streams.iter().map(|id| {
        let arrivals = &pair.program(Side::Client, *id).arrivals;
        let moments: Vec<_> = arrivals.iter().map(|(at, _)| *at).collect();
        let waits = [start]
            .into_iter()
            .chain(moments.iter().copied())
            .zip(&moments);
        waits
            .map(|(before, at)| *at - before)
            .max()
            .unwrap_or_default()
    });
    let waits: Vec<Duration> = waits.collect();
    eprintln!("{links:?} {}: {waits:?}", classes.len());
    waits.into_iter().max().unwrap_or_default()
}

/// With as many streams as paths, or twice as many, the streams synchronized with the paths: some
/// were sent from their ends only, and their readers got nothing new for up to 0.6 s.
#[test]
fn readers_of_equal_streams_over_equal_paths_do_not_wait_for_each_other() {
    for count in [2, 3, 4, 8] {
        for links in [
            [(40.0, 10), (40.0, 30)],
            [(80.0, 10), (40.0, 30)],
            [(8.0, 10), (8.0, 40)],
        ] {
            let len = (links[0].0 * 750e3 / count as f64) as usize;
            let wait = longest_wait(&links, &vec![Class::Background; count], len);
            assert!(
                wait < Duration::from_millis(100),
                "{links:?} {count}: {wait:?}"
            );
        }
    }
}
