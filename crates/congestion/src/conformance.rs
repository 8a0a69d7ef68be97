//! Invariants of every algorithm, and the promises of the papers for each.

use std::time::Duration;

use proptest::prelude::*;

use crate::bottleneck::Dice;
use crate::fixture::{assert_close, ms, steady};
use crate::{
    Ack, CongestionControl, Flow, Idle, Loss, MIN_CWND, NAMES, Phase, Settings, Siblings, Timeout,
    build,
};

/// Algorithms that equal Reno for a single flow, apart from the extension of `cs218`.
const RENO_IF_ALONE: [&str; 7] = [
    "uncoupled",
    "coupled",
    "ewtcp",
    "rtt-compensator",
    "lia",
    "olia",
    "balia",
];

/// The largest window here: large enough never to be reached.
const MAX_CWND: f64 = 1e6;

/// An event of one of several flows.
#[derive(Clone, Debug)]
enum Op {
    Ack {
        acked: u32,
        rtt_us: Option<u64>,
        cwnd_limited: bool,
    },
    Loss,
    Timeout {
        repeated: bool,
    },
    RecoveryExit,
    SpuriousLoss,
    Idle {
        ms: u64,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let ack = (
        1..200u32,
        prop::option::weighted(
            0.9,
            prop_oneof![0..100u64, 1_000..50_000u64, Just(5_000_000)],
        ),
        prop::bool::weighted(0.9),
    );
    prop_oneof![
        30 => ack.prop_map(|(acked, rtt_us, cwnd_limited)| Op::Ack { acked, rtt_us, cwnd_limited }),
        2 => Just(Op::Loss),
        1 => any::<bool>().prop_map(|repeated| Op::Timeout { repeated }),
        3 => Just(Op::RecoveryExit),
        1 => Just(Op::SpuriousLoss),
        1 => (0..5_000u64).prop_map(|ms| Op::Idle { ms }),
    ]
}

/// Flow, time since the last event in microseconds, event.
fn script() -> impl Strategy<Value = Vec<(usize, u64, Op)>> {
    prop::collection::vec((0..4usize, 0..20_000u64, op()), 1..300)
}

/// Runs four flows of one algorithm under a random script and calls `check` after each event.
fn run(
    name: &str,
    settings: &Settings,
    script: &[(usize, u64, Op)],
    mut check: impl FnMut(&Flow, &dyn CongestionControl, &Op),
) -> Vec<(u64, u64)> {
    let mut controls: Vec<_> = (0..4).map(|_| build(name, settings).unwrap()).collect();
    let mut flows: Vec<Flow> = controls.iter().map(|control| control.flow()).collect();
    let (mut now, mut positions, mut windows) = (Duration::ZERO, [0u64; 4], Vec::new());
    for (flow, wait, op) in script {
        now += Duration::from_micros(*wait);
        let (control, siblings) = (&mut controls[*flow], Siblings::of(&flows, *flow));
        match *op {
            Op::Ack {
                acked,
                rtt_us,
                cwnd_limited,
            } => {
                positions[*flow] += u64::from(acked);
                let rtt = rtt_us.map(Duration::from_micros);
                let ack = Ack {
                    now,
                    acked,
                    rtt,
                    srtt: rtt.unwrap_or(control.window().srtt()),
                    acknowledged: positions[*flow],
                    sent: positions[*flow] + control.cwnd() as u64,
                    cwnd_limited,
                };
                control.on_ack(&ack, &siblings);
            }
            Op::Loss => control.on_loss(&Loss { now }, &siblings),
            Op::Timeout { repeated } => control.on_rto(&Timeout { now, repeated }, &siblings),
            Op::RecoveryExit => control.on_recovery_exit(now),
            Op::SpuriousLoss => control.on_spurious_loss(now),
            Op::Idle { ms: lasted } => {
                let lasted = ms(lasted);
                now += lasted;
                control.on_idle_end(&Idle {
                    now,
                    lasted,
                    rto: ms(200),
                });
            }
        }
        check(&flows[*flow], control.as_ref(), op);
        flows[*flow] = control.flow();
        windows.push((control.cwnd().to_bits(), control.ssthresh().to_bits()));
    }
    windows
}

proptest! {
    #[test]
    fn windows_are_numbers_within_their_limits(script in script()) {
        let settings = Settings::default().with("max_cwnd", "1000000").unwrap();
        for name in NAMES {
            run(name, &settings, &script, |_, control, op| {
                let (cwnd, ssthresh) = (control.cwnd(), control.ssthresh());
                assert!((MIN_CWND..=MAX_CWND).contains(&cwnd), "{name} {op:?}: {cwnd}");
                assert!(ssthresh >= MIN_CWND, "{name} {op:?}: {ssthresh}");
            });
        }
    }

    #[test]
    fn the_same_events_give_the_same_windows(script in script()) {
        for name in NAMES {
            let again = || run(name, &Settings::default(), &script, |_, _, _| {});
            assert_eq!(again(), again(), "{name}");
        }
    }

    #[test]
    fn no_window_grows_in_recovery_or_unused_or_by_a_loss(script in script()) {
        for name in NAMES {
            run(name, &Settings::default(), &script, |before, control, op| {
                let may_grow = match op {
                    Op::Ack { cwnd_limited, .. } => {
                        *cwnd_limited && before.phase != Phase::Recovery
                    }
                    Op::SpuriousLoss => true,
                    // The least ssthresh is two packets, and a window after a timeout is one.
                    Op::Loss => before.cwnd < 2.0,
                    _ => false,
                };
                let grown = control.cwnd() > before.cwnd;
                assert!(may_grow || !grown, "{name} {op:?}: {} to {}", before.cwnd, control.cwnd());
            });
        }
    }

    #[test]
    fn slow_start_no_more_than_doubles_the_window(script in script()) {
        for name in NAMES {
            run(name, &Settings::default(), &script, |before, control, op| {
                if let Op::Ack { acked, .. } = op
                    && before.in_slow_start
                    && control.flow().in_slow_start
                {
                    let grown = control.cwnd() - before.cwnd;
                    assert!(grown <= f64::from(*acked) + 1e-9, "{name} {op:?}: {grown}");
                }
            });
        }
    }

    #[test]
    fn a_timeout_leaves_one_packet(script in script()) {
        for name in NAMES {
            run(name, &Settings::default(), &script, |_, control, op| {
                if let Op::Timeout { .. } = op {
                    let after = (control.cwnd(), control.flow().phase);
                    assert_eq!(after, (MIN_CWND, Phase::Loss), "{name}");
                }
            });
        }
    }

    #[test]
    fn alone_the_coupled_ones_are_reno(script in script()) {
        let script: Vec<_> = script.into_iter().map(|(_, wait, op)| (0, wait, op)).collect();
        let settings = Settings::default().with("min_ssthresh", "2").unwrap();
        let renos = run("reno", &settings, &script, |_, _, _| {});
        for name in RENO_IF_ALONE {
            let windows = run(name, &settings, &script, |_, _, _| {});
            for (window, reno) in windows.iter().zip(&renos) {
                assert_close(f64::from_bits(window.0), f64::from_bits(reno.0));
            }
        }
    }

    #[test]
    fn lia_never_grows_faster_than_reno(bond in bond()) {
        for name in ["lia", "rtt-compensator", "cs218"] {
            for flow in 0..bond.len() {
                let step = steady(name, &[], &bond).ack(flow, 1);
                prop_assert!(step <= 1.0 / bond[flow].0 + 1e-12, "{name} {step}");
                prop_assert!(step > 0.0);
            }
        }
    }

    /// Together the flows of LIA grow, per round trip of the best one, no faster than one Reno flow
    /// there would.
    #[test]
    fn lia_as_a_whole_is_no_more_aggressive_than_its_best_path(bond in bond()) {
        // RFC 6356, section 3: the purpose of alpha. With equal loss rates p on all paths, a window
        // in equilibrium has increase = p w / 2 on each; the sum of w / rtt then equals that of
        // Reno on the path where it is largest.
        let steps: Vec<f64> = (0..bond.len())
            .map(|flow| steady("lia", &[], &bond).ack(flow, 1))
            .collect();
        let rate: f64 = bond.iter().map(|&(cwnd, rtt)| cwnd / seconds(rtt)).sum();
        let best = bond.iter().map(|&(cwnd, rtt)| cwnd / seconds(rtt).powi(2)).fold(0.0, f64::max);
        for step in steps {
            prop_assert!(step <= best / (rate * rate) + 1e-12);
        }
    }

    #[test]
    fn cs218_is_lia_until_the_sixth_acknowledgment_and_at_most_twice_it(
        bond in bond(),
        spread in 0..200u64,
    ) {
        let mut lia = steady("lia", &[], &bond);
        let mut cs218 = steady("cs218", &[], &bond);
        cs218.repaired_loss(0);
        cs218.place(0, bond[0].0);
        for count in 1..=20 {
            for flows in [&mut lia, &mut cs218] {
                flows.set_rtt(0, ms(bond[0].1 + spread * (count % 3)));
                flows.place(0, bond[0].0);
            }
            let (plain, step) = (lia.ack(0, 1), cs218.ack(0, 1));
            if count < 6 {
                assert_close(step, plain);
            } else {
                let range = plain - 1e-12..=2.0 * plain + 1e-12;
                prop_assert!(range.contains(&step), "{count}: {plain} {step}");
            }
        }
    }

    #[test]
    fn balia_loses_from_a_half_to_three_quarters(bond in bond()) {
        for (flow, &(cwnd, _)) in bond.iter().enumerate() {
            let left = steady("balia", &[], &bond).repaired_loss(flow);
            prop_assert!(left <= cwnd / 2.0 && left >= (cwnd / 4.0).max(1.0), "{cwnd} {left}");
        }
    }

    #[test]
    fn ewtcp_takes_no_more_than_reno(bond in bond()) {
        for (flow, &(cwnd, _)) in bond.iter().enumerate() {
            let step = steady("ewtcp", &[], &bond).ack(flow, 1);
            assert_close(step, 1.0 / cwnd / (bond.len() as f64).sqrt());
        }
    }

    /// A sibling without a round-trip time is ignored.
    #[test]
    fn siblings_that_were_not_measured_count_for_nothing(bond in bond(), cwnd in 1.0..1000.0f64) {
        for name in NAMES {
            let mut plain = steady(name, &[], &bond);
            let mut joined = steady(name, &[], &bond);
            joined.flows.push(Flow { cwnd, ..Flow::default() });
            assert_eq!(plain.ack(0, 2), joined.ack(0, 2), "{name}");
            assert_eq!(plain.repaired_loss(0), joined.repaired_loss(0), "{name}");
        }
    }
}

/// Windows in packets and round-trip times in milliseconds of up to five flows.
fn bond() -> impl Strategy<Value = Vec<(f64, u64)>> {
    prop::collection::vec((2.0..500.0f64, 1..500u64), 1..6)
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

/// Mean rates in packets per second of flows on paths with these round-trip times in milliseconds,
/// each of which loses one packet in the given number at random. Losses do not depend on the rates:
/// the model behind the papers' equations.
fn rates(name: &str, assignments: &[&str], paths: &[(u64, u64)]) -> Vec<f64> {
    let flows: Vec<(f64, u64)> = paths.iter().map(|&(rtt, _)| (10.0, rtt)).collect();
    let mut bond = steady(name, assignments, &flows);
    let end = Duration::from_secs(600);
    let mut due = vec![Duration::ZERO; paths.len()];
    let mut carried = vec![0u64; paths.len()];
    let mut dice = Dice::default();
    while bond.now < end {
        let flow = (0..due.len())
            .min_by_key(|&flow| due[flow])
            .expect("a flow");
        bond.now = due[flow];
        bond.ack(flow, 1);
        carried[flow] += 1;
        if dice.roll() * (paths[flow].1 as f64) < 1.0 {
            bond.repaired_loss(flow);
        }
        due[flow] += ms(paths[flow].0).div_f64(bond.cwnd(flow));
    }
    let seconds = end.as_secs_f64();
    carried
        .iter()
        .map(|&packets| packets as f64 / seconds)
        .collect()
}

/// RFC 6356, section 2, goal 2, in its simplest case: equal paths.
#[test]
fn a_fair_bond_takes_the_share_of_one_flow_on_two_equal_paths() {
    let paths = [(50, 500), (50, 500)];
    let reno = rates("reno", &[], &paths[..1])[0];
    let times_reno = |name, assignments: &[&str]| {
        let total: f64 = rates(name, assignments, &paths).iter().sum();
        total / reno
    };
    for (name, expected) in [
        ("uncoupled", 2.0),
        ("coupled", 1.0),
        ("lia", 1.0),
        ("rtt-compensator", 1.0),
        ("olia", 1.0),
        ("balia", 1.0),
        // Twice a window of sqrt(a) times Reno's, a = 1 / sqrt(2)
        ("ewtcp", 1.68),
    ] {
        let found = times_reno(name, &[]);
        assert!(
            (found / expected - 1.0).abs() < 0.1,
            "{name}: {found} times Reno, expected {expected}"
        );
    }
    let found = times_reno("ewtcp", &["sqrt_power=4"]);
    assert!((found - 1.0).abs() < 0.1, "fair with 1 / n^2: {found}");
}

/// RFC 6356, section 2: goal 1, as much as on the best path, and goal 2, no path with more than
/// Reno there.
#[test]
fn lia_equals_reno_on_its_best_path_and_never_exceeds_it() {
    // Wi-Fi: fast and lossy; 3G: slow and clean. By 1.2 / (rtt sqrt(p)), Wi-Fi is the better one.
    let paths = [(10, 50), (100, 1000)];
    let reno: Vec<f64> = paths
        .iter()
        .map(|&path| rates("reno", &[], &[path])[0])
        .collect();
    for name in ["lia", "rtt-compensator", "balia", "olia"] {
        let bond = rates(name, &[], &paths);
        let total: f64 = bond.iter().sum();
        let best = reno[0].max(reno[1]);
        assert!(
            (total / best - 1.0).abs() < 0.12,
            "{name}: {bond:?}, Reno {reno:?}"
        );
        for (path, (flow, alone)) in bond.iter().zip(&reno).enumerate() {
            assert!(
                *flow < 1.05 * alone,
                "{name} on {path}: {flow}, Reno {alone}"
            );
        }
    }
}

/// RFC 6356, section 2, goal 3: the more coupled an algorithm is, the more it moves away from
/// congestion.
#[test]
fn traffic_moves_away_from_congestion() {
    let paths = [(50, 1000), (50, 100)];
    let share = |name| {
        let rates = rates(name, &[], &paths);
        rates[1] / (rates[0] + rates[1])
    };
    let [uncoupled, lia, olia, coupled] = ["uncoupled", "lia", "olia", "coupled"].map(share);
    // 1/sqrt(p) on each path, then 1/p, then almost nothing
    assert!((0.2..0.3).contains(&uncoupled), "{uncoupled}");
    assert!((0.07..0.15).contains(&lia), "{lia}");
    assert!(olia < lia, "{olia} {lia}");
    assert!(coupled < olia, "{coupled} {olia}");
}
