//! Flows of datagrams in a hostile network: random links, faults, policies and sizes.
//!
//! At all times a datagram arrives at most once, whole, in its own flow and within the memory of
//! the session. In the end the links are equal and free of faults; every flow's counters must add
//! up, and every flow must deliver again.

mod talk;

use proptest::prelude::*;
use sumlink_engine::{Class, DatagramPolicy, FlowStats, Session};
use sumlink_scenario::config::Fate;

use super::case::{Case, Op, Shape, chaos, fault, quiet, shape};
use super::drill::{Drill, ms};
use crate::clock::{MILLISECOND, SECOND};
use crate::tcp::Side;
use talk::{Talks, Way};

pub(super) use talk::Spec;

/// Cases of an ordinary test run.
const CASES: u32 = 16;

/// Cases of calls over a link that falls silent.
const CALL_CASES: u32 = 25;

/// Time without datagrams in which everything under way arrives or is given up: the longest wait of
/// a class, that for the order, and the links' delays.
const DRAIN: u64 = 5 * SECOND;

/// Time until every link carries datagrams again: UDP is tried again after at most 10 s here, and a
/// QUIC connection that a middlebox has forgotten ends after 30 s.
const REST: u64 = 45 * SECOND;

/// Longest gap of a call over other links after its link has fallen silent.
const CALL_GAP: u64 = 150 * MILLISECOND;

/// The same of a pinned flow, which has no copies: until the report of the first lost datagram is
/// overdue, and the delay of the other link.
const PINNED_GAP: u64 = 200 * MILLISECOND;

/// Flows, with the faults of their links.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FlowCase {
    pub(super) base: Case,
    pub(super) flows: Vec<Spec>,
}

/// Runs a case.
pub(super) fn run(case: &FlowCase) {
    let mut drill = Drill::new(&case.base);
    let mut talks = Talks::default();
    talks.open(&mut drill, &case.flows);
    for op in &case.base.ops {
        match *op {
            Op::Wait { ms: time } => talks.run(&mut drill, ms(time)),
            Op::Burst {
                side,
                flow,
                size,
                count,
            } => {
                for _ in 0..count {
                    talks.send(&mut drill, flow % case.flows.len(), side, size);
                }
            }
            // Links change as scheduled.
            _ => {}
        }
    }
    talks.is_silent = true;
    talks.run(&mut drill, DRAIN);
    deliver_again(&mut drill, &mut talks);
    let has_lost = !case.base.is_quiet() || drill.has_lost_packets();
    check_memory(&drill);
    check_counters(&drill, &talks, has_lost);
}

/// Nothing that has been sent is held any more.
fn check_memory(drill: &Drill) {
    for session in drill.bond.sessions() {
        let stats = session.datagram_stats();
        let held = (
            stats.queued_bytes,
            stats.reorder_bytes,
            stats.fragment_bytes,
        );
        assert_eq!(held, (0, 0, 0), "{stats:?}");
    }
}

/// The statistics of a flow at both sides, by its source.
fn stats_of(sessions: [&Session; 2], flow: usize) -> [Option<FlowStats>; 2] {
    sessions.map(|session| {
        let mut flows = session.flow_stats();
        flows.find(|stats| stats.source == flow as u64)
    })
}

/// Every datagram is accounted for.
fn check_counters(drill: &Drill, talks: &Talks, has_lost: bool) {
    for (flow, talk) in talks.talks.iter().enumerate() {
        let stats = stats_of(drill.bond.sessions(), flow);
        for side in Side::BOTH {
            let way = &talk.ways[side.index()];
            let (from, to) = (&stats[side.peer().index()], &stats[side.index()]);
            let Some(from) = from else {
                assert_eq!(way.accepted(), 0, "flow {flow} to {side:?}: it is gone");
                continue;
            };
            let report = || format!("flow {flow} to {side:?}: {way:?}, {from:?}, {to:?}");
            let offered = way.accepted() + way.too_big;
            assert_eq!(from.sent + from.drops.total(), offered, "{}", report());
            let received = to.as_ref().map_or(0, |stats| stats.received);
            assert_eq!(received, way.arrived(), "{}", report());
            assert!(received <= from.sent, "{}", report());
            if !has_lost {
                assert_eq!(received, from.sent, "{}", report());
            }
            // What arrives out of order was given up before. Where packets are lost, the receiver
            // may not know that the order is wanted.
            if let Some(to) = to
                && talk.is_ordered
                && !has_lost
            {
                assert!(way.reordered <= to.late + from.rescued, "{}", report());
            }
        }
    }
}

/// A link with a connection that was forgotten during a silence is dialed again within this time.
const DIALED: u64 = 5 * SECOND;

