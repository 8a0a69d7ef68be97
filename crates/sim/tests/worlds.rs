//! Complete runs: they are reproducible, and as fast as the links allow.

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use sumlink_scenario::results::{Measurement, Outcome};
use sumlink_scenario::scenario::Scenario;
use sumlink_sim::{run, run_logged, run_traced};

fn scenario(text: &str) -> Scenario {
    let text = format!("name = \"test\"\n{text}");
    Scenario::parse(Path::new("test.toml"), &text).unwrap()
}

const LOSSY: &str = "duration = \"5s\"\nwarmup = \"1s\"\n\
    [[link]]\nname = \"first\"\nrate = \"20mbit\"\ndelay = \"20ms\"\njitter = \"5ms\"\nloss = \"1%\"\n\
    [[link]]\nname = \"second\"\nrate = \"15mbit\"\ndelay = \"40ms\"\nloss = \"burst:1%:4\"\n";

const CLEAN: &str = "duration = \"6s\"\nwarmup = \"2s\"\n\
    [[link]]\nname = \"first\"\nrate = \"50mbit\"\ndelay = \"10ms\"\n\
    [[link]]\nname = \"second\"\nrate = \"20mbit\"\ndelay = \"30ms\"\n";

fn measured(scenario: &Scenario, system: &str, seed: u64) -> Measurement {
    match run(scenario, system, seed).unwrap().outcome {
        Outcome::Measured(figures) => *figures,
        other => panic!("{system}: {other:?}"),
    }
}

#[test]
fn equal_seeds_give_equal_logs() {
    let scenario = scenario(LOSSY);
    for system in ["alone", "mptcp", "sumlink:fbdt", "sumlink:minrtt"] {
        let hash = |seed| run_logged(&scenario, system, seed).unwrap().1.hash();
        assert_eq!(hash(1), hash(1), "{system}");
        assert_ne!(hash(1), hash(2), "{system}");
        let digest = measured(&scenario, system, 1).event_log.unwrap();
        assert_eq!(digest.hash, format!("{:016x}", hash(1)), "{system}");
        let whole = |seed| run(&scenario, system, seed).unwrap();
        assert_eq!(whole(1), whole(1), "{system}");
    }
}

/// The numbers are from plain TCP, without the engine: they change only with the models of links,
/// TCP and congestion control, and are the same in builds with and without optimization.
#[test]
fn every_build_produces_the_same_events() {
    let (_, log) = run_logged(&scenario(LOSSY), "simultaneous", 7).unwrap();
    assert_eq!(
        (log.entries(), log.hash()),
        EVENTS,
        "the models have changed: update the numbers"
    );
}

const EVENTS: (u64, u64) = (5323, 728_832_302_702_612_294);

#[test]
fn one_flow_fills_its_link() {
    let figures = measured(&scenario(CLEAN), "alone", 1);
    let of = |index: usize| figures.flows[index].goodput_bps / 1e6;
    // 1448 of 1500 bytes are payload.
    assert!(
        (of(0) / (50.0 * 1448.0 / 1500.0) - 1.0).abs() < 0.01,
        "{}",
        of(0)
    );
    assert!(
        (of(1) / (20.0 * 1448.0 / 1500.0) - 1.0).abs() < 0.01,
        "{}",
        of(1)
    );
}

#[test]
fn every_scheduler_carries_bulk_over_both_links() {
    let scenario = scenario(CLEAN);
    let best = 50.0 * 1448.0 / 1500.0;
    for name in ["fbdt", "minrtt", "blest", "ecf", "linux", "roundrobin"] {
        let figures = measured(&scenario, &format!("sumlink:{name}"), 1);
        let goodput = figures.goodput_bps / 1e6;
        assert!(goodput > 0.6 * best, "{name}: {goodput:.1}");
        assert!(goodput < 70.0, "{name}: {goodput:.1}");
    }
    let fbdt = measured(&scenario, "sumlink:fbdt", 1).goodput_bps / 1e6;
    assert!(fbdt > 63.0, "{fbdt}");
}

