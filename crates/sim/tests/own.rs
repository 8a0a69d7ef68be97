//! Schedulers and congestion controls supplied by the caller.

use std::path::{Path, PathBuf};
use std::process::Command;

use sumlink_congestion::Settings;
use sumlink_engine::scheduler::minrtt::MinRtt;
use sumlink_engine::scheduler::{Pick, Scheduler, View, lowest_unsent};
use sumlink_engine::{PathId, Role};
use sumlink_scenario::results::{Measurement, Outcome};
use sumlink_scenario::scenario::Scenario;
use sumlink_schedulers::NAMES;
use sumlink_sim::compare::compare;
use sumlink_sim::{Own, run_own};

const TWO: &str = "name = \"two\"\nduration = \"2s\"\nwarmup = \"1s\"\n\
    [[link]]\nname = \"first\"\nrate = \"20mbit\"\ndelay = \"10ms\"\nloss = \"0.5%\"\n\
    [[link]]\nname = \"second\"\nrate = \"10mbit\"\ndelay = \"30ms\"\n";

fn scenario(text: &str) -> Scenario {
    Scenario::parse(Path::new("two.toml"), text).unwrap()
}

fn outcome(text: &str, system: &str, own: &Own) -> Outcome {
    let run = run_own(&scenario(text), system, 1, own, None);
    run.unwrap().outcome
}

fn measured(text: &str, system: &str, own: &Own) -> Measurement {
    match outcome(text, system, own) {
        Outcome::Measured(figures) => *figures,
        other => panic!("{system}: {other:?}"),
    }
}

