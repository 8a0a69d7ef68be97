//! Small objects arrive no later than over the best path alone.

use std::time::Duration;

use super::{Pair, Side};
use crate::Class;

/// The first path is the best one, which is also measured alone.
const PATHS: [&[(f64, u64)]; 8] = [
    &[(100.0, 5), (5.0, 200)],
    &[(100.0, 5), (10.0, 50)],
    &[(100.0, 10), (10.0, 5)],
    &[(100.0, 10), (100.0, 10)],
    &[(50.0, 20), (50.0, 40)],
    &[(50.0, 20), (50.0, 320)],
    &[(1800.0, 2), (630.0, 4)],
    &[(300.0, 8), (40.0, 30), (20.0, 100)],
];

const SIZES: [usize; 5] = [1_000, 3_000, 10_000, 30_000, 100_000];

/// Time from the request to the last byte, on a warm or cold session, with or without a concurrent
/// bulk stream.
fn took(links: &[(f64, u64)], len: usize, warm: bool, bulk: bool) -> Duration {
    let mut pair = Pair::connected(links);
    pair.run_for(Duration::from_secs(2));
    if warm {
        let id = pair.open();
        pair.write(Side::Client, id, b"GET", true);
        pair.write(Side::Server, id, &vec![7; 3_000_000], true);
        pair.run_to_end(Duration::from_secs(60));
        pair.run_for(Duration::from_secs(2));
    }
    if bulk {
        let id = pair.open();
        pair.write(Side::Client, id, b"GET", true);
        pair.write(Side::Server, id, &vec![7; 30_000_000], true);
        pair.run_for(Duration::from_millis(700));
    }
    let start = pair.now;
    let id = pair.open_as(Class::Interactive);
    pair.write(Side::Client, id, b"GET", true);
    pair.write(Side::Server, id, &vec![7; len], true);
    let over = pair.run_until(
        |pair| pair.programs[&(Side::Client, id)].received.len() == len,
        Duration::from_secs(60),
    );
    assert!(over, "{pair:?}");
    pair.program(Side::Client, id).done_at - start
}

/// Bytes that the best path carries for the others: reports of arrivals on them.
const REPORTS: f64 = 64.0;

/// Checks every object over all paths against the best path alone: the difference may be at most
/// the time that the best path needs for `bytes`.
fn compare(warm: bool, bulk: bool, bytes: f64) {
    let mut worse = Vec::new();
    for links in PATHS {
        for len in SIZES {
            let alone = took(&links[..1], len, warm, bulk);
            let together = took(links, len, warm, bulk);
            let ratio = together.as_secs_f64() / alone.as_secs_f64();
            println!("{links:?} {len:7}: {together:?} of {alone:?}, {ratio:.4}");
            let allowed = Duration::from_secs_f64(bytes * 8.0 / (links[0].0 * 1e6));
            if together > alone + allowed {
                worse.push((links, len, together, alone));
            }
        }
    }
    assert!(worse.is_empty(), "{worse:#?}");
}

#[test]
fn a_small_object_is_never_later_than_over_the_best_path_alone() {
    compare(true, false, REPORTS);
}

#[test]
fn the_first_object_of_a_session_is_never_later_than_over_the_best_path_alone() {
    compare(false, false, REPORTS);
}

#[test]
fn a_small_object_beside_bulk_is_never_later_than_over_the_best_path_alone() {
    compare(true, true, 2.0 * 16384.0 + REPORTS);
}