/// Token buckets, as a shaper and as a policer: a link is used at its long-term rate, even after a
/// burst at a higher rate.
#[test]
fn a_token_bucket_is_used_at_its_long_term_rate() {
    let shaped = |name, rate| {
        format!(
            "[[link]]\nname = \"{name}\"\nrate = \"{rate}\"\nburst = \"32kB\"\ndelay = \"1ms\"\n"
        )
    };
    let links = shaped("first", "20mbit") + &shaped("second", "10mbit");
    let text = format!("duration = \"8s\"\nwarmup = \"2s\"\n{links}");
    let figures = measured(&scenario(&text), "sumlink:fbdt", 1);
    let sum = 30e6 * 1448.0 / 1500.0;
    assert!(figures.goodput_bps > 0.97 * sum, "{}", figures.goodput_bps);
    assert!(figures.goodput_bps < 1.01 * sum, "{}", figures.goodput_bps);
    let twice = figures.duplicates_bytes.unwrap();
    assert!(twice < 300_000, "{twice} bytes of 30 MB twice");
    let policed = "duration = \"8s\"\nwarmup = \"2s\"\n[[link]]\nname = \"first\"\nrate = \"100mbit\"\n\
                   delay = \"10ms\"\npolicer = \"20mbit:64kB\"\n";
    let figures = measured(&scenario(policed), "alone", 1);
    let most = 20e6 * 1448.0 / 1500.0;
    assert!(
        figures.goodput_bps <= 1.01 * most,
        "{}",
        figures.goodput_bps
    );
    assert!(figures.goodput_bps > 0.5 * most, "{}", figures.goodput_bps);
}

/// The rates of a tariff beyond its cap, over round trips below a millisecond. Each window ends
/// with losses that only timeouts repair: no outage, and the burst after it shows no rate.
#[test]
fn policed_links_of_a_tariff_carry_little_twice() {
    let policed = |name, rate| {
        format!("[[link]]\nname = \"{name}\"\nrate = \"50mbit\"\npolicer = \"{rate}:32kB\"\n")
    };
    let links = policed("first", "2mbit") + &policed("second", "1mbit");
    for direction in ["down", "up"] {
        for congestion in ["cubic", "bbr"] {
            let text = format!(
                "duration = \"20s\"\nwarmup = \"5s\"\ndirection = \"{direction}\"\n\
                 congestion = \"{congestion}\"\n{links}"
            );
            let figures = measured(&scenario(&text), "sumlink:fbdt", 1);
            let case = format!("{direction}, {congestion}");
            let sum = 3e6 * 1448.0 / 1500.0;
            assert!(
                figures.goodput_bps > 0.95 * sum,
                "{case}: {}",
                figures.goodput_bps
            );
            let twice = figures.duplicates_bytes.unwrap() as f64 / figures.bytes as f64;
            assert!(twice <= 0.02, "{case}: {twice}");
        }
    }
}

#[test]
fn objects_arrive_and_questions_are_answered() {
    let files = format!(
        "{CLEAN}[workload]\nkind = \"files\"\nsizes = [\"10kB\", \"1MB\"]\ncount = 3\ngap = \"100ms\"\n"
    );
    let requests = format!("{CLEAN}[workload]\nkind = \"requests\"\n");
    for system in ["alone", "sumlink:fbdt"] {
        let files = measured(
            &scenario(&files.replace("warmup = \"2s\"\n", "")),
            system,
            1,
        );
        let links = if system == "alone" { 2 } else { 1 };
        assert_eq!(files.completions.len(), 6 * links, "{system}");
        let requests = measured(&scenario(&requests), system, 1);
        let least = requests
            .message_delays_ms
            .iter()
            .copied()
            .fold(f64::INFINITY, f64::min);
        assert!((20.0..22.0).contains(&least), "{system}: {least} ms");
        assert!(requests.message_delays_ms.len() > 40, "{system}");
    }
}

