//! Acknowledgments that the far end receives only once: the repeats that users send for duplicate
//! packets.

use super::scripted::{ack, answer, data, ms, sent, started};
use crate::packet::fixture::Draft;
use crate::{Config, Edge, LinkId, Mode};

/// A node that has sent the second of three segments again; at the returned millisecond, its user
/// has acknowledged all of them.
fn all_arrived(mode: Mode) -> (Edge, u64) {
    let config = Config {
        mode,
        ..Config::default()
    };
    let mut edge = started(config, 3);
    answer(&mut edge, ack(2000, &[(3000, 4000)]), ms(41));
    if mode == Mode::LwipVisible {
        let at = edge.poll_timeout().unwrap();
        edge.handle_timeout(at);
        assert_eq!(sent(&mut edge, at).len(), 1);
        assert_eq!(edge.counters().repaired_late, 1);
    }
    let now = 130;
    assert!(answer(&mut edge, again(), ms(now)).is_some());
    (edge, now)
}

fn again() -> Vec<u8> {
    ack(4000, &[])
}

/// How many of `count` acknowledgments, one each millisecond, are passed on.
fn passed(edge: &mut Edge, packet: &[u8], from: u64, count: u64) -> usize {
    let times = (from..from + count).map(ms);
    times
        .filter_map(|now| answer(edge, packet.to_vec(), now))
        .count()
}

#[test]
fn recent_repeats_are_not_passed_on() {
    let (mut edge, now) = all_arrived(Mode::LwipVisible);
    assert_eq!(passed(&mut edge, &again(), now + 1, 10), 0);
    assert_eq!(edge.counters().unneeded, 10);
    let of_the_repair = ack(4000, &[(2000, 3000)]);
    assert_eq!(passed(&mut edge, &of_the_repair, now + 11, 5), 0);
    let of_another = ack(4000, &[(3000, 4000)]);
    assert_eq!(
        passed(&mut edge, &of_another, now + 16, 5),
        5,
        "the duplicate is not the node's; the far end uses the report to undo its recovery"
    );
}

#[test]
fn repeats_are_passed_on_occasionally_and_without_recent_repairs() {
    let (mut edge, now) = all_arrived(Mode::LwipVisible);
    // The far end may have missed it, so it is repeated, but later and not three times at once:
    // after two trip times. For four of them after the repair, others are its answers.
    let trips = [LinkId(0), LinkId(1)].map(|id| edge.link(id).unwrap().trip());
    let wait = trips.into_iter().flatten().max().unwrap() * 2;
    let repeats = (1..)
        .map(|n| answer(&mut edge, again(), ms(now + n)).is_some())
        .take(150)
        .collect::<Vec<_>>();
    let at = repeats.iter().position(|passed| *passed).unwrap();
    let at_last = ms(at as u64 + 1);
    assert!(
        at_last >= wait && at_last < wait + ms(1),
        "{at_last:?} {wait:?}"
    );
    let rest = &repeats[at + 1..];
    let over = rest.iter().position(|passed| *passed).unwrap();
    assert!(
        over > 10 && rest[over..].iter().all(|passed| *passed),
        "{over}"
    );
    // A flow of which the node sees one direction only, so it does not know the outstanding data.
    let mut edge = Edge::new(Config {
        mode: Mode::LwipVisible,
        ..Config::default()
    })
    .unwrap();
    assert_eq!(passed(&mut edge, &again(), 1, 20), 20);
}

