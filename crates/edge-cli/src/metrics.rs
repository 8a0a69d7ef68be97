//! The status of an edge node as Prometheus metrics, with the names and units that Prometheus
//! expects.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use sumlink_edge_node::NodeStatus;
use sumlink_edge_node::status::LinkStatus;

/// All numbers of `status`, read at each request.
pub(crate) fn registry(status: impl Fn() -> NodeStatus + Send + Sync + 'static) -> Registry {
    let mut registry = Registry::with_prefix("sumlink_edge");
    registry.register_collector(Box::new(EdgeCollector(status)));
    registry
}

struct EdgeCollector<F>(F);

impl<F> fmt::Debug for EdgeCollector<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EdgeCollector")
    }
}

impl<F: Fn() -> NodeStatus + Send + Sync + 'static> Collector for EdgeCollector<F> {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        write(&(self.0)(), &mut encoder)
    }
}

/// A number of the whole end: name, help and value. The format adds `_total` to the names of
/// counters.
type Total = (&'static str, &'static str, fn(&NodeStatus) -> u64);

/// A number of a link.
type PerLink<T> = (&'static str, &'static str, fn(&LinkStatus) -> T);

const COUNTERS: [Total; 21] = [
    (
        "down_packets",
        "Packets from the device for the links",
        |s| s.core.down_packets,
    ),
    (
        "dropped_packets",
        "Packets dropped because every queue was full",
        |s| s.core.dropped,
    ),
    ("up_packets", "Packets from the links for the device", |s| {
        s.core.up_packets
    }),
    (
        "malformed_packets",
        "Packets that could not be parsed",
        |s| s.core.malformed,
    ),
    (
        "device_refused_packets",
        "Packets that the TUN device rejected",
        |s| s.device_refused,
    ),
    (
        "duplicate_acks",
        "Duplicate acknowledgments from users",
        |s| s.core.duplicates,
    ),
    (
        "boosted_acks",
        "Duplicate acknowledgments forwarded as acknowledgments of the missing packet",
        |s| s.core.boosted,
    ),
    ("held_acks", "Duplicate acknowledgments held back", |s| {
        s.core.held
    }),
    (
        "unneeded_acks",
        "Acknowledgments not forwarded because the far end had just received the same",
        |s| s.core.unneeded,
    ),
    (
        "repaired_packets",
        "Packets retransmitted because of an acknowledgment",
        |s| s.core.repaired,
    ),
    (
        "repaired_behind_packets",
        "Packets retransmitted because their link lost them behind the first gap",
        |s| s.core.repaired_behind,
    ),
    (
        "repaired_late_packets",
        "Packets retransmitted after a timeout",
        |s| s.core.repaired_late,
    ),
    (
        "not_kept_packets",
        "Packets without a copy because memory was full",
        |s| s.core.not_kept,
    ),
    (
        "not_tracked_packets",
        "Packets of flows beyond the limit on flows",
        |s| s.core.not_tracked,
    ),
    (
        "not_numbered_packets",
        "Packets of lwa without a number because too many users have numbers",
        |s| s.core.not_numbered,
    ),
    (
        "evicted_flows",
        "Flows evicted to make room for others",
        |s| s.core.forgotten,
    ),
    ("reset_flows", "Flows reset by this end", |s| s.core.resets),
    (
        "ordered_packets",
        "Numbered packets delivered in order",
        |s| s.reorder.delivered,
    ),
    (
        "reordered_packets",
        "Numbered packets that waited for earlier ones",
        |s| s.reorder.reordered,
    ),
    (
        "late_packets",
        "Numbered packets that arrived after the wait for them had ended",
        |s| s.reorder.late,
    ),
    (
        "missing_packets",
        "Numbered packets that did not arrive in time",
        |s| s.reorder.missing,
    ),
];

const GAUGES: [Total; 4] = [
    ("flows", "TCP flows known to the node", |s| {
        s.core.flows as u64
    }),
    (
        "busy_flows",
        "Flows whose users send acknowledgments, and flows that are owed data",
        |s| s.core.busy_flows as u64,
    ),
    (
        "owed_flows",
        "Flows with data acknowledged for their user and not yet delivered",
        |s| s.core.owed_flows as u64,
    ),
    (
        "kept_bytes",
        "Bytes of copies kept for retransmission",
        |s| s.core.kept_bytes as u64,
    ),
];

const LINK_COUNTERS: [PerLink<u64>; 8] = [
    (
        "link_sent_packets",
        "Datagrams sent, including probes",
        |l| l.sent_packets,
    ),
    ("link_sent_bytes", "Bytes sent with all headers", |l| {
        l.sent_bytes
    }),
    ("link_received_packets", "Datagrams received", |l| {
        l.received_packets
    }),
    (
        "link_received_bytes",
        "Bytes received with all headers",
        |l| l.received_bytes,
    ),
    (
        "link_refused_packets",
        "Datagrams that the kernel rejected",
        |l| l.refused,
    ),
    (
        "link_foreign_packets",
        "Datagrams that do not belong to this tunnel",
        |l| l.foreign,
    ),
    ("link_probes", "Probes sent", |l| l.probes),
    ("link_answers", "Answers to probes", |l| l.answers),
];

