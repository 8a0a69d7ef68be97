//! Credit follows the reader: a sender is never far ahead of a program that reads slowly, and a
//! fast one waits for nothing.

use std::time::Duration;

use super::{Pair, Side};
use crate::StreamId;

/// Interval at which a slow program reads.
const EVERY: Duration = Duration::from_millis(10);

/// Paths, each with Mbit/s and one-way milliseconds.
type Links = [(f64, u64)];

/// Bytes that all paths carry in the longest round trip.
fn bandwidth_delay(links: &Links) -> u64 {
    let rate: f64 = links.iter().map(|(mbit, _)| mbit * 1e6 / 8.0).sum();
    let trip = links.iter().map(|(_, ms)| 2 * ms).max().unwrap();
    (rate * trip as f64 / 1000.0) as u64
}

/// A stream on which the server always has more to send, and on which the client reads nothing
/// unless a test makes it read.
fn endless(links: &Links) -> (Pair, StreamId) {
    let mut pair = Pair::connected(links);
    let id = pair.open();
    pair.program(Side::Client, id).stalled = true;
    pair.write(Side::Client, id, b"GET", false);
    pair.write(Side::Server, id, &vec![7; 60_000_000], false);
    (pair, id)
}

/// The client's program reads at `rate` bytes per second.
fn read_at(pair: &mut Pair, id: StreamId, rate: u64, time: Duration) {
    let end = pair.now + time;
    while pair.now < end {
        pair.read_some(id, (rate as f64 * EVERY.as_secs_f64()) as usize);
        pair.run_for(EVERY);
    }
}

/// Frame bytes that the server has given to its paths.
fn sent(pair: &Pair) -> u64 {
    let paths = pair.server.path_stats_all(pair.now);
    paths.iter().map(|path| path.bytes_sent).sum()
}

#[test]
fn a_sender_is_never_far_ahead_of_a_slow_reader() {
    for links in [
        &[(40.0, 8), (20.0, 8)][..],
        &[(30.0, 5), (10.0, 60)],
        &[(4.0, 12), (2.0, 12)],
    ] {
        let line: f64 = links.iter().map(|(mbit, _)| mbit * 1e6 / 8.0).sum();
        let max_ahead = 2 * bandwidth_delay(links) + 1_000_000;
        for part in [0.0, 0.03, 0.3, 0.8, 0.95] {
            let rate = (line * part) as u64;
            let (mut pair, id) = endless(links);
            for _ in 0..6 {
                read_at(&mut pair, id, rate, Duration::from_millis(500));
                let read = pair.program(Side::Client, id).received.len() as u64;
                let ahead = sent(&pair) - read;
                assert!(
                    ahead <= max_ahead,
                    "{links:?}, {rate} B/s: {ahead} bytes ahead, not {max_ahead}"
                );
            }
            let wanted = (3.0 * rate as f64 * 0.93) as u64;
            let read = pair.program(Side::Client, id).received.len() as u64;
            // The initial loss of rate on a path with a high delay is not caused by credit.
            let begins = (line * 0.5) as u64;
            assert!(
                read + begins >= wanted,
                "{links:?}, {rate} B/s: only {read} bytes read"
            );
        }
    }
}

#[test]
fn a_program_that_stops_reading_stops_its_sender() {
    let links = &[(40.0, 8), (20.0, 20)];
    let (mut pair, id) = endless(links);
    read_at(&mut pair, id, 1 << 40, Duration::from_secs(2));
    pair.run_for(Duration::from_secs(3));
    let read = pair.program(Side::Client, id).received.len() as u64;
    assert!(read > 10_000_000, "{read}");
    let ahead = sent(&pair) - read;
    let max_ahead = 2 * bandwidth_delay(links) + 1_000_000;
    assert!(ahead <= max_ahead, "{ahead} bytes, not {max_ahead}");
    let stats = pair.client.stats();
    assert!(stats.receive_memory <= max_ahead, "{stats:?}");
}

#[test]
fn a_reader_that_becomes_fast_again_gets_the_full_rate_within_four_round_trips() {
    let links = &[(200.0, 25), (100.0, 25)];
    let trip = Duration::from_millis(50);
    let (mut pair, id) = endless(links);
    pair.end_slow_start();
    read_at(&mut pair, id, 100_000, Duration::from_secs(1));
    pair.resume(Side::Client, id);
    pair.run_for(4 * trip);
    let before = pair.program(Side::Client, id).received.len();
    pair.run_for(4 * trip);
    let read = pair.program(Side::Client, id).received.len() - before;
    let line = bandwidth_delay(links) as usize * 4;
    assert!(
        read >= line * 95 / 100,
        "{read} bytes in four round trips, not {line}"
    );
}

#[test]
fn bursts_of_a_reader_do_not_count_as_its_rate() {
    let links = &[(40.0, 8), (20.0, 8)];
    let (mut pair, id) = endless(links);
    for _ in 0..10 {
        pair.read_some(id, 250_000);
        pair.run_for(Duration::from_secs(1));
    }
    let read = pair.program(Side::Client, id).received.len() as u64;
    assert!(read >= 2_250_000, "{read}");
    let ahead = sent(&pair) - read;
    let max_ahead = 2 * bandwidth_delay(links) + 1_000_000;
    assert!(ahead <= max_ahead, "{ahead} bytes, not {max_ahead}");
}
