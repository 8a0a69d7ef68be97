//! Transfers over good, bad and failing paths.

use std::time::Duration;

use super::{Pair, Side, turns};
use crate::{Config, PathId, Role, StreamId};

/// Bytes that reveal every misplaced piece.
fn bytes(len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8)
        .collect()
}

/// Begins a stream over which the server sends `data` and the client nothing.
fn serve(pair: &mut Pair, data: &[u8]) -> StreamId {
    let id = pair.open();
    pair.write(Side::Client, id, b"", true);
    pair.write(Side::Server, id, data, true);
    id
}

/// Number of streams that have not ended, at the client and at the server.
fn streams_open(pair: &Pair) -> (u64, u64) {
    let (client, server) = (pair.client.stats(), pair.server.stats());
    (client.streams_open, server.streams_open)
}

/// Sends `len` bytes from the server; returns the seconds until the last one is read.
fn download(pair: &mut Pair, len: usize) -> f64 {
    let data = bytes(len);
    let id = pair.open();
    let start = pair.now;
    pair.write(Side::Client, id, b"GET", true);
    pair.write(Side::Server, id, &data, true);
    pair.run_to_end(Duration::from_secs(300));
    let program = pair.program(Side::Client, id);
    assert!(program.received == data, "the copy differs");
    (program.done_at - start).as_secs_f64()
}

#[test]
fn one_path_delivers_at_its_rate() {
    let mut pair = Pair::connected(&[(100.0, 10)]);
    let seconds = download(&mut pair, 10_000_000);
    assert!(seconds < 1.05 * 0.8 + 0.1, "{seconds}");
    assert_eq!(pair.server.stats().duplicates_sent, 0);
}

#[test]
fn two_paths_give_their_sum() {
    let mut pair = Pair::connected(&[(60.0, 10), (180.0, 4)]);
    let seconds = download(&mut pair, 30_000_000);
    let best = 30e6 * 8.0 / 240e6;
    assert!(seconds < 1.05 * best, "{seconds} s against {best} s");
    let stats = pair.server.stats();
    assert!(stats.duplicates_sent < 600_000, "{stats:?}");
}

#[test]
fn four_unequal_paths_give_their_sum() {
    super::promise::check(
        &[(10.0, 50), (100.0, 5), (50.0, 150), (200.0, 2)],
        90_000_000,
        false,
        Duration::ZERO,
    );
}

#[test]
fn a_slow_path_never_makes_a_small_object_late() {
    for len in [1_000, 10_000, 100_000, 1_000_000] {
        let alone = download(&mut Pair::connected(&[(100.0, 5)]), len);
        for slow in [(5.0, 200), (10.0, 50), (1.0, 400)] {
            let both = download(&mut Pair::connected(&[(100.0, 5), slow]), len);
            assert!(
                both <= alone * 1.02 + 0.001,
                "{len} bytes: {both} s with {slow:?}, {alone} s without"
            );
        }
    }
}

#[test]
fn uploads_and_downloads_at_once() {
    let mut pair = Pair::connected(&[(50.0, 10), (50.0, 20)]);
    let (up, down) = (bytes(5_000_000), bytes(6_000_000));
    let id = pair.open();
    pair.write(Side::Client, id, &up, true);
    pair.write(Side::Server, id, &down, true);
    pair.run_to_end(Duration::from_secs(30));
    assert!(pair.program(Side::Server, id).received == up);
    assert!(pair.program(Side::Client, id).received == down);
    pair.run_for(Duration::from_secs(1));
    assert_eq!(streams_open(&pair), (0, 0));
}

#[test]
fn frames_cut_anywhere_are_reassembled() {
    for cut in [1, 7, 1000, 16_384] {
        let mut pair = Pair::connected(&[(50.0, 1), (50.0, 2)]);
        pair.cut = cut;
        download(&mut pair, 300_000);
    }
}

#[test]
fn a_failed_path_loses_nothing() {
    let mut pair = Pair::connected(&[(50.0, 10), (50.0, 10), (50.0, 30)]);
    let data = bytes(20_000_000);
    let id = serve(&mut pair, &data);
    for path in [0, 1] {
        pair.run_for(Duration::from_millis(200));
        pair.kill_path(PathId(path));
    }
    pair.run_for(Duration::from_millis(200));
    pair.add_path(100.0, 5);
    pair.run_to_end(Duration::from_secs(30));
    assert!(pair.program(Side::Client, id).received == data);
}

