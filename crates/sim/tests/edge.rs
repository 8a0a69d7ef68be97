//! Complete runs with an edge node: runs are reproducible, every byte arrives intact on all kinds
//! of links, and a table compares the systems.

use std::path::Path;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use sumlink_scenario::results::{Measurement, Outcome};
use sumlink_scenario::scenario::Scenario;
use sumlink_sim::compare::{self, HEAD};
use sumlink_sim::{run, run_logged, run_traced};

const UNEQUAL: &str = "duration = \"4s\"\nwarmup = \"1s\"\ncongestion = \"reno\"\n\
    [[link]]\nname = \"lte\"\nrate = \"20mbit\"\ndelay = \"15ms\"\nqueue = \"60kB\"\n\
    [[link]]\nname = \"wifi\"\nrate = \"5mbit\"\ndelay = \"10ms\"\nqueue = \"60kB\"\n";
const LOSSY: &str = "duration = \"3s\"\nwarmup = \"500ms\"\n\
    [[link]]\nname = \"lte\"\nrate = \"20mbit\"\ndelay = \"15ms\"\njitter = \"2ms\"\nloss = \"0.5%\"\n\
    [[link]]\nname = \"wifi\"\nrate = \"15mbit\"\ndelay = \"5ms\"\nloss = \"burst:1%:4\"\n";
const SYSTEMS: [&str; 6] = [
    "lwip",
    "lwip:lrtt@flows=3",
    "lwa",
    "lwip+visible",
    "lwip+visible@boost=off:hosts=nosack",
    "lwip+visible@sack=strip:hosts=newreno",
];

fn scenario(text: &str) -> Scenario {
    let text = format!("name = \"edge\"\n{text}");
    Scenario::parse(Path::new("edge.toml"), &text).unwrap()
}

fn measured(scenario: &Scenario, system: &str, seed: u64) -> Measurement {
    match run(scenario, system, seed).unwrap().outcome {
        Outcome::Measured(figures) => *figures,
        other => panic!("{system}: {other:?}"),
    }
}

#[test]
fn equal_seeds_give_equal_logs() {
    let scenario = scenario(LOSSY);
    for system in SYSTEMS {
        let hash = |seed| run_logged(&scenario, system, seed).unwrap().1.hash();
        assert_eq!(hash(1), hash(1), "{system}");
        assert_ne!(hash(1), hash(2), "{system}");
        let whole = || run(&scenario, system, 1).unwrap();
        assert_eq!(whole(), whole(), "{system}");
        assert_eq!(
            trace(&scenario, system),
            trace(&scenario, system),
            "{system}"
        );
    }
}

