//! `sumlink status`: a report as a table, once or again every second.

mod edge;
mod session;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use crate::args::StatusArgs;
use crate::control::{self, Report};
use crate::exit::CliError;
use crate::table::printable;

/// How often `--watch` asks.
const REFRESH: Duration = Duration::from_secs(1);

/// Cursor home; each line then clears what is left of the old one, and the end what is below.
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K\n";
const CLEAR_BELOW: &str = "\x1b[J";
const CLEAR_SCREEN: &str = "\x1b[2J";

/// Runs the verb.
pub(crate) fn run(args: &StatusArgs) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    let in_place = args.watch && !args.json && out.is_terminal();
    if in_place {
        out.write_all(CLEAR_SCREEN.as_bytes())?;
    }
    loop {
        let report = control::ask(&args.control)?;
        let text = if args.json {
            format!(
                "{}\n",
                serde_json::to_string(&report).map_err(io::Error::from)?
            )
        } else {
            let width = if args.wide {
                usize::MAX
            } else {
                terminal_width()
            };
            render(&report, width)
        };
        if in_place {
            let text = text.replace('\n', CLEAR_LINE);
            write!(out, "{HOME}{text}{CLEAR_BELOW}")?;
        } else {
            out.write_all(text.as_bytes())?;
        }
        out.flush()?;
        if !args.watch {
            return Ok(());
        }
        if !in_place && !args.json {
            writeln!(out)?;
        }
        std::thread::sleep(REFRESH);
    }
}

/// Characters in a line of the terminal; where there is none, as many as most have.
pub(crate) fn terminal_width() -> usize {
    terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0))
}

/// The report as text, its tables in lines of `width` characters.
fn render(report: &Report, width: usize) -> String {
    let mut out = format!(
        "sumlink {} {}, pid {}",
        report.version, report.role, report.pid
    );
    match report.sessions.len() {
        0 if report.edge.is_some() => {}
        0 => out.push_str(", no session"),
        1 => {}
        n => out.push_str(&format!(", {n} sessions")),
    }
    out.push('\n');
    if !report.note.is_empty() {
        out.push_str(&format!("{}\n", printable(&report.note)));
    }
    for session in &report.sessions {
        out.push('\n');
        out.push_str(&session::render(session, width));
    }
    if let Some(edge) = &report.edge {
        out.push('\n');
        out.push_str(&edge::render(edge, width));
    }
    out
}

#[cfg(test)]
mod tests {
    use sumlink_edge_node::NodeStatus;
    use sumlink_edge_node::status::LinkStatus;
    use sumlink_transport::status::{PathStatus, SessionStatus, StreamStatus};

    use super::*;

    fn session() -> SessionStatus {
        let path = |id, link: &str, state: &str, reason: &str, mbit: f64, share| PathStatus {
            id,
            link: link.to_owned(),
            label: String::new(),
            priority: "primary".to_owned(),
            state: state.to_owned(),
            reason: reason.to_owned(),
            local: "192.0.2.1:40000".to_owned(),
            remote: "198.51.100.1:7443".to_owned(),
            congestion: "bbr".to_owned(),
            srtt_ms: 20.25,
            rttvar_ms: 1.5,
            cwnd_bytes: 120_000,
            send_rate_bps: mbit * 1e4,
            receive_rate_bps: mbit * 1e6,
            bytes_sent: 52_000,
            bytes_received: 412_000_000,
            retransmissions: 17,
            duplicates_sent_bytes: 0,
            send_share: share,
            receive_share: share,
            ..PathStatus::default()
        };
        SessionStatus {
            role: "client".to_owned(),
            session: "00112233445566778899aabbccddeeff".to_owned(),
            peer: "PUBLICKEY".to_owned(),
            uptime_s: 754.0,
            scheduler: "fbdt".to_owned(),
            bytes_sent: 81_234,
            bytes_received: 824_000_000,
            send_goodput_bps: 230_000.0,
            receive_goodput_bps: 233_000_000.0,
            streams_open: 2,
            streams_total: 31,
            reorder_bytes: 65_536,
            reorder_peak_bytes: 1_900_000,
            receive_buffer_bytes: 131_072,
            send_buffer_bytes: 0,
            memory_limit_bytes: 64 << 20,
            duplicates_sent_bytes: 0,
            duplicates_received_bytes: 4_096,
            streams: vec![
                StreamStatus {
                    id: 4,
                    target: "example.org:443".to_owned(),
                    class: "interactive".to_owned(),
                    learnt: true,
                    bytes_sent: 1200,
                    bytes_received: 345_678,
                },
                StreamStatus {
                    id: 6,
                    target: "192.0.2.7:22".to_owned(),
                    class: "conversational".to_owned(),
                    learnt: false,
                    bytes_sent: 0,
                    bytes_received: 0,
                },
            ],
            paths: vec![
                path(Some(0), "wlan0", "active", "delivers", 57.5, 0.25),
                path(Some(1), "wwan0", "stalled", "no ACK for 1.2 s", 175.5, 0.75),
                PathStatus {
                    link: "eth0".to_owned(),
                    state: "down".to_owned(),
                    reason: "the link eth0 is down".to_owned(),
                    ..PathStatus::default()
                },
            ],
        }
    }