#[test]
fn classes_and_session_settings_of_the_scenario_apply() {
    let streaming = scenario(&format!(
        "{CLEAN}[workload]\nkind = \"bulk\"\nclass = \"streaming\"\n"
    ));
    let doubles = |name: &str| {
        let figures = measured(&streaming, name, 1);
        let bytes = figures.goodput_bps / 8.0 * 6.0;
        figures.duplicates_bytes.unwrap() as f64 / bytes
    };
    // A redundant stream is sent over both links, as far as the slower one gets.
    let (own, other) = (
        doubles("sumlink:fbdt:streaming=redundant"),
        doubles("sumlink:redundant:streaming=fbdt"),
    );
    assert!(own > 0.2 && other < 0.02, "{own}, {other}");
    let lossy = scenario(LOSSY);
    let twice = |name: &str| measured(&lossy, name, 1).duplicates_bytes.unwrap();
    let none = "sumlink:fbdt:redundancy.share=0%:redundancy.floor=0:redundancy.refill=0:redundancy.advance=0";
    assert!(twice("sumlink:fbdt") > 0);
    assert_eq!(twice(none), 0);
}

#[test]
fn small_objects_after_a_large_one_take_the_faster_link() {
    for direction in ["down", "up"] {
        let text = format!(
            "direction = \"{direction}\"\n{}",
            include_str!("../../../scenarios/after-bulk.toml")
        );
        let after_bulk = Scenario::parse(Path::new("after-bulk.toml"), &text).unwrap();
        let figures = measured(&after_bulk, "sumlink:fbdt", 1);
        let small = figures
            .completions
            .iter()
            .filter(|object| object.size_bytes == 1000);
        let took: Vec<_> = small
            .map(|object| (object.duration_s * 1e3).round())
            .collect();
        // A round trip of 10 ms, as against 40 ms over the slower link.
        assert_eq!(took, [10.0; 16], "{direction}");
    }
}

#[test]
fn paced_objects_start_at_the_same_times_with_every_system() {
    // 1 MB is due every 0.8 s; each link alone is faster than that, and so are both together.
    let text = format!(
        "{CLEAN}[workload]\nkind = \"files\"\nsizes = [\"1MB\"]\ncount = 3\npace = \"10mbit\"\n"
    );
    let scenario = scenario(&text.replace("warmup = \"2s\"\n", ""));
    for system in ["alone", "sumlink:fbdt"] {
        for object in measured(&scenario, system, 1).completions {
            let slot = object.start_s % 0.8;
            assert!(
                slot.min(0.8 - slot) < 0.01,
                "{system}: {} s",
                object.start_s
            );
        }
    }
}

#[test]
fn mptcp_aggregates_equal_links_and_survives_a_silent_one() {
    let equal = CLEAN.replace("20mbit", "50mbit").replace("30ms", "10ms");
    let figures = measured(&scenario(&equal), "mptcp", 1);
    let goodput = figures.goodput_bps / 1e6;
    assert!((85.0..97.0).contains(&goodput), "{goodput:.1}");
    let silent = "[[event]]\nat = \"3s\"\nlink = \"second\"\nstate = \"blackhole\"\n";
    let text = format!("{}{silent}", equal.replace("\"6s\"", "\"40s\""));
    let figures = measured(&scenario(&text), "mptcp", 1);
    assert!(figures.goodput.bps[390..].iter().any(|bps| *bps > 10e6));
    let files = format!(
        "{CLEAN}[workload]\nkind = \"files\"\nsizes = [\"10kB\", \"1MB\"]\ncount = 3\ngap = \"1s\"\n"
    );
    let files = scenario(&files.replace("warmup = \"2s\"\n", ""));
    assert_eq!(measured(&files, "mptcp", 1).completions.len(), 6);
}

#[test]
fn uploads_and_a_rival() {
    let text = CLEAN.replace(
        "duration",
        "direction = \"both\"\nrival = \"first\"\nduration",
    );
    let figures = measured(&scenario(&text), "sumlink:fbdt", 1);
    assert_eq!(figures.flows.len(), 2);
    assert!(figures.flows.iter().all(|flow| flow.goodput_bps > 20e6));
    assert!(figures.rival_bps.unwrap() > 10e6);
}

