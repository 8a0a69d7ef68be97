//! Packet by packet: handling of acknowledgments, and of packets that cannot be parsed.

use std::time::Duration;

use etherparse::TcpOptionElement as Option_;

use crate::flow::{FlowKey, Phase};
use crate::packet::Segment;
use crate::packet::fixture::{Draft, far, segment, user};
use crate::{Config, Edge, Event, Instant, LinkId, Mode, Reset, Sack};

pub(super) const KEY: fn() -> FlowKey = || FlowKey {
    far: far(),
    user: user(),
};

pub(super) fn ms(n: u64) -> Instant {
    Duration::from_millis(n)
}

/// Exchanges SYNs, and sends `count` segments of 1000 bytes from 1000 on; the user acknowledges the
/// first.
pub(super) fn started(config: Config, count: u32) -> Edge {
    let mut edge = Edge::new(config).unwrap();
    let syn = Draft::up(500)
        .syn()
        .option(Option_::WindowScale(7))
        .option(Option_::MaximumSegmentSize(1000));
    edge.handle_user(
        syn.option(Option_::SelectiveAcknowledgementPermitted)
            .packet(),
        ms(0),
    );
    let syn = Draft::down(999)
        .syn()
        .ack(501)
        .option(Option_::WindowScale(7));
    edge.handle_far(
        syn.option(Option_::SelectiveAcknowledgementPermitted)
            .packet(),
        ms(1),
    );
    edge.handle_user(Draft::up(501).ack(1000).window(1000).packet(), ms(2));
    for n in 0..count {
        edge.handle_far(data(n), ms(3));
    }
    sent(&mut edge, ms(4));
    edge.handle_user(ack(2000, &[]), ms(40));
    drain(&mut edge);
    edge
}

pub(super) fn data(n: u32) -> Vec<u8> {
    data_at(n, 70 + n)
}

/// The same with another timestamp.
fn data_at(n: u32, timestamp: u32) -> Vec<u8> {
    let draft = Draft::down(1000 + 1000 * n)
        .ack(501)
        .option(Option_::Timestamp(timestamp, 1));
    draft.payload(&[n as u8; 1000]).packet()
}

pub(super) fn ack(number: u32, blocks: &[(u32, u32)]) -> Vec<u8> {
    Draft::up(501)
        .ack(number)
        .window(1000)
        .option(Option_::Timestamp(9, 70))
        .sack(blocks)
        .packet()
}

/// The packets given to the links.
pub(super) fn sent(edge: &mut Edge, now: Instant) -> Vec<Vec<u8>> {
    let links = [LinkId(0), LinkId(1)];
    let mut packets = Vec::new();
    for link in links {
        while let Some(packet) = edge.poll_link(link, now) {
            packets.push(packet.to_vec());
        }
    }
    packets
}

pub(super) fn drain(edge: &mut Edge) -> Vec<Segment> {
    std::iter::from_fn(|| edge.poll_far())
        .map(|packet| segment(&packet))
        .collect()
}

/// The acknowledgment passed to the far end, if any.
pub(super) fn answer(edge: &mut Edge, packet: Vec<u8>, now: Instant) -> Option<Segment> {
    edge.handle_user(packet, now);
    let mut packets = drain(edge);
    assert!(packets.len() <= 1);
    packets.pop()
}

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

/// A user that has seen a later timestamp discards older ones (PAWS): a retransmission with its own
/// timestamp would cost all packets in flight.
#[test]
fn retransmissions_get_no_later_timestamp_than_needed() {
    let mut edge = started(Config::default(), 4);
    answer(&mut edge, ack(2000, &[]), ms(41)).unwrap();
    edge.handle_far(data_at(1, 500), ms(42));
    assert_eq!(sent(&mut edge, ms(42)), [data(1)]);
    // A packet that had no room gets the timestamp of the one after it, in the packet and in its
    // copy.
    edge.handle_far(data_at(6, 76), ms(42));
    edge.handle_far(data_at(5, 505), ms(42));
    assert_eq!(sent(&mut edge, ms(42)), [data_at(6, 76), data_at(5, 76)]);
    edge.handle_far(data_at(5, 506), ms(42));
    assert_eq!(sent(&mut edge, ms(42)), [data_at(5, 76)]);
    // New data keeps its timestamp.
    edge.handle_far(data_at(7, 510), ms(42));
    assert_eq!(sent(&mut edge, ms(42)), [data_at(7, 510)]);
    // The user has seen a later one, possibly from a packet without a copy.
    let seen = |echo| {
        let draft = Draft::up(501).ack(2000).window(1000);
        draft.option(Option_::Timestamp(9, echo)).packet()
    };
    edge.handle_user(seen(400), ms(43));
    edge.handle_user(seen(300), ms(43));
    edge.handle_far(data_at(1, 520), ms(44));
    assert_eq!(sent(&mut edge, ms(44)), [data_at(1, 400)]);
    let at = edge.poll_timeout().unwrap();
    edge.handle_timeout(at);
    assert_eq!(sent(&mut edge, at), [data_at(1, 400)]);
}