/// Unknown values are omitted.
const LINK_GAUGES: [PerLink<Option<f64>>; 8] = [
    ("link_up", "1 if probes are answered", |l| {
        Some(f64::from(u8::from(l.state == "up")))
    }),
    ("link_queue_packets", "Packets in the queue", |l| {
        Some(l.queue_packets as f64)
    }),
    ("link_queue_bytes", "Bytes in the queue", |l| {
        Some(l.queue_bytes as f64)
    }),
    (
        "link_queue_limit_packets",
        "Limit on packets in the queue",
        |l| Some(l.queue_limit as f64),
    ),
    (
        "link_interface_queue_bytes",
        "Bytes of any program in the queue of the interface below",
        |l| l.interface_queue_bytes.map(|bytes| bytes as f64),
    ),
    (
        "link_service_bytes_per_second",
        "Rate at which the queue is served while it is not empty",
        |l| l.service_bps.map(|bits| bits / 8.0),
    ),
    (
        "link_rtt_seconds",
        "Smoothed time from a probe to its answer",
        |l| l.rtt_ms.map(|ms| ms / 1e3),
    ),
    (
        "link_trip_seconds",
        "Smoothed time from entry into the queue to the acknowledgment",
        |l| l.trip_ms.map(|ms| ms / 1e3),
    ),
];

fn write(status: &NodeStatus, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    gauge(
        encoder,
        "uptime_seconds",
        "Seconds since the program started",
        status.uptime_s,
    )?;
    for (name, help, value) in GAUGES {
        gauge(encoder, name, help, value(status) as f64)?;
    }
    for (name, help, value) in COUNTERS {
        let counter = ConstCounter::new(value(status));
        let metric = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
        counter.encode(metric)?;
    }
    for (name, help, value) in LINK_COUNTERS {
        let kind = ConstCounter::<u64>::default().metric_type();
        let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
        for link in &status.links {
            let labels = [("link", link.name.as_str())];
            ConstCounter::new(value(link)).encode(metric.encode_family(&labels)?)?;
        }
    }
    for (name, help, value) in LINK_GAUGES {
        let kind = ConstGauge::<f64>::default().metric_type();
        let mut metric: MetricEncoder<'_> = encoder.encode_descriptor(name, help, None, kind)?;
        for link in &status.links {
            let labels = [("link", link.name.as_str())];
            if let Some(value) = value(link) {
                ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
            }
        }
    }
    Ok(())
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &'static str,
    help: &str,
    value: f64,
) -> fmt::Result {
    let gauge = ConstGauge::new(value);
    let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
    gauge.encode(metric)
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn a_status_is_exported_in_the_units_of_prometheus() {
        let mut status = NodeStatus {
            uptime_s: 2.5,
            ..NodeStatus::default()
        };
        status.core.forgotten = 7;
        status.links.push(LinkStatus {
            name: "l\"te".to_owned(),
            state: "up".to_owned(),
            rtt_ms: Some(12.5),
            service_bps: None,
            sent_bytes: u64::MAX,
            ..LinkStatus::default()
        });
        let mut text = String::new();
        encode(&mut text, &registry(move || status.clone())).unwrap();
        for line in [
            "# TYPE sumlink_edge_evicted_flows counter",
            "sumlink_edge_evicted_flows_total 7",
            "sumlink_edge_uptime_seconds 2.5",
            "sumlink_edge_link_up{link=\"l\\\"te\"} 1.0",
            "sumlink_edge_link_rtt_seconds{link=\"l\\\"te\"} 0.0125",
            "sumlink_edge_link_sent_bytes_total{link=\"l\\\"te\"} 18446744073709551615",
        ] {
            assert!(
                text.lines().any(|written| written == line),
                "{line}: {text}"
            );
        }
        let unknown = "sumlink_edge_link_service_bytes_per_second{";
        assert!(!text.contains(unknown), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn the_manual_lists_every_name() {
        let manual = include_str!("../../../docs/edge-node.md");
        let counters = COUNTERS.map(|(name, ..)| name).into_iter();
        let counters = counters.chain(LINK_COUNTERS.map(|(name, ..)| name));
        let counters = counters.map(|name| format!("{name}_total"));
        let gauges = GAUGES.map(|(name, ..)| name).into_iter();
        let gauges = gauges.chain(LINK_GAUGES.map(|(name, ..)| name));
        for name in counters.chain(gauges.map(str::to_owned)) {
            assert!(
                manual.contains(&format!("`{name}`")),
                "docs/edge-node.md lacks {name}"
            );
        }
    }
}
