//! Packet by packet: losses, forgeries and outages, and their effect on owed bytes.

use std::time::Duration;

use etherparse::TcpOptionElement as Option_;

use super::scripted::{KEY, ack, answer, data, drain, ms, sent, started};
use crate::packet::fixture::{Draft, far, segment, user};
use crate::packet::{Parsed, parse};
use crate::{Config, Edge, Event, LinkId, Mode, Reset, lwa};

/// A node that owes a segment at 2000 and is otherwise idle.
pub(super) fn owing() -> Edge {
    let mut edge = started(Config::default(), 6);
    let boosted = answer(&mut edge, ack(2000, &[(3000, 4000)]), ms(41)).unwrap();
    assert_eq!(boosted.ack, 3000);
    edge
}

#[test]
fn a_user_behind_dead_links_is_reset_when_one_comes_back() {
    let mut edge = owing();
    for link in [LinkId(0), LinkId(1)] {
        edge.link_down(link, ms(50));
    }
    let mut now = ms(50);
    while edge.counters().resets == 0 && now < ms(100_000) {
        now = edge.poll_timeout().unwrap();
        edge.handle_timeout(now);
        assert!(sent(&mut edge, now).is_empty());
    }
    assert!(drain(&mut edge).iter().any(|segment| segment.flags.rst));
    edge.link_up(LinkId(1), now + ms(1));
    let packets = sent(&mut edge, now + ms(1));
    let resets = packets.iter().map(|packet| segment(packet));
    let resets: Vec<_> = resets.filter(|segment| segment.flags.rst).collect();
    assert_eq!(resets.len(), 1);
    assert_eq!(resets[0].sequence, 2000, "the number that the user expects");
}

#[test]
fn flows_whose_users_are_gone_are_not_busy() {
    let mut edge = started(Config::default(), 6);
    assert_eq!(edge.counters().busy_flows, 1);
    assert_eq!(edge.busy_flows(ms(900)), 1);
    assert_eq!(edge.busy_flows(ms(2_000)), 0);
    // The sender's retransmissions change nothing, and another flow does not share the links with
    // it.
    edge.handle_far(data(1), ms(3_000));
    assert_eq!(edge.counters().busy_flows, 0);
    sent(&mut edge, ms(3_000));
    // When the user acknowledges again, its flow counts again.
    edge.handle_user(ack(3000, &[]), ms(4_000));
    assert_eq!(edge.counters().busy_flows, 1);
    edge.handle_user(ack(7000, &[]), ms(4_001));
    assert_eq!(edge.counters().busy_flows, 0, "no data is outstanding");
}

#[test]
fn owed_bytes_are_not_forgotten_when_their_flow_is_idle() {
    let config = Config {
        idle: Duration::from_secs(5),
        ..Config::default()
    };
    assert!(config.check().is_err());
    // A flow that is idle for as long nevertheless is reset at both ends.
    let mut edge = owing();
    edge.config.idle = Duration::from_secs(5);
    while edge.counters().flows > 0 {
        let now = edge.poll_timeout().unwrap();
        edge.handle_timeout(now);
    }
    let event = std::iter::from_fn(|| edge.poll_event()).last();
    let expected = Event::FlowReset {
        flow: KEY(),
        reason: Reset::Undeliverable,
        undelivered: 1000,
    };
    assert_eq!(event, Some(expected));
}

