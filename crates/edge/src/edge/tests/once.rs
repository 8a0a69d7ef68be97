//! What the far end is told once: what a user says again because it has got something again.

use super::scripted::{ack, answer, data, ms, sent, started};
use crate::packet::fixture::Draft;
use crate::{Config, Edge, Mode};

/// A node whose user has all that has come, and said so at 41 ms.
fn all_arrived(mode: Mode) -> Edge {
    let config = Config {
        mode,
        ..Config::default()
    };
    let mut edge = started(config, 3);
    assert!(answer(&mut edge, ack(4000, &[]), ms(41)).is_some());
    edge
}

/// How many of so many acknowledgements of `draft`, a millisecond apart, are passed on.
fn passed(edge: &mut Edge, draft: fn() -> Vec<u8>, from: u64, count: u64) -> usize {
    let times = (from..from + count).map(ms);
    times.filter_map(|now| answer(edge, draft(), now)).count()
}

fn again() -> Vec<u8> {
    ack(4000, &[])
}

#[test]
fn what_a_user_says_again_of_late_is_not_passed_on() {
    let mut edge = all_arrived(Mode::LwipVisible);
    assert_eq!(passed(&mut edge, again, 42, 10), 0);
    assert_eq!(edge.counters().unneeded, 10);
    // The far end may have missed it: it hears it again, but later, and not three times at once.
    assert_eq!(passed(&mut edge, again, 500, 10), 1);
    let blocks_of_repairs = || ack(4000, &[(3000, 4000)]);
    assert_eq!(
        passed(&mut edge, blocks_of_repairs, 510, 5),
        5,
        "it has received twice what was not sent again from here, and the far end takes back what it did"
    );
}

#[test]
fn what_says_anything_else_is_passed_on() {
    let more = |draft: fn(Draft) -> Draft| draft(Draft::up(501).ack(4000)).packet();
    let drafts: [(&str, Vec<u8>); 4] = [
        ("data", more(|draft| draft.window(1000).payload(b"x"))),
        ("a window that opens", more(|draft| draft.window(2000))),
        ("one that is closed", more(|draft| draft.window(0))),
        ("the end", more(|draft| draft.window(1000).fin())),
    ];
    for (what, packet) in drafts {
        let mut edge = all_arrived(Mode::LwipVisible);
        assert!(answer(&mut edge, packet, ms(42)).is_some(), "{what}");
    }
    // A challenge: the far end has sent what is out of place.
    for draft in [Draft::down(9000).syn(), Draft::down(999).syn().ack(501)] {
        let mut edge = all_arrived(Mode::LwipVisible);
        edge.handle_far(draft.packet(), ms(42));
        assert_eq!(passed(&mut edge, again, 43, 5), 1);
    }
    for mode in [Mode::Lwip, Mode::Lwa] {
        assert_eq!(passed(&mut all_arrived(mode), again, 42, 5), 5);
    }
}

#[test]
fn a_new_number_is_passed_on_at_once() {
    let mut edge = all_arrived(Mode::LwipVisible);
    edge.handle_far(data(3), ms(42));
    sent(&mut edge, ms(43));
    assert!(answer(&mut edge, ack(5000, &[]), ms(46)).is_some());
    let last = || ack(5000, &[]);
    assert_eq!(passed(&mut edge, last, 47, 3), 0);
}
