//! `sumlink status`: a report as a table, once or refreshed every second.

mod clients;
mod session;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use crate::args::StatusArgs;
use crate::control::{self, ControlError, Refusal, RefusalKind, Report};
use crate::error::CliError;
use crate::find_socket;
use crate::gateway;
use crate::grid::View;
use crate::table::printable;

/// Interval of `--watch`.
const REFRESH: Duration = Duration::from_secs(1);

/// Cursor home. Each line then clears the rest of the old line, and the end clears the lines below.
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K\n";
const CLEAR_BELOW: &str = "\x1b[J";
const CLEAR_SCREEN: &str = "\x1b[2J";

/// Runs the verb.
pub(crate) fn run(args: &StatusArgs) -> Result<(), CliError> {
    watch(args, find_socket::SOCKETS, |_, _| {
        "sumlink-edge status shows its links\n".to_owned()
    })
}

/// Shows the report of the process at the named socket, or at one of `sockets` below `/run`; `edge`
/// renders that of an edge node.
///
/// # Errors
///
/// Nothing answers there, the answer is invalid, or no client matches.
pub fn watch(
    args: &StatusArgs,
    sockets: &[&str],
    edge: impl Fn(&serde_json::Value, View) -> String,
) -> Result<(), CliError> {
    let socket = find_socket::socket(args.control.as_deref(), sockets)?;
    let mut out = io::stdout().lock();
    let is_terminal = out.is_terminal();
    let in_place = args.watch && !args.json && is_terminal;
    if in_place {
        out.write_all(CLEAR_SCREEN.as_bytes())?;
    }
    loop {
        let mut report = control::ask(&socket.path)?;
        let mut filtered = keep_clients(&mut report, &args.client);
        let text = if args.json {
            format!(
                "{}\n",
                serde_json::to_string(&report).map_err(io::Error::from)?
            )
        } else {
            std::mem::replace(&mut filtered, Ok(()))?;
            let view = match (args.wide, is_terminal) {
                (false, _) => View::Fit(terminal_width()),
                (true, true) => View::All(terminal_width()),
                (true, false) => View::All(usize::MAX),
            };
            let guess = socket.is_guess.then_some(&socket.path);
            render(&report, args, guess, view, &edge)
        };
        if in_place {
            let text = text.replace('\n', CLEAR_LINE);
            write!(out, "{HOME}{text}{CLEAR_BELOW}")?;
        } else {
            out.write_all(text.as_bytes())?;
        }
        out.flush()?;
        if !args.watch {
            // JSON has an empty list of sessions, and no message beside it.
            return filtered.map_err(|error| CliError::AlreadyReported(error.exit()));
        }
        if !in_place && !args.json {
            writeln!(out)?;
        }
        std::thread::sleep(REFRESH);
    }
}

/// Drops the sessions of clients that no pattern matches.
///
/// # Errors
///
/// None is left, or the process is not a server.
fn keep_clients(report: &mut Report, patterns: &[String]) -> Result<(), CliError> {
    if patterns.is_empty() {
        return Ok(());
    }
    if report.role != "server" {
        return Err(CliError::Usage(format!(
            "--client: only a server has clients, and this is {} {}",
            if report.role == "edge" { "an" } else { "a" },
            printable(&report.role)
        )));
    }
    let names = clients::by_client(&report.sessions).into_iter();
    let names: Vec<String> = names.map(|of| printable(clients::name(of[0]))).collect();
    let is_meant = |client: &str, peer: &str| {
        let mut patterns = patterns.iter();
        patterns.any(|pattern| clients::is_called(client, peer, pattern))
    };
    let sessions = &mut report.sessions;
    sessions.retain(|session| is_meant(&session.client, &session.peer));
    let totals = &mut report.totals;
    totals.retain(|totals| is_meant(&totals.client, &totals.peer));
    match (report.sessions.is_empty(), names.as_slice()) {
        (false, _) => Ok(()),
        (true, []) => Err(no_client("no client has a session".to_owned())),
        (true, names) => Err(no_client(format!(
            "no client `{}` has a session; connected are {}",
            patterns.join("`, `"),
            names.join(", ")
        ))),
    }
}

fn no_client(error: String) -> CliError {
    let kind = RefusalKind::NoSuchLink;
    ControlError::Refused(Refusal { error, kind }).into()
}

/// Width of the terminal in characters; a usual width without a terminal.
pub fn terminal_width() -> usize {
    terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0))
}