#[test]
fn a_link_that_returns_is_used_again() {
    let events = "[[event]]\nat = \"2s\"\nlink = \"first\"\nstate = \"down\"\n\
                  [[event]]\nat = \"3s\"\nlink = \"first\"\nstate = \"up\"\n";
    for state in ["down", "blackhole"] {
        let text = format!(
            "{CLEAN}{}",
            events.replace("\"down\"", &format!("\"{state}\""))
        );
        let figures = measured(&scenario(&text), "sumlink:fbdt", 1);
        let rate = |from: usize, to: usize| {
            figures.goodput.bps[from..to].iter().sum::<f64>() / (to - from) as f64 / 1e6
        };
        assert!(
            rate(24, 30) > 10.0,
            "{state}: {:.1} without the first link",
            rate(24, 30)
        );
        assert!(
            rate(50, 60) > 55.0,
            "{state}: {:.1} with it again",
            rate(50, 60)
        );
    }
}

/// With a detour in the direction of the data only, half of the round trip is less than the one-way
/// delay. Data on the detour must not be considered late and duplicated over the other link.
#[test]
fn a_one_way_detour_causes_no_duplicates() {
    let scenario = scenario(
        "duration = \"12s\"\nwarmup = \"4s\"\n\
         [[link]]\nname = \"near\"\nrate = \"60mbit\"\ndelay = \"2ms\"\nqueue = \"50ms\"\n\
         [[link]]\nname = \"detour\"\nrate = \"20mbit\"\ndelay = { down = \"302ms\", up = \"2ms\" }\nqueue = \"50ms\"\n",
    );
    let alone = measured(&scenario, "alone", 1).goodput_bps;
    for seed in 1..=3 {
        let figures = measured(&scenario, "sumlink:fbdt", seed);
        let (twice, bytes) = (figures.duplicates_bytes.unwrap(), figures.bytes);
        assert!(
            twice * 100 < bytes,
            "{seed}: {twice} bytes sent twice of {bytes}"
        );
        assert!(figures.goodput_bps > alone, "{seed}: {figures:?}");
    }
}

/// Data in the queue of a link that has become slow must not delay the other link's data until that
/// queue is empty.
#[test]
fn a_fading_link_does_not_stop_the_transfer() {
    let scenario = scenario(
        "duration = \"25s\"\nwarmup = \"2s\"\n\
         [[link]]\nname = \"good\"\nrate = \"6mbit\"\ndelay = \"30ms\"\njitter = \"2ms\"\nqueue = \"200ms\"\n\
         [[link]]\nname = \"fades\"\nrate = \"6mbit\"\ndelay = \"40ms\"\njitter = \"2ms\"\nqueue = \"400ms\"\n\
         [[event]]\nat = \"10s\"\nlink = \"fades\"\nrate = \"300kbit\"\ndelay = \"300ms\"\n",
    );
    for seed in 1..=3 {
        let figures = measured(&scenario, "sumlink:fbdt", seed);
        let seconds = figures.goodput.bps.chunks_exact(10);
        let means: Vec<f64> = seconds
            .map(|second| second.iter().sum::<f64>() / 10e6)
            .collect();
        // Detection takes at most one second.
        let slow = means[10..].iter().filter(|&&mbit| mbit < 3.0).count();
        assert!(slow <= 1, "{seed}: {means:?}");
    }
}

/// A fast link that fades for 2 s, beside a slow one that pauses for 300 ms in each second.
fn fading(seconds: u32) -> Scenario {
    let mut text = format!(
        "duration = \"{seconds}s\"\nwarmup = \"1s\"\n\
         [[link]]\nname = \"wifi\"\nrate = \"30mbit\"\ndelay = \"5ms\"\n\
         [[link]]\nname = \"cell\"\nrate = \"6mbit\"\ndelay = \"40ms\"\nqueue = \"300ms\"\n\
         [[event]]\nat = \"3s\"\nlink = \"wifi\"\nrate = \"1mbit\"\n\
         [[event]]\nat = \"5s\"\nlink = \"wifi\"\nrate = \"30mbit\"\n"
    );
    for second in 0..seconds {
        for (at, rate) in [(200, "0"), (500, "6mbit")] {
            let event = format!(
                "at = \"{}ms\"\nlink = \"cell\"\nrate = \"{rate}\"",
                second * 1000 + at
            );
            text += &format!("[[event]]\n{event}\n");
        }
    }
    scenario(&text)
}

