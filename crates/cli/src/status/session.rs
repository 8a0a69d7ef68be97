//! A session as text.

use sumlink_transport::status::{
    DatagramPathStatus, FlowStatus, LinkTotals, PathStatus, PublishStatus, SessionStatus,
    StreamStatus,
};

use crate::grid::{Column, Grid, View};
use crate::table::{Table, bytes, duration, flow, percent, printable};

/// Columns of the table of paths. Those of rank 0 fit in 80 characters.
const PATHS: [Column; 13] = [
    Column::text("LINK", 17, 0),
    Column::text("STATE", 10, 0),
    Column::number("SRTT", 7, 0),
    Column::number("SENDING", 11, 0),
    Column::number("RECEIVING", 11, 0),
    Column::number("OUT", 5, 0),
    Column::number("IN", 5, 0),
    Column::number("SENT", 8, 1),
    Column::number("RECEIVED", 8, 1),
    Column::text("CC", 8, 2),
    Column::number("RETRANS", 7, 3),
    Column::number("DUPLICATES", 10, 4),
    Column::number("PATH", 4, 5),
];

/// Columns of the table of links.
const LINKS: [Column; 8] = [
    Column::text("LINK", 17, 0),
    Column::number("PATHS", 6, 0),
    Column::number("SENT", 8, 0),
    Column::number("RECEIVED", 8, 0),
    Column::number("OUT", 5, 0),
    Column::number("IN", 5, 0),
    Column::number("RETRANS", 7, 0),
    Column::number("DUPLICATES", 10, 0),
];

/// Columns of the table of datagram paths.
const DATAGRAM_PATHS: [Column; 8] = [
    Column::text("DATAGRAMS", 17, 0),
    Column::text("OVER", 5, 0),
    Column::text("STATE", 10, 0),
    Column::number("SRTT", 7, 0),
    Column::number("SENT", 8, 0),
    Column::number("RECEIVED", 8, 0),
    Column::number("LOST", 7, 1),
    Column::number("LARGEST", 7, 2),
];

/// Renders the totals, then paths, links, streams and datagrams.
pub(super) fn render(session: &SessionStatus, view: View) -> String {
    // A client that reconnects has only links and its published ports to show.
    if session.session.is_empty() {
        let paths = render_paths(&session.paths, view);
        return format!("{paths}{}", render_published(&session.published, view));
    }
    let mut head = Table::new(&["session", &printable(&session.session)]);
    let mut line = |name: &str, value: String| head.row([name.to_owned(), value]);
    if !session.server.is_empty() {
        let server = &session.server;
        line(
            "server",
            match session.server_name.as_str() {
                "" => server.clone(),
                name => format!("{server}, {}", printable(name)),
            },
        );
    }
    line("peer", session.peer.clone());
    line(
        "up",
        format!(
            "{}, scheduler {}",
            duration(session.uptime_s),
            session.scheduler
        ),
    );
    line(
        "goodput",
        format!(
            "sent {}, received {}",
            flow(session.send_goodput_bps),
            flow(session.receive_goodput_bps)
        ),
    );
    line(
        "bytes",
        format!(
            "sent {}, received {}",
            bytes(session.bytes_sent),
            bytes(session.bytes_received)
        ),
    );
    line(
        "streams",
        format!(
            "{} open, {} since the start",
            session.streams_open, session.streams_total
        ),
    );
    line(
        "reorder",
        format!(
            "{}, at most {}; 99 % of the bytes waited for {:.0} ms at most",
            bytes(session.reorder_bytes),
            bytes(session.reorder_peak_bytes),
            session.in_order_wait_p99_ms
        ),
    );
    line(
        "buffers",
        format!(
            "send {}, receive {}, each limited to {}",
            bytes(session.send_buffer_bytes),
            bytes(session.receive_buffer_bytes),
            bytes(session.memory_limit_bytes)
        ),
    );
    line(
        "duplicates",
        format!(
            "sent {}, received {}",
            bytes(session.duplicates_sent_bytes),
            bytes(session.duplicates_received_bytes)
        ),
    );
    let mut out = format!("{}\n{}", head.render(), render_paths(&session.paths, view));
    if !session.links.is_empty() {
        out.push_str(&format!(
            "\nsince the session began\n{}",
            render_links(&session.links, view)
        ));
    }
    if !session.streams.is_empty() {
        out.push('\n');
        out.push_str(&render_streams(&session.streams, view));
    }
    let carries_datagrams = !session.flows.is_empty()
        || session
            .datagram_paths
            .iter()
            .any(|path| path.packets_sent + path.packets_received > 0);
    if carries_datagrams {
        out.push('\n');
        out.push_str(&render_datagram_paths(&session.datagram_paths, view));
    }
    if !session.flows.is_empty() {
        out.push('\n');
        out.push_str(&render_flows(&session.flows, view));
    }
    out.push_str(&render_published(&session.published, view));
    if session.datagrams_dropped > 0 {
        out.push_str(&format!(
            "{} datagrams dropped: a program or this process did not keep up\n",
            session.datagrams_dropped
        ));
    }
    out
}

