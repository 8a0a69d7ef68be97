//! The counters of links over failures, as status and metrics show them.

use std::thread;
use std::time::Duration;

use serde_json::Value;
use sumlink_lab::Side;
use sumlink_test_support::emulated::lan::Lan;
use sumlink_test_support::emulated::traffic::Transfer;
use sumlink_test_support::emulated::{text, until};

use crate::bond::Plan;

const LINKS: [&str; 2] = ["a:rate=16mbit,delay=5ms", "b:rate=12mbit,delay=15ms"];

/// How often a link failed over and returned, and the seconds of both together.
fn failures(report: &Value, link: &str) -> (u64, u64, f64, f64) {
    let links = report["totals"][0]["links"].as_array().unwrap();
    let link = links.iter().find(|found| found["link"] == link).unwrap();
    let count = |name: &str| {
        let counts = link[name]["counts"].as_array().unwrap();
        counts.iter().filter_map(Value::as_u64).sum()
    };
    let seconds = |name: &str| link[name]["sum_s"].as_f64().unwrap();
    (
        count("failovers"),
        count("returns"),
        seconds("failovers"),
        seconds("returns"),
    )
}

#[test]
fn each_failure_of_a_link_is_counted_with_its_duration() {
    let Some(bond) = Plan::new(&LINKS)
        .client("links = \"auto\"\n[monitor]\nlisten = \"127.0.0.1:9571\"\n")
        .start()
    else {
        return;
    };
    bond.until_active(&["a", "b"]);
    let report = || -> Value {
        let mut status = bond
            .bench
            .program(&["status", "--json", "--control", "client.sock"]);
        serde_json::from_str(&text(status.output().unwrap())).unwrap()
    };
    let up = Transfer::upload(&bond.bench, "10.99.0.1:8081".parse().unwrap());
    up.goes_on(1_000_000);
    let before = failures(&report(), "a");
    bond.bench.set("a", "state=blackhole");
    bond.until_active(&["b"]);
    let stalled = failures(&report(), "a");
    assert!(stalled.0 > before.0, "{before:?} {stalled:?}");
    assert!(stalled.2 - before.2 > 0.01, "{before:?} {stalled:?}");
    thread::sleep(Duration::from_secs(2));
    assert_eq!(failures(&report(), "a").1, stalled.1);
    bond.bench.set("a", "state=up");
    bond.until_active(&["a", "b"]);
    let back = failures(&report(), "a");
    assert!(back.1 > stalled.1, "{stalled:?} {back:?}");
    assert!(back.3 - stalled.3 > 2.0, "{stalled:?} {back:?}");
    let answer = bond.bench.run(
        Side::Client,
        &[
            "curl",
            "--silent",
            "--fail",
            "http://127.0.0.1:9571/metrics",
        ],
    );
    let sample = |name: &str| {
        let start = format!("sumlink_link_{name}{{link=\"a\"}} ");
        let mut lines = answer.lines();
        let value = lines.find_map(|line| line.strip_prefix(&start)).unwrap();
        value.parse::<f64>().unwrap()
    };
    assert!(sample("stalls_total") >= back.0 as f64);
    assert!(sample("failover_seconds_count") >= back.0 as f64);
    assert!(sample("return_seconds_count") >= back.1 as f64);
    assert!(sample("return_seconds_sum") >= back.3);
    assert_eq!(sample("up"), 1.0);
    up.finish();
    bond.stop();
}

#[test]
fn a_gateway_has_metrics_and_health() {
    let Some(mut lan) = Lan::of(env!("CARGO_BIN_EXE_sumlink"), &LINKS) else {
        return;
    };
    lan.serve("");
    lan.up("capture = \"tun\"\n[monitor]\nlisten = \"127.0.0.1:9571\"\n");
    let get = |path: &str| {
        let url = format!("http://127.0.0.1:9571{path}");
        lan.bench
            .run(Side::Client, &["curl", "--silent", "--fail", &url])
    };
    // The report of before the session is used for a while.
    until("health", || {
        let url = "http://127.0.0.1:9571/healthz";
        let answer = lan.try_on(Side::Client, &["curl", "--silent", url]);
        (answer.stdout == b"ok\n").then_some(())
    });
    let status: Value = serde_json::from_str(&get("/status.json")).unwrap();
    assert_eq!(status["gateway"]["capture"], "tun");
    assert!(get("/metrics").contains("sumlink_sessions 1\n"));
    assert_eq!(lan.end_gateway(), Some(0));
}
