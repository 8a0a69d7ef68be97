//! Packet by packet: the node sends only packets again that are provably lost, and passes the
//! acknowledgment of a closed gap on in parts.

use etherparse::TcpOptionElement as Option_;

use super::scripted::{KEY, ack, answer, data, drain, ms, sent, started};
use crate::packet::Segment;
use crate::packet::fixture::Draft;
use crate::visible::Boost;
use crate::{Config, Edge};

/// Links take turns. The first segment took 36 ms; the others are at the user or on their way.
fn in_turns(count: u32) -> Edge {
    let mut config = Config {
        steering: "roundrobin".into(),
        ..Config::default()
    };
    config.visible.boost = Boost::Off;
    started(config, count)
}

/// The far end hears nothing, and nothing is sent again, however many duplicates arrive.
#[test]
fn a_late_packet_is_waited_for() {
    let mut edge = in_turns(200);
    for n in 1..100 {
        let packet = ack(2000, &[(3000, 3000 + 1000 * n)]);
        assert_eq!(answer(&mut edge, packet, ms(41)), None);
    }
    assert!(sent(&mut edge, ms(41)).is_empty());
    assert_eq!(
        (edge.counters().held, edge.counters().sent_again()),
        (99, 0)
    );
    // The packet's time is over: half as long again as the first one took.
    let at = edge.poll_timeout().unwrap();
    assert!(at > ms(45) && at < ms(120), "{at:?}");
    edge.handle_timeout(at);
    assert_eq!(sent(&mut edge, at), [data(1)]);
    // Once: until the repair is overdue as well, duplicates stay hidden.
    assert_eq!(
        answer(&mut edge, ack(2000, &[(3000, 103_000)]), at + ms(1)),
        None
    );
    assert!(sent(&mut edge, at + ms(1)).is_empty());
}

/// Segments 1, 3 and 5 took one link, the others the other one.
#[test]
fn a_packet_that_its_link_overtook_is_repaired_at_once() {
    let mut edge = in_turns(3);
    for n in 3..8 {
        edge.handle_far(data(n), ms(20));
        sent(&mut edge, ms(20));
    }
    // The other link has delivered a later packet: no proof.
    assert_eq!(answer(&mut edge, ack(2000, &[(5000, 6000)]), ms(44)), None);
    assert!(!sent(&mut edge, ms(44)).contains(&data(1)));
    // Now its own link has.
    assert_eq!(answer(&mut edge, ack(2000, &[(4000, 6000)]), ms(44)), None);
    let again = sent(&mut edge, ms(44));
    assert!(again.contains(&data(1)), "{}", again.len());
    assert_eq!(edge.counters().repaired, 1);
}

/// Each packet behind the gap opens the user's window further, as receivers with growing buffers
/// do. No acknowledgment is a duplicate (RFC 5681), so a far end without SACK would wait for its
/// timer: NewReno collapsed to 1 Mbit/s.
#[test]
fn growing_windows_do_not_hide_a_loss() {
    let mut edge = in_turns(9);
    for n in 1..8 {
        let draft = Draft::up(501).ack(2000).window(1000 + 6 * n);
        edge.handle_user(draft.option(Option_::Timestamp(9, 70)).packet(), ms(41));
    }
    assert_eq!(
        drain(&mut edge).len(),
        7,
        "the window is the far end's to know"
    );
    assert_eq!(edge.counters().duplicates, 0);
    let at = edge.poll_timeout().unwrap();
    assert!(at < ms(120), "{at:?}");
    edge.handle_timeout(at);
    assert_eq!(sent(&mut edge, at), [data(1)]);
}

