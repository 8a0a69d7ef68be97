//! `sumlink doctor` and `sumlink speedtest` over emulated links.

use std::process::Output;

use serde_json::Value;
use sumlink_lab::Side;
use sumlink_test_support::emulated::text;

use crate::bond::{Bond, Plan};

const LINKS: [&str; 2] = ["a:rate=20mbit,delay=5ms", "b:rate=10mbit,delay=10ms"];

fn run(bond: &Bond, args: &[&str]) -> Output {
    bond.bench.run_sumlink(Side::Client, args)
}

/// The verdict and the text of a check.
#[track_caller]
fn of<'a>(report: &'a Value, subject: &str) -> Vec<(&'a str, &'a str)> {
    let checks = report["checks"].as_array().unwrap().iter();
    let checks = checks.filter(|check| check["subject"] == subject);
    checks
        .map(|check| {
            (
                check["verdict"].as_str().unwrap(),
                check["text"].as_str().unwrap(),
            )
        })
        .collect()
}

#[test]
fn a_working_client_passes_and_its_links_are_measured() {
    let Some(bond) = Plan::new(&LINKS).start() else {
        return;
    };
    bond.until_active(&["a", "b"]);
    let output = run(&bond, &["doctor", "client.toml", "--speed", "--json"]);
    let report: Value = serde_json::from_str(&text(output)).unwrap();
    assert_eq!(report["ok"], true, "{report}");
    for link in ["link a", "link b"] {
        let checks = of(&report, link);
        assert!(
            matches!(checks[..], [("ok", text)] if text.contains("datagrams over UDP")),
            "{checks:?}"
        );
    }
    let entries = of(&report, "entry");
    assert!(!entries.is_empty());
    assert!(
        entries
            .iter()
            .all(|(_, text)| text.contains("in use, while a client runs"))
    );
    assert_eq!(of(&report, "links"), [("ok", "2 reach the server")]);
    let speed = of(&report, "speed bonded");
    assert!(
        matches!(speed[..], [(_, text)] if text.contains("times the best link")),
        "{report}"
    );
    // The running session has not been disturbed.
    assert!(
        !bond.client.log().contains("session closed"),
        "{}",
        bond.client.log()
    );
    bond.stop();
}

#[test]
fn each_fault_has_a_remedy_and_the_exit_code_of_a_start() {
    let Some(bond) = Plan::new(&LINKS).start() else {
        return;
    };
    bond.until_active(&["a", "b"]);
    bond.bench.set("b", "state=blackhole");
    let output = run(&bond, &["doctor", "client.toml", "--json"]);
    assert_eq!(output.status.code(), Some(5));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        of(&report, "link b")
            .iter()
            .any(|(verdict, _)| *verdict == "failed"),
        "{report}"
    );
    assert!(
        of(&report, "links")
            .iter()
            .any(|(verdict, _)| *verdict == "warning"),
        "{report}"
    );

    let other = bond.bench.key("other.key");
    let file = std::fs::read_to_string(bond.bench.path("client.toml")).unwrap();
    let server_key = &bond.bench.server_key;
    bond.bench
        .write("wrong.toml", file.replace(server_key.as_str(), &other));
    let output = run(&bond, &["doctor", "wrong.toml"]);
    assert_eq!(output.status.code(), Some(6), "wrong key of the server");
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.contains("FAILED   link a"), "{shown}");

    bond.bench
        .write("broken.toml", "server = \"x:1\"\nsock = 1\n");
    let output = run(&bond, &["doctor", "broken.toml"]);
    assert_eq!(output.status.code(), Some(3));
    let output = run(&bond, &["doctor", "nofile.toml"]);
    assert_eq!(output.status.code(), Some(3));
    bond.stop();
}