#[test]
fn a_blackhole_is_detected_and_its_end_is_used() {
    let mut pair = Pair::connected(&[(50.0, 10), (50.0, 10)]);
    let data = bytes(20_000_000);
    let id = serve(&mut pair, &data);
    pair.run_for(Duration::from_millis(500));
    pair.carriers.get_mut(&PathId(1)).unwrap().blackhole = true;
    pair.run_for(Duration::from_millis(400));
    let before = pair.program(Side::Client, id).received.len();
    pair.run_for(Duration::from_millis(400));
    let during = pair.program(Side::Client, id).received.len() - before;
    assert!(
        during > 2_000_000,
        "only {during} bytes in 400 ms over the remaining path"
    );
    pair.carriers.get_mut(&PathId(1)).unwrap().blackhole = false;
    pair.run_to_end(Duration::from_secs(30));
    assert!(pair.program(Side::Client, id).received == data);
    assert!(pair.server.path_stats_all(pair.now)[1].state == crate::PathState::Active);
}

#[test]
fn an_outage_of_every_path_is_survived() {
    let mut pair = Pair::connected(&[(50.0, 10), (50.0, 10)]);
    let data = bytes(10_000_000);
    let id = serve(&mut pair, &data);
    pair.run_for(Duration::from_millis(300));
    for path in [0, 1] {
        pair.kill_path(PathId(path));
    }
    pair.run_for(Duration::from_secs(30));
    pair.add_path(50.0, 10);
    pair.run_to_end(Duration::from_secs(30));
    assert!(pair.program(Side::Client, id).received == data);
}

#[test]
fn a_stalled_reader_stays_within_its_limit_and_blocks_no_stream() {
    let mut pair = Pair::connected(&[(500.0, 2), (500.0, 5)]);
    let data = bytes(100_000_000);
    let stalled = pair.open();
    pair.program(Side::Client, stalled).stalled = true;
    pair.write(Side::Client, stalled, b"", true);
    pair.write(Side::Server, stalled, &data, true);
    pair.run_for(Duration::from_secs(5));
    let (client, server) = (pair.client.stats(), pair.server.stats());
    assert!(client.receive_memory <= 64 << 20, "{client:?}");
    assert!(server.send_buffered <= 64 << 20, "{server:?}");
    let small = bytes(1_000_000);
    let quick = serve(&mut pair, &small);
    pair.run_for(Duration::from_secs(2));
    assert!(
        pair.program(Side::Client, quick).received == small,
        "{pair:?}"
    );
    pair.resume(Side::Client, stalled);
    pair.run_to_end(Duration::from_secs(60));
    assert!(pair.program(Side::Client, stalled).received == data);
}

#[test]
fn a_reset_ends_both_directions_and_returns_all_credit() {
    let mut pair = Pair::connected(&[(50.0, 10), (20.0, 40)]);
    for round in 0..40 {
        let id = pair.open();
        pair.write(Side::Client, id, &bytes(500_000), false);
        pair.write(Side::Server, id, &bytes(3_000_000), false);
        pair.run_for(Duration::from_millis(50 + round * 7));
        let side = if round % 2 == 0 {
            Side::Client
        } else {
            Side::Server
        };
        let now = pair.now;
        pair.session(side).reset(id, 7, now);
        pair.program(side, id).reset = Some(7);
        pair.run_for(Duration::from_millis(400));
        assert_eq!(pair.program(side.peer(), id).reset, Some(7));
    }
    for session in [&pair.client, &pair.server] {
        let stats = session.stats();
        assert_eq!(
            (
                stats.streams_open,
                stats.send_buffered,
                stats.receive_memory
            ),
            (0, 0, 0)
        );
    }
    download(&mut pair, 5_000_000);
}

#[test]
fn thousands_of_short_streams_come_and_go() {
    let mut pair = Pair::connected(&[(50.0, 5), (50.0, 15)]);
    for _ in 0..30 {
        let ids: Vec<_> = (0..100).map(|_| pair.open()).collect();
        for &id in &ids {
            pair.write(Side::Client, id, b"ping", true);
            pair.write(Side::Server, id, b"pong", true);
        }
        pair.run_to_end(Duration::from_secs(10));
        for id in ids {
            assert_eq!(pair.program(Side::Client, id).received, b"pong");
        }
    }
    pair.run_for(Duration::from_secs(1));
    assert_eq!(streams_open(&pair), (0, 0));
}