/// A flow counts until its owed bytes are delivered; otherwise each silent user would make room for
/// another debt.
#[test]
fn silent_users_never_make_the_node_owe_more_than_four_segments() {
    let mut edge = Edge::new(Config::default()).unwrap();
    let mut now = ms(0);
    let up = |port, number| Draft::between(([10, 0, 0, 2], port).into(), far(), number);
    for port in 1..=12 {
        let down = |number| Draft::between(far(), ([10, 0, 0, 2], port).into(), number).ack(501);
        let syn = up(port, 500)
            .syn()
            .option(Option_::MaximumSegmentSize(1000));
        edge.handle_user(syn.packet(), now);
        edge.handle_far(down(999).syn().packet(), now);
        edge.handle_user(up(port, 501).ack(1000).packet(), now);
        for n in 0..4 {
            edge.handle_far(down(1000 + 1000 * n).payload(&[0; 1000]).packet(), now);
        }
        sent(&mut edge, now);
        for _ in 0..2 {
            edge.handle_user(up(port, 501).ack(2000).packet(), now);
        }
        drain(&mut edge);
        // Earlier users have been silent long enough not to count as busy.
        assert_eq!(edge.counters().busy_flows, usize::from(port.min(5)));
        assert_eq!(edge.counters().owed_flows, usize::from(port.min(4)));
        let owed: u64 = edge.flows().map(|(_, report)| report.owed).sum();
        assert_eq!(owed, 1000 * u64::from(port.min(4)));
        now += ms(2_000);
    }
    // One debt is delivered, which makes room for another.
    edge.handle_user(up(2, 501).ack(5000).packet(), now);
    edge.handle_user(up(9, 501).ack(3000).packet(), now);
    edge.handle_user(up(9, 501).ack(3000).packet(), now);
    assert_eq!(edge.counters().owed_flows, 4);
    assert_eq!(edge.counters().boosted, 5);
}

/// Only the node can send owed bytes, so neither RT^max nor the timer's backoff delays a user that
/// is back.
#[test]
fn a_user_that_asks_again_gets_its_owed_bytes() {
    let mut edge = owing();
    for n in 0..60 {
        answer(&mut edge, ack(2000, &[(3000, 4000)]), ms(42 + n));
    }
    let mut now = ms(102);
    while now < ms(9_000) {
        now = edge.poll_timeout().unwrap();
        edge.handle_timeout(now);
        sent(&mut edge, now);
    }
    let wait = edge.poll_timeout().unwrap() - now;
    assert!(wait > ms(2_000), "{wait:?}");
    let asked = now + wait / 2;
    answer(&mut edge, ack(2000, &[(3000, 4000)]), asked);
    assert_eq!(sent(&mut edge, asked), [data(1)]);
    // Once, until that copy has had its time; the timer restarts.
    answer(&mut edge, ack(2000, &[(3000, 4000)]), asked + ms(1));
    assert!(sent(&mut edge, asked + ms(1)).is_empty());
    let next = edge.poll_timeout().unwrap() - asked;
    assert!(next < ms(200), "{next:?}");
}

#[test]
fn backed_off_timers_restart_when_a_link_returns() {
    let mut edge = owing();
    for link in [LinkId(0), LinkId(1)] {
        edge.link_down(link, ms(50));
    }
    let mut now = ms(50);
    while now < ms(9_000) {
        now = edge.poll_timeout().unwrap();
        edge.handle_timeout(now);
    }
    edge.link_up(LinkId(1), now);
    assert!(sent(&mut edge, now).contains(&data(1)));
    // If that copy is lost as well, the next one follows within seconds.
    let next = edge.poll_timeout().unwrap();
    assert!(next < now + ms(200), "{:?}", next - now);
    edge.handle_timeout(next);
    assert_eq!(sent(&mut edge, next), [data(1)]);
}

#[test]
fn owed_bytes_survive_acknowledgments_of_unsent_data() {
    let mut edge = owing();
    let before = edge.poll_timeout();
    for n in 0..50 {
        edge.handle_user(ack(20_000 + n, &[]), ms(42));
    }
    drain(&mut edge);
    let report = edge.flow(&KEY()).unwrap();
    assert_eq!((report.owed, report.deliverable), (1000, true));
    assert_eq!(
        edge.poll_timeout(),
        before,
        "nor do they put off its repair"
    );
    let at = before.unwrap();
    edge.handle_timeout(at);
    assert_eq!(sent(&mut edge, at), [data(1)]);
}

