//! From the matrix to its lines, without a laboratory.

use std::collections::BTreeMap;

use clap::Parser;

use super::quantities::fixture::{flow, own};
use super::*;
use crate::results::{ALONE, Measurement, Outcome, Run};
use crate::run::Job;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    options: BenchOptions,
}

fn options(arguments: &[&str]) -> BenchOptions {
    Line::parse_from(["bench"].iter().chain(arguments)).options
}

/// Two rows that contain the same link under different names, and a third that repeats the second.
const ROWS: &str = "name = \"g\"\nbars = [\"sum >= 0.95\"]\n[scenario]\nduration = \"3s\"\n\
                    warmup = \"1s\"\n\
    [[row]]\nname = \"one\"\n[[row.link]]\nname = \"wifi\"\nrate = \"80mbit\"\n\
    [[row.link]]\nname = \"lte\"\nrate = \"20mbit\"\n\
    [[row]]\nname = \"two\"\n[[row.link]]\nname = \"first\"\nrate = \"40mbit\"\n\
    [[row.link]]\nname = \"second\"\nrate = \"80mbit\"\n\
    [[row]]\nname = \"again\"\n[[row.link]]\nname = \"first\"\nrate = \"40mbit\"\n\
    [[row.link]]\nname = \"second\"\nrate = \"80mbit\"\n";

fn group(text: &str) -> [Group; 1] {
    [matrix::read(Path::new("m.toml"), text).unwrap()]
}

/// A run in which every link delivers its nominal rate.
fn made_up(job: &Job<'_>) -> Run {
    let rates = job
        .scenario
        .links()
        .map(|link| link.shapes[0].rate as f64 / 1e6);
    let mbps: f64 = rates.sum();
    let mut figures = own([mbps; 3]);
    if job.system == ALONE {
        figures = Measurement {
            goodput_bps: mbps * 1e6,
            flows: vec![flow("link", [mbps; 3])],
            ..Measurement::default()
        };
    }
    Run {
        scenario: job.scenario.name.clone(),
        scenario_sha256: job.scenario.sha256.clone(),
        ..Run::bare(&job.system, job.seed, Outcome::Measured(Box::new(figures)))
    }
}

#[test]
fn a_link_of_two_rows_is_run_once_and_judged_in_both() {
    let groups = group(ROWS);
    let options = options(&["--seeds", "2", "--systems", "alone"]);
    let sources = Sources::new(&groups);
    let plan = Plan::new(&groups, &sources, &options, Path::new("sumlink"));
    let mut of_system: BTreeMap<&str, usize> = BTreeMap::new();
    for job in &plan.jobs {
        *of_system.entry(&job.system).or_default() += 1;
    }
    // Three links and two rows, with two seeds.
    assert_eq!(of_system, BTreeMap::from([(ALONE, 6), ("sumlink:fbdt", 4)]));
    let costs = plan.costs(|_, _| true);
    assert_eq!((costs.judged.runs, costs.others.runs), (10, 0));
    // The second row adds a link and itself; the third adds nothing.
    let runs_of = |row: &str| plan.costs(|_, purpose| purpose.row == row).judged.runs;
    assert_eq!(["one", "two", "again"].map(runs_of), [6, 4, 0]);

    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    for job in &plan.jobs {
        store.write_run(job.scenario, &made_up(job)).unwrap();
    }
    assert!(plan.estimate(&store).starts_with("0 runs"));
    let (lines, records) = judged(&groups, &sources, &options, &store);
    for (line, links) in lines[0].iter().zip([
        [("wifi", 80e6), ("lte", 20e6)],
        [("first", 40e6), ("second", 80e6)],
        [("first", 40e6), ("second", 80e6)],
    ]) {
        let line = &line.0;
        assert_eq!(line.verdict(), Verdict::Pass, "{line:?}");
        assert_eq!(line.judged[0].spread.as_ref().map(|s| s.median), Some(1.0));
        assert_eq!(line.alone, links.map(|(name, bps)| (name.to_owned(), bps)));
    }
    assert_eq!(records.runs().count(), 10);
    let message = records.lines();
    let shared = "\"used_for\":[\"g-one-down-cubic/wifi\",\"g-two-down-cubic/second\",\"g-again-down-cubic/second\"]";
    assert_eq!(message.matches(shared).count(), 2, "{message}");
    // The links alone have no figure if one of the parts is missing.
    let (lte, _) = message.split_once("g-one-down-cubic/lte").unwrap();
    let lte = plan
        .jobs
        .iter()
        .find(|job| lte.contains(&job.scenario.name) && job.rate == Some(20_000_000));
    let lte = lte.unwrap();
    let path = directory.path().join(&lte.scenario.name);
    std::fs::remove_dir_all(path).unwrap();
    let (lines, _) = judged(&groups, &sources, &options, &store);
    let verdicts = lines[0].iter().map(|(line, _)| line.verdict());
    assert_eq!(
        verdicts.collect::<Vec<_>>(),
        [Verdict::NotRun, Verdict::Pass, Verdict::Pass]
    );
}