#[test]
fn after_a_fade_the_fast_link_serves_the_reader_again() {
    for seconds in [8, 16] {
        let scenario = fading(seconds);
        let alone = measured(&scenario, "alone", 1);
        let best = alone.flows.iter().map(|flow| flow.goodput_bps);
        let best = best.fold(0.0, f64::max);
        for seed in 1..=5 {
            let other = measured(&scenario, "sumlink:minrtt", seed).goodput_bps;
            let bond = measured(&scenario, "sumlink:fbdt", seed);
            let held = bond.reorder_peak_bytes.unwrap();
            let what = format!(
                "{seconds} s, seed {seed}: {} Mbit/s",
                bond.goodput_bps / 1e6
            );
            assert!(bond.goodput_bps > best, "{what}, the best link {best}");
            assert!(bond.goodput_bps > 0.96 * other, "{what}, minrtt {other}");
            assert!(held < 3_500_000, "{what}, {held} bytes held");
        }
    }
}

/// The lines of a trace.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// When the link is back, a whole window of data is sent to it at once and waits in its deep queue.
#[test]
fn a_link_that_returns_with_a_large_window_is_not_given_up_again() {
    let scenario = scenario(
        "duration = \"8s\"\nwarmup = \"1s\"\n\
         [[link]]\nname = \"deep\"\nrate = \"30mbit\"\ndelay = \"10ms\"\nqueue = \"300ms\"\n\
         [[link]]\nname = \"second\"\nrate = \"10mbit\"\ndelay = \"30ms\"\n\
         [[event]]\nat = \"3s\"\nlink = \"deep\"\nrate = \"1mbit\"\n\
         [[event]]\nat = \"4500ms\"\nlink = \"deep\"\nrate = \"30mbit\"\n",
    );
    let lines = Lines::default();
    run_traced(&scenario, "sumlink:fbdt", 1, Box::new(lines.clone())).unwrap();
    let lines = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let stalls = lines.lines().filter(|line| line.contains("\"stalled\""));
    let stalls: Vec<_> = stalls.filter(|line| line.contains("\"server\"")).collect();
    assert_eq!(stalls.len(), 1, "{stalls:?}");
}

#[test]
fn session_memory_is_the_peak_of_both_ends() {
    let scenario = scenario(CLEAN);
    let figures = measured(&scenario, "sumlink:minrtt", 1);
    let (memory, gaps) = (figures.memory_peak_bytes, figures.reorder_peak_bytes);
    let (memory, gaps) = (memory.unwrap(), gaps.unwrap());
    // The sender must hold the data in flight: 70 Mbit/s for 60 ms.
    assert!(memory > gaps && memory > 500_000, "{memory}, {gaps}");
    assert!(memory < 64 << 20, "{memory}");
    assert_eq!(measured(&scenario, "alone", 1).memory_peak_bytes, None);
    // Ten times the duration must not need ten times the memory.
    let text = CLEAN.replace("\"6s\"", "\"60s\"");
    let longer = self::scenario(&text);
    let later = measured(&longer, "sumlink:minrtt", 1).memory_peak_bytes;
    assert!(later.unwrap() < 2 * memory, "{later:?}, {memory}");
}