    fn report(note: &str, sessions: Vec<SessionStatus>) -> Report {
        Report {
            version: "1.2.3".to_owned(),
            role: "client".to_owned(),
            pid: 4711,
            note: note.to_owned(),
            sessions,
            edge: None,
        }
    }

    #[test]
    fn an_edge_node_with_a_dead_link() {
        let link = |name: &str, state: &str, rtt_ms| LinkStatus {
            name: name.to_owned(),
            state: state.to_owned(),
            rtt_ms,
            queue_packets: 12,
            queue_limit: 40,
            service_bps: rtt_ms.map(|_| 25e6),
            sent_bytes: 1_500_000,
            ..LinkStatus::default()
        };
        let mut report = report("", Vec::new());
        report.edge = Some(NodeStatus {
            role: "node".to_owned(),
            mode: "lwip+visible".to_owned(),
            steering: "qdepl".to_owned(),
            device: "edge0".to_owned(),
            links: vec![
                link("lte", "up", Some(31.5)),
                link("wifi\u{7}", "down", None),
            ],
            ..NodeStatus::default()
        });
        let text = render(&report, 80);
        assert!(widest(&text) <= 80 && !text.contains('\u{7}'), "{text}");
        for words in [
            "lwip+visible, qdepl, as the node's end",
            "31.5 ms",
            "12/40",
            "down",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(!text.contains("no session"), "{text}");
    }

    #[test]
    fn a_link_is_shown_with_what_its_owner_calls_it() {
        let mut session = session();
        session.paths[1].label = "5G\u{7}".to_owned();
        let text = render(&report("", vec![session]), usize::MAX);
        assert!(text.contains("wwan0 (5G"), "{text}");
        assert!(!text.contains('\u{7}'));
    }

    /// How wide the text is.
    fn widest(text: &str) -> usize {
        let widths = text.lines().map(|line| line.chars().count());
        widths.max().unwrap_or(0)
    }

    #[test]
    fn a_session_with_two_paths() {
        insta::assert_snapshot!(render(&report("", vec![session()]), usize::MAX));
    }

    #[test]
    fn a_session_on_a_terminal_of_80_columns() {
        let text = render(&report("", vec![session()]), 80);
        assert!(widest(&text) <= 80, "{text}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn a_long_target_is_cut_to_the_terminal() {
        let mut session = session();
        let target = format!("{}.example.org:443", "label".repeat(30));
        session.streams[0].target.clone_from(&target);
        let report = report("", vec![session]);
        let text = render(&report, 80);
        assert!(widest(&text) <= 80, "{text}");
        assert!(
            text.contains("example.org:443") && text.contains('…'),
            "{text}"
        );
        assert!(render(&report, usize::MAX).contains(&target));
    }

    #[test]
    fn columns_come_back_with_the_room_for_them() {
        let mut session = session();
        session.paths[0].reason = "nothing delivered for 1234 ms".to_owned();
        session.paths[1].link = "fifteen-letters".to_owned();
        session.paths[2].reason =
            "the link eth0 has no route to 198.51.100.1: it needs one of its own, such as a \
            default route with a higher metric"
                .to_owned();
        let report = report("", vec![session]);
        let columns = |width| {
            let text = render(&report, width);
            assert!(widest(&text) <= width, "{width}: {text}");
            let head = text.lines().find(|line| line.ends_with("WHY")).unwrap();
            head.split("  ").filter(|name| !name.is_empty()).count()
        };
        let counts: Vec<usize> = (80..400).map(columns).collect();
        assert!(counts.is_sorted(), "{counts:?}");
        assert_eq!(counts.last(), Some(&14));
    }

    #[test]
    fn a_client_that_connects_again() {
        let link = session().paths.pop();
        let links = SessionStatus {
            paths: link.into_iter().collect(),
            ..SessionStatus::default()
        };
        let report = report("connecting to bond.example.org:7443", vec![links]);
        insta::assert_snapshot!(render(&report, 80));
    }

    #[test]
    fn what_a_peer_says_does_not_reach_the_terminal_raw() {
        let mut hostile = session();
        hostile.paths[0].link = "\x1b[2J".to_owned();
        hostile.session = "\x1b[31m".to_owned();
        let text = render(&report("\x07", vec![hostile]), 80);
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
    }
}
