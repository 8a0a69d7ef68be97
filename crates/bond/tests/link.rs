//! The policy of a link: dials, pauses, silence, and the number of its carriers.

use std::num::NonZeroU8;
use std::time::Duration;

use proptest::prelude::*;
use sumlink_bond::dial::{ENDED_PAUSE, REFUSED_PAUSE};
use sumlink_bond::{Carriers, Instant, Link, Moved};
use sumlink_engine::PathId;

const START: Instant = Duration::from_secs(1000);
const SECOND: Duration = Duration::from_secs(1);

fn carriers(count: u8) -> Carriers {
    Carriers::Fixed(NonZeroU8::new(count).unwrap())
}

/// A link with `paths` paths, and a dial that may replace one.
fn link(paths: u32, replacing: Option<u32>, is_dialing: bool) -> Link<()> {
    let mut link = Link::default();
    for path in 0..paths {
        link.dial(None, carriers(8), START);
        link.joined(PathId(path), (), START);
    }
    if is_dialing {
        link.dial(replacing.map(PathId), carriers(8), START);
    }
    link
}

#[test]
fn one_carrier_fewer_ends_a_dial_a_stalled_path_or_the_newest() {
    // paths, the one to be replaced, dialing, enough; the one to remove, and whether the dial
    // continues
    for (paths, replacing, dialing, enough, goes, goes_on) in [
        (2, None, false, 1, Some(1), false),
        (1, None, true, 1, None, false),
        (0, None, true, 1, None, true),
        (2, Some(0), true, 1, Some(0), false),
        (2, Some(0), true, 2, None, true),
        (3, Some(7), true, 2, Some(2), false),
    ] {
        let mut link = link(paths, replacing, dialing);
        let (superfluous, gives_up) = link.superfluous(enough);
        assert_eq!(superfluous, goes.map(PathId));
        assert_eq!(link.is_dialing, goes_on, "{paths} {replacing:?} {enough}");
        assert_eq!(gives_up, dialing && !goes_on);
    }
}

#[test]
fn a_failed_link_is_dialed_after_a_pause_or_at_once_after_a_change() {
    let mut link = link(0, None, true);
    let one = carriers(1);
    for (failures, pause) in [(1, 250), (2, 500), (3, 1000)] {
        assert!(!link.is_due(one, START), "a dial is in progress");
        assert_eq!(link.failed(START), failures);
        let pause = Duration::from_millis(pause);
        assert!(!link.is_due(one, START + pause - Duration::from_millis(1)));
        assert!(link.is_due(one, START + pause));
        link.dial(None, one, START + pause);
    }
    link.give_up();
    link.changed();
    assert!(link.is_due(one, START));
    link.dial(None, one, START);
    assert_eq!(link.joined(PathId(4), (), START), None);
    assert!(!link.is_due(one, START), "the link has its path");
    assert!(
        !link.ended(PathId(5), REFUSED_PAUSE, START),
        "the path belongs to another link"
    );
    assert!(link.ended(PathId(4), REFUSED_PAUSE, START));
    assert!(!link.is_due(one, START + ENDED_PAUSE) && link.is_due(one, START + REFUSED_PAUSE));
}

#[test]
fn a_silent_path_is_replaced_unless_it_recovers() {
    let one = carriers(1);
    for recovers in [false, true] {
        let mut link = link(1, None, false);
        let silence = link.on_silence(false, None, START);
        assert!(silence.dials && !silence.gives_up && silence.size.is_none());
        assert!(link.is_silent(START) && !link.delivers(START));
        link.dial(Some(PathId(0)), one, START);
        assert!(
            !link.on_silence(false, None, START).dials,
            "a dial is in progress"
        );
        assert!(!link.recovered(PathId(9)));
        if recovers {
            assert!(link.recovered(PathId(0)) && !link.is_dialing);
        } else {
            let replaced = link.joined(PathId(1), (), START + SECOND);
            assert_eq!(replaced, Some(PathId(0)));
            assert!(link.has(PathId(1)) && !link.has(PathId(0)));
        }
        assert!(link.delivers(START + 3 * SECOND));
    }
}