/// The links are equal and free of faults: each flow delivers everything again.
fn deliver_again(drill: &mut Drill, talks: &mut Talks) {
    talks.run(drill, REST);
    talks.is_silent = false;
    for talk in &mut talks.talks {
        // Larger than those of calls, which are not put in order.
        talk.spec = Spec {
            size: 400,
            every_us: 20_000,
            is_mutual: true,
            ..talk.spec
        };
    }
    // Flows that were idle find their paths, and the server gets to know them.
    talks.catch_up(drill);
    talks.run(drill, DIALED);
    let before: Vec<[(u64, u64); 2]> = talks.totals();
    talks.run(drill, 2 * SECOND);
    talks.is_silent = true;
    talks.run(drill, DRAIN);
    for (flow, (after, before)) in talks.totals().iter().zip(&before).enumerate() {
        for side in Side::BOTH {
            let [sent, arrived] = [
                after[side.index()].0 - before[side.index()].0,
                after[side.index()].1 - before[side.index()].1,
            ];
            assert!(sent >= 95, "flow {flow} to {side:?} sends {sent}");
            assert!(
                arrived >= sent,
                "flow {flow} to {side:?}: {arrived} of {sent}"
            );
        }
    }
}

fn policy() -> impl Strategy<Value = DatagramPolicy> {
    prop_oneof![
        Just(DatagramPolicy::Pinned),
        Just(DatagramPolicy::Spread),
        Just(DatagramPolicy::Duplicate),
        Just(DatagramPolicy::Auto),
    ]
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        1 => 0..13usize,
        4 => 13..400usize,
        3 => 400..1434usize,
        2 => 1434..3_000usize,
        1 => 3_000..=65_507usize,
    ]
}

