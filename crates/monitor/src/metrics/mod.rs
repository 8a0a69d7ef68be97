//! The metrics of a [`Report`] as text, in the formats of Prometheus and of OpenMetrics.
//!
//! [`FAMILIES`] lists every metric with its source. Both formats have the same
//! samples; the crate `prometheus-client` would write only the second one.

mod catalog;
mod source;
mod view;
mod writer;

use crate::Report;
use catalog::FAMILIES;
use view::View;
pub(crate) use writer::Format;
use writer::Writer;

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number that never falls while the program runs; its name ends with `_total`.
    Counter,
    /// A number that rises and falls.
    Gauge,
    /// Durations in buckets, with their number (`_count`) and sum (`_sum`).
    Histogram,
}

impl Kind {
    /// The name of the type.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A metric, without its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// The name, as queries write it; for a histogram without `_bucket`, `_count` and `_sum`.
    pub name: &'static str,
    /// The type.
    pub kind: Kind,
    /// The labels of its samples. Only a server has `client`.
    pub labels: &'static [&'static str],
    /// The meaning, in one sentence without its period.
    pub help: &'static str,
}

/// All metrics, in the order of the output.
pub fn metrics() -> impl Iterator<Item = Metric> {
    FAMILIES.iter().map(|family| Metric {
        name: family.name,
        kind: family.source.kind(),
        labels: family.source.labels(),
        help: family.help,
    })
}