/// The report as text, with the socket if it was not named.
fn render(
    report: &Report,
    args: &StatusArgs,
    socket: Option<&PathBuf>,
    view: View,
    edge: impl Fn(&serde_json::Value, View) -> String,
) -> String {
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
    if let Some(socket) = socket {
        out.push_str(&format!("at {}\n", socket.display()));
    }
    if !report.note.is_empty() {
        out.push_str(&format!("{}\n", printable(&report.note)));
    }
    if let Some(gateway) = &report.gateway {
        out.push_str(&format!("\n{}", gateway::status::render(gateway)));
    }
    let clients = clients::by_client(&report.sessions);
    let is_list = report.role == "server" && !args.details;
    if is_list && (args.client.is_empty() || clients.len() > 1) {
        if !clients.is_empty() {
            out.push_str(&format!("\n{}", clients::render(&clients, view)));
            out.push_str("\n--client NAME shows one client in full\n");
        }
        return out;
    }
    for session in clients.into_iter().flatten() {
        out.push('\n');
        out.push_str(&session::render(session, view));
    }
    if let Some(node) = &report.edge {
        out.push('\n');
        out.push_str(&edge(node, view));
    }
    out
}

#[cfg(test)]
mod tests {
    use sumlink_transport::SessionStatus;
    use sumlink_transport::status::{LinkTotals, PathStatus, StreamStatus};

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
            client: String::new(),
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
            in_order_wait_p99_ms: 11.3,
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
                    learned: true,
                    bytes_sent: 1200,
                    bytes_received: 345_678,
                },
                StreamStatus {
                    id: 6,
                    target: "192.0.2.7:22".to_owned(),
                    class: "conversational".to_owned(),
                    learned: false,
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
            links: vec![
                totals("wlan0", 1, 1, 412_000_000, 0.25),
                totals("wwan0", 1, 3, 1_236_000_000, 0.75),
            ],
            ..SessionStatus::default()
        }
    }

    fn totals(link: &str, paths: u64, paths_total: u64, received: u64, share: f64) -> LinkTotals {
        LinkTotals {
            link: link.to_owned(),
            paths,
            paths_total,
            bytes_sent: 52_000 * paths_total,
            bytes_received: received,
            retransmissions: 17 * paths_total,
            send_share: share,
            receive_share: share,
            ..LinkTotals::default()
        }
    }

    /// A client's session with this number of links.
    fn session_of(links: usize) -> SessionStatus {
        let mut session = session();
        let mut more = session.paths.clone();
        more[2].link = "usb0".to_owned();
        more[2].label = "the old phone in the drawer".to_owned();
        session.paths.extend(more.pop());
        session.paths.truncate(links);
        session.links.truncate(links);
        session
    }

    /// A server's session with a client.
    fn session_with(number: usize) -> SessionStatus {
        let client = format!("laptop-{number:02}");
        SessionStatus {
            role: "server".to_owned(),
            peer: format!("PUBLICKEY{number} ({client})"),
            client,
            receive_goodput_bps: if number.is_multiple_of(2) { 0.0 } else { 1.5e6 },
            ..session_of(2)
        }
    }

    fn of_server(sessions: Vec<SessionStatus>) -> Report {
        Report {
            role: "server".to_owned(),
            ..report("", sessions)
        }
    }

    fn args() -> StatusArgs {
        StatusArgs {
            control: None,
            client: Vec::new(),
            details: false,
            wide: false,
            watch: false,
            json: false,
        }
    }

    /// The report as on a terminal of this width; in full with `None`.
    fn shown(report: &Report, width: Option<usize>) -> String {
        let view = width.map_or(View::All(usize::MAX), View::Fit);
        let text = render(report, &args(), None, view, |_, _| String::new());
        let widest = widest(&text);
        assert!(widest <= width.unwrap_or(widest), "{width:?}: {text}");
        text
    }

    fn report(note: &str, sessions: Vec<SessionStatus>) -> Report {
        Report {
            version: "1.2.3".to_owned(),
            role: "client".to_owned(),
            pid: 4711,
            note: note.to_owned(),
            sessions,
            ..Report::default()
        }
    }

    #[test]
    fn a_link_is_shown_with_its_label() {
        let mut session = session();
        session.paths[1].label = "5G\u{7}".to_owned();
        let text = shown(&report("", vec![session]), None);
        assert!(text.contains("wwan0 (5G"), "{text}");
        assert!(!text.contains('\u{7}'));
    }

    /// Width of the text.
    fn widest(text: &str) -> usize {
        let widths = text.lines().map(|line| line.chars().count());
        widths.max().unwrap_or(0)
    }

    /// All parts at common widths of terminals.
    #[test]
    fn a_client_at_every_width() {
        for links in [0, 1, 2, 4] {
            let report = report("", vec![session_of(links)]);
            for (width, name) in [(Some(80), "80"), (Some(120), "120"), (None, "wide")] {
                insta::assert_snapshot!(
                    format!("client_{links}_links_{name}"),
                    shown(&report, width)
                );
            }
        }
    }

    #[test]
    fn a_server_at_every_width() {
        for clients in [1, 20] {
            let report = of_server((0..clients).map(session_with).collect());
            for (width, name) in [(Some(80), "80"), (Some(120), "120"), (None, "wide")] {
                let text = shown(&report, width);
                // One line each, below the heading and above the hint.
                assert_eq!(text.lines().count(), clients + 5, "{text}");
                insta::assert_snapshot!(format!("server_{clients}_clients_{name}"), text);
            }
        }
    }

    /// Rates and shares matter most, so they are shown in 80 characters.
    #[test]
    fn columns_are_the_same_at_every_refresh() {
        let heads = |session: SessionStatus, width| {
            let text = shown(&report("", vec![session]), Some(width));
            let head = text.lines().find(|line| line.starts_with("LINK")).unwrap();
            head.trim_end_matches("WHY").trim_end().to_owned()
        };
        for width in 80..300 {
            let mut busy = session_of(4);
            busy.paths[0].reason = "nothing delivered for 1234 ms".to_owned();
            busy.paths[1].link = "fifteen-letters".to_owned();
            busy.paths[2].reason =
                "the link eth0 has no route to 198.51.100.1: it needs one of its own, \
                such as a default route with a higher metric"
                    .to_owned();
            assert_eq!(heads(busy, width), heads(session_of(1), width), "{width}");
        }
        let narrow = heads(session_of(1), 80);
        let narrow: Vec<&str> = narrow.split_whitespace().collect();
        assert_eq!(
            narrow,
            ["LINK", "STATE", "SRTT", "SENDING", "RECEIVING", "OUT", "IN"]
        );
    }

    #[test]
    fn all_columns_are_in_blocks_on_a_narrow_terminal() {
        let text = render(
            &report("", vec![session()]),
            &args(),
            None,
            View::All(80),
            |_, _| String::new(),
        );
        let heads = text.lines().filter(|line| line.starts_with("LINK")).count();
        assert_eq!(heads, 3, "{text}");
        let tables = text.lines().skip_while(|line| !line.starts_with("LINK"));
        let widest = tables.map(|line| line.chars().count()).max();
        assert!(widest <= Some(80), "{text}");
    }

    #[test]
    fn idle_clients_have_dashes() {
        let mut session = session_of(1);
        session.paths[0].send_rate_bps = 1.0;
        session.paths[0].receive_rate_bps = 0.4;
        (session.send_goodput_bps, session.receive_goodput_bps) = (0.0, 1.0);
        let text = shown(&report("", vec![session]), Some(80));
        assert!(!text.contains("bit/s"), "{text}");
        assert!(text.contains("sent -, received -"), "{text}");
    }

    #[test]
    fn one_client_of_a_server_is_shown_in_full() {
        let all = || of_server((0..3).map(session_with).collect());
        let with = |client: &str, details| StatusArgs {
            client: vec![client.to_owned()],
            details,
            ..args()
        };
        let kept = |client: &str| {
            let mut report = all();
            keep_clients(&mut report, &with(client, false).client).map(|()| report)
        };
        let one = kept("laptop-01").unwrap();
        let text = render(
            &one,
            &with("laptop-01", false),
            None,
            View::Fit(80),
            |_, _| String::new(),
        );
        assert!(
            text.contains("PUBLICKEY1 (laptop-01)") && text.contains("SRTT"),
            "{text}"
        );
        let several = kept("laptop-0*").unwrap();
        let lines = render(
            &several,
            &with("laptop-0*", false),
            None,
            View::Fit(80),
            |_, _| String::new(),
        );
        assert!(!lines.contains("SRTT"), "{lines}");
        let full = render(
            &several,
            &with("laptop-0*", true),
            None,
            View::Fit(80),
            |_, _| String::new(),
        );
        assert_eq!(full.matches("SRTT").count(), 3, "{full}");
        let error = kept("phone").unwrap_err();
        assert_eq!(error.exit(), crate::exit::Exit::Network);
        assert!(
            error
                .to_string()
                .contains("connected are laptop-00, laptop-01"),
            "{error}"
        );
        let mut client = report("", vec![session()]);
        let error = keep_clients(&mut client, &["x".to_owned()]).unwrap_err();
        assert!(
            error.to_string().contains("only a server has clients"),
            "{error}"
        );
    }

    #[test]
    fn a_long_target_is_cut_to_the_terminal() {
        let mut session = session();
        let target = format!("{}.example.org:443", "label".repeat(30));
        session.streams[0].target.clone_from(&target);
        let report = report("", vec![session]);
        let text = shown(&report, Some(80));
        assert!(widest(&text) <= 80, "{text}");
        assert!(
            text.contains("example.org:443") && text.contains('…'),
            "{text}"
        );
        assert!(shown(&report, None).contains(&target));
    }

    #[test]
    fn a_client_that_reconnects() {
        let link = session().paths.pop();
        let links = SessionStatus {
            paths: link.into_iter().collect(),
            ..SessionStatus::default()
        };
        let report = report("connecting to bond.example.org:7443", vec![links]);
        insta::assert_snapshot!(shown(&report, Some(80)));
    }

    #[test]
    fn a_peers_text_is_escaped() {
        let mut hostile = session();
        hostile.paths[0].link = "\x1b[2J".to_owned();
        hostile.session = "\x1b[31m".to_owned();
        let text = shown(&report("\x07", vec![hostile]), Some(80));
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
    }
}