#[test]
fn an_idle_session_is_quiet() {
    let mut pair = Pair::connected(&[(50.0, 10), (50.0, 20)]);
    download(&mut pair, 100_000);
    pair.run_for(Duration::from_secs(2));
    let before = pair.client.path_stats_all(pair.now);
    pair.run_for(Duration::from_secs(100));
    let after = pair.client.path_stats_all(pair.now);
    for (before, after) in before.iter().zip(&after) {
        let sent = after.bytes_sent - before.bytes_sent;
        assert!(sent < 100 * 40, "{sent} bytes in 100 idle seconds");
    }
}

/// The bytes of `data` that arrive in 3 s beside `count` streams without a reader. Those have first
/// read `moved` bytes, so that the peer has granted them more credit.
fn beside_stalled(count: usize, moved: usize, data: &[u8]) -> usize {
    let config = |role| Config {
        memory: 12 << 20,
        stream_memory: 6 << 20,
        max_streams: 512,
        ..Config::new(role)
    };
    let mut pair = Pair::with(config(Role::Client), config(Role::Server));
    pair.connect(&[(200.0, 5), (100.0, 20)]);
    let ids: Vec<_> = (0..count).map(|_| pair.open()).collect();
    for &id in &ids {
        pair.program(Side::Client, id).stalled = moved == 0;
        pair.write(Side::Server, id, &bytes(moved.max(1)), false);
    }
    pair.run_for(Duration::from_secs(2));
    for &id in &ids {
        pair.program(Side::Client, id).stalled = true;
        pair.write(Side::Server, id, &bytes(2_000_000), false);
    }
    pair.run_for(Duration::from_secs(3));
    let quick = pair.open();
    pair.write(Side::Server, quick, data, false);
    pair.run_for(Duration::from_secs(3));
    for session in [&pair.client, &pair.server] {
        let stats = session.stats();
        assert!(
            stats.receive_memory.max(stats.send_buffered) <= 12 << 20,
            "{stats:?}"
        );
    }
    let received = &pair.program(Side::Client, quick).received;
    assert!(data.starts_with(received));
    received.len()
}

#[test]
fn stalled_readers_leave_memory_for_an_active_one() {
    let data = bytes(1_000_000);
    assert_eq!(beside_stalled(20, 0, &data), data.len());
    // With hundreds of streams each may have a window of 2 KiB, and a round trip is approximately
    // 16 ms.
    let among_hundreds = beside_stalled(500, 0, &data);
    assert!(among_hundreds > 250_000, "{among_hundreds}");
}

#[test]
fn readers_that_stall_after_reading_fast_leave_memory_for_others() {
    let data = bytes(1_000_000);
    for (count, moved) in [(3, 8_000_000), (50, 500_000)] {
        let received = beside_stalled(count, moved, &data);
        assert_eq!(received, data.len(), "{count} streams");
    }
    let among_hundreds = beside_stalled(500, 50_000, &data);
    assert!(among_hundreds > 250_000, "{among_hundreds}");
}

/// The table of docs/notes/cold-objects.md.
#[test]
fn fbdt_outperforms_turns_and_the_best_path_alone() {
    let own = turns::schedulers(16 << 10);
    let with = |scheduler: &str, links: &[(f64, u64)], len| {
        let config = |role| Config {
            scheduler: scheduler.to_owned(),
            own_schedulers: own.clone(),
            ..Config::new(role)
        };
        let mut pair = Pair::with(config(Role::Client), config(Role::Server));
        pair.connect(links);
        download(&mut pair, len)
    };
    let four = [(10.0, 50), (100.0, 5), (50.0, 150), (200.0, 2)];
    for (links, len) in [
        (&[(60.0, 10), (180.0, 4)][..], 30_000_000),
        (&four, 90_000_000),
        (&[(100.0, 5), (5.0, 200)], 10_000_000),
        (&[(100.0, 5), (10.0, 50)], 1_000_000),
        (&[(100.0, 5), (10.0, 50)], 100_000),
    ] {
        let fbdt = with("fbdt", links, len);
        let turns = with(turns::NAME, links, len);
        let alone = links.iter().map(|link| with("fbdt", &[*link], len));
        let alone = alone.fold(f64::INFINITY, f64::min);
        println!("{links:?} {len}: fbdt {fbdt:.4} s, turns {turns:.4} s, alone {alone:.4} s");
        assert!(
            fbdt <= 1.02 * turns,
            "{links:?}, {len} bytes: {fbdt} s, {turns} s in turns"
        );
        assert!(
            fbdt <= alone + 0.0001,
            "{links:?}, {len} bytes: {fbdt} s, {alone} s alone"
        );
    }
}
