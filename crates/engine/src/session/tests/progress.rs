//! Nobody starves: a stream that has bytes to send and a reader who wants them gets its share, whatever the others do.
//!
//! Memory is small in proportion to what the paths carry, so that streams wait for credit and for each other; rates
//! change, and now and then one side's processor has no time for its session.

use std::time::Duration;

use proptest::prelude::*;

use super::{Pair, Side};
use crate::{Config, PathId, Role, StreamId};

/// In any time of this length every stream moves, and by no less than a quarter of what one gets on average.
const WINDOW: Duration = Duration::from_secs(5);

/// What a program keeps ready to be written, so that it never runs dry.
const READY: usize = 8 << 20;

/// What changes on the way, and after how many milliseconds.
#[derive(Clone, Debug)]
enum Change {
    /// A side does nothing for so many milliseconds.
    Pause { side: Side, ms: u64 },
    /// A path has another rate.
    Rate { path: usize, mbit: f64 },
    /// A short request is written on its own stream, as over a control connection.
    Ask,
}

fn change() -> impl Strategy<Value = (u64, Change)> {
    let side = || prop_oneof![Just(Side::Client), Just(Side::Server)];
    let change = prop_oneof![
        (side(), 50..500u64).prop_map(|(side, ms)| Change::Pause { side, ms }),
        (0..4usize, 1.0..30.0f64).prop_map(|(path, mbit)| Change::Rate { path, mbit }),
        Just(Change::Ask),
    ];
    (1..1500u64, change)
}

fn session_with(role: Role, memory: u64, stream_memory: u64) -> Config {
    Config {
        memory: memory.max(Config::least_memory(16)),
        stream_memory,
        max_streams: 16,
        ..Config::new(role)
    }
}

/// Gives every program something to write.
fn fill(pair: &mut Pair, streams: &[StreamId]) {
    for &id in streams {
        for side in Side::BOTH {
            if pair.knows(side, id) && pair.unwritten(side, id) < READY / 2 {
                pair.write(side, id, &vec![7; READY], false);
            }
        }
    }
}

/// Bytes that have been read, of every stream in both directions.
fn read(pair: &mut Pair, streams: &[StreamId]) -> Vec<usize> {
    let ends = streams
        .iter()
        .flat_map(|&id| Side::BOTH.map(|side| (side, id)));
    ends.map(|(side, id)| pair.program(side, id).received.len())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_stream_moves_in_both_directions(
        links in prop::collection::vec((1.0..30.0f64, 0..60u64), 1..4),
        count in 1..6usize,
        memory in prop_oneof![Just((8u64 << 20, 4u64 << 20)), Just((2 << 20, 1 << 20)), Just((0, 1 << 18))],
        changes in prop::collection::vec(change(), 0..25),
    ) {
        let (session, stream) = memory;
        let mut pair = Pair::with(session_with(Role::Client, session, stream), session_with(Role::Server, session, stream));
        pair.connect(&links);
        let streams: Vec<StreamId> = (0..count).map(|_| pair.open()).collect();
        let control = pair.open();
        pair.run_for(Duration::from_millis(500));
        let mut asked = 0;
        let mut changes = changes.into_iter();
        let mut next = changes.next();
        let mut at = pair.now;
        for _ in 0..4 {
            let before = read(&mut pair, &streams);
            let end = pair.now + WINDOW;
            while pair.now < end {
                fill(&mut pair, &streams);
                match next.take() {
                    Some((ms, change)) if at + Duration::from_millis(ms) <= pair.now => {
                        at = pair.now;
                        match change {
                            Change::Pause { side, ms } => pair.pause(side, Duration::from_millis(ms)),
                            Change::Rate { path, mbit } => {
                                let path = PathId((path % links.len()) as u32);
                                pair.carriers.get_mut(&path).unwrap().rate = mbit * 1e6 / 8.0;
                            }
                            Change::Ask => {
                                asked += 10;
                                pair.write(Side::Client, control, b"a question", false);
                            }
                        }
                        next = changes.next();
                    }
                    waiting => next = waiting,
                }
                pair.run_for(Duration::from_millis(50));
            }
            let after = read(&mut pair, &streams);
            let moved: Vec<usize> = before.iter().zip(&after).map(|(before, after)| after - before).collect();
            for direction in 0..2 {
                let moved = moved.iter().skip(direction).step_by(2);
                let fair = moved.clone().sum::<usize>() / count;
                let least = moved.min().copied().unwrap_or_default();
                prop_assert!(least > 0 && least >= fair / 4, "direction {direction}: {least} of {fair} bytes, {pair:?}");
            }
        }
        pair.run_for(Duration::from_secs(2));
        prop_assert_eq!(pair.program(Side::Server, control).received.len(), asked);
    }
}