/// The number is correct, before or after the far end's own; all other fields are wrong.
#[test]
fn a_forged_answer_to_a_syn_creates_no_owed_bytes() {
    for is_first in [true, false] {
        let mut edge = Edge::new(Config::default()).unwrap();
        let scale = || Option_::WindowScale(7);
        edge.handle_user(Draft::up(500).syn().option(scale()).packet(), ms(0));
        let forged = Draft::down(1 << 29).syn().ack(501).packet();
        let answer_of = Draft::down(999).syn().ack(501).option(scale()).packet();
        let both = match is_first {
            true => [forged, answer_of],
            false => [answer_of, forged],
        };
        for packet in both {
            edge.handle_far(packet, ms(1));
        }
        edge.handle_user(Draft::up(501).ack(1000).window(1000).packet(), ms(3));
        for n in 0..2 {
            edge.handle_far(data(n), ms(4));
        }
        sent(&mut edge, ms(5));
        edge.handle_user(ack(2000, &[]), ms(40));
        drain(&mut edge);
        // There is no data behind the missing packet: if its acknowledgment were passed on, the far
        // end would believe that all has arrived.
        let passed = answer(&mut edge, ack(2000, &[]), ms(41));
        assert!(passed.is_none_or(|passed| passed.ack == 2000));
        let report = edge.flow(&KEY()).unwrap();
        assert_eq!((report.owed, report.outstanding), (0, 1000), "{is_first}");
    }
}

/// Data in a SYN begins one number after it; a copy that ignored this would have a wrong end.
#[test]
fn data_in_a_syn_is_not_copied() {
    let mut edge = Edge::new(Config::default()).unwrap();
    edge.handle_user(Draft::up(500).syn().packet(), ms(0));
    edge.handle_far(Draft::down(999).syn().ack(501).packet(), ms(1));
    edge.handle_user(Draft::up(501).ack(1000).packet(), ms(2));
    for (draft, keeps) in [
        (Draft::down(1000).syn().ack(501), false),
        (Draft::down(1200).ack(501), true),
    ] {
        edge.handle_far(draft.payload(&[7; 140]).packet(), ms(3));
        sent(&mut edge, ms(3));
        assert_eq!(edge.flow(&KEY()).unwrap().kept > 0, keeps);
    }
}

/// An off-path attacker knows neither end's numbers.
#[test]
fn owed_bytes_survive_acknowledgments_outside_the_users_window() {
    let mut edge = owing();
    for sequence in [501 + (1 << 30), 501_u32.wrapping_sub(1 << 24), 90_000_000] {
        let forged = Draft::up(sequence).ack(5000).window(1000).payload(b"x");
        edge.handle_user(forged.packet(), ms(42));
    }
    drain(&mut edge);
    assert_eq!(edge.flow(&KEY()).unwrap().owed, 1000);
    // The user's own number is still known: its reset takes effect, one with another number does
    // not.
    edge.handle_user(Draft::up(501 + (1 << 30)).rst().packet(), ms(43));
    assert!(edge.flow(&KEY()).is_some());
    edge.handle_user(Draft::up(501).rst().packet(), ms(43));
    assert!(edge.flow(&KEY()).is_none());
}

/// A timestamp that the user has not seen would enter the node's copies, and the user would discard
/// all data behind them.
#[test]
fn timestamps_and_options_outside_the_windows_are_ignored() {
    let config = Config {
        verify_checksums: false,
        ..Config::default()
    };
    let mut edge = started(config, 6);
    let time = || Option_::Timestamp(9, 1 << 30);
    let beyond = Draft::up(501 + (1 << 30)).ack(2000).window(1000);
    let old = Draft::up(501).ack(1500).window(1000);
    for forged in [beyond.option(time()), old.option(time())] {
        edge.handle_user(forged.packet(), ms(41));
    }
    // Multipath TCP (kind 30) is left alone, but not because of packets outside the flow.
    let multipath = |draft: Draft| {
        let mut packet = draft.option(time()).packet();
        let at = segment(&packet).options.timestamps_at.unwrap();
        packet[at] = 30;
        packet
    };
    edge.handle_user(multipath(Draft::up(501 + (1 << 30)).ack(2000)), ms(41));
    edge.handle_far(multipath(Draft::down(1 << 30).ack(501)), ms(41));
    edge.handle_far(multipath(Draft::down(900).ack(501)), ms(41));
    while edge.poll_far().is_some() {}
    sent(&mut edge, ms(41));
    let boosted = answer(&mut edge, ack(2000, &[(3000, 4000)]), ms(42)).unwrap();
    assert_eq!(boosted.ack, 3000);
    let at = edge.poll_timeout().unwrap();
    edge.handle_timeout(at);
    assert_eq!(sent(&mut edge, at), [data(1)], "with its own timestamp");
}

