//! Golden tables: the results of every scheduler on a few characteristic networks, with ten seeds
//! each.
//!
//! Any change of the engine or of the models shows as a readable difference. The tables state the
//! present results, not a requirement: run the tests with `INSTA_UPDATE=always`, review the
//! difference, and commit it with the change that caused it. Builds with and without optimization
//! produce the same events and therefore the same tables.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use sumlink_scenario::results::{Measurement, Outcome};
use sumlink_scenario::scenario::Scenario;
use sumlink_sim::compare::{self, HEAD};
use sumlink_sim::run;

const SEEDS: u64 = 10;

#[test]
fn unequal() {
    check(
        "unequal",
        "duration = \"3s\"\nwarmup = \"1s\"\n\
         [[link]]\nname = \"fast\"\nrate = \"40mbit\"\ndelay = \"5ms\"\n\
         [[link]]\nname = \"slow\"\nrate = \"10mbit\"\ndelay = \"40ms\"\n",
    );
}

#[test]
fn one_lossy() {
    check(
        "one_lossy",
        "duration = \"3s\"\nwarmup = \"1s\"\n\
         [[link]]\nname = \"clean\"\nrate = \"20mbit\"\ndelay = \"10ms\"\n\
         [[link]]\nname = \"lossy\"\nrate = \"30mbit\"\ndelay = \"10ms\"\nloss = \"2%\"\n",
    );
}

#[test]
fn long_queue() {
    check(
        "long_queue",
        "duration = \"4s\"\nwarmup = \"1s\"\n\
         [[link]]\nname = \"fast\"\nrate = \"30mbit\"\ndelay = \"10ms\"\nqueue = \"50ms\"\n\
         [[link]]\nname = \"slow\"\nrate = \"3mbit\"\ndelay = \"10ms\"\nqueue = \"400ms\"\n",
    );
}

#[test]
fn outage() {
    check(
        "outage",
        "duration = \"5s\"\nwarmup = \"500ms\"\n\
         [[link]]\nname = \"steady\"\nrate = \"10mbit\"\ndelay = \"20ms\"\n\
         [[link]]\nname = \"tunnel\"\nrate = \"20mbit\"\ndelay = \"10ms\"\n\
         [[event]]\nat = \"1s\"\nlink = \"tunnel\"\nstate = \"blackhole\"\n\
         [[event]]\nat = \"2500ms\"\nlink = \"tunnel\"\nstate = \"up\"\n",
    );
}

#[test]
fn fading() {
    check(
        "fading",
        "duration = \"8s\"\nwarmup = \"1s\"\n\
         [[link]]\nname = \"fades\"\nrate = \"30mbit\"\ndelay = \"5ms\"\n\
         [[link]]\nname = \"steady\"\nrate = \"6mbit\"\ndelay = \"40ms\"\nqueue = \"300ms\"\n\
         [[event]]\nat = \"3s\"\nlink = \"fades\"\nrate = \"1mbit\"\n\
         [[event]]\nat = \"5s\"\nlink = \"fades\"\nrate = \"30mbit\"\n",
    );
}

#[test]
fn fading_often() {
    check(
        "fading_often",
        "duration = \"6s\"\nwarmup = \"1s\"\n\
         [[link]]\nname = \"first\"\nrate = \"20mbit\"\ndelay = \"10ms\"\n\
         [[link]]\nname = \"second\"\nrate = \"20mbit\"\ndelay = \"25ms\"\nloss = \"0.1%\"\n\
         [[event]]\nat = \"1500ms\"\nlink = \"first\"\nrate = \"1mbit\"\n\
         [[event]]\nat = \"2s\"\nlink = \"first\"\nrate = \"20mbit\"\n\
         [[event]]\nat = \"3s\"\nlink = \"second\"\nrate = \"2mbit\"\n\
         [[event]]\nat = \"4s\"\nlink = \"second\"\nrate = \"20mbit\"\n\
         [[event]]\nat = \"4500ms\"\nlink = \"first\"\nrate = \"1mbit\"\n\
         [[event]]\nat = \"5s\"\nlink = \"first\"\nrate = \"20mbit\"\n",
    );
}

#[test]
fn four_links() {
    check(
        "four_links",
        "duration = \"3s\"\nwarmup = \"1s\"\n\
         [[link]]\nname = \"a\"\nrate = \"10mbit\"\ndelay = \"5ms\"\n\
         [[link]]\nname = \"b\"\nrate = \"10mbit\"\ndelay = \"15ms\"\n\
         [[link]]\nname = \"c\"\nrate = \"5mbit\"\ndelay = \"30ms\"\njitter = \"5ms\"\n\
         [[link]]\nname = \"d\"\nrate = \"20mbit\"\ndelay = \"50ms\"\n",
    );
}

