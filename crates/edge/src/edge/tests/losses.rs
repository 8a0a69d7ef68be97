//! Packet by packet: losses behind the first gap, and packets that are only late.

use super::faults::owing;
use super::scripted::{KEY, ack, data, drain, ms, sent, started};
use crate::packet::fixture::Draft;
use crate::{Config, LinkId};

/// Links take turns: one carries the even segments, the other the odd ones.
#[test]
fn a_delivered_packet_reveals_earlier_losses_of_its_link() {
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
    let first_gap = |packet: &Vec<u8>| *packet == data(1);
    let mut again = |blocks: &[(u32, u32)], at| {
        edge.handle_user(ack(2000, blocks), at);
        drain(&mut edge);
        let mut packets = sent(&mut edge, at);
        packets.retain(|packet| !first_gap(packet));
        packets
    };
    // The seventh has arrived, and the even ones before it have not.
    assert_eq!(again(&[(7000, 8000)], ms(80)), [data(2), data(4)]);
    // So has the eleventh. A segment that was sent again after it is not repeated.
    assert_eq!(again(&[(11_000, 12_000)], ms(95)), [data(8)]);
    // The other link has delivered the eighth. It has also lost the first gap, which is left to
    // algorithm 1. The tenth is younger.
    assert_eq!(again(&[(8000, 9000)], ms(115)), [data(3), data(5)]);
    assert_eq!(edge.counters().repaired_behind, 5);
}

/// No packets in flight can bring duplicates, and the far end receives no report.
#[test]
fn a_lost_windows_next_gap_does_not_wait_for_duplicates() {
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
    // A packet that may still arrive is waited for.
    let mut edge = owing();
    edge.handle_user(ack(3000, &[]), ms(45));
    // It left at 4 ms, and the first one took 36 ms from there: 40 ms and four times the deviation,
    // a quarter of that, of which the sample at 45 ms leaves most.
    let timer = edge.poll_timeout().unwrap();
    assert!(timer > ms(60) && timer < ms(85), "{timer:?}");
    edge.handle_timeout(timer - ms(1));
    assert!(sent(&mut edge, timer - ms(1)).is_empty());
    edge.handle_timeout(timer);
    assert_eq!(sent(&mut edge, timer), [data(2)]);
}

/// Every other packet has arrived, beyond the number of ranges tracked: a range that is forgotten
/// is not considered lost.
#[test]
fn too_many_gaps_are_not_repaired() {
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
    // The even segments have arrived over one link; the odd ones are the other's.
    assert!(
        again
            .iter()
            .all(|packet| (0..200).all(|n| *packet != data(2 * n)))
    );
}

/// It waits behind the packets that the other link already had.
#[test]
fn moved_packets_do_not_count_as_lost() {
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
    // The link's own packets depart; moved ones wait.
    for _ in 0..=its_own {
        edge.poll_link(alive, ms(92));
    }
    edge.handle_user(ack(2000, &[(6000, 7000)]), ms(120));
    drain(&mut edge);
    // The first gap is left to algorithm 1.
    assert_eq!(edge.counters().repaired_behind, its_own as u64);
    assert!(its_own < 3);
}