/// The trace of a run with seed 1.
fn trace(scenario: &Scenario, system: &str) -> String {
    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let lines = Shared::default();
    run_traced(scenario, system, 1, Box::new(lines.clone())).unwrap();
    let bytes = lines.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_trace_has_windows_duplicates_and_queues() {
    let lines = trace(&scenario(UNEQUAL), "lwip+visible@hosts=newreno");
    let of = |event: &str| {
        let key = format!("\"event\":\"{event}\"");
        lines
            .lines()
            .filter(|line| line.contains(&key))
            .collect::<Vec<_>>()
    };
    let (flows, queues) = (of("flow"), of("queue"));
    // About every 10 ms, for one connection and two links.
    assert!(
        flows.len() > 300 && queues.len() > 600,
        "{} {}",
        flows.len(),
        queues.len()
    );
    for name in [
        "cwnd",
        "srtt_us",
        "in_flight",
        "duplicates",
        "held_average",
        "held_us",
        "retransmissions",
        "owed",
    ] {
        assert!(
            flows[100].contains(&format!("\"{name}\":")),
            "{}",
            flows[100]
        );
    }
    assert!(
        queues
            .iter()
            .any(|line| line.contains("\"trip_us\":") && line.contains("\"rate\":"))
    );
    assert!(
        flows.iter().any(|line| !line.contains("\"held_us\":0,")),
        "the node held no duplicates"
    );
}

#[test]
fn goodput_is_the_rate_of_the_links() {
    // Two equal links without loss except in full queues: LWA reorders the traffic of both.
    let alike = scenario(
        "duration = \"5s\"\nwarmup = \"1s\"\n\
         [[link]]\nname = \"a\"\nrate = \"20mbit\"\ndelay = \"10ms\"\n\
         [[link]]\nname = \"b\"\nrate = \"20mbit\"\ndelay = \"10ms\"\n",
    );
    let most = 40.0 * 1448.0 / 1500.0;
    let both = measured(&alike, "lwa", 1);
    let goodput = both.goodput_bps / 1e6;
    assert!(
        (0.95 * most..=most).contains(&goodput),
        "{goodput:.1} of {most:.1}"
    );
    for link in &both.links {
        let share = link.share;
        assert!(
            link.direction == "up" || (0.45..0.55).contains(&share),
            "{}: {share}",
            link.link
        );
    }
    // A flow that stays on one link gets that link's rate; the queue at the start of the
    // measurement is less than 1 %.
    let one = measured(&alike, "lwip:flowhash", 1).goodput_bps / 1e6;
    assert!((0.9..1.01).contains(&(2.0 * one / most)), "{one:.1}");
}

#[test]
fn impossible_combinations_are_skipped_with_a_reason() {
    let scenario = scenario(UNEQUAL);
    let far = run(&scenario, "lwip@far=11ms", 1).unwrap().outcome;
    assert!(
        matches!(far, Outcome::Skipped { ref reason } if reason.contains("far=11ms is longer than the shortest link's delay")),
        "{far:?}"
    );
    assert!(
        run(&scenario, "lwip+visible@delta=1", 1)
            .unwrap_err()
            .contains("no parameter 'delta'")
    );
}

#[test]
fn files_and_questions_go_through_the_node_in_both_directions() {
    let files = "duration = \"20s\"\n[workload]\nkind = \"files\"\nsizes = [\"30kB\", \"1MB\"]\ncount = 2\ngap = \"100ms\"\n";
    let asked = "duration = \"4s\"\nwarmup = \"1s\"\n[workload]\nkind = \"requests\"\n";
    let links = "[[link]]\nname = \"lte\"\nrate = \"20mbit\"\ndelay = \"15ms\"\n\
                 [[link]]\nname = \"wifi\"\nrate = \"5mbit\"\ndelay = \"10ms\"\n";
    for system in SYSTEMS {
        let both = scenario(&format!("direction = \"both\"\n{files}{links}"));
        let done = measured(&both, system, 1).completions.len();
        let flows = if system.contains("flows=3") { 3 } else { 1 };
        assert_eq!(done, 8 * flows, "{system}");
        let answers = measured(&scenario(&format!("{asked}{links}")), system, 1);
        assert!(!answers.message_delays_ms.is_empty(), "{system}");
    }
}

/// Linux' sender, without SACK, over a fast link that pauses and a slow one that loses packets.
///
/// A retransmission must carry its own timestamp. With the timestamp of the first attempt, its echo
/// made each one look spurious and the time since then look like a round trip, so that the RTO grew
/// beyond all bounds.
#[test]
fn retransmissions_carry_their_own_timestamp() {
    let scenario = scenario(
        "duration = \"120s\"\n\
         [workload]\nkind = \"files\"\nsizes = [\"400kB\"]\ncount = 2\ngap = \"50ms\"\n\
         [[link]]\nname = \"l0\"\nrate = \"2mbit\"\ndelay = \"3ms\"\nloss = \"3%\"\n\
         [[link]]\nname = \"l1\"\nrate = \"19mbit\"\ndelay = \"17ms\"\n\
         [[event]]\nat = \"100ms\"\nlink = \"l1\"\nstate = \"blackhole\"\n\
         [[event]]\nat = \"289ms\"\nlink = \"l1\"\nstate = \"up\"\n",
    );
    for system in [
        "lwip+visible@boost=off:hosts=nosack",
        "lwip+visible@hosts=nosack",
    ] {
        let done = measured(&scenario, system, 1).completions.len();
        assert_eq!(done, 2, "{system}");
    }
}

/// A window update can be lost with its link. The sender must then probe the window, also if the
/// window is not closed but smaller than a segment.
#[test]
fn a_window_smaller_than_a_segment_is_probed() {
    let scenario = scenario(
        "duration = \"120s\"\ndirection = \"up\"\n\
         [workload]\nkind = \"files\"\nsizes = [\"400kB\"]\ncount = 2\ngap = \"50ms\"\n\
         [[link]]\nname = \"l0\"\nrate = \"14mbit\"\ndelay = \"3ms\"\nloss = \"2%\"\n\
         [[link]]\nname = \"l1\"\nrate = \"1mbit\"\ndelay = \"4ms\"\n\
         [[event]]\nat = \"262ms\"\nlink = \"l1\"\nstate = \"blackhole\"\n\
         [[event]]\nat = \"1026ms\"\nlink = \"l1\"\nstate = \"up\"\n",
    );
    for seed in [203, 205, 329] {
        let done = measured(&scenario, "lwip@hosts=nosack", seed);
        assert_eq!(done.completions.len(), 2, "seed {seed}");
    }
}

/// Without SACK, the acknowledgment of a retransmission also covers segments that the receiver
/// held behind the gap. Their age includes the wait for the retransmission, and is not a round-trip
/// time. As a sample, it raised the RTO at each timeout, until the next timeout was minutes away.
#[test]
fn segments_behind_a_filled_gap_give_no_round_trip_time() {
    let scenario = scenario(
        "duration = \"120s\"\ndirection = \"up\"\n\
         [workload]\nkind = \"files\"\nsizes = [\"400kB\"]\ncount = 2\ngap = \"50ms\"\n\
         [[link]]\nname = \"l0\"\nrate = \"1mbit\"\ndelay = \"46ms\"\n\
         jitter = \"4ms\"\nloss = \"3%\"\n\
         [[link]]\nname = \"l1\"\nrate = \"1mbit\"\ndelay = \"51ms\"\n\
         jitter = \"4ms\"\nloss = \"1%\"\n\
         [[event]]\nat = \"1310ms\"\nlink = \"l0\"\nstate = \"blackhole\"\n\
         [[event]]\nat = \"1725ms\"\nlink = \"l0\"\nstate = \"up\"\n",
    );
    for seed in [60, 129, 324, 371, 767] {
        let done = measured(&scenario, "lwip+visible@boost=off:hosts=nosack", seed);
        assert_eq!(done.completions.len(), 2, "seed {seed}");
    }
}

/// LTE and 802.11g of `scenarios/edge/lte-11g-jitter.toml`, with a loss on both.
fn jittery(loss: &str) -> Scenario {
    scenario(&format!(
        "duration = \"12s\"\nwarmup = \"2s\"\ncongestion = \"reno\"\n\
         [[link]]\nname = \"lte\"\nrate = \"26.6mbit\"\ndelay = \"15ms\"\n\
         jitter = \"1ms\"\nqueue = \"40packets\"\nloss = \"{loss}\"\n\
         [[link]]\nname = \"wifi\"\nrate = \"27.2mbit\"\ndelay = \"11ms\"\n\
         jitter = \"1ms\"\nqueue = \"40packets\"\nloss = \"{loss}\"\n"
    ))
}

/// At the end of its slow start, a sender without SACK loses as many packets as the queues hold. It
/// must not repair them one per round trip: it had 5.8 Mbit/s here.
#[test]
fn a_sender_without_sack_survives_the_end_of_its_slow_start() {
    let figures = measured(&scenario(UNEQUAL), "lwip+visible@hosts=newreno", 1);
    let goodput = figures.goodput_bps / 1e6;
    assert!(goodput > 21.5, "{goodput:.1} of 24.1");
}

/// The same with losses: it then waited for its timer until 6.1 s and had 15.0 Mbit/s, while half
/// of all seeds had more than 39.9.
#[test]
fn a_sender_without_sack_does_not_wait_for_its_timer_after_slow_start() {
    let figures = measured(&jittery("0.2%"), "lwip+visible@hosts=newreno", 25);
    let goodput = figures.goodput_bps / 1e6;
    assert!(goodput > 35.0, "{goodput:.1}");
}

/// A sender that undoes unnecessary reductions must not undo those for full queues. If it does, its
/// window grows to more than a thousand packets, and nothing arrives any more.
#[test]
fn a_sender_that_undoes_reductions_keeps_those_for_full_queues() {
    for seed in 1..=3 {
        let figures = measured(&jittery("0%"), "lwip+visible@hosts=nosack", seed);
        let goodput = figures.goodput_bps / 1e6;
        assert!(goodput > 40.0, "seed {seed}: {goodput:.1}");
    }
}

/// These figures change with the node, the links and TCP: review the difference, and commit it with
/// the change that caused it.
#[test]
fn side_by_side() {
    let scenario = scenario(UNEQUAL);
    let mut table = format!("{:<32}{}", "system", &HEAD[20..]);
    let hosts = ["linux", "newreno"].map(|hosts| {
        let nodes = [
            "lwip",
            "lwip:lrtt",
            "lwip:roundrobin",
            "lwa",
            "lwip+visible",
        ];
        nodes.map(|node| format!("{node}@hosts={hosts}"))
    });
    let others = ["alone", "mptcp", "sumlink:fbdt"].map(str::to_owned);
    for system in hosts.into_iter().flatten().chain(others) {
        let runs: Vec<Measurement> = (1..=3)
            .map(|seed| measured(&scenario, &system, seed))
            .collect();
        // The names here are longer than those of schedulers alone.
        let figures = compare::row("", &runs);
        table += &format!("{system:<32}{}", &figures[20..]);
    }
    insta::assert_snapshot!("edge_side_by_side", table);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whatever the links do, all data arrives in order, because a packet that differs from the one
    /// sent would fail the run. Every file arrives whole, or the program sees its connection end.
    #[test]
    fn files_arrive_whole_over_any_links(
        system in 0..SYSTEMS.len(),
        rates in [1u32..40, 1u32..40],
        delays in [0u32..60, 0u32..60],
        jitter in 0u32..8,
        losses in [0u32..4, 0u32..4],
        outage in (0u32..3, 100u32..3000, 100u32..1500, any::<bool>()),
        up: bool,
        seed in 1u64..1000,
    ) {
        let link = |n: usize| format!(
            "[[link]]\nname = \"l{n}\"\nrate = \"{}mbit\"\ndelay = \"{}ms\"\njitter = \"{jitter}ms\"\nloss = \"{}%\"\n",
            rates[n], delays[n], losses[n],
        );
        let (which, from, long, seen) = outage;
        let state = if seen { "down" } else { "blackhole" };
        let events = match which {
            2 => String::new(),
            n => format!(
                "[[event]]\nat = \"{from}ms\"\nlink = \"l{n}\"\nstate = \"{state}\"\n\
                 [[event]]\nat = \"{}ms\"\nlink = \"l{n}\"\nstate = \"up\"\n",
                from + long,
            ),
        };
        let direction = if up { "up" } else { "down" };
        let text = format!(
            "duration = \"120s\"\ndirection = \"{direction}\"\n\
             [workload]\nkind = \"files\"\nsizes = [\"400kB\"]\ncount = 2\ngap = \"50ms\"\n{}{}{events}",
            link(0), link(1),
        );
        let name = SYSTEMS[system];
        match run(&scenario(&text), name, seed).unwrap().outcome {
            Outcome::Measured(figures) => {
                let flows = if name.contains("flows=3") { 3 } else { 1 };
                prop_assert!(
                    figures.completions.len() == 2 * flows || figures.note.contains("ended"),
                    "{}: {} of {} files, {}\n{text}", name, figures.completions.len(), 2 * flows, figures.note
                );
            }
            // The programs reported that nothing arrived or that a connection ended.
            Outcome::Failed { reason } => {
                prop_assert!(!reason.contains("differs from the sent data") && !reason.contains("never sent"), "{}", reason);
                prop_assert!(reason.contains("ended") || reason.contains("connect"), "{}: {}\n{}", name, reason, text);
            }
            other => prop_assert!(false, "{name}: {other:?}"),
        }
    }
}