#[test]
fn objects() {
    check(
        "objects",
        "duration = \"15s\"\n\
         [[link]]\nname = \"fast\"\nrate = \"40mbit\"\ndelay = \"10ms\"\n\
         [[link]]\nname = \"slow\"\nrate = \"10mbit\"\ndelay = \"40ms\"\n\
         [workload]\nkind = \"files\"\nsizes = [\"30kB\", \"1MB\"]\ncount = 3\ngap = \"500ms\"\n",
    );
}

#[test]
fn questions_under_load() {
    check(
        "questions_under_load",
        "duration = \"4s\"\nwarmup = \"1s\"\n\
         [[link]]\nname = \"fast\"\nrate = \"20mbit\"\ndelay = \"10ms\"\n\
         [[link]]\nname = \"slow\"\nrate = \"10mbit\"\ndelay = \"30ms\"\n\
         [workload]\nkind = \"requests\"\nload = true\n",
    );
}

#[test]
fn questions_when_idle() {
    check(
        "questions_when_idle",
        "duration = \"4s\"\nwarmup = \"1s\"\n\
         [[link]]\nname = \"near\"\nrate = \"180mbit\"\ndelay = \"4ms\"\n\
         [[link]]\nname = \"far\"\nrate = \"60mbit\"\ndelay = \"10ms\"\n\
         [workload]\nkind = \"requests\"\n",
    );
}

/// Queues of 50 ms and a round-trip time of 204 ms: without pacing, the queues would overflow while
/// the links are idle.
#[test]
fn high_rtt() {
    check(
        "high_rtt",
        "duration = \"8s\"\nwarmup = \"3s\"\n\
         [[link]]\nname = \"first\"\nrate = \"50mbit\"\ndelay = \"102ms\"\nqueue = \"50ms\"\n\
         [[link]]\nname = \"second\"\nrate = \"50mbit\"\ndelay = \"102ms\"\nqueue = \"50ms\"\n",
    );
}

/// Decisions of the daemon by measurement, and early answers, with the usual schedulers.
#[test]
fn daemon_options() {
    check_systems(
        "daemon_options",
        "duration = \"24s\"\nwarmup = \"12s\"\n\
         [[link]]\nname = \"clean\"\nrate = \"20mbit\"\ndelay = \"15ms\"\n\
         [[link]]\nname = \"lossy\"\nrate = \"20mbit\"\ndelay = \"20ms\"\nloss = \"2%\"\n",
        &[
            "sumlink:fbdt",
            "sumlink:fbdt+bbr",
            "sumlink:fbdt+auto",
            "sumlink:fbdt+cubic+2",
            "sumlink:fbdt+cubic+auto",
            "sumlink:fbdt+auto+auto",
            "sumlink:fbdt+early",
            "sumlink:minrtt+auto",
        ],
    );
}

/// Compares the table of a scenario with the one that was written down.
fn check(name: &str, text: &str) {
    let systems = sumlink_schedulers::NAMES.iter();
    let systems: Vec<String> = systems.map(|name| format!("sumlink:{name}")).collect();
    let systems: Vec<&str> = systems.iter().map(String::as_str).collect();
    check_systems(name, text, &systems);
}

/// The same with other systems.
fn check_systems(name: &str, text: &str, systems: &[&str]) {
    let text = format!("name = \"{name}\"\n{text}");
    let scenario = Scenario::parse(Path::new("golden.toml"), &text).unwrap();
    let rows = of_all(systems, |system| row(&scenario, system));
    let mut table = HEAD.to_owned();
    table.extend(rows);
    insta::assert_snapshot!(name, table, &text);
}

/// One row for each system, in order, computed by one thread per processor.
fn of_all(names: &[&str], row: impl Fn(&str) -> String + Sync) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut rows = Vec::new();
        while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
            rows.push((*name, row(name)));
        }
        rows
    };
    let mut rows: Vec<(&str, String)> = thread::scope(|scope| {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let rows = workers.into_iter().map(|worker| worker.join().unwrap());
        rows.flatten().collect()
    });
    rows.sort_by_key(|(name, _)| names.iter().position(|other| other == name));
    rows.into_iter().map(|(_, row)| row).collect()
}

/// The row of a system with all seeds.
fn row(scenario: &Scenario, system: &str) -> String {
    let mut runs: Vec<Measurement> = Vec::new();
    for seed in 1..=SEEDS {
        match run(scenario, system, seed).unwrap().outcome {
            Outcome::Measured(figures) => runs.push(*figures),
            Outcome::Skipped { reason } => return format!("{system:<20} {reason}\n"),
            other => panic!("{system}, seed {seed}: {other:?}"),
        }
    }
    compare::row(system, &runs)
}
