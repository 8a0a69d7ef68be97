//! Bytes that the node has acknowledged to the far end, and still owes to the user.

use std::time::Duration;

use super::{KEY, ack, answer, data, drain, ms, sent, started};
use crate::packet::Segment;
use crate::packet::fixture::{Draft, segment};
use crate::visible::Boost;
use crate::{Config, Edge, Event, Reset};

#[test]
fn owed_bytes_are_sent_again_until_they_arrive() {
    let mut edge = started(Config::default(), 4);
    answer(&mut edge, ack(2000, &[]), ms(41)).unwrap();
    let at = edge.poll_timeout().unwrap();
    edge.handle_timeout(at - Duration::from_nanos(1));
    assert!(sent(&mut edge, at).is_empty());
    edge.handle_timeout(at);
    let again = sent(&mut edge, at);
    assert_eq!(again, [data(1)]);
    let second = edge.poll_timeout().unwrap();
    assert!(second - at > at - ms(41), "backs off");
    edge.handle_timeout(second);
    assert_eq!(sent(&mut edge, second), [data(1)]);
    assert_eq!(edge.counters().repaired_late, 2);
}

/// All packets of the gap are lost, and the user shows one after another.
#[test]
fn every_owed_packet_is_sent_again_until_it_arrives() {
    let mut config = Config::default();
    config.visible.boost = Boost::Many;
    let mut edge = started(config, 20);
    for n in 1..=5 {
        answer(&mut edge, ack(2000, &[(8000, 8000 + 1000 * n)]), ms(41)).unwrap();
    }
    let mut now = ms(41);
    for n in 1..=5 {
        let before = now;
        loop {
            now = edge.poll_timeout().unwrap();
            edge.handle_timeout(now);
            let again = sent(&mut edge, now);
            if !again.is_empty() {
                assert!(again.contains(&data(n)), "packet {n}");
                break;
            }
        }
        assert!(now - before < ms(500), "packet {n}: {:?}", now - before);
        edge.handle_user(ack(2000 + 1000 * n, &[(8000, 13_000)]), now);
        let passed = drain(&mut edge);
        assert!(
            passed.iter().all(|segment| segment.ack == 7000),
            "{passed:?}"
        );
        let owed = u64::from(5000 - 1000 * n);
        assert_eq!(edge.flow(&KEY()).unwrap().owed, owed);
    }
}

#[test]
fn partly_delivered_bytes_stay_owed() {
    let mut edge = started(Config::default(), 4);
    answer(&mut edge, ack(2000, &[]), ms(41)).unwrap();
    // The first half arrived by another route.
    assert_eq!(answer(&mut edge, ack(2500, &[]), ms(42)).unwrap().ack, 3000);
    assert_eq!(edge.flow(&KEY()).unwrap().owed, 500);
    let at = edge.poll_timeout().unwrap();
    assert!(at < ms(1000), "{at:?}");
    edge.handle_timeout(at);
    assert_eq!(sent(&mut edge, at), [data(1)]);
}

#[test]
fn undeliverable_bytes_reset_both_ends() {
    let mut edge = started(Config::default(), 4);
    answer(&mut edge, ack(2000, &[]), ms(41)).unwrap();
    let mut resets = Vec::new();
    let mut now = ms(41);
    while resets.is_empty() && now < ms(100_000) {
        now = edge.poll_timeout().unwrap();
        edge.handle_timeout(now);
        resets = drain(&mut edge);
        let down = sent(&mut edge, now);
        if !resets.is_empty() {
            let down = segment(down.last().unwrap());
            assert!(down.flags.rst);
            assert_eq!(down.sequence, 2000, "the number that the user expects");
        }
    }
    assert!(now >= ms(30_041), "{now:?}");
    assert!(resets[0].flags.rst);
    assert_eq!((resets[0].sequence, resets[0].ack), (501, 3000));
    let event = std::iter::from_fn(|| edge.poll_event()).last();
    assert_eq!(
        event,
        Some(Event::FlowReset {
            flow: KEY(),
            reason: Reset::Undeliverable,
            undelivered: 1000
        })
    );
    assert_eq!(edge.counters().flows, 0);
}

#[test]
fn owed_bytes_keep_their_content() {
    let mut edge = started(Config::default(), 6);
    answer(&mut edge, ack(2000, &[(3000, 4000)]), ms(41)).unwrap();
    let other = |len: usize| {
        Draft::down(2000)
            .ack(501)
            .payload(&vec![0xee; len])
            .packet()
    };
    edge.handle_far(other(1000), ms(42));
    edge.handle_far(other(1500), ms(43));
    sent(&mut edge, ms(44));
    let mut again = Vec::new();
    for _ in 0..20 {
        let Some(at) = edge.poll_timeout() else { break };
        edge.handle_timeout(at);
        again.extend(sent(&mut edge, at));
        if !again.is_empty() {
            break;
        }
    }
    let first = again.first().expect("the gap is repaired");
    let segment = segment(first);
    assert_eq!(first[segment.payload..], [1; 1000], "the promised content");
}

#[test]
fn the_next_node_detects_bytes_owed_by_a_dead_one() {
    let mut edge = Edge::new(Config::default()).unwrap();
    // The far end has an acknowledgment of 3000; the user waits for 2000.
    for n in 0..8 {
        let now = ms(2000 * n);
        edge.handle_far(data(2), now);
        edge.handle_user(ack(2000, &[(3000, 4000)]), now + ms(40));
        sent(&mut edge, now);
    }
    let resets: Vec<Segment> = drain(&mut edge)
        .into_iter()
        .filter(|segment| segment.flags.rst)
        .collect();
    assert_eq!(resets.len(), 1);
    assert_eq!(resets[0].sequence, 501);
    let events: Vec<Event> = std::iter::from_fn(|| edge.poll_event()).collect();
    assert_eq!(
        events,
        [Event::FlowReset {
            flow: KEY(),
            reason: Reset::Orphaned,
            undelivered: 1000
        }]
    );
}
