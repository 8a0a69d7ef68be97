//! Schedulers and congestion controls of the caller's own.

use std::path::{Path, PathBuf};
use std::process::Command;

use sumlink_congestion::Settings;
use sumlink_engine::scheduler::minrtt::MinRtt;
use sumlink_engine::scheduler::{Pick, Scheduler, View, lowest_unsent};
use sumlink_engine::{PathId, Role};
use sumlink_scenario::results::{Measurement, Outcome};
use sumlink_scenario::scenario::Scenario;
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

/// Answers the same every time, whatever it is asked.
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
fn an_own_name_for_a_known_algorithm_changes_nothing() {
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
fn what_the_engine_cannot_carry_out_ends_the_run_with_the_reason() {
    type Answer = fn(u64, &View<'_>) -> Pick;
    let cases: [(Answer, &str); 4] = [
        (
            |_, _| Pick::Send {
                stream: 4711,
                range: 0..1,
            },
            "bytes 0..1 of stream 4711: there is no such stream",
        ),
        (
            |budget, view| again(view, |start| start..start + budget + 1),
            "that can leave",
        ),
        (
            |_, view| again(view, |start| start..start),
            "are none: answer that the path stays idle",
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

/// The first stream's unsent bytes from their beginning on, in another range.
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
fn a_scheduler_that_never_sends_fails_nobody_and_a_stop_ends_the_run() {
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
fn names_that_are_taken_or_mean_something_else_are_refused() {
    let mut own = Own::default();
    let reno = || sumlink_congestion::build("reno", &Settings::default()).unwrap();
    for name in ["cubic", "a+b"] {
        assert!(own.add_congestion(name, reno).is_err(), "{name}");
    }
    let make = |_: Role| Box::new(MinRtt::default()) as Box<dyn Scheduler>;
    assert!(own.add_scheduler("ecf", make).is_err());
    let unknown = run_own(&scenario(TWO), "sumlink:mine", 1, &own, None).unwrap_err();
    assert!(unknown.contains("no scheduler 'mine'"), "{unknown}");
}

#[test]
fn the_example_of_the_manual_compares_its_scheduler_with_the_others() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let example = built("own_scheduler");
    let output = Command::new(&example)
        .arg(root.join("scenarios/unequal-queue.toml"))
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
    assert!(figure("sumlink:mine") > 50.0, "{text}");
    assert!(figure("sumlink:fbdt") > 50.0, "{text}");
    // The manual shows it as it is.
    let manual = std::fs::read_to_string(root.join("docs/simulator.md")).unwrap();
    let source = include_str!("../examples/own_scheduler.rs");
    let scheduler = source.split("\n\n").filter(|part| !part.starts_with("//!"));
    for part in scheduler {
        assert!(manual.contains(part.trim()), "not in the manual: {part}");
    }
}

/// Cargo builds examples beside the tests.
fn built(example: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    profile.join("examples").join(example)
}
