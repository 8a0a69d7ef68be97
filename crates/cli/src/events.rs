//! `sumlink events`: the events of a running client, server or gateway as they happen.

use std::io::{self, Write};

use serde_json::Value;

use crate::args::EventsArgs;
use crate::control;
use crate::error::CliError;
use crate::find_socket;
use crate::table::printable;

/// Runs the verb until the other program ends.
pub(crate) fn run(args: &EventsArgs) -> Result<(), CliError> {
    let socket = find_socket::socket(args.control.as_deref(), find_socket::SOCKETS)?;
    let mut out = io::stdout().lock();
    let followed = control::follow(&socket.path, |line| {
        let text = match serde_json::from_str::<Value>(line) {
            Ok(event) if !args.json => readable(&event),
            _ => line.to_owned(),
        };
        out.write_all(text.as_bytes())?;
        out.flush()
    })?;
    Ok(followed?)
}

/// Members that a line begins with, or that only programs need.
const HEAD: [&str; 5] = ["time", "event", "session", "peer", "client"];

/// An event as a line for people.
fn readable(event: &Value) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => printable(text),
        other => printable(&other.to_string()),
    };
    let member = |name: &str| event.get(name).map(text).unwrap_or_default();
    let mut line = format!("{}  {}", member("time"), member("event"));
    if event.get("client").is_some() {
        line.push_str(&format!("  client={}", member("client")));
    }
    for (name, value) in event.as_object().into_iter().flatten() {
        if !HEAD.contains(&name.as_str()) {
            line.push_str(&format!("  {}={}", printable(name), text(value)));
        }
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_one_line() {
        let event = json!({
            "event": "down", "time": "2026-11-30T12:00:00Z", "session": "0011", "peer": "KEY",
            "client": "laptop", "path": 3, "link": "wlan0", "reason": "reset\nforged",
        });
        let line = readable(&event);
        assert!(
            line.starts_with("2026-11-30T12:00:00Z  down  client=laptop  "),
            "{line}"
        );
        assert!(line.contains("  link=wlan0  path=3  reason="), "{line}");
        assert_eq!(line.lines().count(), 1, "{line}");
    }
}
