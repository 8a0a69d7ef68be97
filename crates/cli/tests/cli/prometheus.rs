//! Prometheus itself reads the metrics, and answers the queries of dashboard and alerts.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use crate::monitor::{client, get, host, move_bytes, send, until};

/// Whether a program of Prometheus is installed; says so if not.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

#[test]
fn promtool_accepts_metrics_and_alerts() {
    if !has("promtool") {
        return;
    }
    let (host, at_server) = host();
    let (_client, at_client, socks) = client(&host);
    move_bytes(&socks, 1000);
    for monitor in [at_server, at_client] {
        let mut check = Command::new("promtool");
        check.args(["check", "metrics"]).stdin(Stdio::piped());
        let mut check = check
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let text = get(monitor, "/metrics").body;
        check
            .stdin
            .take()
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        let output = check.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{said}");
    }
    let alerts = include_str!("../../../../packaging/prometheus/alerts.yml");
    host.bench.write("alerts.yml", alerts);
    host.bench
        .write("alerts.test.yml", include_str!("alerts.test.yml"));
    for words in [
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts.test.yml"],
    ] {
        let mut promtool = Command::new("promtool");
        let output = promtool
            .args(words)
            .current_dir(host.bench.dir())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {said}{error}");
    }
}

/// A query in the form that a URL needs.
fn encoded(query: &str) -> String {
    query.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[test]
fn prometheus_reads_a_client_and_answers_every_query_of_the_dashboard() {
    if !has("prometheus") {
        return;
    }
    let (host, at_server) = host();
    let (_client, at_client, socks) = client(&host);
    move_bytes(&socks, 100_000);
    let alerts = include_str!("../../../../packaging/prometheus/alerts.yml");
    host.bench.write("alerts.yml", alerts);
    host.bench.write(
        "prometheus.yml",
        &format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [alerts.yml]\n\
             scrape_configs:\n- job_name: sumlink\n  static_configs:\n  \
             - targets: ['{at_client}', '{at_server}']\n"
        ),
    );
    // The port is free again when Prometheus opens it.
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let prometheus = free.local_addr().unwrap();
    drop(free);
    let mut command = Command::new("prometheus");
    command
        .args([
            "--config.file",
            "prometheus.yml",
            "--storage.tsdb.path",
            "data",
        ])
        .arg(format!("--web.listen-address={prometheus}"))
        .current_dir(host.bench.dir())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut running = command.spawn().unwrap();
    let query = |query: &str| -> Option<serde_json::Value> {
        TcpStream::connect(prometheus).ok()?;
        let path = format!("/api/v1/query?query={}", encoded(query));
        let answer = send(
            prometheus,
            &format!("GET {path} HTTP/1.0\r\nHost: {prometheus}\r\n\r\n"),
        );
        serde_json::from_str(&answer.body).ok()
    };
    let result = |answer: &serde_json::Value| answer["data"]["result"].as_array().cloned();
    until("both are scraped twice", || {
        let both = result(&query("count_over_time(sumlink_healthy[1m]) >= 2")?)?;
        (both.len() == 2).then_some(())
    });
    let up = result(&query("up == 1").unwrap()).unwrap();
    assert_eq!(up.len(), 2);
    let dashboard = include_str!("../../../../packaging/grafana/sumlink.json");
    let dashboard: serde_json::Value = serde_json::from_str(dashboard).unwrap();
    let mut with_result = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let text = target["expr"].as_str().unwrap();
            let text = text.replace("$instance", ".*").replace("$client", ".*");
            let answer = query(&text.replace("$__rate_interval", "1m")).unwrap();
            assert_eq!(answer["status"], "success", "{text}: {answer}");
            with_result += usize::from(!result(&answer).unwrap().is_empty());
        }
    }
    // Only caps are not configured here.
    assert!(with_result > 25, "{with_result}");
    let rules = send(
        prometheus,
        &format!("GET /api/v1/rules HTTP/1.0\r\nHost: {prometheus}\r\n\r\n"),
    );
    assert!(rules.body.contains("SumlinkNotConnected"), "{}", rules.body);
    assert!(!rules.body.contains("\"health\":\"err\""), "{}", rules.body);
    let _ = running.kill();
    let _ = running.wait();
}
