//! The link of each packet, and the packets of a link that dies or returns.

use super::{data, ms, sent, started};
use crate::packet::fixture::{Draft, segment};
use crate::{Config, Edge, Event, LinkId, Mode};

#[test]
fn bare_acknowledgments_take_their_link_while_it_is_open() {
    let mut edge = Edge::new(Config {
        mode: Mode::Lwip,
        steering: "roundrobin".into(),
        acks: Some(LinkId(1)),
        ..Config::default()
    })
    .unwrap();
    let lengths = |edge: &Edge| [0, 1].map(|n| edge.link(LinkId(n)).unwrap().len());
    for number in 0..6 {
        edge.handle_far(Draft::down(2000).ack(500 + number).packet(), ms(1));
    }
    assert_eq!(lengths(&edge), [0, 6]);
    let others = [
        Draft::down(2000).ack(506).payload(&[7; 100]).packet(),
        Draft::down(2100).ack(506).fin().packet(),
        Draft::down(1999).syn().packet(),
        Draft::down(2101).rst().packet(),
    ];
    for packet in others {
        edge.handle_far(packet, ms(2));
    }
    assert_eq!(lengths(&edge), [2, 8], "links take turns");
    edge.link_down(LinkId(1), ms(3));
    let before = lengths(&edge)[0];
    edge.handle_far(Draft::down(2101).ack(507).packet(), ms(4));
    assert_eq!(
        lengths(&edge),
        [before + 1, 0],
        "it is steered, not dropped"
    );
}

#[test]
fn a_dying_link_hands_its_packets_over_including_those_in_flight() {
    let mut edge = started(
        Config {
            steering: "roundrobin".into(),
            ..Config::default()
        },
        1,
    );
    for n in 1..7 {
        edge.handle_far(data(n), ms(50));
    }
    assert!(
        edge.poll_link(LinkId(1), ms(51)).is_some(),
        "one is in flight"
    );
    edge.link_down(LinkId(1), ms(52));
    assert!(matches!(
        edge.poll_event(),
        Some(Event::LinkDown {
            link: LinkId(1),
            moved: 2,
            lost: 0
        })
    ));
    let mut numbers: Vec<u32> = sent(&mut edge, ms(53))
        .iter()
        .map(|packet| segment(packet).sequence)
        .collect();
    numbers.sort();
    assert_eq!(numbers, [2000, 3000, 4000, 5000, 6000, 7000]);
}

#[test]
fn with_all_links_dead_packets_wait_for_the_first_that_comes_up() {
    let mut edge = started(Config::default(), 1);
    edge.handle_far(data(1), ms(50));
    edge.link_down(LinkId(0), ms(51));
    edge.link_down(LinkId(1), ms(51));
    edge.handle_far(data(2), ms(52));
    assert_eq!(edge.counters().dropped, 1);
    edge.link_up(LinkId(0), ms(60));
    let numbers: Vec<u32> = sent(&mut edge, ms(60))
        .iter()
        .map(|packet| segment(packet).sequence)
        .collect();
    assert!(numbers.contains(&2000), "{numbers:?}");
}

#[test]
fn a_returning_last_link_sends_its_lost_packets_again() {
    let mut edge = started(Config::default(), 1);
    edge.link_down(LinkId(0), ms(50));
    edge.handle_far(data(1), ms(51));
    edge.handle_far(data(2), ms(51));
    assert_eq!(sent(&mut edge, ms(51)).len(), 2);
    // This one has not departed yet.
    edge.handle_far(data(3), ms(52));
    edge.link_down(LinkId(1), ms(53));
    edge.link_up(LinkId(1), ms(60));
    let mut numbers: Vec<u32> = sent(&mut edge, ms(60))
        .iter()
        .map(|packet| segment(packet).sequence)
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [2000, 3000, 4000]);
    // The second time, no packets need to be sent again: no link has died.
    edge.link_up(LinkId(0), ms(61));
    assert!(sent(&mut edge, ms(61)).is_empty());
}

#[test]
fn lwa_numbers_queued_packets() {
    let mut edge = started(
        Config {
            mode: Mode::Lwa,
            ..Config::default()
        },
        0,
    );
    edge.handle_far(data(1), ms(50));
    edge.handle_far(data(2), ms(50));
    // A packet that is unreadable beyond its IP header uses the same sequence: the user's end
    // counts by address.
    let mut damaged = data(3);
    *damaged.last_mut().unwrap() ^= 1;
    edge.handle_far(damaged, ms(50));
    let mut sequences: Vec<u32> = sent(&mut edge, ms(51))
        .iter()
        .map(|pdu| {
            crate::lwa::Header::read(crate::lwa::SequenceBits::Eighteen, pdu)
                .unwrap()
                .0
                .sequence
        })
        .collect();
    sequences.sort();
    assert_eq!(sequences, [1, 2, 3], "the SYN had 0");
}
