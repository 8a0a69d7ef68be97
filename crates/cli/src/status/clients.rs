//! The sessions of a server: one line per client, and the selection of clients.

use std::collections::BTreeMap;

use sumlink_transport::links::name_matches;
use sumlink_transport::status::SessionStatus;

use crate::grid::{Column, Grid, View};
use crate::table::{bytes, duration, flow};

/// The columns of the table of clients.
const CLIENTS: [Column; 9] = [
    Column::text("CLIENT", 20, 0),
    Column::number("PATHS", 5, 0),
    Column::number("STREAMS", 7, 0),
    Column::number("UP", 7, 0),
    Column::number("SENDING", 11, 0),
    Column::number("RECEIVING", 11, 0),
    Column::number("SENT", 8, 1),
    Column::number("RECEIVED", 8, 1),
    Column::number("SESSIONS", 8, 2),
];

/// The shown name of a client: its name, or the beginning of its key.
pub(super) fn name(session: &SessionStatus) -> &str {
    match session.client.as_str() {
        "" => session.peer.get(..12).unwrap_or(&session.peer),
        name => name,
    }
}

/// Whether the pattern matches the client: its name, a glob for it, or the beginning of its key.
pub(super) fn is_called(client: &str, peer: &str, pattern: &str) -> bool {
    name_matches(pattern, client) || (!pattern.is_empty() && peer.starts_with(pattern))
}

/// The sessions grouped by client, sorted by name.
pub(super) fn by_client(sessions: &[SessionStatus]) -> Vec<Vec<&SessionStatus>> {
    let mut clients: BTreeMap<(&str, &str), Vec<&SessionStatus>> = BTreeMap::new();
    for session in sessions {
        let key = (name(session), session.peer.as_str());
        clients.entry(key).or_default().push(session);
    }
    clients.into_values().collect()
}

/// Renders one line per client.
pub(super) fn render(clients: &[Vec<&SessionStatus>], view: View) -> String {
    let mut grid = Grid::new(&CLIENTS, None);
    for sessions in clients {
        let sum = |count: fn(&SessionStatus) -> u64| sessions.iter().map(|s| count(s)).sum::<u64>();
        let rate = |of: fn(&SessionStatus) -> f64| sessions.iter().map(|s| of(s)).sum::<f64>();
        let paths = || sessions.iter().flat_map(|session| &session.paths);
        let active = paths().filter(|path| path.state == "active").count();
        let up = sessions.iter().map(|session| session.uptime_s);
        let cells = [
            sessions
                .first()
                .map(|s| name(s).to_owned())
                .unwrap_or_default(),
            format!("{active}/{}", paths().count()),
            sum(|s| s.streams_open).to_string(),
            duration(up.fold(0.0, f64::max)),
            flow(rate(|s| s.send_goodput_bps)),
            flow(rate(|s| s.receive_goodput_bps)),
            bytes(sum(|s| s.bytes_sent)),
            bytes(sum(|s| s.bytes_received)),
            sessions.len().to_string(),
        ];
        grid.row(cells, "");
    }
    grid.render(view)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_selected_by_name_glob_or_key() {
        let session = SessionStatus {
            peer: "E2tQXpu0P3xCZrF0= (laptop-7)".to_owned(),
            client: "laptop-7".to_owned(),
            ..SessionStatus::default()
        };
        let is_called = |pattern| is_called(&session.client, &session.peer, pattern);
        for pattern in ["laptop-7", "laptop-*", "E2tQ", "*"] {
            assert!(is_called(pattern), "{pattern}");
        }
        for pattern in ["laptop", "", "2tQ", "phone"] {
            assert!(!is_called(pattern), "{pattern}");
        }
        let unnamed = SessionStatus {
            client: String::new(),
            ..session.clone()
        };
        assert_eq!(
            (name(&session), name(&unnamed)),
            ("laptop-7", "E2tQXpu0P3xC")
        );
    }
}