/// The far end needs every duplicate for its own recovery.
#[test]
fn a_packet_that_the_far_end_repeats_is_left_to_it() {
    let mut edge = in_turns(9);
    edge.handle_far(data(1), ms(41));
    sent(&mut edge, ms(41));
    for n in 4..9 {
        let blocks = [(3000, 1000 * n)];
        let passed = answer(&mut edge, ack(2000, &blocks), ms(42)).unwrap();
        let blocks_of = |segment: &Segment| segment.options.sack.iter().collect::<Vec<_>>();
        assert_eq!((passed.ack, blocks_of(&passed)), (2000, blocks.to_vec()));
    }
}

/// Sixty segments behind the gap are acknowledged at once.
fn closed(edge: &mut Edge) -> Vec<Segment> {
    edge.handle_user(ack(2000, &[(3000, 62_000)]), ms(41));
    assert!(drain(edge).is_empty());
    edge.handle_user(ack(62_000, &[]), ms(42));
    drain(edge)
}

#[test]
fn a_closed_gap_is_acknowledged_in_parts_that_permit_no_more() {
    let mut edge = in_turns(70);
    let mut parts = closed(&mut edge);
    assert_eq!(parts.len(), 1);
    assert!(parts[0].ack < 62_000, "{}", parts[0].ack);
    // A wider window is no reason to pass all of it on; it goes with the next part.
    let wider = Draft::up(501).ack(62_000).window(1008).packet();
    assert_eq!(answer(&mut edge, wider, ms(42)), None);
    while parts.last().unwrap().ack < 62_000 {
        let at = edge.poll_timeout().unwrap();
        assert!(at <= ms(150), "{at:?}");
        edge.handle_timeout(at);
        parts.extend(drain(&mut edge));
    }
    assert!(parts.is_sorted_by(|one, next| one.ack < next.ack));
    let edge_of = |segment: &Segment| segment.ack + (u32::from(segment.window) << 7);
    let (first, rest) = parts.split_first().unwrap();
    assert!(edge_of(first) <= 62_000 + (1000 << 7) && edge_of(first) > 61_000 + (1000 << 7));
    assert!(
        rest.iter()
            .all(|part| edge_of(part) <= 62_000 + (1008 << 7))
    );
    assert_eq!(edge.flow(&KEY()).unwrap().owed, 0);
}

#[test]
fn other_content_ends_the_parts() {
    let packet = |draft: Draft| draft.ack(62_000).window(1000).packet();
    for (what, packet) in [
        ("data", packet(Draft::up(501).payload(b"x"))),
        ("a FIN", packet(Draft::up(501).fin())),
        ("a new gap", ack(62_000, &[(64_000, 65_000)])),
    ] {
        let mut edge = in_turns(70);
        closed(&mut edge);
        if what == "a new gap" {
            edge.handle_far(data(61), ms(42)); // repeated by the far end
        }
        let passed = answer(&mut edge, packet, ms(43)).unwrap();
        assert_eq!(passed.ack, 62_000, "{what}");
        let timer = edge.poll_timeout();
        if let Some(at) = timer.filter(|at| *at < ms(200)) {
            edge.handle_timeout(at);
            assert!(drain(&mut edge).is_empty(), "{what}");
        }
    }
}

/// The far end would wait for its timer.
#[test]
fn a_forgotten_flow_passes_the_rest_on() {
    let mut edge = in_turns(70);
    closed(&mut edge);
    edge.handle_user(Draft::up(501).ack(62_000).rst().packet(), ms(43));
    assert!(drain(&mut edge).iter().all(|segment| segment.flags.rst));
    let config = Config {
        flows: 1,
        steering: "roundrobin".into(),
        ..Config::default()
    };
    let mut edge = started(config, 70);
    edge.handle_user(ack(62_000, &[]), ms(42));
    assert!(drain(&mut edge).pop().unwrap().ack < 62_000);
    let other = "192.0.2.9:80".parse().unwrap();
    let user = KEY().user;
    edge.handle_far(Draft::between(other, user, 1).syn().packet(), ms(43));
    assert_eq!(drain(&mut edge).pop().unwrap().ack, 62_000);
}
