//! Scenarios in the simulator.

use serde_json::Value;

use crate::common::Bench;

const SCENARIO: &str = "name = \"two\"\nabout = \"Two links.\"\nduration = \"2s\"\nwarmup = \"1s\"\nseeds = 2\n\
    systems = [\"alone\", \"sumlink:fbdt\", \"noq\"]\n\
    [[link]]\nname = \"wifi\"\nrate = \"20mbit\"\ndelay = \"5ms\"\nloss = \"0.5%\"\n\
    [[link]]\nname = \"lte\"\nrate = \"8mbit\"\ndelay = \"20ms\"\n";

/// The words that run one seed of these systems with an option.
fn one_seed<'a>(systems: &'a str, option: &'a str, value: &'a str) -> [&'a str; 9] {
    [
        "sim",
        "run",
        "two.toml",
        "--seeds",
        "1",
        "--systems",
        systems,
        option,
        value,
    ]
}

#[test]
fn a_table_or_a_line_for_each_run_always_the_same() {
    let bench = Bench::new();
    bench.write("two.toml", SCENARIO);
    let table = bench.run(&["sim", "run", "two.toml"]);
    assert_eq!(table.code, 0, "{}", table.err);
    for part in [
        "two: Two links.",
        "sumlink:fbdt",
        "wifi",
        "does not have this system",
    ] {
        assert!(table.out.contains(part), "{part}: {}", table.out);
    }
    let lines = |jobs: &str| {
        let args = ["sim", "run", "two.toml", "--json", "--jobs", jobs];
        bench.run(&args).out
    };
    assert_eq!(lines("1"), lines("4"), "however many at once");
    let runs: Vec<Value> = lines("2")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(runs.len(), 6);
    assert_eq!(runs[1]["outcome"], "measured");
    assert!(runs[1]["goodput_bps"].as_f64().unwrap() > 10e6);
    let digest = |run: usize| &runs[run]["event_log"]["hash"];
    assert!(digest(1).is_string() && digest(1) != digest(4), "by seed");
    assert_eq!(runs[2]["outcome"], "skipped");
}

#[test]
fn results_are_kept_as_those_of_the_laboratory() {
    let bench = Bench::new();
    bench.write("two.toml", SCENARIO);
    let args = one_seed("alone,sumlink:fbdt", "--out", "out");
    let ran = bench.run(&args);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let file = bench.path("out/two/seed-1/sumlink-fbdt.json");
    let first = std::fs::read_to_string(&file).unwrap();
    assert_eq!(bench.run(&args).code, 0);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), first);
    assert!(bench.path("out/two/summary.json").exists());
    let report = bench.run(&["lab", "report", "out"]);
    assert_eq!(report.code, 0, "{}", report.err);
    // What was measured is not lost to what is simulated.
    std::fs::write(&file, first.replace("\"simulated\"", "\"6.18.0\"")).unwrap();
    let refused = bench.run(&args);
    assert_eq!(refused.code, 2);
    assert!(
        refused.err.contains("choose another --out"),
        "{}",
        refused.err
    );
}

#[test]
fn a_trace_says_who_carried_which_bytes() {
    let bench = Bench::new();
    bench.write("two.toml", SCENARIO);
    let args = one_seed("sumlink:fbdt", "--trace", "traces");
    assert_eq!(bench.run(&args).code, 0);
    let text = std::fs::read_to_string(bench.path("traces/two-seed-1-sumlink-fbdt.jsonl")).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |event: &str| lines.iter().filter(|line| line["event"] == event).count();
    assert_eq!(of("up"), 4, "two paths at both ends");
    assert!(of("path") > 400 && of("data") > 100 && of("read") > 100);
    let sent: std::collections::BTreeSet<_> = lines
        .iter()
        .filter(|line| line["event"] == "data" && line["side"] == "server")
        .map(|line| line["path"].as_u64())
        .collect();
    assert_eq!(sent.len(), 2, "both paths carry data");
    let times: Vec<_> = lines.iter().map(|line| line["t_ns"].as_u64()).collect();
    assert!(times.is_sorted());
    let svg = std::fs::read_to_string(bench.path("traces/two-seed-1-sumlink-fbdt.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("who carried which bytes when (down)"));
}

#[test]
fn what_makes_no_sense_is_told_as_by_the_laboratory() {
    let bench = Bench::new();
    bench.write("two.toml", SCENARIO);
    bench.write("wrong.toml", &SCENARIO.replace("20mbit", "20 parsecs"));
    for (args, code, part) in [
        (
            vec!["two.toml", "--systems", "tcp"],
            2,
            "--systems: there is no system 'tcp'",
        ),
        (
            vec!["two.toml", "--systems", "sumlink:fbdt+cubik"],
            2,
            "--systems: there is no congestion control \"cubik\"; there are: reno, cubic,",
        ),
        (
            vec!["two.toml", "--systems", "alone,alone"],
            2,
            "--systems: 'alone' is there twice",
        ),
        (vec!["wrong.toml"], 3, "wrong.toml:9: rate:"),
        (vec!["none.toml"], 9, "none.toml"),
        (vec!["two.toml", "two.toml"], 2, "both called 'two'"),
        (vec!["two.toml", "--seeds", "0"], 2, "--seeds"),
        (vec!["two.toml", "--jobs", "0"], 2, "--jobs"),
        (vec!["two.toml", "--out", "two.toml/x"], 1, "--out"),
        (
            vec!["two.toml", "--trace", "two.toml/x"],
            1,
            "cannot write two.toml/x",
        ),
        (vec![], 2, "FILE"),
    ] {
        let ran = bench.run(&[vec!["sim", "run"], args.clone()].concat());
        assert_eq!(ran.code, code, "{args:?}: {}", ran.err);
        assert!(ran.err.contains(part), "{args:?}: {}", ran.err);
        assert!(ran.out.is_empty(), "{args:?}: {}", ran.out);
    }
}
