//! Flows begin, make room for others, and are forgotten.

use etherparse::TcpOptionElement as Option_;

use super::{KEY, ack, answer, drain, ms, sent, started};
use crate::flow::{FlowKey, Phase};
use crate::packet::fixture::{Draft, far, user};
use crate::{Config, Edge};

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
