//! The gateway's part of `sumlink status`.

use serde_json::Value;

use crate::table::printable;

/// The report of [`Running`](super::control::Running) as text.
pub(crate) fn render(report: &Value) -> String {
    let text = |pointer: &str| {
        let value = report.pointer(pointer).and_then(Value::as_str);
        printable(value.unwrap_or_default())
    };
    let number = |pointer: &str| report.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    let mut captured: Vec<String> = Vec::new();
    if report["host"] == Value::Bool(true) {
        captured.push("this host".to_owned());
    }
    let lan = report["lan"].as_array().into_iter().flatten();
    captured.extend(lan.filter_map(Value::as_str).map(printable));
    let fallback = match text("/without_bond").as_str() {
        "direct" => "the best link",
        _ => "blocked",
    };
    let mut out = String::new();
    let mut line = |name: &str, value: String| out.push_str(&format!("{name:<12}{value}\n"));
    line(
        "gateway",
        format!(
            "{} by {}, device {}; without the bond: {fallback}",
            captured.join(", "),
            text("/capture"),
            text("/device"),
        ),
    );
    for (name, kind) in [("streams", "streams"), ("flows", "flows")] {
        let of = |way: &str| number(&format!("/routes/{kind}/{way}"));
        line(
            name,
            format!(
                "{} over the bond, {} over a link, {} without the bond, {} blocked",
                of("bond"),
                of("link") + of("direct"),
                of("without_bond"),
                of("blocked"),
            ),
        );
    }
    line("rules", number("/rules").to_string());
    if report["dns"].is_object() {
        line(
            "DNS",
            format!(
                "{} questions, {} from the cache, {} blocked, {} failed",
                number("/dns/queries"),
                number("/dns/cached"),
                number("/dns/blocked"),
                number("/dns/failed"),
            ),
        );
    }
    if report["connection_table_full"] == Value::Bool(true) {
        line(
            "warning",
            "the connection table is nearly full: raise net.netfilter.nf_conntrack_max".to_owned(),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_ways_of_the_traffic_are_shown() {
        let ways = json!({
            "bond": 12, "link": 2, "direct": 1, "without_bond": 4, "blocked": 3,
        });
        let report = json!({
            "device": "sumlink0", "capture": "nftables", "host": true, "lan": ["eth1", "wlan1"],
            "without_bond": "block", "rules": 5, "routes": { "streams": ways, "flows": ways },
            "dns": { "queries": 90, "cached": 60, "blocked": 1, "failed": 2 },
            "connection_table_full": true,
        });
        insta::assert_snapshot!(render(&report));
    }

    #[test]
    fn a_report_of_another_version_is_no_failure() {
        assert!(render(&json!({})).starts_with("gateway"));
    }
}