#[test]
fn a_server_is_checked_while_it_runs_and_before() {
    let Some(bond) = Plan::new(&LINKS).start() else {
        return;
    };
    let server = |args: &[&str]| bond.bench.run_sumlink(Side::Server, args);
    let report: Value =
        serde_json::from_str(&text(server(&["doctor", "server.toml", "--json"]))).unwrap();
    let ports = of(&report, "port");
    assert_eq!(ports.len(), 2);
    assert!(
        ports
            .iter()
            .all(|(verdict, text)| *verdict == "ok" && text.contains("in use")),
        "{report}"
    );
    bond.bench.run(
        Side::Server,
        &[
            "nft",
            "add table ip t; \
             add chain ip t in { type filter hook input priority 0; policy drop; }",
        ],
    );
    let report: Value =
        serde_json::from_str(&text(server(&["doctor", "server.toml", "--json"]))).unwrap();
    let firewall = of(&report, "firewall");
    let missing = "no rule accepts port 7000";
    assert!(
        matches!(firewall[..], [("warning", text)] if text.contains(missing)),
        "{report}"
    );
    bond.bench.run(Side::Server, &["nft", "delete table ip t"]);
    // The port's owner has another control socket, or is another program.
    let file = std::fs::read_to_string(bond.bench.path("server.toml")).unwrap();
    bond.bench
        .write("other.toml", file.replace("server.sock", "other.sock"));
    let report = text(server(&["doctor", "other.toml", "--json"]));
    let report: Value = serde_json::from_str(&report).unwrap();
    let ports = of(&report, "port");
    assert!(ports.len() == 2 && ports.iter().all(|(verdict, _)| *verdict == "warning"));
    bond.stop();
}

#[test]
fn a_speed_test_compares_the_bond_with_its_links() {
    let capped = "state = \"links.json\"\n[[link]]\nname = \"a\"\n\
                  [[link]]\nname = \"b\"\ncap_day = \"1GB\"\n";
    let Some(bond) = Plan::new(&LINKS).client(capped).start() else {
        return;
    };
    bond.until_active(&["a", "b"]);
    let args = [
        "speedtest",
        "--config",
        "client.toml",
        "--seconds",
        "2",
        "--json",
    ];
    let report: Value = serde_json::from_str(&text(run(&bond, &args))).unwrap();
    let names = |report: &Value| {
        let links = report["links"].as_array().unwrap().iter();
        links
            .map(|link| link["link"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&report), ["a"], "a link with a cap is left out");
    assert_eq!(report["bond"], Value::Null);
    let doctor = text(run(&bond, &["doctor", "client.toml", "--speed", "--json"]));
    let doctor: Value = serde_json::from_str(&doctor).unwrap();
    let left_out = of(&doctor, "speed b");
    assert!(
        matches!(left_out[..], [("ok", text)] if text.contains("not measured")),
        "{doctor}"
    );

    let all = [&args[..], &["--metered"]].concat();
    let report: Value = serde_json::from_str(&text(run(&bond, &all))).unwrap();
    assert_eq!(names(&report), ["a", "b"]);
    let rate = |index: usize, key: &str| report["links"][index][key].as_f64().unwrap();
    for (key, rates) in [("down_bps", [20e6, 10e6]), ("up_bps", [20e6, 10e6])] {
        for (index, most) in rates.into_iter().enumerate() {
            let rate = rate(index, key);
            assert!(rate > most / 10.0 && rate < most, "{key} {index}: {rate}");
        }
    }
    assert!(
        report["bond"]["down_bps"].as_f64().unwrap() > 1e6,
        "{report}"
    );
    assert!(report["of_best"]["down"].is_f64() && report["of_sum"]["up"].is_f64());

    // Programs behind the entries have no use of the server's test.
    let proxied = [
        "curl",
        "-sS",
        "-x",
        "socks5h://127.0.0.1:1080",
        "http://speed.sumlink.internal:1/",
    ];
    let refused = bond
        .bench
        .spawn(Side::Client, &proxied)
        .wait_with_output()
        .unwrap();
    assert!(!refused.status.success());

    let output = run(
        &bond,
        &["speedtest", "--config", "client.toml", "--link", "nosuch"],
    );
    assert_eq!(output.status.code(), Some(5));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("no link to measure; links: a, b"), "{said}");
    bond.stop();
}
