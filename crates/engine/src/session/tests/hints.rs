//! Hints of programs beyond a class are honored end to end.

use std::time::Duration;

use super::{Pair, Side};
use crate::{Class, Config, Hints, Instant, Redundancy, Role, StreamId};

/// A pair with a client that may send `floor` bytes twice.
fn pair(links: &[(f64, u64)], floor: u64) -> Pair {
    let mut client = Config::new(Role::Client);
    client.redundancy = Redundancy {
        floor,
        refill: 0,
        ..Redundancy::NONE
    };
    let mut pair = Pair::with(client, Config::new(Role::Server));
    pair.connect(links);
    pair.end_slow_start();
    pair
}

/// The client sends a stream of a class with these hints, to the end.
fn upload(pair: &mut Pair, class: Class, hints: Hints, bytes: usize) -> StreamId {
    let id = pair.open_as(class);
    pair.client.set_hints(id, hints).unwrap();
    pair.write(Side::Client, id, &vec![7; bytes], true);
    pair.write(Side::Server, id, b"", true);
    id
}

fn heard(pair: &Pair, id: StreamId) -> usize {
    let program = pair.programs.get(&(Side::Server, id));
    program.map_or(0, |program| program.received.len())
}

#[test]
fn duplicate_sends_every_byte_over_two_paths_within_the_budget() {
    let hints = Hints {
        duplicate: true,
        ..Hints::default()
    };
    for class in [Class::Conversational, Class::Interactive, Class::Background] {
        let mut pair = pair(&[(50.0, 5), (50.0, 8)], 8 << 20);
        upload(&mut pair, class, hints, 1_000_000);
        pair.run_to_end(Duration::from_secs(20));
        let stats = pair.client.stats();
        assert_eq!(stats.duplicates_sent, 1_000_000, "{class:?}");
        let carried = pair.client.path_stats_all(pair.now);
        let carried: Vec<u64> = carried.iter().map(|path| path.data_sent).collect();
        assert_eq!(carried, [1_000_000, 1_000_000], "{class:?}");
    }
    // Of 100 kB seven eighths are reserved for urgent bytes, which may also use the rest.
    let mut pair = pair(&[(50.0, 5), (50.0, 8)], 100_000);
    upload(&mut pair, Class::Background, hints, 1_000_000);
    pair.run_to_end(Duration::from_secs(20));
    let twice = pair.client.stats().duplicates_sent;
    assert!((98_000..=100_000).contains(&twice), "{twice}");
}

#[test]
fn duplicated_data_is_not_delayed_when_one_path_fails() {
    for (duplicate, in_time) in [(true, true), (false, false)] {
        let mut pair = pair(&[(50.0, 5), (50.0, 8)], 1 << 20);
        let hints = Hints {
            duplicate,
            ..Hints::default()
        };
        let id = pair.open_as(Class::Interactive);
        pair.client.set_hints(id, hints).unwrap();
        pair.run_for(Duration::from_millis(100));
        pair.carriers.values_mut().next().unwrap().blackhole = true;
        pair.write(Side::Client, id, &[7; 20_000], false);
        let all = |pair: &Pair| heard(pair, id) == 20_000;
        // 20 kB take 3.2 ms over the other path, and 8 ms to arrive.
        assert_eq!(pair.run_until(all, Duration::from_millis(15)), in_time);
    }
}

#[test]
fn a_stream_of_higher_priority_gets_its_share_of_the_paths() {
    let mut pair = pair(&[(50.0, 5), (20.0, 15)], 0);
    let with = |priority| Hints {
        priority,
        ..Hints::default()
    };
    let low = upload(&mut pair, Class::Background, with(0), 4_000_000);
    let high = upload(&mut pair, Class::Background, with(2), 4_000_000);
    pair.run_for(Duration::from_millis(400));
    let parts = [low, high].map(|id| heard(&pair, id) as f64);
    let ratio = parts[1] / parts[0];
    assert!((3.2..5.0).contains(&ratio), "{parts:?}");
    pair.run_to_end(Duration::from_secs(20));
}

#[test]
fn a_deadline_is_met_beside_bulk_at_the_cost_of_its_bytes() {
    for (deadline, in_time) in [(Some(Duration::from_millis(100)), true), (None, false)] {
        let mut pair = pair(&[(20.0, 5), (10.0, 15)], 0);
        let bulk = upload(&mut pair, Class::Interactive, Hints::default(), 10_000_000);
        pair.run_for(Duration::from_millis(300));
        let hints = Hints {
            deadline,
            ..Hints::default()
        };
        // 200 kB take 53 ms over both paths, and nine times as long with a ninth of them.
        let id = upload(&mut pair, Class::Background, hints, 200_000);
        let all = |pair: &Pair| heard(pair, id) == 200_000;
        assert_eq!(pair.run_until(all, Duration::from_millis(110)), in_time);
        assert!(heard(&pair, bulk) > 0);
    }
}

