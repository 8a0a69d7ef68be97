//! Tests of the self-test: its output, and that it detects deviations.
//!
//! Needs root or unprivileged user namespaces; fails where neither is available, unless
//! `SUMLINK_SKIP_NETNS=1` is set.

#![allow(clippy::print_stderr, reason = "a test")]

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

/// The example program next to this test: cargo builds it with the tests.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().unwrap().parent().unwrap();
    profile.join("examples/lab")
}

/// One repeat of some subjects; `None` if the user disabled these tests.
fn self_test(subjects: &[&str], more: &[&str]) -> Option<Output> {
    if std::env::var_os("SUMLINK_SKIP_NETNS").is_some_and(|value| value == "1") {
        eprintln!("skipped because SUMLINK_SKIP_NETNS=1");
        return None;
    }
    let mut command = Command::new(program());
    command.args(["self-test", "--repeats", "1"]).args(more);
    for subject in subjects {
        command.args(["--only", subject]);
    }
    Some(command.output().unwrap())
}

fn figures(output: &Output) -> Vec<Value> {
    let problem = || String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", problem()))
}

fn figure<'a>(figures: &'a [Value], name: &str) -> &'a Value {
    let found = figures.iter().find(|figure| figure["name"] == name);
    found.unwrap_or_else(|| panic!("no figure is called {name}"))
}

/// The example program's exit codes: a figure fell short, a figure was refused. Those of sumlink
/// are in docs/cli.md.
fn code_of(figures: &[Value]) -> i32 {
    let any = |verdict| figures.iter().any(|figure| figure["verdict"] == verdict);
    match (any("failed"), any("refused")) {
        (true, _) => 7,
        (false, true) => 8,
        (false, false) => 0,
    }
}

/// On a machine that is busy with other tests a figure may be refused or deviate somewhat, but not
/// by far.
fn is_far(figure: &Value) -> bool {
    let deviation = figure["deviation"].as_f64().unwrap_or(f64::INFINITY);
    let is_near = deviation.abs() < 0.2 || figure["asked"] == 0.0;
    !is_near && figure["verdict"] != "refused"
}

fn name_of(figure: &Value) -> String {
    figure["name"].as_str().unwrap().to_owned()
}

#[test]
fn every_subject_measures_its_settings() {
    let subjects = [
        "delay",
        "order",
        "gso",
        "trace",
        "loss",
        "plan",
        "blackhole",
        "coupling",
        "interferer",
        "radio",
    ];
    // A machine that stalls for some milliseconds at the wrong moment shifts a deviation or a mean,
    // but not in each of three runs.
    let mut off: Option<Vec<String>> = None;
    let mut all = Vec::new();
    for _ in 0..3 {
        let Some(output) = self_test(&subjects, &["--json"]) else {
            return;
        };
        all = figures(&output);
        assert_eq!(output.status.code(), Some(code_of(&all)));
        let far: Vec<String> = all
            .iter()
            .filter(|figure| is_far(figure))
            .map(name_of)
            .collect();
        let still = match off.take() {
            None => far,
            Some(before) => before
                .into_iter()
                .filter(|name| far.contains(name))
                .collect(),
        };
        if still.is_empty() {
            off = Some(still);
            break;
        }
        off = Some(still);
    }
    assert_eq!(off, Some(Vec::new()), "off each time: {all:#?}");
    let figures = all;
    for part in [
        "super-packets: rate 5000 Mbit/s, down",
        "super-packets: loss 10 %, up",
        "trace in ms: mean rate, up",
        "trace in us: mean rate, down",
        "coupled, link 1 while both send",
        "interferer: added delay",
        "radio, 3 hotspots: share of the Wi-Fi, least of 6",
    ] {
        figure(&figures, part);
    }
}

#[test]
fn deterministic_figures_are_exact() {
    let Some(output) = self_test(&["queue", "blackhole", "interferer"], &["--json"]) else {
        return;
    };
    let figures = figures(&output);
    for (name, exact) in [
        ("queue 150000 bytes, up", 150_000.0),
        ("queue 150000 bytes, down", 150_000.0),
        ("interferer: lost", 0.0),
    ] {
        let figure = figure(&figures, name);
        let refused = figure["verdict"] == "refused";
        assert!(refused || figure["measured"] == exact, "{figure}");
    }
}

#[test]
fn the_table_names_figures_and_verdicts() {
    let Some(output) = self_test(&["queue"], &[]) else {
        return;
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines();
    assert!(lines.next().unwrap().starts_with("FIGURE"));
    let first = lines.next().unwrap();
    assert!(first.starts_with("queue 150000 bytes, up"), "{first}");
    assert_eq!(lines.count(), 3);
    let Some(output) = self_test(&["color"], &[]) else {
        return;
    };
    assert_eq!(output.status.code(), Some(2), "an unknown subject");
}