#[test]
fn orphaned_flows_are_detected_in_every_mode() {
    for (name, mode) in Mode::NAMES {
        let config = Config {
            mode,
            ..Config::default()
        };
        let mut edge = Edge::new(config).unwrap();
        // An earlier node acknowledged 2000 to 3000 and died: the far end never sends that range
        // again.
        for second in 0..12 {
            let now = ms(1000 * second);
            edge.handle_user(ack(2000, &[(3000, 4000)]), now);
            edge.handle_far(data(2), now);
            edge.handle_user(ack(2000, &[(3000, 4000)]), now + ms(1));
            sent(&mut edge, now);
        }
        assert_eq!(edge.counters().resets, 1, "{name}");
        let event = std::iter::from_fn(|| edge.poll_event()).last();
        assert!(
            matches!(
                event,
                Some(Event::FlowReset {
                    reason: Reset::Orphaned,
                    ..
                })
            ),
            "{name}: {event:?}"
        );
    }
}

/// More than fits into a queue and into the urgent queue.
#[test]
fn unacknowledged_packets_of_a_dead_link_are_sent_again() {
    let mut edge = started(Config::default(), 1);
    edge.link_down(LinkId(0), ms(50));
    let mut given = Vec::new();
    for n in 1..111 {
        edge.handle_far(data(n), ms(51));
        given.extend(
            edge.poll_link(LinkId(1), ms(51))
                .map(|packet| packet.to_vec()),
        );
    }
    assert_eq!(given.len(), 110);
    edge.link_up(LinkId(0), ms(60));
    edge.link_down(LinkId(1), ms(61));
    // Packets acknowledged meanwhile are not sent again.
    let first = edge.poll_link(LinkId(0), ms(62)).unwrap();
    assert_eq!(first[..], given[0][..]);
    edge.handle_user(ack(102_000, &[]), ms(63));
    let again = sent(&mut edge, ms(64));
    assert_eq!(again[again.len() - 10..], given[100..]);
    assert!(again.len() < 60, "{}", again.len());
    assert!(sent(&mut edge, ms(64)).is_empty());
}

#[test]
fn an_outage_is_not_a_trip_time() {
    for (name, mode) in Mode::NAMES {
        let config = Config {
            mode,
            ..Config::default()
        };
        // One link dies, and its queue moves to the other.
        let mut edge = started(config.clone(), 1);
        for n in 1..5 {
            edge.handle_far(data(n), ms(50));
        }
        edge.link_down(LinkId(0), ms(51));
        edge.link_down(LinkId(1), ms(51));
        edge.link_up(LinkId(1), ms(9_000));
        sent(&mut edge, ms(9_001));
        edge.handle_user(ack(3000, &[]), ms(9_020));
        edge.handle_user(ack(6000, &[]), ms(9_021));
        // The only sample is the earlier one.
        for link in [LinkId(0), LinkId(1)] {
            let trip = edge.link(link).and_then(|link| link.trip());
            assert!(trip.is_none_or(|trip| trip < ms(100)), "{name}: {trip:?}");
        }
    }
}

#[test]
fn users_without_numbers_get_plain_packets() {
    let config = Config {
        mode: Mode::Lwa,
        ..Config::default()
    };
    let mut edge = Edge::new(config).unwrap();
    let mut to = |user: u32, now| {
        let address = std::net::Ipv4Addr::from(0x0a00_0000 + user);
        let packet = Draft::between(far(), (address, 80).into(), 1)
            .syn()
            .packet();
        edge.handle_far(packet.clone(), now);
        let mut given = sent(&mut edge, now);
        let given = given.pop().unwrap();
        let is_numbered = lwa::is_numbered(&given);
        assert_eq!(is_numbered, given != packet);
        assert_eq!(is_numbered, !matches!(parse(&given, true), Parsed::Tcp(_)));
        is_numbered
    };
    assert!((0..4096).all(|user| to(user, ms(u64::from(user)))));
    assert!((4096..4300).all(|user| !to(user, ms(5_000))));
    assert!(to(0, ms(50_000)));
    // Only a user that has been idle for a minute makes room.
    assert!((5_000..9_000).all(|user| to(user, ms(65_000))));
    assert!(to(0, ms(65_001)));
    let _ = user();
}