fn spec() -> impl Strategy<Value = Spec> {
    let class = prop_oneof![
        3 => Just(None),
        1 => proptest::sample::select(&Class::ALL[..]).prop_map(Some),
    ];
    let every = prop_oneof![2 => Just(20_000u64), 2 => 1_000..100_000u64, 1 => 200..1_000u64];
    (policy(), class, size(), every, any::<bool>()).prop_map(
        |(policy, class, size, every_us, is_mutual)| Spec {
            policy,
            class,
            size,
            every_us,
            is_mutual,
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    let side = prop_oneof![Just(Side::Client), Just(Side::Server)];
    let wait = prop_oneof![0..5u64, 0..100u64, 0..1_000u64, 1_000..4_000u64];
    let burst =
        (side, 0..8usize, size(), 1..200u32).prop_map(|(side, flow, size, count)| Op::Burst {
            side,
            flow,
            size,
            count,
        });
    prop_oneof![
        4 => burst,
        8 => wait.prop_map(|ms| Op::Wait { ms }),
        4 => fault(),
    ]
}

fn case() -> impl Strategy<Value = FlowCase> {
    (
        any::<u64>(),
        proptest::collection::vec(shape(), 1..=4),
        proptest::collection::vec(spec(), 1..6),
        prop_oneof![
            3 => proptest::collection::vec(op(), 1..20),
            1 => proptest::collection::vec(
                (0..1_500u64).prop_map(|ms| Op::Wait { ms }), 1..4),
        ],
    )
        .prop_map(|(seed, links, flows, ops)| FlowCase {
            base: Case {
                ops,
                ..quiet(seed, links)
            },
            flows,
        })
}

/// A call over links of 20 and 60 ms, the better of which is silent for 5 s.
fn call_over_a_silent_link(policy: DatagramPolicy) -> [Way; 2] {
    let link = |ms| Shape { ms, ..Shape::PEACE };
    let ops = vec![
        Op::Wait { ms: 4_000 },
        Op::Silence { link: 0, to: None },
        Op::Wait { ms: 5_000 },
        Op::Restore { link: 0 },
        Op::Wait { ms: 5_000 },
    ];
    let base = Case {
        ops,
        ..quiet(1, vec![link(20), link(60)])
    };
    let mut drill = Drill::new(&base);
    let mut talks = Talks::default();
    talks.open(&mut drill, &[call(policy)]);
    talks.run(&mut drill, 3_900 * MILLISECOND);
    talks.talks[0].ways.iter_mut().for_each(Way::restart);
    talks.run(&mut drill, 10_100 * MILLISECOND);
    talks.is_silent = true;
    talks.run(&mut drill, SECOND);
    talks.talks.remove(0).ways
}

#[test]
fn a_call_has_a_short_gap_when_its_link_falls_silent() {
    for way in call_over_a_silent_link(DatagramPolicy::Auto) {
        assert!(way.gap <= CALL_GAP, "{way:?}");
    }
}

#[test]
fn a_pinned_flow_does_not_move_to_the_tcp_carrier_of_its_silent_link() {
    for way in call_over_a_silent_link(DatagramPolicy::Pinned) {
        assert!(way.gap <= PINNED_GAP, "{way:?}");
    }
}

#[test]
fn duplicates_lose_nothing_when_a_link_falls_silent() {
    for way in call_over_a_silent_link(DatagramPolicy::Duplicate) {
        assert_eq!(way.arrived(), way.accepted());
    }
}

#[test]
fn a_fast_flow_is_spread_in_order_over_unequal_links() {
    let link = |mbit, ms| Shape {
        mbit,
        ms,
        ..Shape::PEACE
    };
    let base = Case {
        ops: vec![Op::Wait { ms: 8_000 }],
        ..quiet(1, vec![link(40.0, 10), link(20.0, 30)])
    };
    // 50 Mbit/s.
    let flows = vec![Spec {
        policy: DatagramPolicy::Spread,
        class: None,
        size: 1_250,
        every_us: 200,
        is_mutual: false,
    }];
    let mut drill = Drill::new(&base);
    let mut talks = Talks::default();
    talks.open(&mut drill, &flows);
    talks.run(&mut drill, 4 * SECOND);
    let way = &talks.talks[0].ways[1];
    let (accepted, arrived) = (way.accepted(), way.arrived());
    talks.talks[0].ways[1].restart();
    talks.run(&mut drill, 4 * SECOND);
    let way = &talks.talks[0].ways[1];
    let share = (way.arrived() - arrived) as f64 / (way.accepted() - accepted) as f64;
    assert!(share > 0.99, "{share}");
    assert_eq!(way.reordered, 0);
}

#[test]
fn a_call_works_again_when_its_only_link_was_forgotten() {
    let link = Shape {
        mbit: 5.7,
        ms: 17,
        queue: 1,
        loss: 0.0,
    };
    run(&FlowCase {
        base: Case {
            ops: vec![
                Op::Lose {
                    link: 0,
                    fate: Fate::Forgotten,
                },
                Op::Burst {
                    side: Side::Client,
                    flow: 0,
                    size: 0,
                    count: 1,
                },
            ],
            ..quiet(0, vec![link])
        },
        flows: vec![Spec {
            policy: DatagramPolicy::Pinned,
            class: Some(Class::Conversational),
            size: 0,
            every_us: 20_000,
            is_mutual: false,
        }],
    });
}

#[test]
fn faults_leave_every_flow_working() {
    // `make nightly` runs the whole minute.
    let is_nightly = std::env::var_os("NEXTEST_PROFILE").is_some_and(|name| name == "nightly");
    let (seeds, seconds) = if is_nightly { (2, 60) } else { (1, 15) };
    for seed in 1..=seeds {
        let flow = |policy, size, every_us| Spec {
            policy,
            class: None,
            size,
            every_us,
            is_mutual: true,
        };
        let mut base = chaos(seed, seconds * 1000);
        base.has_datagrams = true;
        run(&FlowCase {
            base,
            flows: vec![
                flow(DatagramPolicy::Auto, 172, 20_000),
                flow(DatagramPolicy::Duplicate, 172, 20_000),
                flow(DatagramPolicy::Pinned, 100, 16_667),
                flow(DatagramPolicy::Spread, 1_200, 1_000),
            ],
        });
    }
}

/// A call over links without losses, one of which falls silent at some time.
fn silent_link() -> impl Strategy<Value = FlowCase> {
    let link = (2.0..50.0f64, 1..80u64).prop_map(|(mbit, ms)| Shape {
        mbit,
        ms,
        ..Shape::PEACE
    });
    (
        any::<u64>(),
        proptest::collection::vec(link, 2..=3),
        0..3usize,
        3_000..5_000u64,
        prop_oneof![Just(DatagramPolicy::Auto), Just(DatagramPolicy::Duplicate)],
    )
        .prop_map(|(seed, links, link, at, policy)| FlowCase {
            base: Case {
                ops: vec![Op::Wait { ms: at }, Op::Silence { link, to: None }],
                ..quiet(seed, links)
            },
            flows: vec![call(policy)],
        })
}

/// Speech in frames of 20 ms, both ways.
fn call(policy: DatagramPolicy) -> Spec {
    Spec {
        policy,
        class: None,
        size: 172,
        every_us: 20_000,
        is_mutual: true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CALL_CASES))]

    #[test]
    fn any_silent_link_is_a_short_gap_of_a_call(case in silent_link()) {
        let mut base = case.base.clone();
        // The link stays silent until after the end of the case.
        base.ops.push(Op::Wait { ms: 60_000 });
        let mut drill = Drill::new(&base);
        let mut talks = Talks::default();
        talks.open(&mut drill, &case.flows);
        talks.run(&mut drill, 2 * SECOND);
        talks.talks[0].ways.iter_mut().for_each(Way::restart);
        talks.run(&mut drill, 6 * SECOND);
        for way in &talks.talks[0].ways {
            prop_assert!(way.gap <= CALL_GAP, "{way:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(CASES),
        max_shrink_iters: 1024,
        ..ProptestConfig::default()
    })]

    #[test]
    fn datagrams_survive_all_faults(case in case()) {
        run(&case);
    }
}