/// Bulk that a path was handed before a deadline was in danger is ahead of the stream's bytes. With
/// a margin of only twice their time, three of these were late.
#[test]
fn feasible_deadlines_are_met_beside_bulk() {
    let mut late = Vec::new();
    for deadline in [100, 150, 250, 500].map(Duration::from_millis) {
        for bytes in [20_000, 60_000, 120_000, 200_000] {
            let mut pair = pair(&[(8.0, 20), (30.0, 10)], 0);
            upload(&mut pair, Class::Interactive, Hints::default(), 10_000_000);
            pair.run_for(Duration::from_millis(300));
            let hints = Hints {
                deadline: Some(deadline),
                ..Hints::default()
            };
            let id = upload(&mut pair, Class::Background, hints, bytes);
            let all = |pair: &Pair| heard(pair, id) == bytes;
            if !pair.run_until(all, deadline) {
                late.push((deadline, bytes));
            }
        }
    }
    assert!(late.is_empty(), "{late:?}");
}

/// Prints the table of docs/notes/fbdt-parameters.md, "Other constants".
#[test]
fn most_deadlines_are_met_when_bulk_leaves_little_capacity() {
    for (links, least) in [
        ([(20.0, 5), (10.0, 15)], 68),
        ([(50.0, 10), (50.0, 40)], 77),
        ([(8.0, 20), (30.0, 10)], 68),
    ] {
        let (mut in_time, mut beside) = (0, 0);
        for count in [1, 3] {
            for deadline in [60, 100, 150, 250, 500].map(Duration::from_millis) {
                for bytes in [20_000, 60_000, 120_000, 200_000].map(|bytes| bytes / count) {
                    let mut pair = pair(&links, 0);
                    let bulk = upload(&mut pair, Class::Interactive, Hints::default(), 10_000_000);
                    pair.run_for(Duration::from_millis(300));
                    let before = heard(&pair, bulk);
                    let hints = Hints {
                        deadline: Some(deadline),
                        ..Hints::default()
                    };
                    let objects: Vec<StreamId> = (0..count)
                        .map(|_| upload(&mut pair, Class::Background, hints, bytes))
                        .collect();
                    pair.run_for(deadline);
                    let there = |id: &&StreamId| heard(&pair, **id) == bytes;
                    in_time += objects.iter().filter(there).count();
                    beside += heard(&pair, bulk) - before;
                }
            }
        }
        eprintln!("{links:?}: {in_time} of 80 in time, {beside} bytes beside");
        assert!(in_time >= least, "{links:?}: {in_time}");
    }
}

/// Time from the write to the arrival of each message of `bytes` bytes.
fn delays(pair: &mut Pair, id: StreamId, written: &[Instant], bytes: usize) -> Vec<Duration> {
    let arrivals = &pair.program(Side::Server, id).arrivals;
    let arrived = |message: usize| {
        arrivals
            .iter()
            .find(|(_, len)| *len >= (message + 1) * bytes)
    };
    let messages = written.iter().enumerate();
    messages
        .filter_map(|(message, at)| Some(arrived(message)?.0 - *at))
        .collect()
}

/// Prints the cost of deadlines for other streams (docs/notes/fbdt-parameters.md, "Other
/// constants").
#[test]
fn speech_does_not_wait_for_pictures_with_a_deadline() {
    for links in [[(20.0, 5), (10.0, 15)], [(8.0, 20), (30.0, 10)]] {
        for deadline in [150, 500].map(Duration::from_millis) {
            let mut pair = pair(&links, 128 << 10);
            upload(&mut pair, Class::Background, Hints::default(), 30_000_000);
            let speech = pair.open_as(Class::Conversational);
            pair.run_for(Duration::from_millis(300));
            let pictures = pair.open_as(Class::Background);
            let hints = Hints {
                deadline: Some(deadline),
                ..Hints::default()
            };
            pair.client.set_hints(pictures, hints).unwrap();
            let (mut spoken, mut shown) = (Vec::new(), Vec::new());
            for step in 0..150 {
                spoken.push(pair.now);
                pair.write(Side::Client, speech, &[1; 160], false);
                if step % 5 == 0 {
                    shown.push(pair.now);
                    pair.write(Side::Client, pictures, &[1; 20_000], false);
                }
                pair.run_for(Duration::from_millis(20));
            }
            pair.run_for(Duration::from_millis(300));
            let speech = delays(&mut pair, speech, &spoken, 160);
            let pictures = delays(&mut pair, pictures, &shown, 20_000);
            assert_eq!((speech.len(), pictures.len()), (150, 30));
            let most = [&speech, &pictures].map(|delays| *delays.iter().max().unwrap());
            let mean = [&speech, &pictures].map(|delays| {
                delays.iter().sum::<Duration>() / u32::try_from(delays.len()).unwrap()
            });
            let twice = pair.client.stats().duplicates_sent;
            eprintln!(
                "{links:?} {deadline:?}: mean {mean:?}, at most {most:?}, {twice} bytes twice"
            );
            assert!(most[0] < Duration::from_millis(40), "{most:?}");
            assert!(most[1] <= deadline, "{most:?}");
        }
    }
}
