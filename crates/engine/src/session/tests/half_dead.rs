//! Paths that accept bytes and deliver none of them, or hardly any, never hold up a transfer.
//!
//! The bound in every test is the time that the other paths need for the whole object without the
//! bad one, plus the detection time of each direction: one missed report for data that may be sent
//! twice, and a stall for the rest.

use std::time::Duration;

use super::{Pair, Side};
use crate::path::{Flight, LossState, Path, PathSample, PathState};
use crate::{PathId, StreamId};

const GOOD: [(f64, u64); 2] = [(50.0, 10), (30.0, 20)];
const BAD: (f64, u64) = (100.0, 5);

/// Two round trips, four variations and 150 ms of the bad path, and the time for the check and its
/// report.
const STALL: Duration = Duration::from_millis(176 + 25 + 44);

/// Half a round trip, two variations and 15 ms of it, twice; and the time for the checks.
const LATE: Duration = Duration::from_millis(2 * 35);

const SIZES: [usize; 5] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// Begins a stream over which the server sends `len` bytes.
fn begin(pair: &mut Pair, len: usize) -> StreamId {
    let id = pair.open();
    pair.write(Side::Client, id, b"GET", true);
    pair.write(Side::Server, id, &vec![7; len], true);
    id
}

fn end(pair: &mut Pair, id: StreamId, len: usize) -> Duration {
    pair.run_to_end(Duration::from_secs(600));
    let program = pair.program(Side::Client, id);
    assert_eq!(program.received.len(), len);
    program.done_at
}

/// A pair with the good paths, and optionally the bad one, past slow start and idle.
fn warm(bad: bool) -> Pair {
    let mut links = GOOD.to_vec();
    links.extend(bad.then_some(BAD));
    let mut pair = Pair::connected(&links);
    let id = begin(&mut pair, 5_000_000);
    end(&mut pair, id, 5_000_000);
    pair.run_for(Duration::from_secs(1));
    pair
}

/// Time over the good paths alone.
fn alone(len: usize) -> Duration {
    let mut pair = warm(false);
    let start = pair.now;
    let id = begin(&mut pair, len);
    end(&mut pair, id, len) - start
}

/// Time for an object during which `change` breaks the bad path after `after`.
fn with_change(len: usize, after: Duration, change: impl Fn(&mut Pair)) -> Duration {
    let mut pair = warm(true);
    let start = pair.now;
    let id = begin(&mut pair, len);
    pair.run_for(after);
    change(&mut pair);
    end(&mut pair, id, len) - start
}

fn bad(pair: &mut Pair) -> &mut super::pair::Carrier {
    pair.carriers
        .get_mut(&PathId(2))
        .expect("the bad path exists")
}

fn check(what: &str, len: usize, took: Duration, most: Duration) {
    println!("{what} {len}: {took:?} of {most:?}");
    assert!(took <= most, "{what}, {len} bytes: {took:?}, not {most:?}");
}

#[test]
fn a_path_that_never_delivers_anything_costs_nothing() {
    for len in SIZES {
        let mut pair = warm(false);
        let id = pair.add_path(BAD.0, BAD.1);
        pair.carriers
            .get_mut(&id)
            .expect("the path was added")
            .blackhole = true;
        let start = pair.now;
        let id = begin(&mut pair, len);
        let took = end(&mut pair, id, len) - start;
        check("never", len, took, alone(len) + Duration::from_millis(1));
    }
}

#[test]
fn a_path_that_dies_silently_costs_no_more_than_its_detection() {
    for len in SIZES {
        let alone = alone(len);
        for part in [0, 2, 4, 8] {
            let took = with_change(len, alone * part / 10, |pair| bad(pair).blackhole = true);
            let found = if len <= 100_000 { LATE } else { STALL };
            check("dies", len, took, alone + found);
        }
    }
}

#[test]
fn a_brown_out_to_one_percent_costs_no_more_than_its_detection() {
    for believed in [None, Some(BAD.0 * 1e6 / 8.0)] {
        for len in SIZES {
            let alone = alone(len);
            for part in [0, 2, 4, 8] {
                let took = with_change(len, alone * part / 10, |pair| {
                    let carrier = bad(pair);
                    carrier.rate /= 100.0;
                    carrier.believed = believed;
                });
                let found = if len <= 100_000 { LATE } else { STALL };
                check("browns", len, took, alone + found);
            }
        }
    }
}

#[test]
fn a_path_is_used_again_after_its_brown_out() {
    let mut pair = warm(true);
    let id = begin(&mut pair, 100_000_000);
    pair.run_for(Duration::from_millis(300));
    let full = bad(&mut pair).rate;
    bad(&mut pair).rate = full / 100.0;
    pair.run_for(Duration::from_secs(2));
    bad(&mut pair).rate = full;
    // The rate of a path is known only from the data that it carries.
    bad(&mut pair).believed = Some(full / 100.0);
    pair.run_for(Duration::from_secs(2));
    bad(&mut pair).believed = None;
    pair.run_for(Duration::from_millis(500));
    let sent = |pair: &Pair| pair.server.path_stats_all(pair.now)[2].data_sent;
    let before = sent(&pair);
    pair.run_for(Duration::from_secs(1));
    let rate = (sent(&pair) - before) as f64;
    assert!(rate > 0.8 * full, "{rate} of {full} bytes per second");
    end(&mut pair, id, 100_000_000);
}

