//! Every metric: its name, its meaning and its source in the report.
//!
//! Names and units follow the conventions of Prometheus: base units (seconds, bytes), `_total` for
//! counters. `direction` is the view of this side: `sent` or `received`.

use std::collections::BTreeMap;

use super::source::Source::{self, *};
use super::source::is;
use crate::Report;

/// A metric with all its samples.
pub(super) struct Family {
    pub(super) name: &'static str,
    /// One sentence without its period.
    pub(super) help: &'static str,
    pub(super) source: Source,
}

const fn family(name: &'static str, help: &'static str, source: Source) -> Family {
    Family { name, help, source }
}

/// All metrics in the order of the output.
pub(super) const FAMILIES: &[Family] = &[
    family(
        "sumlink_build_info",
        "Version and role of the program",
        Build,
    ),
    family(
        "sumlink_healthy",
        "1 if /healthz answers 200",
        Process(|r| is(r.is_healthy())),
    ),
    family(
        "process_cpu_seconds_total",
        "Processor time, user and system",
        ProcessTotal(|r| r.process.cpu_s),
    ),
    family(
        "process_resident_memory_bytes",
        "Resident memory",
        Process(|r| r.process.memory_bytes as f64),
    ),
    family(
        "process_open_fds",
        "Open files",
        Process(|r| r.process.open_files as f64),
    ),
    family(
        "process_max_fds",
        "Limit on open files",
        Process(|r| r.process.max_files as f64),
    ),
    family(
        "process_start_time_seconds",
        "Time of the start, since 1970",
        Process(|r| r.process.started_s),
    ),
    family(
        "sumlink_log_lines_dropped_total",
        "Log lines dropped because standard error could not be written",
        ProcessTotal(|r| r.log.dropped as f64),
    ),
    family(
        "sumlink_log_lines_suppressed_total",
        "Log lines beyond the limit on lines of one kind and client",
        ProcessTotal(|r| r.log.suppressed as f64),
    ),
    family("sumlink_clients", "Peers with a session", Process(clients)),
    family(
        "sumlink_handshakes_refused_total",
        "Connections refused before they became a path",
        Refused,
    ),
    family("sumlink_sessions", "Sessions now", Sum(|_| 1.0)),
    family(
        "sumlink_sessions_started_total",
        "Sessions",
        Total(|t| t.sessions),
    ),
    family(
        "sumlink_session_age_seconds",
        "Age of the oldest session",
        Most(|s| s.uptime_s),
    ),
    family(
        "sumlink_streams",
        "Open streams by the class of what this side sends",
        Classes(|s, class| of(&s.streams_by_class, class)),
    ),
    family(
        "sumlink_streams_opened_total",
        "Streams",
        Total(|t| t.streams),
    ),
    family(
        "sumlink_flows",
        "Open flows of datagrams by the class of what this side sends",
        Classes(|s, class| of(&s.flows_by_class, class)),
    ),
    family(
        "sumlink_stream_bytes_total",
        "Bytes of local streams",
        TotalOfWays([|t| t.bytes_sent, |t| t.bytes_received]),
    ),
    family(
        "sumlink_goodput_bytes_per_second",
        "Bytes of local streams that arrived, over about the last second",
        SumOfWays([
            |s| s.send_goodput_bps / 8.0,
            |s| s.receive_goodput_bps / 8.0,
        ]),
    ),
    family(
        "sumlink_duplicate_bytes_total",
        "Stream bytes sent or received more than once",
        TotalOfWays([|t| t.duplicates_sent_bytes, |t| t.duplicates_received_bytes]),
    ),
    family(
        "sumlink_in_order_wait_p99_seconds",
        "Wait for earlier bytes that 99 % of the received bytes of a session did not exceed",
        Most(|s| s.in_order_wait_p99_ms / 1e3),
    ),
    family(
        "sumlink_reorder_bytes",
        "Received bytes that wait for earlier ones",
        Sum(|s| s.reorder_bytes as f64),
    ),
    family(
        "sumlink_reorder_peak_bytes",
        "Highest sumlink_reorder_bytes of a session",
        Most(|s| s.reorder_peak_bytes as f64),
    ),
    family(
        "sumlink_receive_buffer_bytes",
        "Received bytes that local programs have not taken",
        Sum(|s| s.receive_buffer_bytes as f64),
    ),
    family(
        "sumlink_send_buffer_bytes",
        "Bytes of local programs that the peer has not acknowledged",
        Sum(|s| s.send_buffer_bytes as f64),
    ),
    family(
        "sumlink_memory_limit_bytes",
        "Limit on each of the two buffers",
        Sum(|s| s.memory_limit_bytes as f64),
    ),
    family(
        "sumlink_datagrams_dropped_total",
        "Datagrams that sumlink or a local program did not take in time",
        Total(|t| t.datagrams_dropped),
    ),
    family(
        "sumlink_link_up",
        "1 if a path of the link delivers",
        Link(|l| is(l.up)),
    ),
    family(
        "sumlink_link_paths",
        "Connections of the link",
        Link(|l| l.paths as f64),
    ),
    family(
        "sumlink_link_paths_opened_total",
        "Connections of the link since the start",
        LinkTotal(|t| t.paths_total),
    ),
    family(
        "sumlink_link_bytes_total",
        "Bytes of the link's paths, frames included and datagrams over UDP excluded",
        LinkTotalOfWays([|t| t.bytes_sent, |t| t.bytes_received]),
    ),
    family(
        "sumlink_link_rate_bytes_per_second",
        "Rate of the link's paths over about the last second",
        LinkWays(|l| Some(l.rates)),
    ),
    family(
        "sumlink_link_share_ratio",
        "Share of the stream bytes of the newest session",
        LinkWays(|l| l.shares),
    ),
    family(
        "sumlink_link_duplicate_bytes_total",
        "Bytes sent that another path had carried before",
        LinkTotal(|t| t.duplicates_sent_bytes),
    ),
    family(
        "sumlink_link_retransmitted_segments_total",
        "TCP segments sent again",
        LinkTotal(|t| t.retransmissions),
    ),
    family(
        "sumlink_link_tcp_sent_bytes_total",
        "TCP payload sent, with TLS and retransmissions",
        LinkTotal(|t| t.tcp_bytes_sent),
    ),
    family(
        "sumlink_link_tcp_retransmitted_bytes_total",
        "TCP payload sent again; divided by sumlink_link_tcp_sent_bytes_total, about the loss",
        LinkTotal(|t| t.tcp_bytes_retransmitted),
    ),
    family(
        "sumlink_link_stalls_total",
        "How often a path delivered nothing and its data went to the others",
        LinkTotal(|t| t.failovers.count()),
    ),
    family(
        "sumlink_link_failover_seconds",
        "How long a path had delivered nothing when its data went to the others",
        LinkDurations(|t| &t.failovers),
    ),
    family(
        "sumlink_link_return_seconds",
        "How long a link that had stalled or lost its paths took to deliver again",
        LinkDurations(|t| &t.returns),
    ),
    family(
        "sumlink_link_datagram_bytes_total",
        "Bytes of packets of datagrams over UDP",
        LinkTotalOfWays([|t| t.datagram_bytes_sent, |t| t.datagram_bytes_received]),
    ),
    family(
        "sumlink_link_datagram_packets_total",
        "Packets of datagrams",
        LinkTotalOfWays([|t| t.datagram_packets_sent, |t| t.datagram_packets_received]),
    ),
    family(
        "sumlink_link_datagram_packets_lost_total",
        "Packets of datagrams sent that the peer reports as lost",
        LinkTotal(|t| t.datagram_packets_lost),
    ),
    family(
        "sumlink_link_cap_used_bytes",
        "Bytes of the current day and month, counted against data caps",
        Caps { limit: false },
    ),
    family(
        "sumlink_link_cap_limit_bytes",
        "Data cap of a day and a month",
        Caps { limit: true },
    ),
    family(
        "sumlink_link_cap_reached",
        "1 if the link has reached a data cap",
        CapReached,
    ),
    family(
        "sumlink_path_active",
        "1 if the path delivers",
        Path(|p| is(p.state == "active")),
    ),
    family(
        "sumlink_path_srtt_seconds",
        "Smoothed round-trip time, by TCP",
        Path(|p| p.srtt_ms / 1e3),
    ),
    family(
        "sumlink_path_rttvar_seconds",
        "Variation of the round-trip time, by TCP",
        Path(|p| p.rttvar_ms / 1e3),
    ),
    family(
        "sumlink_path_cwnd_bytes",
        "Congestion window of TCP",
        Path(|p| p.cwnd_bytes as f64),
    ),
    family(
        "sumlink_path_in_flight_bytes",
        "Bytes that TCP has sent and the peer's TCP has not acknowledged",
        Path(|p| p.in_flight_bytes as f64),
    ),
    family(
        "sumlink_path_local_queue_bytes",
        "Bytes in the queue of the interface below; 0 unless a scheduler of the session reads it",
        Path(|p| p.local_queue_bytes as f64),
    ),
    family(
        "sumlink_datagram_path_working",
        "1 if the path of datagrams delivers",
        DatagramPath(|p| is(p.state == "working")),
    ),
    family(
        "sumlink_datagram_path_srtt_seconds",
        "Smoothed round-trip time of the carrier",
        DatagramPath(|p| p.srtt_ms / 1e3),
    ),
    family(
        "sumlink_datagram_path_rate_bytes_per_second",
        "Rate at which the path of datagrams delivers",
        DatagramPath(|p| p.rate_bps / 8.0),
    ),
    family(
        "sumlink_datagram_path_queued_bytes",
        "Bytes that wait in the QUIC connection",
        DatagramPath(|p| p.queued_bytes as f64),
    ),
];

fn clients(report: &Report) -> f64 {
    let sessions = report.sessions.iter();
    let peers = sessions.filter(|session| !session.session.is_empty());
    let mut peers: Vec<&str> = peers.map(|session| session.peer.as_str()).collect();
    peers.sort_unstable();
    peers.dedup();
    peers.len() as f64
}

fn of(counts: &BTreeMap<String, u64>, class: &str) -> u64 {
    counts.get(class).copied().unwrap_or(0)
}