fn render_datagram_paths(paths: &[DatagramPathStatus], view: View) -> String {
    let mut grid = Grid::new(&DATAGRAM_PATHS, Some("WHY"));
    for path in paths {
        let cells = [
            dash(&path.link),
            path.carrier.clone(),
            path.state.clone(),
            milliseconds(path.srtt_ms),
            bytes(path.bytes_sent),
            bytes(path.bytes_received),
            path.packets_lost.to_string(),
            path.max_datagram_bytes.to_string(),
        ];
        grid.row(cells, &path.reason);
    }
    grid.render(view)
}

/// Most flows shown, the newest ones; `--json` has more.
const SHOWN_FLOWS: usize = 20;

fn render_flows(flows: &[FlowStatus], view: View) -> String {
    let head = [
        ">FLOW",
        "TARGET",
        "POLICY",
        "LINKS",
        ">SENT",
        ">RECEIVED",
        ">DROPPED",
        "WHY",
    ];
    let mut table = Table::new(&head);
    let hidden = flows.len().saturating_sub(SHOWN_FLOWS);
    for flow in &flows[hidden..] {
        table.row([
            flow.id.to_string(),
            printable(&flow.target),
            flow.policy.clone(),
            printable(&flow.links.join(", ")),
            bytes(flow.bytes_sent),
            bytes(flow.bytes_received),
            flow.dropped.to_string(),
            flow.reason.clone(),
        ]);
    }
    if let View::Fit(width) = view {
        table.last_below(width);
        table.cut(width, "TARGET");
    }
    match hidden {
        0 => table.render(),
        n => format!("{}and {n} older flows\n", table.render()),
    }
}

/// Most streams shown, the newest ones; `--json` has more.
const SHOWN_STREAMS: usize = 20;

fn render_streams(streams: &[StreamStatus], view: View) -> String {
    let mut table = Table::new(&[">STREAM", "TARGET", "CLASS", ">SENT", ">RECEIVED"]);
    let hidden = streams.len().saturating_sub(SHOWN_STREAMS);
    for stream in &streams[hidden..] {
        let class = match stream.learned {
            true => format!("{} (learned)", printable(&stream.class)),
            false => printable(&stream.class),
        };
        table.row([
            stream.id.to_string(),
            printable(&stream.target),
            class,
            bytes(stream.bytes_sent),
            bytes(stream.bytes_received),
        ]);
    }
    if let View::Fit(width) = view {
        table.cut(width, "TARGET");
    }
    match hidden {
        0 => table.render(),
        n => format!("{}and {n} older streams\n", table.render()),
    }
}

