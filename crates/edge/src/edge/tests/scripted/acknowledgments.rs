//! The user's acknowledgments: boosted, held or passed on.

use super::{KEY, ack, answer, ms, sent, started};
use crate::packet::Segment;
use crate::visible::Boost;
use crate::{Config, Edge};

#[test]
fn a_duplicate_becomes_an_acknowledgment_of_the_missing_packet_only() {
    let mut edge = started(Config::default(), 6);
    let boosted = answer(&mut edge, ack(2000, &[(3000, 4000)]), ms(41)).unwrap();
    assert_eq!(boosted.ack, 3000);
    assert_eq!(
        u32::from(boosted.window) * 128,
        1000 * 128 - 1024,
        "the right edge is kept, rounded down"
    );
    assert_eq!(
        boosted.options.timestamps,
        Some((9, 71)),
        "the timestamp of the acknowledged packet"
    );
    assert!(boosted.options.sack.is_empty());
    let report = edge.flow(&KEY()).unwrap();
    assert_eq!((report.owed, report.deliverable), (1000, true));
    // Further duplicates are held; no more data is promised.
    assert_eq!(answer(&mut edge, ack(2000, &[(3000, 5000)]), ms(42)), None);
    assert_eq!(edge.flow(&KEY()).unwrap().owed, 1000);
    // The missing packet arrives.
    assert_eq!(answer(&mut edge, ack(5000, &[]), ms(43)).unwrap().ack, 5000);
    let counters = edge.counters();
    assert_eq!(
        (counters.boosted, counters.held, counters.repaired),
        (1, 1, 0)
    );
    assert_eq!(edge.flow(&KEY()).unwrap().owed, 0);
}

#[test]
fn with_many_each_duplicate_acknowledges_one_packet_more() {
    let mut config = Config::default();
    config.visible.boost = Boost::Many;
    let mut edge = started(config, 20);
    for n in 1..=5 {
        let end = 3000 + 1000 * n;
        let boosted = answer(&mut edge, ack(2000, &[(3000, end)]), ms(41)).unwrap();
        assert_eq!(boosted.ack, 2000 + 1000 * n);
        let right = boosted.ack + u32::from(boosted.window) * 128;
        let users = 2000 + 1000 * 128;
        assert!(
            right <= users && right > users - 128,
            "the right edge, rounded down"
        );
        let timestamp = Some((9, 70 + n));
        assert_eq!(boosted.options.timestamps, timestamp, "the newest packet's");
        assert!(boosted.options.sack.is_empty());
        let report = edge.flow(&KEY()).unwrap();
        assert_eq!(
            (report.owed, report.deliverable),
            (u64::from(1000 * n), true)
        );
    }
    // 0.2 x 5 is no less than 1.
    assert_eq!(answer(&mut edge, ack(2000, &[(3000, 9000)]), ms(42)), None);
    // A second gap within the owed data: nothing is acknowledged twice, and P counts anew.
    let next = answer(&mut edge, ack(5000, &[(6000, 9000)]), ms(43)).unwrap();
    assert_eq!((next.ack, edge.flow(&KEY()).unwrap().owed), (7000, 2000));
    for expected in [None, None, Some(8000)] {
        let next = answer(&mut edge, ack(5000, &[(6000, 9000)]), ms(44));
        assert_eq!(next.map(|segment| segment.ack), expected);
    }
    assert_eq!(answer(&mut edge, ack(9000, &[]), ms(45)).unwrap().ack, 9000);
    let counters = edge.counters();
    assert_eq!((counters.boosted, counters.repaired), (6, 0));
}

#[test]
fn without_boost_only_the_user_acknowledges() {
    let mut config = Config::default();
    config.visible.boost = Boost::Off;
    let mut edge = started(config, 6);
    for n in 0..12 {
        if let Some(passed) = answer(&mut edge, ack(2000, &[(3000, 4000)]), ms(50 + 20 * n)) {
            assert_eq!(passed.ack, 2000);
        }
    }
    let counters = edge.counters();
    assert!(
        counters.held > 0 && counters.repaired == 2 && counters.boosted == 0,
        "{counters:?}"
    );
}

#[test]
fn the_last_packet_and_a_dropped_one_are_not_boosted() {
    // Only the missing packet is outstanding: it is unknown whether the sender waits for more.
    let mut edge = started(Config::default(), 2);
    if let Some(passed) = answer(&mut edge, ack(2000, &[]), ms(41)) {
        assert_eq!(passed.ack, 2000);
    }
    assert_eq!(
        (edge.counters().boosted, edge.counters().duplicates),
        (0, 1)
    );

    let mut edge = started(
        Config {
            kept_per_flow: 0,
            ..Config::default()
        },
        6,
    );
    assert_eq!(answer(&mut edge, ack(2000, &[]), ms(41)).unwrap().ack, 2000);
    assert_eq!(
        edge.counters().boosted + edge.counters().held + edge.counters().repaired,
        0
    );
    assert!(edge.counters().not_kept > 0);
}

/// Sixty duplicates, 5 ms apart, with SACK blocks; returns what the far end got for each.
fn sixty_duplicates(edge: &mut Edge) -> Vec<Option<Segment>> {
    let duplicate = || ack(2000, &[(2000, 2500), (2500, 3500), (4000, 6000)]);
    (0..60)
        .map(|n| {
            let passed = answer(edge, duplicate(), ms(41 + 5 * n));
            sent(edge, ms(41 + 5 * n));
            passed
        })
        .collect()
}

#[test]
fn duplicates_after_a_boost_are_held_or_below_the_last_acknowledgment() {
    let mut edge = started(Config::default(), 8);
    let answers = sixty_duplicates(&mut edge);
    assert_eq!(answers[0].as_ref().unwrap().ack, 3000);
    let passed: Vec<_> = answers[1..].iter().flatten().collect();
    // The far end believes the data delivered, so only the node can repeat it, and does so as long
    // as the user asks: twice by RT^max, then once with each duplicate that is passed on.
    let counters = edge.counters();
    assert_eq!(counters.boosted, 1);
    assert_eq!(counters.held, 59 - passed.len() as u64);
    assert_eq!(counters.repaired, 2 + passed.len() as u64);
    assert!(!passed.is_empty());
    for segment in passed {
        assert_eq!((segment.ack, segment.window), (2000, 1000), "unchanged");
        assert!(segment.options.sack.is_empty());
    }
    // Once the owed bytes are delivered, the user's acknowledgments are passed on unchanged.
    let next = answer(&mut edge, ack(6000, &[(7000, 8000)]), ms(400)).unwrap();
    assert_eq!(next.ack, 6000);
}

#[test]
fn sack_blocks_are_passed_on_once_the_node_gives_up() {
    let mut config = Config::default();
    config.visible.boost = Boost::Off;
    let mut edge = started(config, 8);
    let answers = sixty_duplicates(&mut edge);
    // Until both repairs are lost as well, none is passed on; from then on, all are.
    let held = answers.iter().take_while(|answer| answer.is_none()).count();
    let passed: Vec<_> = answers[held..].iter().flatten().collect();
    assert_eq!((edge.counters().repaired, held + passed.len()), (2, 60));
    assert_eq!(edge.counters().held, held as u64);
    assert!(passed.len() > 10, "{}", passed.len());
    for segment in passed {
        assert_eq!(
            (segment.ack, segment.options.sack.iter().collect::<Vec<_>>()),
            (2000, vec![(2000, 2500), (2500, 3500), (4000, 6000)])
        );
    }
}
