//! Packet by packet: what links have lost behind the first hole, and what is only late.

use super::faults::owing;
use super::scripted::{KEY, ack, data, drain, ms, sent, started};
use crate::packet::fixture::Draft;
use crate::{Config, LinkId};

/// Links take turns, so that one has the even segments and the other the odd ones.
#[test]
fn what_arrives_over_a_link_tells_what_that_link_has_lost_before_it() {
    let config = Config {
        steering: "roundrobin".into(),
        ..Config::default()
    };
    let mut edge = started(config, 6);
    for n in 6..11 {
        let at = if n < 9 { ms(60) } else { ms(75) };
        edge.handle_far(data(n), at);
        sent(&mut edge, at);
    }
    let first_hole = |packet: &Vec<u8>| *packet == data(1);
    let mut again = |blocks: &[(u32, u32)], at| {
        edge.handle_user(ack(2000, blocks), at);
        drain(&mut edge);
        let mut packets = sent(&mut edge, at);
        packets.retain(|packet| !first_hole(packet));
        packets
    };
    // The seventh has come, and the even ones before it have not.
    assert_eq!(again(&[(7000, 8000)], ms(80)), [data(2), data(4)]);
    // The eleventh, too: nothing goes twice that was sent again after it was.
    assert_eq!(again(&[(11_000, 12_000)], ms(95)), [data(8)]);
    // The other link has brought the eighth, and it has also lost the first hole, which is algorithm 1's. The tenth is younger.
    assert_eq!(again(&[(8000, 9000)], ms(115)), [data(3), data(5)]);
    assert_eq!(edge.counters().repaired_behind, 5);
}

/// Nothing is under way any more that would bring duplicates, and the far end is told of nothing.
#[test]
fn the_next_hole_of_a_lost_window_does_not_wait_for_duplicates() {
    let mut edge = owing();
    let at = edge.poll_timeout().unwrap();
    edge.handle_timeout(at);
    assert_eq!(sent(&mut edge, at), [data(1)]);
    let later = at + ms(100);
    edge.handle_user(ack(3000, &[]), later);
    assert_eq!(edge.flow(&KEY()).unwrap().owed, 0);
    let at = edge.poll_timeout().unwrap();
    assert!(at < later + ms(200), "{:?}", at - later);
    edge.handle_timeout(at);
    assert_eq!(sent(&mut edge, at), [data(2)]);
    // A packet that may still come is waited for.
    let mut edge = owing();
    edge.handle_user(ack(3000, &[]), ms(45));
    let timer = edge.poll_timeout().unwrap();
    assert!(timer > ms(10_000), "{timer:?}");
}

/// Every other packet has come, of more than are remembered: what was told first is not taken for lost when it is forgotten.
#[test]
fn a_user_with_too_many_holes_is_sent_nothing_for_them() {
    let config = Config {
        steering: "roundrobin".into(),
        ..Config::default()
    };
    let mut edge = started(config, 1);
    let wide = |blocks: &[(u32, u32)]| Draft::up(501).ack(2000).window(8000).sack(blocks).packet();
    edge.handle_user(wide(&[]), ms(45));
    let mut now = ms(50);
    for n in 1..400 {
        edge.handle_far(data(n), now);
        sent(&mut edge, now);
        now += ms(1);
    }
    let even = |n: u32| (1000 + 2000 * n, 2000 + 2000 * n);
    for n in 1..190 {
        edge.handle_user(wide(&[even(n)]), now);
        now += ms(10);
    }
    drain(&mut edge);
    let again = sent(&mut edge, now);
    // Even segments have come, by the one link, and the odd ones are the other's.
    assert!(
        again
            .iter()
            .all(|packet| (0..200).all(|n| *packet != data(2 * n)))
    );
}

/// It stands behind what the other link had been given already.
#[test]
fn what_moves_to_another_link_is_not_lost_because_that_brings_something() {
    let config = Config {
        steering: "roundrobin".into(),
        ..Config::default()
    };
    let mut edge = started(config, 1);
    for n in 1..5 {
        edge.handle_far(data(n), ms(50));
    }
    edge.handle_far(data(5), ms(90));
    let links = [LinkId(0), LinkId(1)];
    let with_the_last = links.map(|id| edge.link(id).unwrap().packets().any(|one| one == data(5)));
    let (dead, alive) = match with_the_last {
        [false, true] => (links[0], links[1]),
        _ => (links[1], links[0]),
    };
    let has = |n: &u32| {
        edge.link(alive)
            .unwrap()
            .packets()
            .any(|one| one == data(*n))
    };
    let its_own = (2..5).filter(has).count();
    edge.link_down(dead, ms(91));
    // Its own leave it; what has moved waits.
    for _ in 0..=its_own {
        edge.poll_link(alive, ms(92));
    }
    edge.handle_user(ack(2000, &[(6000, 7000)]), ms(120));
    drain(&mut edge);
    // The first hole is algorithm 1's.
    assert_eq!(edge.counters().repaired_behind, its_own as u64);
    assert!(its_own < 3);
}