#[test]
fn two_connections_that_lose_large_packets_reduce_the_size() {
    let (mut link, one) = (link(1, None, false), carriers(1));
    assert!(link.on_silence(true, None, START).size.is_none());
    assert_eq!(link.dial(Some(PathId(0)), one, START), None);
    link.joined(PathId(1), (), START + SECOND);
    // The dial started meanwhile uses the size that does not work.
    link.dial(Some(PathId(1)), one, START + 2 * SECOND);
    let silence = link.on_silence(true, None, START + 4 * SECOND);
    assert!(silence.gives_up && silence.dials);
    assert_eq!(silence.size, Some(Some(1280)));
    assert_eq!(
        link.dial(Some(PathId(1)), one, START + 4 * SECOND),
        Some(1280)
    );
    link.joined(PathId(2), (), START + 5 * SECOND);
    let later = START + Duration::from_secs(700);
    assert_eq!(link.tries_larger_packets(START + 60 * SECOND), None);
    assert_eq!(link.tries_larger_packets(later), Some(PathId(2)));
}

/// An event of a link.
#[derive(Clone, Debug)]
enum Op {
    Dial,
    Join,
    Fail,
    End(u32, bool),
    Silence(u32, bool),
    Recover(u32),
    Change,
    Leave,
    Traffic(u64, bool),
    Wait(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let path = || 0u32..20;
    prop_oneof![
        4 => Just(Op::Dial),
        4 => Just(Op::Join),
        2 => Just(Op::Fail),
        2 => (path(), any::<bool>()).prop_map(|(path, refused)| Op::End(path, refused)),
        2 => (path(), any::<bool>()).prop_map(|(path, large)| Op::Silence(path, large)),
        1 => path().prop_map(Op::Recover),
        1 => Just(Op::Change),
        1 => Just(Op::Leave),
        6 => (0u64..10_000_000, any::<bool>()).prop_map(|(bytes, queue)| Op::Traffic(bytes, queue)),
        4 => (0u64..10_000).prop_map(Op::Wait),
    ]
}

proptest! {
    /// A link never has more paths than intended, nor two dials; a path belongs to it until it
    /// ends; and a link that lacks a path becomes due eventually.
    #[test]
    fn a_link_has_its_carriers_whatever_happens(
        count in proptest::option::of(1u8..=8),
        ops in proptest::collection::vec(op(), 1..200),
    ) {
        let carriers = count.map_or(Carriers::Auto, carriers);
        let (mut link, mut now, mut next) = (Link::<()>::default(), START, 0);
        let mut bytes = 0;
        for op in ops {
            match op {
                Op::Dial => if link.is_due(carriers, now) {
                    link.dial(None, carriers, now);
                },
                Op::Join => if link.is_dialing {
                    let before = link.paths.len();
                    let replaced = link.joined(PathId(next), (), now);
                    prop_assert_eq!(link.paths.len(), before + 1 - usize::from(replaced.is_some()));
                    prop_assert!(replaced.is_none_or(|old| !link.has(old)));
                    next += 1;
                },
                Op::Fail => if link.is_dialing {
                    link.failed(now);
                    prop_assert!(!link.may_dial(now));
                },
                Op::End(path, refused) => {
                    let pause = if refused { REFUSED_PAUSE } else { ENDED_PAUSE };
                    let had = link.has(PathId(path));
                    prop_assert_eq!(link.ended(PathId(path), pause, now), had);
                    prop_assert!(!had || !link.may_dial(now));
                }
                Op::Silence(path, large) => if link.has(PathId(path)) {
                    let silence = link.on_silence(large, link.packets.clone().next_size(now), now);
                    prop_assert!(link.is_silent(now));
                    if silence.dials {
                        prop_assert!(!link.is_dialing);
                        link.dial(Some(PathId(path)), carriers, now);
                    }
                },
                Op::Recover(path) => if link.recovered(PathId(path)) {
                    prop_assert!(!link.is_dialing);
                },
                Op::Change => {
                    link.changed();
                    prop_assert!(link.retry_at.is_none());
                }
                Op::Leave => {
                    link.leave();
                    prop_assert!(link.paths.is_empty() && !link.is_dialing);
                }
                Op::Traffic(more, is_queueing) => {
                    bytes += more;
                    let moved = Moved { link: bytes, session: bytes, is_queueing };
                    if let Some((before, after)) = link.on_traffic(moved, now)
                        && after < before
                    {
                        link.superfluous(after.into());
                    }
                    now += Duration::from_millis(250);
                }
                Op::Wait(ms) => now += Duration::from_millis(ms),
            }
            let wanted = link.wanted(carriers);
            prop_assert!((1..=8).contains(&wanted));
            prop_assert!(link.paths.len() <= wanted + usize::from(count.is_none()));
            let mut ids: Vec<PathId> = link.paths.iter().map(|(id, _)| *id).collect();
            ids.dedup();
            prop_assert_eq!(ids.len(), link.paths.len());
        }
        link.give_up();
        prop_assert_eq!(link.lacks(carriers), link.is_due(carriers, now + REFUSED_PAUSE));
    }
}