/// The published ports, after an empty line.
fn render_published(published: &[PublishStatus], view: View) -> String {
    if published.is_empty() {
        return String::new();
    }
    let head = [
        "PUBLISHED",
        "TARGET",
        "STATE",
        ">OPEN",
        ">SINCE START",
        "WHY",
    ];
    let mut table = Table::new(&head);
    for port in published {
        table.row([
            port.listen.clone(),
            dash(&printable(&port.target)),
            port.state.clone(),
            port.connections.to_string(),
            port.connections_total.to_string(),
            printable(&port.reason),
        ]);
    }
    if let View::Fit(width) = view {
        table.last_below(width);
        table.cut(width, "TARGET");
    }
    format!("\n{}", table.render())
}

fn render_paths(paths: &[PathStatus], view: View) -> String {
    if paths.is_empty() {
        return "no path\n".to_owned();
    }
    let mut grid = Grid::new(&PATHS, Some("WHY"));
    for path in paths {
        let (state, why) = state_of(path);
        let is_there = path.id.is_some();
        let number = |text: String| if is_there { text } else { "-".to_owned() };
        let cells = [
            named(&path.link, &path.label),
            state.to_owned(),
            number(milliseconds(path.srtt_ms)),
            number(flow(path.send_rate_bps)),
            number(flow(path.receive_rate_bps)),
            number(percent(path.send_share)),
            number(percent(path.receive_share)),
            number(bytes(path.bytes_sent)),
            number(bytes(path.bytes_received)),
            dash(&path.congestion),
            number(path.retransmissions.to_string()),
            number(bytes(path.duplicates_sent_bytes)),
            path.id.map_or("-".to_owned(), |id| id.to_string()),
        ];
        grid.row(cells, why);
    }
    grid.render(view)
}

fn render_links(links: &[LinkTotals], view: View) -> String {
    let mut grid = Grid::new(&LINKS, None);
    for link in links {
        let cells = [
            named(&link.link, &link.label),
            format!("{}/{}", link.paths, link.paths_total),
            bytes(link.bytes_sent),
            bytes(link.bytes_received),
            percent(link.send_share),
            percent(link.receive_share),
            link.retransmissions.to_string(),
            bytes(link.duplicates_sent_bytes),
        ];
        grid.row(cells, "");
    }
    grid.render(view)
}

/// A link by its name and its label.
fn named(link: &str, label: &str) -> String {
    match label.is_empty() {
        true => dash(link),
        false => format!("{link} ({label})"),
    }
}

/// At most seven characters for times below a quarter of an hour.
fn milliseconds(ms: f64) -> String {
    match ms < 999.5 {
        true if ms < 99.95 => format!("{ms:.1} ms"),
        true => format!("{ms:.0} ms"),
        false => format!("{:.1} s", ms / 1000.0),
    }
}

/// The state of a path and the reason: the selector's, if it has one and the path delivers.
fn state_of(path: &PathStatus) -> (&str, &str) {
    let is_selected = path.state == "active" && !path.selection_reason.is_empty();
    match is_selected {
        true => (&path.selection, &path.selection_reason),
        false => (&path.state, &path.reason),
    }
}