/// Always returns the same decision.
#[derive(Debug)]
struct Stubborn(fn(u64, &View<'_>) -> Pick);

impl Scheduler for Stubborn {
    fn name(&self) -> &'static str {
        "stubborn"
    }

    fn pick(&mut self, _: PathId, budget: u64, view: &View<'_>) -> Pick {
        (self.0)(budget, view)
    }
}

fn stubborn(answer: fn(u64, &View<'_>) -> Pick) -> Own {
    let mut own = Own::default();
    let make = move |_: Role| Box::new(Stubborn(answer)) as Box<dyn Scheduler>;
    own.add_scheduler("mine", make).unwrap();
    own
}

#[test]
fn renaming_an_algorithm_changes_nothing() {
    let mut own = Own::default();
    own.add_scheduler("mine", |_| Box::new(MinRtt::default()))
        .unwrap();
    let reno = || sumlink_congestion::build("reno", &Settings::default()).unwrap();
    own.add_congestion("mycc", reno).unwrap();
    for (mine, known) in [
        ("sumlink:mine", "sumlink:minrtt"),
        (
            "sumlink:fbdt:background=mine",
            "sumlink:fbdt:background=minrtt",
        ),
        ("sumlink:minrtt+mycc", "sumlink:minrtt+reno"),
    ] {
        assert_eq!(
            measured(TWO, mine, &own),
            measured(TWO, known, &own),
            "{mine}"
        );
    }
    let of_all = format!("congestion = \"mycc\"\n{TWO}");
    let known = of_all.replace("mycc", "reno");
    assert_eq!(
        measured(&of_all, "alone", &own),
        measured(&known, "alone", &own)
    );
}

#[test]
fn an_invalid_decision_ends_the_run_with_the_reason() {
    type Answer = fn(u64, &View<'_>) -> Pick;
    let cases: [(Answer, &str); 4] = [
        (
            |_, _| Pick::Send {
                stream: 4711,
                range: 0..1,
            },
            "bytes 0..1 of stream 4711: the stream does not exist",
        ),
        (
            |budget, view| again(view, |start| start..start + budget + 1),
            "exceed the budget of",
        ),
        (
            |_, view| again(view, |start| start..start),
            "an empty range; to send nothing, stay idle",
        ),
        (
            |budget, view| match lowest_unsent(view, budget) {
                Pick::Send { stream, range } => Pick::Repeat { stream, range },
                other => other,
            },
            "are not all sent and unacknowledged",
        ),
    ];
    for (answer, reason) in cases {
        match outcome(TWO, "sumlink:mine", &stubborn(answer)) {
            Outcome::Failed { reason: said } => {
                assert!(said.contains("the scheduler mine, pick: "), "{said}");
                assert!(said.contains(reason), "{said}");
            }
            other => panic!("{reason}: {other:?}"),
        }
    }
}

/// Picks a range of the first stream that is computed from the start of its unsent bytes.
fn again(view: &View<'_>, range: impl Fn(u64) -> std::ops::Range<u64>) -> Pick {
    match lowest_unsent(view, 1) {
        Pick::Send {
            stream,
            range: first,
        } => Pick::Send {
            stream,
            range: range(first.start),
        },
        other => other,
    }
}

#[test]
fn an_idle_scheduler_is_no_failure_and_a_stop_ends_the_run() {
    let idle = stubborn(|_, _| Pick::Idle);
    assert_eq!(measured(TWO, "sumlink:mine", &idle).bytes, 0);
    idle.stop().now("enough");
    idle.stop().now("more than that");
    match outcome(TWO, "sumlink:minrtt", &idle) {
        Outcome::Failed { reason } => assert_eq!(reason, "0.000000 s: enough"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn taken_and_reserved_names_are_refused() {
    let mut own = Own::default();
    let reno = || sumlink_congestion::build("reno", &Settings::default()).unwrap();
    for name in ["cubic", "a+b"] {
        assert!(own.add_congestion(name, reno).is_err(), "{name}");
    }
    let make = |_: Role| Box::new(MinRtt::default()) as Box<dyn Scheduler>;
    for name in NAMES {
        assert!(own.add_scheduler(name, make).is_err(), "{name}");
    }
    let unknown = run_own(&scenario(TWO), "sumlink:mine", 1, &own, None).unwrap_err();
    assert!(unknown.contains("no scheduler 'mine'"), "{unknown}");
}

/// The output of `compare` and its result.
fn compared(arguments: &[&str], own: &Own) -> (String, Result<(), String>) {
    let mut out = Vec::new();
    let words = arguments.iter().map(|word| (*word).to_owned());
    let ended = compare(words, own, &mut out);
    (String::from_utf8(out).unwrap(), ended)
}

fn in_project(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(file)
}

#[test]
fn a_comparison_refuses_invalid_arguments_before_it_runs() {
    let file = in_project("scenarios/unequal-queue.toml");
    let file = file.to_str().unwrap();
    for (arguments, reason) in [
        (vec![], "usage: FILE..."),
        (vec!["none.toml"], "none.toml"),
        (
            vec![file, "--seeds", "0"],
            "--seeds 0: must be a number from 1",
        ),
        (vec![file, "--seeds"], "--seeds: usage"),
        (vec![file, "--loud"], "--loud: usage"),
        (
            vec![file, "--systems", "alone,sumlink:yours"],
            "--systems: sumlink has no scheduler 'yours'",
        ),
    ] {
        let (out, ended) = compared(&arguments, &stubborn(|_, _| Pick::Idle));
        let message = ended.unwrap_err();
        assert!(
            message.contains(reason) && !message.contains('\n'),
            "{message}"
        );
        assert_eq!(out, "");
    }
}

#[test]
fn a_comparison_keeps_the_rows_before_an_invalid_decision() {
    let file = in_project("scenarios/selftest-10-10-0-0.toml");
    let systems = ["--systems", "alone,sumlink:mine,sumlink:fbdt"];
    let arguments = [&[file.to_str().unwrap()][..], &systems].concat();
    let mad = stubborn(|_, _| Pick::Send {
        stream: 4711,
        range: 0..1,
    });
    let (out, ended) = compared(&arguments, &mad);
    let message = ended.unwrap_err();
    for part in [
        "seed 1, system sumlink:mine, at 0.",
        " s: the scheduler mine, pick: bytes 0..1 of stream 4711",
    ] {
        assert!(message.contains(part), "{message}");
    }
    assert!(
        out.contains("\nalone ") && out.lines().count() == 3,
        "{out}"
    );
}

#[test]
fn the_manuals_example_compares_its_scheduler_with_the_others() {
    let example = built("own_scheduler");
    let output = Command::new(&example)
        .arg(in_project("scenarios/selftest-10-10-1-25.toml"))
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", example.display()));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let figure = |system: &str| -> f64 {
        let line = text.lines().find(|line| line.starts_with(system));
        let word = line.and_then(|line| line.split_whitespace().nth(1));
        word.and_then(|word| word.parse().ok())
            .unwrap_or_else(|| panic!("{system}: {text}"))
    };
    assert!(figure("sumlink:mine") > 8.0, "{text}");
    for name in NAMES {
        assert!(figure(&format!("sumlink:{name} ")) > 1.0, "{text}");
    }
    // The manual shows this example verbatim.
    let manual = std::fs::read_to_string(in_project("docs/simulator.md")).unwrap();
    let source = include_str!("../examples/own_scheduler.rs");
    let scheduler = source.split("\n\n").filter(|part| !part.starts_with("//!"));
    for part in scheduler {
        assert!(
            manual.contains(part.trim()),
            "missing in the manual: {part}"
        );
    }
    let lines = source.lines().filter(|line| !line.starts_with("//!"));
    let lines = lines.filter(|line| !line.is_empty()).count();
    assert!(lines <= 30, "expected at most 30 lines, not {lines}");
}

/// Path of an example; Cargo builds examples beside the tests.
fn built(example: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    profile.join("examples").join(example)
}
