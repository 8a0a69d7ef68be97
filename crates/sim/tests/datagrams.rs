//! Golden tables of datagrams: calls, games and constant rates, with every policy, on a few
//! characteristic networks.
//!
//! As in `golden.rs`, the tables state the present results: run the tests with
//! `INSTA_UPDATE=always`, review the difference, and commit it with the change that caused it.

use std::path::Path;

use sumlink_scenario::results::{Measurement, Outcome};
use sumlink_scenario::scenario::Scenario;
use sumlink_sim::compare::{DATAGRAM_HEAD, datagram_rows};
use sumlink_sim::run;

const SEEDS: u64 = 3;

const POLICIES: [&str; 4] = ["auto", "pinned", "spread", "duplicate"];

/// Links of 20 and 60 ms, the better of which is silent for 5 s.
const SILENT: &str = "duration = \"15s\"\nwarmup = \"2s\"\n\
     [workload]\nkind = \"call\"\n\
     [[link]]\nname = \"near\"\nrate = \"20mbit\"\ndelay = \"20ms\"\n\
     [[link]]\nname = \"far\"\nrate = \"20mbit\"\ndelay = \"60ms\"\n\
     [[event]]\nat = \"5s\"\nlink = \"near\"\nstate = \"blackhole\"\n\
     [[event]]\nat = \"10s\"\nlink = \"near\"\nstate = \"up\"\n";

#[test]
fn call_over_a_silent_link() {
    let runs = check("call_over_a_silent_link", SILENT);
    for flow in flows(&runs, "sumlink:fbdt:datagrams=auto") {
        assert!(flow.gap_ms <= 150.0, "{flow:?}");
    }
    for flow in flows(&runs, "sumlink:fbdt:datagrams=duplicate") {
        assert_eq!(flow.lost, 0, "{flow:?}");
    }
}

#[test]
fn game() {
    let runs = check(
        "game",
        "duration = \"10s\"\nwarmup = \"2s\"\n[workload]\nkind = \"game\"\n\
         [[link]]\nname = \"near\"\nrate = \"20mbit\"\ndelay = \"20ms\"\n\
         [[link]]\nname = \"far\"\nrate = \"20mbit\"\ndelay = \"60ms\"\n",
    );
    let alone: Vec<_> = flows(&runs, "alone").collect();
    let best = |part: fn(&sumlink_scenario::results::Quantiles) -> f64| {
        let delays = alone
            .iter()
            .filter_map(|flow| flow.delay_ms.as_ref().map(part));
        delays.fold(f64::INFINITY, f64::min)
    };
    let (p50, p99) = (best(|delay| delay.p50), best(|delay| delay.p99));
    for policy in POLICIES {
        for flow in flows(&runs, &format!("sumlink:fbdt:datagrams={policy}")) {
            let delay = flow.delay_ms.as_ref().expect("something arrives");
            assert!(delay.p50 <= p50 + 1.0, "{policy}: {flow:?}");
            assert!(delay.p99 <= p99 + 5.0, "{policy}: {flow:?}");
        }
    }
}

#[test]
fn spread_over_unequal_links() {
    check(
        "spread_over_unequal_links",
        "duration = \"8s\"\nwarmup = \"2s\"\n\
         [workload]\nkind = \"datagrams\"\nrate = \"50mbit\"\nsizes = [\"1250B\"]\n\
         [[link]]\nname = \"fast\"\nrate = \"40mbit\"\ndelay = \"10ms\"\n\
         [[link]]\nname = \"slow\"\nrate = \"20mbit\"\ndelay = \"30ms\"\n",
    );
}

#[test]
fn duplicates_on_lossy_links() {
    let runs = check(
        "duplicates_on_lossy_links",
        "duration = \"20s\"\nwarmup = \"2s\"\n[workload]\nkind = \"call\"\n\
         [[link]]\nname = \"first\"\nrate = \"20mbit\"\ndelay = \"20ms\"\nloss = \"1%\"\n\
         [[link]]\nname = \"second\"\nrate = \"20mbit\"\ndelay = \"30ms\"\nloss = \"1%\"\n",
    );
    for flow in flows(&runs, "sumlink:fbdt:datagrams=duplicate") {
        assert!(flow.loss() < 0.002, "{flow:?}");
    }
}

/// A game, a call beside a bulk download, and UDP that does not pass.
#[test]
fn call_beside_a_download() {
    let runs = check_systems(
        "call_beside_a_download",
        "duration = \"10s\"\nwarmup = \"3s\"\n[workload]\nkind = \"call\"\nload = true\n\
         [[link]]\nname = \"near\"\nrate = \"30mbit\"\ndelay = \"15ms\"\n\
         [[link]]\nname = \"far\"\nrate = \"10mbit\"\ndelay = \"40ms\"\n",
        &[
            "sumlink:fbdt:datagrams=auto",
            "sumlink:fbdt:datagrams=auto:blocked=near",
            "sumlink:fbdt:datagrams=auto:blocked=all",
            "sumlink:fbdt:datagrams=auto:udp=off",
            "sumlink:fbdt:datagrams=auto:yield=off",
        ],
    );
    let goodput = |system: &str| -> f64 {
        let (_, runs) = runs.iter().find(|(name, _)| name == system).unwrap();
        runs.iter().map(|run| run.goodput_bps).sum()
    };
    let (yielding, without) = (
        goodput("sumlink:fbdt:datagrams=auto"),
        goodput("sumlink:fbdt:datagrams=auto:yield=off"),
    );
    assert!(yielding >= 0.95 * without, "{yielding} of {without} bit/s");
    for flow in flows(&runs, "sumlink:fbdt:datagrams=auto") {
        let delay = flow.delay_ms.as_ref().expect("something arrives");
        assert!(delay.p99 <= 15.0 + 15.0, "{flow:?}");
    }
}

type Runs = Vec<(String, Vec<Measurement>)>;

/// The flows of all runs of a system.
fn flows<'a>(
    runs: &'a Runs,
    system: &str,
) -> impl Iterator<Item = &'a sumlink_scenario::results::Datagrams> {
    let (_, runs) = runs
        .iter()
        .find(|(name, _)| name == system)
        .expect("it ran");
    runs.iter().flat_map(|run| &run.datagrams)
}

/// Compares the table of a scenario with the one that was written down; returns its runs.
fn check(name: &str, text: &str) -> Runs {
    let policies = POLICIES.map(|policy| format!("sumlink:fbdt:datagrams={policy}"));
    let mut systems: Vec<&str> = policies.iter().map(String::as_str).collect();
    systems.push("alone");
    check_systems(name, text, &systems)
}

fn check_systems(name: &str, text: &str, systems: &[&str]) -> Runs {
    let text = format!("name = \"{name}\"\n{text}");
    let scenario = Scenario::parse(Path::new("golden.toml"), &text).unwrap();
    let of = |system: &&str| {
        let runs = (1..=SEEDS).map(|seed| match run(&scenario, system, seed).unwrap().outcome {
            Outcome::Measured(figures) => *figures,
            other => panic!("{system}, seed {seed}: {other:?}"),
        });
        ((*system).to_owned(), runs.collect())
    };
    let runs: Runs = systems.iter().map(of).collect();
    let mut table = DATAGRAM_HEAD.to_owned();
    table.extend(
        runs.iter()
            .map(|(system, runs)| datagram_rows(system, runs)),
    );
    insta::assert_snapshot!(name, table, &text);
    runs
}