#[test]
fn a_stalled_path_gets_pings_so_that_tcp_detects_its_losses() {
    let mut pair = warm(true);
    let bad = PathId(GOOD.len() as u32);
    let is_stalled = |pair: &Pair| pair.server.paths[&bad].state() == PathState::Stalled;
    begin(&mut pair, 10_000_000);
    pair.carriers.get_mut(&bad).unwrap().blackhole = true;
    assert!(pair.run_until(is_stalled, 2 * STALL));
    // Unsent data in TCP serves the same purpose.
    let had = pair.server.paths[&bad].outbound.sent;
    pair.carriers.get_mut(&bad).unwrap().blackhole = false;
    let mut more = 0;
    while is_stalled(&pair) {
        more = pair.server.paths[&bad].outbound.sent - had;
        pair.run_for(Duration::from_millis(1));
    }
    assert!((1..200).contains(&more), "{more} bytes");
}

#[test]
fn a_path_under_repair_gets_twice_the_patience_even_after_a_partial_repair() {
    let ms = Duration::from_millis;
    let mut path = Path::new(PathId(0), ms(0));
    let sample = |loss, delivered| PathSample {
        srtt: ms(100),
        loss,
        delivered,
        in_flight: 1,
        ..PathSample::default()
    };
    let flight = Flight {
        stream: 0,
        range: 0..1000,
        sent_at: ms(1000),
        expected_at: ms(1050),
        patience: Duration::from_millis(150),
        round_trip: Duration::from_millis(100),
        repeated: false,
        path_end: 1000,
        record_end: 1000,
    };
    path.outbound.flights.push_back(flight);
    // Two round trips and 150 ms, if TCP does not report deliveries.
    path.update(sample(LossState::Open, 0), ms(1000));
    path.progress.acknowledged_at = ms(1200);
    assert_eq!(path.stalls_at(), Some(ms(1050 + 350)));
    path.update(sample(LossState::Recovery, 20), ms(1150));
    path.confirm(20_000, ms(1200));
    // TCP receives no acknowledgment either. It may wait for the timeout of a lost retransmission,
    // which takes as long as the patience with any silent path.
    let silent = ms(1200 + 350);
    assert_eq!(path.stalls_at(), Some(silent), "no acknowledgment");
    path.update(sample(LossState::Recovery, 25), ms(1300));
    let heard = ms(1300 + 350);
    let heard = heard + path.more_repair(heard);
    assert_eq!(path.stalls_at(), Some(heard), "a segment has arrived");
    path.update(sample(LossState::Recovery, 30), ms(1700));
    path.confirm(40_000, ms(1710));
    let late = ms(1050 + 2 * 350);
    let late = late + path.more_repair(late);
    assert_eq!(path.stalls_at(), Some(late), "it is too late");
}

/// BBR loses thousands of packets at once before it has found a link's rate, and some of their
/// retransmissions with them.
#[test]
fn a_path_that_delivers_behind_a_hole_gets_more_patience() {
    let ms = Duration::from_millis;
    // A megabyte per second until the hole, then `segments` segments in each round trip of 100 ms.
    let check = |segments: u64, stalls_at: Duration| {
        let mut path = Path::new(PathId(0), ms(0));
        let sample = |loss, delivered| PathSample {
            srtt: ms(100),
            mss: 1000,
            loss,
            delivered,
            delivery_rate: 1_000_000,
            in_flight: 100_000,
            ..PathSample::default()
        };
        path.update(sample(LossState::Open, 1000), ms(900));
        path.outbound.flights.push_back(Flight {
            stream: 0,
            range: 0..1000,
            sent_at: ms(1000),
            expected_at: ms(1050),
            patience: ms(150),
            round_trip: ms(100),
            repeated: false,
            path_end: 100_000,
            record_end: 100_000,
        });
        path.confirm(50_000, ms(1000));
        for trip in 1..=13 {
            let delivered = 1000 + trip * segments;
            path.update(
                sample(LossState::Recovery, delivered),
                ms(1000 + trip * 100),
            );
            // Acknowledgments of the peer meanwhile do not change this until more is known.
            path.confirm(50_000 + trip, ms(1000 + trip * 100));
            path.update(
                sample(LossState::Recovery, delivered),
                ms(1010 + trip * 100),
            );
        }
        let stalls_at = stalls_at + path.more_repair(stalls_at);
        assert_eq!(path.stalls_at(), Some(stalls_at), "{segments}");
    };
    // Once for the time without any acknowledgment (350 ms), and three more times that.
    check(90, ms(1050 + 4 * 350));
    check(30, ms(1050 + 4 * 350));
    // A fifth of its rate.
    check(20, ms(1050 + 2 * 350));
}