/// The text, or a dash if it is empty.
fn dash(text: &str) -> String {
    if text.is_empty() {
        "-".to_owned()
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_are_shown_once_there_are_any() {
        let path = |link: &str, carrier: &str, reason: &str, packets| DatagramPathStatus {
            link: link.to_owned(),
            carrier: carrier.to_owned(),
            reason: reason.to_owned(),
            state: "working".to_owned(),
            srtt_ms: 12.5,
            packets_sent: packets,
            bytes_sent: 1_000 * packets,
            ..DatagramPathStatus::default()
        };
        let mut session = SessionStatus {
            session: "00".repeat(16),
            datagram_paths: vec![
                path("wlan0", "udp", "", 0),
                path("wwan0", "tcp", "UDP is blocked on the way", 0),
            ],
            ..SessionStatus::default()
        };
        let shown = render(&session, View::Fit(200));
        assert!(!shown.contains("blocked"), "{shown}");
        session.datagram_paths[0].packets_sent = 3;
        session.flows.push(FlowStatus {
            id: 4,
            target: "192.0.2.7:3478".to_owned(),
            policy: "pinned".to_owned(),
            links: vec!["wlan0".to_owned()],
            reason: "path 2 has the least delay, 6 ms".to_owned(),
            dropped: 7,
            ..FlowStatus::default()
        });
        session.datagrams_dropped = 9;
        let shown = render(&session, View::Fit(200));
        for part in [
            "UDP is blocked on the way",
            "192.0.2.7:3478",
            "path 2 has the least delay, 6 ms",
            "9 datagrams dropped",
        ] {
            assert!(shown.contains(part), "{part} is missing:\n{shown}");
        }
    }

    #[test]
    fn published_ports_are_shown_with_and_without_a_session() {
        let port = |listen: &str, state: &str, reason: &str| PublishStatus {
            listen: listen.to_owned(),
            target: "192.168.7.10:443".to_owned(),
            state: state.to_owned(),
            reason: reason.to_owned(),
            connections: 3,
            connections_total: 71,
        };
        let mut status = SessionStatus {
            published: vec![
                port("tcp:8443", "published", ""),
                port("udp:5000", "refused", "the port is taken\u{7}"),
            ],
            ..SessionStatus::default()
        };
        for session in ["", "00112233445566778899aabbccddeeff"] {
            status.session = session.to_owned();
            let text = render(&status, View::Fit(120));
            for part in [
                "tcp:8443",
                "192.168.7.10:443",
                "71",
                "refused",
                "the port is taken",
            ] {
                assert!(text.contains(part), "{part} is missing:\n{text}");
            }
            assert!(!text.contains('\u{7}'));
        }
    }

    #[test]
    fn the_reasons_of_flows_and_ports_are_in_full_below_their_rows() {
        let reason = "path 2 has the least delay, 6 ms, and the others have more than 40 ms";
        let session = SessionStatus {
            session: "00".repeat(16),
            flows: vec![FlowStatus {
                id: 4,
                target: "a-rather-long-name.of-a-service.example.org:3478".to_owned(),
                policy: "pinned".to_owned(),
                links: vec!["wlan0".to_owned(), "wwan0".to_owned()],
                reason: reason.to_owned(),
                ..FlowStatus::default()
            }],
            published: vec![PublishStatus {
                listen: "tcp:192.0.2.1:8443".to_owned(),
                target: "a-rather-long-name.of-a-host.example.org:443".to_owned(),
                state: "refused".to_owned(),
                reason: "another program of the server has this port, so choose another one"
                    .to_owned(),
                ..PublishStatus::default()
            }],
            ..SessionStatus::default()
        };
        let text = render(&session, View::Fit(80));
        let tables: Vec<&str> = text
            .lines()
            .skip_while(|line| !line.starts_with("FLOW"))
            .collect();
        assert!(
            tables.iter().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        assert!(tables.contains(&format!("  {reason}").as_str()), "{text}");
        assert!(
            text.contains("  another program of the server has"),
            "{text}"
        );
        let wide = render(&session, View::Fit(240));
        let mut rows = wide.lines();
        assert!(rows.any(|line| line.ends_with(reason) && line.contains("pinned")));
    }

    #[test]
    fn a_delivering_path_has_the_state_of_the_selector() {
        let mut path = PathStatus {
            state: "active".to_owned(),
            reason: "connected for 9 s".to_owned(),
            selection: "active".to_owned(),
            ..PathStatus::default()
        };
        assert_eq!(state_of(&path), ("active", "connected for 9 s"));
        path.selection = "parked".to_owned();
        path.selection_reason = "+140 ms delivery delay for +2.0 Mbit/s".to_owned();
        let selected = ("parked", "+140 ms delivery delay for +2.0 Mbit/s");
        assert_eq!(state_of(&path), selected);
        path.state = "stalled".to_owned();
        assert_eq!(state_of(&path), ("stalled", "connected for 9 s"));
    }
}