/// The metrics of a report. A metric without a value is absent. With `per_client` false, those of
/// a server are the sums over its clients.
pub(crate) fn text(report: &Report, format: Format, per_client: bool) -> String {
    let view = View::new(report, per_client);
    let mut writer = Writer::new(format);
    for family in FAMILIES {
        writer.family(family.name, family.source.kind(), family.help);
        family.source.write(&view, &mut writer);
    }
    writer.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use sumlink_transport::policy::Usage;
    use sumlink_transport::status::{
        DatagramPathStatus, Durations, LinkTotals, PathStatus, PeerTotals,
    };
    use sumlink_transport::{LinkReport, SessionStatus};

    use super::*;

    /// A report that has everything.
    fn report() -> Report {
        let links = vec![LinkTotals {
            link: "w\"0\\\n".to_owned(),
            paths: 1,
            paths_total: 3,
            bytes_sent: u64::MAX,
            bytes_received: 7,
            failovers: Durations {
                counts: vec![0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
                sum_s: 400.25,
            },
            ..LinkTotals::default()
        }];
        let path = PathStatus {
            id: Some(2),
            link: links[0].link.clone(),
            state: "active".to_owned(),
            srtt_ms: 12.5,
            send_rate_bps: 8000.0,
            ..PathStatus::default()
        };
        let absent = PathStatus {
            link: "eth0".to_owned(),
            state: "down".to_owned(),
            ..PathStatus::default()
        };
        let session = SessionStatus {
            role: "client".to_owned(),
            session: "00112233445566778899aabbccddeeff".to_owned(),
            peer: "KEY".to_owned(),
            streams_by_class: BTreeMap::from([("streaming".to_owned(), 3)]),
            paths: vec![path, absent],
            datagram_paths: vec![DatagramPathStatus {
                id: 9,
                link: "eth0".to_owned(),
                carrier: "udp".to_owned(),
                ..DatagramPathStatus::default()
            }],
            links: links.clone(),
            ..SessionStatus::default()
        };
        let usage: Usage = serde_json::from_value(serde_json::json!({
            "day": "2026-11-30", "day_bytes": 5, "month": "2026-11-01", "month_bytes": 50,
        }))
        .unwrap();
        Report {
            version: "1.2.3".to_owned(),
            role: "client".to_owned(),
            sessions: vec![session],
            totals: vec![PeerTotals {
                peer: "KEY".to_owned(),
                sessions: 1,
                links,
                ..PeerTotals::default()
            }],
            policies: vec![LinkReport {
                name: "eth0".to_owned(),
                policy: sumlink_transport::LinkPolicy {
                    cap_month: Some(100),
                    ..Default::default()
                },
                source: sumlink_transport::policy::Source::Configuration,
                priority: "primary".to_owned(),
                usage: Some(usage),
                used_up_until: None,
            }],
            refused: BTreeMap::from([("timeout".to_owned(), 4)]),
            ..Report::default()
        }
    }

    #[track_caller]
    fn has(text: &str, line: &str) {
        assert!(
            text.lines().any(|written| written == line),
            "{line}:\n{text}"
        );
    }

    #[test]
    fn a_report_has_every_metric_in_base_units() {
        let report = report();
        let text = text(&report, Format::Prometheus, true);
        for line in [
            "sumlink_build_info{version=\"1.2.3\",role=\"client\"} 1",
            "sumlink_healthy 1",
            "sumlink_streams{class=\"streaming\"} 3",
            "sumlink_streams{class=\"background\"} 0",
            "sumlink_link_up{link=\"w\\\"0\\\\\\n\"} 1",
            "sumlink_link_up{link=\"eth0\"} 0",
            "sumlink_link_bytes_total{link=\"w\\\"0\\\\\\n\",direction=\"sent\"} \
             18446744073709551615",
            "sumlink_link_rate_bytes_per_second{link=\"w\\\"0\\\\\\n\",direction=\"sent\"} 1000",
            "sumlink_link_stalls_total{link=\"w\\\"0\\\\\\n\"} 3",
            "sumlink_link_failover_seconds_bucket{link=\"w\\\"0\\\\\\n\",le=\"0.05\"} 0",
            "sumlink_link_failover_seconds_bucket{link=\"w\\\"0\\\\\\n\",le=\"300\"} 2",
            "sumlink_link_failover_seconds_bucket{link=\"w\\\"0\\\\\\n\",le=\"+Inf\"} 3",
            "sumlink_link_failover_seconds_sum{link=\"w\\\"0\\\\\\n\"} 400.25",
            "sumlink_link_failover_seconds_count{link=\"w\\\"0\\\\\\n\"} 3",
            "sumlink_link_return_seconds_bucket{link=\"w\\\"0\\\\\\n\",le=\"+Inf\"} 0",
            "sumlink_path_srtt_seconds{session=\"00112233\",link=\"w\\\"0\\\\\\n\",path=\"2\"} \
             0.0125",
            "sumlink_link_cap_used_bytes{link=\"eth0\",period=\"month\"} 50",
            "sumlink_link_cap_limit_bytes{link=\"eth0\",period=\"month\"} 100",
            "sumlink_handshakes_refused_total{reason=\"timeout\"} 4",
            "# TYPE sumlink_link_stalls_total counter",
            "# TYPE sumlink_link_return_seconds histogram",
        ] {
            has(&text, line);
        }
        assert!(
            !text.contains("period=\"day\",") && !text.contains("# EOF"),
            "{text}"
        );
        // Every metric has a sample, so that the other tests see all of them.
        for Metric { name, kind, .. } in metrics() {
            let sample = match kind {
                Kind::Histogram => format!("{name}_count"),
                _ => name.to_owned(),
            };
            let mut lines = text.lines();
            let is_sample = |line: &str| {
                let rest = line.strip_prefix(&sample);
                rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
            };
            assert!(lines.any(is_sample), "no sample of {name}:\n{text}");
        }
    }

    #[test]
    fn open_metrics_has_the_same_samples() {
        let report = report();
        let of = |format| {
            let text = text(&report, format, true);
            let samples = text.lines().filter(|line| !line.starts_with('#'));
            samples.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(of(Format::OpenMetrics), of(Format::Prometheus));
        let text = text(&report, Format::OpenMetrics, true);
        has(&text, "# TYPE sumlink_link_stalls counter");
        has(&text, "# TYPE sumlink_path_srtt_seconds gauge");
        has(&text, "# UNIT sumlink_path_srtt_seconds seconds");
        has(&text, "# TYPE sumlink_build info");
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn names_are_unique_and_have_their_suffixes() {
        let mut families = BTreeSet::new();
        for Metric { name, kind, .. } in metrics() {
            assert_eq!(kind == Kind::Counter, name.ends_with("_total"), "{name}");
            // OpenMetrics drops the suffix of counters from the name of their family.
            let family = name.trim_end_matches("_total").to_owned();
            assert!(families.insert(family), "{name}");
        }
        assert!(families.len() > 30);
    }

    #[test]
    fn a_server_has_the_client_at_each_sample() {
        let mut report = report();
        report.role = "server".to_owned();
        report.policies.clear();
        report.totals[0].links[0].bytes_sent = 7;
        let mut second = report.sessions[0].clone();
        report.sessions[0].peer = "KEY (laptop)".to_owned();
        report.sessions[0].client = "laptop".to_owned();
        report.totals[0].client = "laptop".to_owned();
        second.peer = "OTHERKEY-OTHERKEY".to_owned();
        report.sessions.push(second);
        report.totals.push(PeerTotals {
            peer: "OTHERKEY-OTHERKEY".to_owned(),
            ..report.totals[0].clone()
        });
        let texts = text(&report, Format::Prometheus, true);
        // The keys distinguish two clients of one name.
        has(&texts, "sumlink_sessions{client=\"laptop (KEY)\"} 1");
        has(&texts, "sumlink_sessions{client=\"laptop (OTHERKEY)\"} 1");
        report.totals[1].client.clear();
        let texts = text(&report, Format::Prometheus, true);
        has(&texts, "sumlink_sessions{client=\"laptop\"} 1");
        has(&texts, "sumlink_sessions{client=\"OTHERKEY-OTHERKEY\"} 1");
        has(&texts, "sumlink_clients 2");
        let samples: Vec<&str> = texts
            .lines()
            .filter(|line| !line.starts_with('#'))
            .collect();
        let series: BTreeSet<&str> = samples
            .iter()
            .filter_map(|line| Some(line.rsplit_once(' ')?.0))
            .collect();
        assert_eq!(
            series.len(),
            samples.len(),
            "a series occurs twice: {texts}"
        );
        let together = text(&report, Format::Prometheus, false);
        has(&together, "sumlink_clients 2");
        has(&together, "sumlink_sessions 2");
        has(&together, "sumlink_sessions_started_total 2");
        let stalls = "sumlink_link_stalls_total{link=\"w\\\"0\\\\\\n\"} 6";
        has(&together, stalls);
        for absent in ["client=", "sumlink_path_", "sumlink_link_share"] {
            assert!(!together.contains(absent), "{absent}: {together}");
        }
    }
}