/// A retransmission is echoed to the far end with its own timestamp, whatever the user saw.
/// Otherwise the far end would consider it unnecessary, and take the time since the first attempt
/// for a round trip.
#[test]
fn the_far_end_gets_its_own_timestamp_back() {
    let echo = |edge: &mut Edge, number, echo, at| {
        let draft = Draft::up(501).ack(number).window(1000);
        let packet = draft.option(Option_::Timestamp(9, echo)).packet();
        answer(edge, packet, at).unwrap().options.timestamps
    };
    let mut edge = started(Config::default(), 4);
    edge.handle_far(data_at(1, 500), ms(41));
    assert_eq!(sent(&mut edge, ms(41)), [data(1)]);
    // In the node's acknowledgment of it and in the user's; later ones with the same echo agree.
    assert_eq!(echo(&mut edge, 2000, 70, ms(42)), Some((9, 500)));
    assert_eq!(echo(&mut edge, 3000, 71, ms(43)), Some((9, 500)));
    assert_eq!(echo(&mut edge, 4000, 71, ms(44)), Some((9, 500)));
    // A packet sent once, even if the node sent it with a later timestamp, is echoed with the far
    // end's.
    assert_eq!(echo(&mut edge, 5000, 73, ms(45)), Some((9, 73)));
    edge.handle_far(data_at(4, 74), ms(46));
    edge.handle_far(data_at(5, 75), ms(46));
    sent(&mut edge, ms(46));
    assert_eq!(echo(&mut edge, 5000, 90, ms(47)), Some((9, 74)), "boosted");
    let at = edge.poll_timeout().unwrap();
    edge.handle_timeout(at);
    assert_eq!(sent(&mut edge, at), [data_at(4, 90)]);
    assert_eq!(echo(&mut edge, 6000, 90, at), Some((9, 74)));
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
fn without_boost_only_the_user_acknowledges() {
    let mut config = Config::default();
    config.visible.boost = false;
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

/// Sixty duplicates, 5 ms apart, with SACK blocks; returns those passed on to the far end.
fn sixty_duplicates(edge: &mut Edge) -> Vec<Segment> {
    let duplicate = || ack(2000, &[(2000, 2500), (2500, 3500), (4000, 6000)]);
    (0..60)
        .filter_map(|n| answer(edge, duplicate(), ms(41 + 5 * n)))
        .collect()
}

#[test]
fn duplicates_after_a_boost_are_below_the_last_acknowledgment() {
    let mut edge = started(Config::default(), 8);
    let passed = sixty_duplicates(&mut edge);
    assert_eq!(passed[0].ack, 3000);
    assert!(passed.len() > 10, "not all are held");
    for segment in &passed[1..] {
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
    config.visible.boost = false;
    let mut edge = started(config, 8);
    let passed = sixty_duplicates(&mut edge);
    assert!(
        passed[..2]
            .iter()
            .all(|segment| segment.options.sack.is_empty()),
        "two repairs"
    );
    let last = passed.last().unwrap();
    assert_eq!(
        (last.ack, last.options.sack.iter().collect::<Vec<_>>()),
        (2000, vec![(2000, 2500), (2500, 3500), (4000, 6000)])
    );
}

#[test]
fn sack_is_removed_from_syns_only_if_configured() {
    for (sack, mode, offered) in [
        (Sack::Strip, Mode::LwipVisible, false),
        (Sack::Rewrite, Mode::LwipVisible, true),
        (Sack::Strip, Mode::Lwip, true),
    ] {
        let mut edge = Edge::new(Config {
            sack,
            mode,
            mss: Some(1200),
            ..Config::default()
        })
        .unwrap();
        let syn = Draft::up(500)
            .syn()
            .option(Option_::SelectiveAcknowledgementPermitted);
        let syn = answer(
            &mut edge,
            syn.option(Option_::MaximumSegmentSize(1460)).packet(),
            ms(0),
        )
        .unwrap();
        assert_eq!(syn.options.sack_permitted.is_some(), offered);
        assert_eq!(syn.options.mss.unwrap().0, 1200);
    }
}

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

#[test]
fn flows_beyond_the_bound_evict_the_idlest_without_owed_bytes() {
    let mut edge = started(
        Config {
            flows: 3,
            ..Config::default()
        },
        6,
    );
    answer(&mut edge, ack(2000, &[]), ms(41)).unwrap();
    for port in 1..100 {
        let from = std::net::SocketAddr::new(far().ip(), port);
        edge.handle_far(Draft::between(from, user(), 1).syn().packet(), ms(50));
        sent(&mut edge, ms(50));
    }
    assert_eq!((edge.counters().flows, edge.counters().forgotten), (3, 97));
    assert_eq!(edge.flow(&KEY()).unwrap().owed, 1000);
    let mut now = ms(50);
    while edge.counters().flows > 1 {
        now = edge.poll_timeout().unwrap();
        edge.handle_timeout(now);
    }
    assert!(
        now <= ms(30_050),
        "half-open flows are forgotten after 30 s"
    );
}

#[test]
fn copies_of_abandoned_flows_make_room_except_for_owed_bytes() {
    for owed in [false, true] {
        let config = Config {
            kept: 7_000,
            kept_per_flow: 7_000,
            ..Config::default()
        };
        // Room for five copies of 1000 bytes and their headers.
        let mut edge = started(config, 6);
        if owed {
            answer(&mut edge, ack(2000, &[]), ms(41)).unwrap();
            assert_eq!(edge.flow(&KEY()).unwrap().owed, 1000);
        }
        let kept = edge.flow(&KEY()).unwrap().kept;
        assert!(kept > 5_000, "{kept}");
        let from = std::net::SocketAddr::new(far().ip(), 7);
        let other = |edge: &mut Edge, number: u32, now| {
            let packet = Draft::between(from, user(), number)
                .ack(1)
                .payload(&[7; 1000]);
            edge.handle_far(packet.packet(), now);
            sent(edge, now);
            let key = FlowKey {
                far: from,
                user: user(),
            };
            edge.flow(&key).map_or(0, |flow| flow.kept)
        };
        let greeting = Draft::between(from, user(), 4_999).syn().ack(1).packet();
        edge.handle_far(greeting, ms(4_000));
        edge.handle_user(
            Draft::between(user(), from, 1).ack(5_000).packet(),
            ms(4_001),
        );
        // The other flow's copies find room once the first flow has been idle for some time.
        let first = other(&mut edge, 5_000, ms(5_000));
        let late = other(&mut edge, 6_000, ms(25_000));
        assert!(first <= 1_260 && late >= first, "{first} {late}");
        let left = edge.flow(&KEY()).map_or(0, |flow| flow.kept);
        assert_eq!(left == 0, !owed, "{left} bytes of the first are left");
        assert_eq!(late > first, !owed, "{first}, then {late}");
    }
}

#[test]
fn only_the_mss_of_a_multipath_tcp_syn_is_lowered() {
    let syn = |mss| {
        // MP_CAPABLE (kind 30) in place of the timestamps.
        let draft = Draft::up(500)
            .syn()
            .option(Option_::MaximumSegmentSize(mss))
            .option(Option_::SelectiveAcknowledgementPermitted)
            .option(Option_::Timestamp(0x0101_0101, 0));
        let mut packet = draft.packet();
        let right = segment(&packet);
        packet[right.options.timestamps_at.unwrap()] = 30;
        (packet, right.header + 16)
    };
    let mut edge = Edge::new(Config {
        sack: Sack::Strip,
        mss: Some(500),
        verify_checksums: false,
        ..Config::default()
    })
    .unwrap();
    edge.handle_user(syn(1460).0, ms(0));
    let passed = edge.poll_far().unwrap();
    // The draft's checksum does not cover the replaced kind; only the MSS edit changes it.
    let (expected, checksum) = syn(500);
    let without = |packet: &[u8]| [&packet[..checksum], &packet[checksum + 2..]].concat();
    assert_eq!(without(&passed), without(&expected));
    assert_eq!(
        passed[checksum..checksum + 2],
        expected[checksum..checksum + 2]
    );
}

#[test]
fn sealed_flows_pass_unchanged() {
    let mut edge = Edge::new(Config {
        sack: Sack::Strip,
        mss: Some(500),
        ..Config::default()
    })
    .unwrap();
    let syn = Draft::up(500)
        .syn()
        .option(Option_::MaximumSegmentSize(1460))
        .packet();
    // A SYN with the option of Multipath TCP in place of the MSS.
    let mut sealed = syn.clone();
    let at = segment(&syn).header + 20;
    sealed[at] = 30;
    let parsed = crate::packet::parse(&sealed, false);
    let crate::packet::Parsed::Tcp(parsed) = parsed else {
        panic!()
    };
    assert!(parsed.options.sealed);
    let mut edge_without = Edge::new(Config {
        verify_checksums: false,
        ..Config::default()
    })
    .unwrap();
    edge_without.handle_user(sealed.clone(), ms(0));
    assert_eq!(edge_without.poll_far(), Some(sealed.clone()));
    edge_without.handle_user(Draft::up(501).ack(7).packet(), ms(1));
    assert_eq!(
        edge_without.poll_far(),
        Some(Draft::up(501).ack(7).packet())
    );
    // A packet with a wrong checksum changes nothing, and is passed on.
    edge.handle_user(sealed.clone(), ms(0));
    assert_eq!(edge.poll_far(), Some(sealed));
    assert_eq!((edge.counters().malformed, edge.counters().flows), (1, 0));
    edge.handle_far(vec![0x45, 0, 0], ms(1));
    assert_eq!(
        (edge.counters().malformed, sent(&mut edge, ms(1)).len()),
        (2, 0)
    );
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

#[test]
fn a_new_connection_between_the_same_ends_is_a_new_flow() {
    let mut edge = started(Config::default(), 3);
    let scaled = |draft: Draft| draft.option(Option_::WindowScale(7)).packet();
    edge.handle_user(scaled(Draft::up(900_000).syn()), ms(60));
    edge.handle_far(scaled(Draft::down(7_000_000).syn().ack(900_001)), ms(61));
    let up = Draft::up(900_001).ack(7_000_001).window(1000);
    edge.handle_user(up.packet(), ms(62));
    let flow = edge.flow(&KEY()).unwrap();
    assert_eq!(
        (flow.phase, flow.outstanding, flow.owed),
        (Phase::Open, 0, 0)
    );
    edge.handle_far(
        Draft::down(7_000_001)
            .ack(900_001)
            .payload(&[1; 100])
            .packet(),
        ms(63),
    );
    assert_eq!(edge.flow(&KEY()).unwrap().outstanding, 100);
}

#[test]
fn a_syn_without_the_peers_agreement_changes_nothing() {
    for from_far in [false, true] {
        let mut edge = started(Config::default(), 6);
        let before = edge.flow(&KEY()).unwrap();
        match from_far {
            true => edge.handle_far(Draft::down(5).syn().packet(), ms(40)),
            false => edge.handle_user(Draft::up(900_000).syn().packet(), ms(40)),
        }
        drain(&mut edge);
        let after = edge.flow(&KEY()).unwrap();
        assert_eq!(
            (after.phase, after.outstanding),
            (before.phase, before.outstanding)
        );
        let boosted = answer(&mut edge, ack(2000, &[(3000, 4000)]), ms(41)).unwrap();
        assert_eq!(boosted.ack, 3000, "the boost is unchanged");
        // A reset out of place has no effect either while bytes are owed.
        edge.handle_far(Draft::down(4500).rst().packet(), ms(42));
        assert_eq!(edge.flow(&KEY()).unwrap().owed, 1000);
        edge.handle_far(Draft::down(2000).rst().packet(), ms(43));
        assert!(edge.flow(&KEY()).is_none());
    }
}

#[test]
fn ipv6_segments_shrink_by_the_longer_header() {
    let (far, user) = (
        "[fd00::1]:80".parse().unwrap(),
        "[fd00::2]:4000".parse().unwrap(),
    );
    let mut edge = Edge::new(Config {
        mss: Some(1360),
        ..Config::default()
    })
    .unwrap();
    let syn = Draft::between(user, far, 1).syn();
    let syn = answer(
        &mut edge,
        syn.option(Option_::MaximumSegmentSize(1440)).packet(),
        ms(0),
    );
    assert_eq!(syn.unwrap().options.mss.unwrap().0, 1340);
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
    let first = again.first().expect("the hole is repaired");
    let segment = segment(first);
    assert_eq!(first[segment.payload..], [1; 1000], "the promised content");
}