#[test]
fn acknowledgments_with_other_content_are_passed_on() {
    let draft = || Draft::up(501).ack(4000).window(1000);
    for (what, draft) in [
        ("data", draft().payload(b"x")),
        ("an opening window", draft().window(2000)),
        ("a closed window", draft().window(0)),
        ("a FIN", draft().fin()),
        ("congestion", draft().ece()),
        (
            "a keepalive from the user",
            Draft::up(500).ack(4000).window(1000),
        ),
    ] {
        let (mut edge, now) = all_arrived(Mode::LwipVisible);
        let passed = passed(&mut edge, &draft.packet(), now + 1, 1);
        assert_eq!(passed, 1, "{what}");
    }
    // A window that was closed and opens to its previous edge.
    let (mut edge, now) = all_arrived(Mode::LwipVisible);
    let closed = draft().window(0).packet();
    assert_eq!(passed(&mut edge, &closed, now + 1, 3), 3);
    assert_eq!(passed(&mut edge, &draft().packet(), now + 4, 3), 1);
    // A challenge: the far end has sent a packet out of place.
    for draft in [Draft::down(9000).syn(), Draft::down(999).syn().ack(501)] {
        let (mut edge, now) = all_arrived(Mode::LwipVisible);
        edge.handle_far(draft.packet(), ms(now + 1));
        assert_eq!(passed(&mut edge, &again(), now + 2, 5), 1);
    }
    for mode in [Mode::Lwip, Mode::Lwa] {
        let (mut edge, now) = all_arrived(mode);
        assert_eq!(passed(&mut edge, &again(), now + 1, 5), 5);
    }
}

#[test]
fn a_new_number_is_passed_on_at_once() {
    let (mut edge, now) = all_arrived(Mode::LwipVisible);
    edge.handle_far(data(3), ms(now + 1));
    sent(&mut edge, ms(now + 2));
    let last = ack(5000, &[]);
    assert_eq!(passed(&mut edge, &last, now + 3, 4), 1);
}

/// The same with one more packet in flight to the user.
fn one_more_is_under_way() -> (Edge, u64) {
    let (mut edge, now) = all_arrived(Mode::LwipVisible);
    edge.handle_far(data(3), ms(now + 1));
    sent(&mut edge, ms(now + 1));
    (edge, now + 1)
}

/// No data has arrived behind the packet in flight: the repeated numbers do not indicate a gap.
/// The far end would halve its window because of the node's own retransmissions.
#[test]
fn repeats_do_not_make_a_packet_in_flight_missing() {
    let (mut edge, now) = one_more_is_under_way();
    let before = edge.counters();
    assert_eq!(passed(&mut edge, &again(), now + 1, 5), 0);
    let counters = edge.counters();
    assert_eq!(counters.unneeded, before.unneeded + 5);
    assert_eq!(
        (counters.boosted, counters.held, counters.repaired),
        (before.boosted, before.held, before.repaired)
    );
    // With another packet behind it, they may indicate a gap.
    edge.handle_far(data(4), ms(now + 6));
    sent(&mut edge, ms(now + 6));
    let passed_on = answer(&mut edge, again(), ms(now + 7)).unwrap();
    assert_eq!(
        (passed_on.ack, edge.counters().boosted),
        (5000, before.boosted + 1)
    );
}

/// The link may have lost the packet nevertheless, with no other sign. The node sends it again long
/// before the far end's timer.
#[test]
fn a_packet_is_sent_again_when_only_repeats_arrive() {
    let (mut edge, now) = one_more_is_under_way();
    let before = edge.counters().repaired_late;
    assert_eq!(passed(&mut edge, &again(), now + 1, 2), 0);
    let at = edge.poll_timeout().unwrap();
    assert!(at <= ms(now + 100), "{at:?}");
    edge.handle_timeout(at);
    let packets = sent(&mut edge, at);
    assert_eq!(packets, [data(3)]);
    assert_eq!(edge.counters().repaired_late, before + 1);
}

#[test]
fn a_moving_window_is_passed_on_with_a_repeat() {
    for window in [0, 2000] {
        let (mut edge, now) = one_more_is_under_way();
        let draft = Draft::up(501).ack(4000).window(window);
        let packet = draft.sack(&[(2000, 3000)]).packet();
        assert!(
            answer(&mut edge, packet, ms(now + 1)).is_some_and(|segment| segment.window == window),
            "{window}"
        );
    }
}
