//! The dashboard, the alerts and the manual agree with the metrics of the program.

use std::collections::BTreeSet;

use serde_json::Value;
use sumlink_monitor::{Kind, metrics};

const DASHBOARD: &str = include_str!("../../../packaging/grafana/sumlink.json");
const ALERTS: &str = include_str!("../../../packaging/prometheus/alerts.yml");
const MANUAL: &str = include_str!("../../../docs/metrics.md");

/// Names of series, as queries write them.
fn series() -> BTreeSet<String> {
    let mut series = BTreeSet::new();
    for metric in metrics() {
        match metric.kind {
            Kind::Histogram => {
                for suffix in ["_bucket", "_count", "_sum"] {
                    series.insert(format!("{}{suffix}", metric.name));
                }
            }
            _ => drop(series.insert(metric.name.to_owned())),
        }
    }
    series
}

/// The metrics that a query names.
fn used(query: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = query.split(move |c| !is_part(c));
    words.filter(|word| word.starts_with("sumlink_") || word.starts_with("process_"))
}

#[track_caller]
fn assert_known(query: &str) -> usize {
    let series = series();
    let mut count = 0;
    for name in used(query) {
        assert!(series.contains(name), "no metric {name}: {query}");
        count += 1;
    }
    count
}

/// All texts below a value that have this key.
fn texts<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                match value {
                    Value::String(text) if name == key => found.push(text),
                    value => texts(value, key, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| texts(value, key, found)),
        _ => {}
    }
}

#[test]
fn the_dashboard_asks_for_metrics_that_exist() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut queries = Vec::new();
    texts(&dashboard["panels"], "expr", &mut queries);
    assert!(queries.len() > 20);
    for query in queries {
        assert!(assert_known(query) > 0, "{query}");
    }
    let mut variables = Vec::new();
    texts(&dashboard["templating"], "definition", &mut variables);
    assert_eq!(variables.len(), 2);
    assert!(variables.iter().all(|query| assert_known(query) == 1));
}

/// What Grafana needs of a dashboard: the parts of its JSON model that this one uses.
#[test]
fn the_dashboard_has_the_form_of_grafana() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    assert!(dashboard["schemaVersion"].as_u64() >= Some(36));
    assert!(dashboard["uid"].as_str().is_some_and(|uid| uid.len() <= 40));
    assert!(dashboard["title"].is_string() && dashboard["id"].is_null());
    let mut ids = BTreeSet::new();
    let mut cells = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{panel}");
        assert!(panel["title"].is_string(), "{panel}");
        let kind = panel["type"].as_str().unwrap();
        assert!(
            ["timeseries", "stat", "bargauge", "state-timeline"].contains(&kind),
            "{kind}"
        );
        let place = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        for column in place("x")..place("x") + place("w") {
            assert!(column < 24, "{panel}");
            for row in place("y")..place("y") + place("h") {
                assert!(cells.insert((column, row)), "panels overlap: {panel}");
            }
        }
        let mut references = BTreeSet::new();
        for target in panel["targets"].as_array().unwrap() {
            assert!(
                references.insert(target["refId"].as_str().unwrap()),
                "{panel}"
            );
        }
    }
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let names: Vec<&str> = variables
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    assert_eq!(names, ["datasource", "instance", "client"]);
}

#[test]
fn the_alerts_ask_for_metrics_that_exist() {
    let mut rules = 0;
    let is_text = |line: &&str| {
        ["#", "summary:"]
            .iter()
            .any(|head| line.trim_start().starts_with(head))
    };
    for line in ALERTS.lines().filter(|line| !is_text(line)) {
        rules += usize::from(assert_known(line) > 0);
    }
    assert!(rules > 8, "{rules}");
}

#[test]
fn the_manual_has_a_row_for_each_metric() {
    let rows: Vec<String> = metrics()
        .map(|metric| {
            let labels: Vec<String> = metric.labels.iter().map(|l| format!("`{l}`")).collect();
            let (name, kind, help) = (metric.name, metric.kind.name(), metric.help);
            format!("| `{name}` | {kind} | {} | {help} |", labels.join(", "))
        })
        .collect();
    let manual: Vec<&str> = MANUAL.lines().collect();
    let is_row = |line: &&&str| line.starts_with("| `sumlink_") || line.starts_with("| `process_");
    let written: Vec<&str> = manual.iter().filter(is_row).copied().collect();
    assert_eq!(
        written,
        rows,
        "the rows of the code are:\n{}",
        rows.join("\n")
    );
}
