//! A session as text.

use sumlink_transport::status::{PathStatus, SessionStatus, StreamStatus};

use crate::table::{Table, bytes, duration, percent, printable, rate};

/// Columns of the table of paths that are left out where it is too wide, the first of them first.
const DISPENSABLE: [&str; 8] = [
    "DUPLICATES",
    "RETRANS",
    "SENT",
    "RECEIVED",
    "CC",
    "SHARE OUT",
    "SHARE IN",
    "PATH",
];

/// What it carries, then its paths and its streams; tables in lines of `width` characters.
pub(super) fn render(session: &SessionStatus, width: usize) -> String {
    // A client that is connecting again has links and nothing else to tell.
    if session.session.is_empty() {
        return render_paths(&session.paths, width);
    }
    let mut head = Table::new(&["session", &printable(&session.session)]);
    let mut line = |name: &str, value: String| head.row([name.to_owned(), value]);
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
            rate(session.send_goodput_bps),
            rate(session.receive_goodput_bps)
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
            "{}, at most {}",
            bytes(session.reorder_bytes),
            bytes(session.reorder_peak_bytes)
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
    let mut out = format!("{}\n{}", head.render(), render_paths(&session.paths, width));
    if !session.streams.is_empty() {
        out.push('\n');
        out.push_str(&render_streams(&session.streams, width));
    }
    out
}

/// Streams that are shown, the newest ones; `--json` has more.
const SHOWN_STREAMS: usize = 20;

fn render_streams(streams: &[StreamStatus], width: usize) -> String {
    let mut table = Table::new(&[">STREAM", "TARGET", "CLASS", ">SENT", ">RECEIVED"]);
    let hidden = streams.len().saturating_sub(SHOWN_STREAMS);
    for stream in &streams[hidden..] {
        let class = match stream.learnt {
            true => format!("{} (learnt)", printable(&stream.class)),
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
    table.cut(width, "TARGET");
    match hidden {
        0 => table.render(),
        n => format!("{}and {n} older streams\n", table.render()),
    }
}

fn render_paths(paths: &[PathStatus], width: usize) -> String {
    if paths.is_empty() {
        return "no path\n".to_owned();
    }
    let mut table = Table::new(&[
        ">PATH",
        "LINK",
        "STATE",
        ">SRTT",
        ">SENDING",
        ">RECEIVING",
        ">SENT",
        ">RECEIVED",
        ">RETRANS",
        ">DUPLICATES",
        ">SHARE OUT",
        ">SHARE IN",
        "CC",
        "WHY",
    ]);
    for path in paths {
        let (state, why) = state_of(path);
        table.row([
            path.id.map_or("-".to_owned(), |id| id.to_string()),
            if path.link.is_empty() {
                "-".to_owned()
            } else if path.label.is_empty() {
                path.link.clone()
            } else {
                format!("{} ({})", path.link, printable(&path.label))
            },
            state.to_owned(),
            match path.id {
                Some(_) => format!("{:.1} ms", path.srtt_ms),
                None => "-".to_owned(),
            },
            rate(path.send_rate_bps),
            rate(path.receive_rate_bps),
            bytes(path.bytes_sent),
            bytes(path.bytes_received),
            path.retransmissions.to_string(),
            bytes(path.duplicates_sent_bytes),
            percent(path.send_share),
            percent(path.receive_share),
            dash(&path.congestion),
            why.to_owned(),
        ]);
    }
    table.fit(width, &DISPENSABLE);
    table.render()
}

/// What a path is, and why: what the selector says of one that delivers, if it says anything.
fn state_of(path: &PathStatus) -> (&str, &str) {
    let is_selected = path.state == "active" && !path.selection_reason.is_empty();
    match is_selected {
        true => (&path.selection, &path.selection_reason),
        false => (&path.state, &path.reason),
    }
}

/// The text, or a dash where there is none.
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
    fn a_path_is_what_the_selector_has_made_of_it_unless_it_does_not_deliver() {
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
