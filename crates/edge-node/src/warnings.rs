//! Logs counters of abnormal events: one line for each kind, at most every 10 seconds.

use std::time::Duration;

use sumlink_edge::Instant;

use crate::status::NodeStatus;

/// Minimum time between two lines of a kind; the second includes the events in between.
const SILENCE: Duration = Duration::from_secs(10);

/// A kind of event: its log line, and its count since the start.
type Kind = (&'static str, fn(&NodeStatus) -> u64);

const KINDS: [Kind; 8] = [
    (
        "packets that cannot be read: not IP, truncated, or with a wrong checksum",
        |s| s.core.malformed,
    ),
    (
        "no memory for packet copies (kept, kept_per_flow); their loss is left to the sender",
        |s| s.core.not_kept,
    ),
    (
        "flow table full (most); forgot the flows that were idle longest",
        |s| s.core.forgotten,
    ),
    (
        "flow table full (most); packets of further flows are steered without VISIBLE",
        |s| s.core.not_tracked,
    ),
    (
        "too many users with sequence numbers; packets of others are not put in order",
        |s| s.core.not_numbered,
    ),
    (
        "datagrams of another tunnel number or without a header; ignored",
        |s| s.links.iter().map(|link| link.foreign).sum(),
    ),
    (
        "datagrams refused by the kernel: too long for the route, or no route",
        |s| s.links.iter().map(|link| link.refused).sum(),
    ),
    ("packets refused by the TUN device", |s| s.device_refused),
];

/// The last line of each kind: its count and time.
#[derive(Debug, Default)]
pub(crate) struct Warnings([Option<(u64, Instant)>; KINDS.len()]);

impl Warnings {
    /// Logs the kinds with new events.
    pub(crate) fn log(&mut self, status: &NodeStatus, now: Instant) {
        for (what, count) in self.due(status, now) {
            tracing::warn!(count, "{what}");
        }
    }

    /// The lines that are due, with the number of events since the previous line.
    fn due(&mut self, status: &NodeStatus, now: Instant) -> Vec<(&'static str, u64)> {
        let mut due = Vec::new();
        for ((what, count), last) in KINDS.iter().zip(&mut self.0) {
            let (count, before) = (count(status), last.map_or(0, |(count, _)| count));
            let is_due = last.is_none_or(|(_, at)| now.saturating_sub(at) >= SILENCE);
            if count > before && is_due {
                due.push((*what, count - before));
                *last = Some((count, now));
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Instant {
        Duration::from_secs(n)
    }

    #[test]
    fn each_kind_is_logged_at_once_and_then_at_most_every_ten_seconds() {
        let (mut warnings, mut status) = (Warnings::default(), NodeStatus::default());
        let mut counts = |status: &NodeStatus, now| {
            let due = warnings.due(status, seconds(now));
            due.into_iter().map(|(_, count)| count).collect::<Vec<_>>()
        };
        assert_eq!(counts(&status, 1), [0u64; 0]);
        status.core.malformed = 3;
        assert_eq!(counts(&status, 2), [3]);
        status.core.malformed = 50;
        status.core.not_kept = 7;
        assert_eq!(counts(&status, 3), [7], "kinds are limited separately");
        assert_eq!(counts(&status, 11), [0u64; 0]);
        status.core.malformed = 60;
        assert_eq!(counts(&status, 12), [57], "includes all events since");
        assert_eq!(counts(&status, 99), [0u64; 0], "no new events");
    }

    #[test]
    fn counters_of_links_are_summed() {
        let mut status = NodeStatus::default();
        status.links = [2, 5]
            .map(|foreign| crate::status::LinkStatus {
                foreign,
                ..Default::default()
            })
            .into();
        let due = Warnings::default().due(&status, seconds(0));
        assert_eq!(due.len(), 1);
        assert_eq!(due[0].1, 7);
    }
}