#[test]
fn unsupported_features_are_skipped_with_a_reason() {
    let scenario = scenario(CLEAN);
    for (system, reason) in [
        ("aggligator", "does not have this system"),
        ("sumlink:fbdt+westwood", "westwood"),
    ] {
        match run(&scenario, system, 1).unwrap().outcome {
            Outcome::Skipped { reason: said } => assert!(said.contains(reason), "{said}"),
            other => panic!("{system}: {other:?}"),
        }
    }
    match run(&scenario, "lwip@acks=steered", 1).unwrap().outcome {
        Outcome::Skipped { reason } => assert!(reason.contains("first link"), "{reason}"),
        other => panic!("{other:?}"),
    }
    // The simulated node steers only downlink packets; uplink packets take the first link, and the
    // note says so.
    let upwards = self::scenario(&format!("direction = \"up\"\n{CLEAN}"));
    match run(&upwards, "lwip", 1).unwrap().outcome {
        Outcome::Measured(figures) => {
            let note = figures.note;
            assert!(
                note.contains("uplink traffic takes the first link"),
                "{note}"
            );
        }
        other => panic!("{other:?}"),
    }
    assert!(
        run(&scenario, "tcp", 1)
            .unwrap_err()
            .contains("no system 'tcp'")
    );
}

/// Random losses: a loss-based control uses little of the links, and several connections use more.
#[test]
fn carriers_that_measure_get_more_out_of_links_that_lose_packets() {
    let scenario = scenario(
        "duration = \"40s\"\nwarmup = \"15s\"\n\
         [[link]]\nname = \"first\"\nrate = \"30mbit\"\ndelay = \"20ms\"\nloss = \"1%\"\n\
         [[link]]\nname = \"second\"\nrate = \"20mbit\"\ndelay = \"30ms\"\nloss = \"1%\"\n",
    );
    let goodput = |system: &str| measured(&scenario, system, 1).goodput_bps;
    let one = goodput("sumlink:fbdt+cubic");
    let (chosen, several) = (
        goodput("sumlink:fbdt+auto"),
        goodput("sumlink:fbdt+cubic+auto"),
    );
    assert!(chosen > 1.5 * one, "{chosen} {one}");
    assert!(several > 1.2 * one, "{several} {one}");
}

/// A program that does not wait for the server receives its first answer one round trip earlier.
#[test]
fn early_streams_save_a_round_trip() {
    let scenario = scenario(
        "duration = \"10s\"\n\
         [[link]]\nname = \"only\"\nrate = \"30mbit\"\ndelay = \"50ms\"\n\
         [workload]\nkind = \"files\"\nsizes = [\"3kB\"]\ncount = 1\ngap = \"100ms\"\n",
    );
    let took = |system: &str| {
        let done = measured(&scenario, system, 1).completions;
        done.first().unwrap().duration_s
    };
    let (waits, early) = (took("sumlink:fbdt"), took("sumlink:fbdt+early"));
    let saved = waits - early;
    assert!((0.09..0.15).contains(&saved), "{waits} {early}");
}

#[test]
fn coupled_senders_of_a_bond_take_the_share_of_one_flow() {
    let text = |congestion: &str| {
        format!(
            "duration = \"20s\"\nwarmup = \"2s\"\ncongestion = \"{congestion}\"\n\
             [[link]]\nname = \"first\"\nrate = \"20mbit\"\ndelay = \"20ms\"\nloss = \"1%\"\n\
             [[link]]\nname = \"second\"\nrate = \"20mbit\"\ndelay = \"20ms\"\nloss = \"1%\"\n"
        )
    };
    let goodput = |congestion: &str, system: &str| {
        let scenario = scenario(&text(congestion));
        measured(&scenario, system, 1).goodput_bps
    };
    for system in ["sumlink:fbdt", "mptcp"] {
        let (coupled, uncoupled) = (goodput("lia", system), goodput("uncoupled", system));
        let part = coupled / uncoupled;
        assert!((0.35..0.75).contains(&part), "{system}: {part}");
    }
    // Connections outside of a bond have no siblings.
    let (coupled, uncoupled) = (
        goodput("lia", "simultaneous"),
        goodput("uncoupled", "simultaneous"),
    );
    assert!(
        (coupled / uncoupled - 1.0).abs() < 0.05,
        "{coupled} {uncoupled}"
    );
}