#[test]
fn a_refused_link_leaves_the_row_without_figures() {
    let groups = group(ROWS);
    let sources = Sources::new(&groups);
    let variant = &groups[0].rows[0].variants[0];
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    for (part, name) in sources
        .parts(variant, ALONE)
        .into_iter()
        .zip(["wifi", "lte"])
    {
        assert_eq!(part.link, Some(name));
        let reason = || "late".to_owned();
        let outcome = match name {
            "lte" => Outcome::Refused { reason: reason() },
            _ => Outcome::Measured(Box::default()),
        };
        let run = Run {
            scenario_sha256: part.scenario.sha256.clone(),
            ..Run::bare(ALONE, 1, outcome)
        };
        store.write_run(part.scenario, &run).unwrap();
    }
    let parts = sources.read(&store, variant, 1, ALONE).unwrap();
    let whole = sources::assembled(variant, &parts).unwrap();
    let reason = "lte: late".to_owned();
    assert_eq!(whole.outcome, Outcome::Refused { reason });
}

#[test]
fn other_lines_of_a_row_may_have_other_seeds() {
    let text = ROWS.replace(
        "bars",
        "directions = [\"down\", \"up\"]\ncongestion = [\"cubic\", \"bbr\"]\nbars",
    );
    let groups = group(&text);
    let runs = |arguments: &[&str], variant: usize| {
        let arguments = [
            &[
                "--systems",
                "mptcp",
                "--alternative-seeds",
                "2",
                "--rows",
                "g/one",
            ],
            arguments,
        ];
        let options = options(&arguments.concat());
        let sources = Sources::new(&groups);
        let plan = Plan::new(&groups, &sources, &options, Path::new("sumlink"));
        let name = &groups[0].rows[0].variants[variant].scenario.name;
        let of_system = |system: &str| {
            let jobs = plan.jobs.iter().filter(|job| job.system == system);
            jobs.filter(|job| job.scenario.name == *name).count()
        };
        [of_system("sumlink:fbdt"), of_system("mptcp")]
    };
    assert_eq!(runs(&[], 0), [5, 2]);
    assert_eq!(runs(&["--other-seeds", "1"], 0), [5, 2]);
    assert_eq!(runs(&["--other-seeds", "1"], 1), [1, 1]);
    assert_eq!(runs(&["--seeds", "3"], 3), [3, 2]);
}

#[test]
fn light_runs_of_a_row_are_grouped() {
    let text = ROWS.replace("rate = \"80mbit\"", "rate = \"2gbit\"");
    let groups = group(&text);
    let options = options(&["--seeds", "2", "--systems", "alone"]);
    let sources = Sources::new(&groups);
    let plan = Plan::new(&groups, &sources, &options, Path::new("sumlink"));
    let order: Vec<_> = plan
        .jobs
        .iter()
        .zip(&plan.purposes)
        .map(|(job, purpose)| (purpose.row, plan.capacity.width(job) > 1, job.seed))
        .collect();
    let heavy = |row, seed| (row, false, seed);
    let expected = [
        ("one", true, 1),
        ("one", true, 2),
        heavy("one", 1),
        heavy("one", 1),
        heavy("one", 2),
        heavy("one", 2),
        ("two", true, 1),
        ("two", true, 2),
        heavy("two", 1),
        heavy("two", 2),
    ];
    assert_eq!(order, expected);
}
