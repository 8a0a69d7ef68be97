//! Scenarios in the simulator.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::common::Ran;

const SCENARIO: &str = "name = \"two\"\nabout = \"Two links.\"\nduration = \"2s\"\nwarmup = \"1s\"\nseeds = 2\n\
    systems = [\"alone\", \"sumlink:fbdt\", \"noq\"]\n\
    [[link]]\nname = \"wifi\"\nrate = \"20mbit\"\ndelay = \"5ms\"\nloss = \"0.5%\"\n\
    [[link]]\nname = \"lte\"\nrate = \"8mbit\"\ndelay = \"20ms\"\n";

/// Arguments that run one seed of these systems with an option.
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
fn tables_and_lines_are_reproducible() {
    let bench = crate::common::new();
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
fn results_are_stored_as_in_the_laboratory() {
    let bench = crate::common::new();
    bench.write("two.toml", SCENARIO);
    let args = one_seed("alone,sumlink:fbdt", "--out", "out");
    let ran = bench.run(&args);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let file = bench.path("out/two/seed-1/sumlink-fbdt.json");
    let first = std::fs::read_to_string(&file).unwrap();
    assert_eq!(bench.run(&args).code, 0);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), first);
    assert!(bench.path("out/two/summary.json").exists());
    let report = bench.run(&["report", "out"]);
    assert_eq!(report.code, 0, "{}", report.err);
    let run: Value = serde_json::from_str(&first).unwrap();
    assert_eq!(run["environment"]["simulated"], true);
    let page = std::fs::read_to_string(bench.path("out/report.html")).unwrap();
    assert!(page.contains("<h1>Report of simulated runs</h1>"), "{page}");
    assert!(page.contains("2 runs, simulated."), "{page}");
    for wrong in ["1970", "processor", "measured on "] {
        assert!(!page.contains(wrong), "{wrong}: {page}");
    }
    // Simulated results are not used as measured ones.
    let measure = [
        "run",
        "two.toml",
        "--seeds",
        "1",
        "--systems",
        "alone",
        "--out",
        "out",
    ];
    let mixed = bench.run(&measure);
    assert_eq!(mixed.code, 2, "{}", mixed.err);
    assert!(mixed.err.contains("`sumlink-lab sim run`"), "{}", mixed.err);
    // Simulated results do not replace measured ones.
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
fn a_trace_shows_which_path_carried_which_bytes() {
    let bench = crate::common::new();
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
    assert!(of("ack") > 100 && of("report") > 100 && of("credit") > 1);
    let acks = lines
        .iter()
        .filter(|line| line["event"] == "ack" && line["side"] == "client");
    let cumulative: Vec<_> = acks.map(|ack| ack["cumulative"].as_u64()).collect();
    assert!(cumulative.is_sorted() && cumulative.last().unwrap() > &Some(1_000_000));
    let sent: std::collections::BTreeSet<_> = lines
        .iter()
        .filter(|line| line["event"] == "data" && line["side"] == "server")
        .map(|line| line["path"].as_u64())
        .collect();
    assert_eq!(sent.len(), 2, "both paths carry data");
    let times: Vec<_> = lines.iter().map(|line| line["t_ns"].as_u64()).collect();
    assert!(times.is_sorted());
    let svg = std::fs::read_to_string(bench.path("traces/two-seed-1-sumlink-fbdt.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("bytes carried by each link over time (down)"));
    // The receiver's buffer is traced also while its program waits for a byte.
    let ran = bench.run(&one_seed("sumlink:roundrobin", "--trace", "traces"));
    assert_eq!(ran.code, 0, "{}", ran.err);
    let ran = bench.run(&one_seed("sumlink:roundrobin", "--out", "out"));
    assert_eq!(ran.code, 0, "{}", ran.err);
    let run = std::fs::read_to_string(bench.path("out/two/seed-1/sumlink-roundrobin.json"));
    let run: Value = serde_json::from_str(&run.unwrap()).unwrap();
    let peak = run["outcome"]["reorder_peak_bytes"].as_u64().unwrap();
    let trace = bench.path("traces/two-seed-1-sumlink-roundrobin.jsonl");
    let text = std::fs::read_to_string(trace).unwrap();
    let reported = text.lines().filter_map(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["waiting"].as_u64()
    });
    let most = reported.max().unwrap();
    assert!(
        (peak * 9 / 10..=peak).contains(&most),
        "{most} of {peak} bytes reported"
    );
}

#[test]
fn a_system_without_a_trace_leaves_no_empty_file() {
    let bench = crate::common::new();
    bench.write("two.toml", SCENARIO);
    let ran = bench.run(&one_seed("alone,simultaneous", "--trace", "traces"));
    assert_eq!(ran.code, 0, "{}", ran.err);
    let left = std::fs::read_dir(bench.path("traces")).unwrap().count();
    assert_eq!(left, 0);
}

#[test]
fn a_failed_run_does_not_fail_others() {
    let bench = crate::common::new();
    bench.write("two.toml", SCENARIO);
    // A directory cannot be overwritten by a file.
    std::fs::create_dir_all(bench.path("traces/two-seed-1-mptcp.jsonl")).unwrap();
    let systems = "sumlink:fbdt,mptcp,alone";
    let mut args = one_seed(systems, "--trace", "traces").to_vec();
    args.extend(["--jobs", "1", "--out", "out"]);
    let ran = bench.run(&args);
    assert_eq!(ran.code, 1, "{}", ran.err);
    let line = "cannot write traces/two-seed-1-mptcp.jsonl: Is a directory";
    assert!(ran.err.contains(line), "{}", ran.err);
    assert!(
        ran.out.contains("sumlink:fbdt") && !ran.out.contains("alone"),
        "{}",
        ran.out
    );
    assert!(bench.path("out/two/seed-1/sumlink-fbdt.json").exists());
    assert!(bench.path("out/two/summary.json").exists());
}

/// The round trips differ so much that the rule of the paper parks one path. Without a selector
/// none is parked.
#[test]
fn a_trace_shows_the_decisions_of_the_selector() {
    let bench = crate::common::new();
    let far = SCENARIO.replace("delay = \"20ms\"", "delay = \"250ms\"");
    let far = far.replace("duration = \"2s\"", "duration = \"6s\"");
    bench.write("two.toml", &far);
    let events = |selector: &[&str]| {
        let args = one_seed("sumlink:wrr", "--trace", "traces");
        let ran = bench.run(&[&args, selector].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        let traces = std::fs::read_dir(bench.path("traces")).unwrap();
        let text = traces.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
        let text: String = text.filter(|text| text.starts_with('{')).collect();
        std::fs::remove_dir_all(bench.path("traces")).unwrap();
        let events = text.lines().map(|line| serde_json::from_str(line).unwrap());
        events.collect::<Vec<Value>>()
    };
    let is_decision = |line: &&Value| line["event"] == "selected";
    assert_eq!(events(&[]).iter().find(is_decision), None);
    let events = events(&["--selector", "base"]);
    let mut decisions = events.iter().filter(is_decision);
    let parked = decisions.find(|line| line["selection"] == "parked");
    let parked = parked.expect("a path is parked");
    let reason = parked["reason"].as_str().unwrap();
    assert!(reason.contains("below 20 % of the average"), "{reason}");
    let is_of_path = |line: &&Value| {
        line["event"] == "path" && line["side"] == "server" && line["path"] == parked["path"]
    };
    let of_path = events.iter().find(is_of_path).unwrap();
    assert_eq!(
        (&parked["side"], &of_path["link"]),
        (&"server".into(), &1.into())
    );
}

#[test]
fn invalid_arguments_are_reported_as_by_the_laboratory() {
    let bench = crate::common::new();
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
            "--systems: unknown congestion control \"cubik\"; known: reno, cubic,",
        ),
        (
            vec!["two.toml", "--systems", "alone,alone"],
            2,
            "--systems: 'alone' occurs twice",
        ),
        (vec!["wrong.toml"], 3, "wrong.toml:9: rate:"),
        (vec!["none.toml"], 3, "none.toml: cannot read"),
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

#[test]
fn a_sweep_runs_in_the_python_package() {
    let bench = crate::common::new();
    let run = |args: &[&str]| {
        let mut command = bench.command(["sim", "sweep"].iter().chain(args));
        Ran::from(command.env("PATH", bench.dir()).output().unwrap())
    };
    run(&["two.toml"]).fails(2, "its program sumlink-sim is not in the PATH: install it");
    let package = bench.write("sumlink-sim", "#!/bin/sh\necho \"$@\"\nexit 130\n");
    let refused = run(&["two.toml"]);
    refused.fails(
        2,
        "its program sumlink-sim cannot be run: Permission denied",
    );
    std::fs::set_permissions(package, std::fs::Permissions::from_mode(0o755)).unwrap();
    for args in [
        &[
            "two.toml",
            "--grid",
            "link.lte.rate=1mbit,2mbit",
            "--out",
            "x",
        ][..],
        &["--out", "x", "two.toml", "-h"],
        &["--help"],
    ] {
        let ran = run(args);
        assert_eq!((ran.code, &*ran.err), (130, ""), "its exit code");
        assert_eq!(ran.out, format!("sweep {}\n", args.join(" ")));
    }
}
