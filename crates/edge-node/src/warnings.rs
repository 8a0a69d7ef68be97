//! What is counted and should not happen is said as well: a line for each kind, and no more often than every ten seconds.

use std::time::Duration;

use sumlink_edge::Instant;

use crate::status::NodeStatus;

/// A line of one kind is followed by none for so long; what happens meanwhile is in the next.
const SILENCE: Duration = Duration::from_secs(10);

/// A kind: what the line says, and how often it has happened since the start.
type Kind = (&'static str, fn(&NodeStatus) -> u64);

const KINDS: [Kind; 8] = [
    (
        "packets that cannot be read: of no IP, cut off, or with a wrong checksum",
        |s| s.core.malformed,
    ),
    (
        "no room for copies of packets (kept, kept_per_flow): these cannot be sent again from here",
        |s| s.core.not_kept,
    ),
    (
        "more flows than there is room for (most): those idle for longest were forgotten",
        |s| s.core.forgotten,
    ),
    (
        "no room for more flows (most): packets of others are steered and no more",
        |s| s.core.not_tracked,
    ),
    (
        "too many users have sequence numbers: packets of others have none, and are not put in order",
        |s| s.core.not_numbered,
    ),
    (
        "datagrams that are not of this tunnel: another number, or no header",
        |s| s.links.iter().map(|link| link.foreign).sum(),
    ),
    (
        "datagrams that the kernel did not take: too long for the way, or the way is gone",
        |s| s.links.iter().map(|link| link.refused).sum(),
    ),
    ("packets that the TUN device did not take", |s| {
        s.device_refused
    }),
];

/// What was said of each kind: how much it was then, and when.
#[derive(Debug, Default)]
pub(crate) struct Warnings([Option<(u64, Instant)>; KINDS.len()]);

impl Warnings {
    /// Says what is new.
    pub(crate) fn say(&mut self, status: &NodeStatus, now: Instant) {
        for (what, count) in self.news(status, now) {
            tracing::warn!(count, "{what}");
        }
    }

    /// The lines that are due: what, and how much of it since the one before.
    fn news(&mut self, status: &NodeStatus, now: Instant) -> Vec<(&'static str, u64)> {
        let mut news = Vec::new();
        for ((what, count), said) in KINDS.iter().zip(&mut self.0) {
            let (count, before) = (count(status), said.map_or(0, |(count, _)| count));
            let is_due = said.is_none_or(|(_, at)| now.saturating_sub(at) >= SILENCE);
            if count > before && is_due {
                news.push((*what, count - before));
                *said = Some((count, now));
            }
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Instant {
        Duration::from_secs(n)
    }

    #[test]
    fn each_kind_is_said_at_once_and_then_at_most_every_ten_seconds() {
        let (mut warnings, mut status) = (Warnings::default(), NodeStatus::default());
        let mut counts = |status: &NodeStatus, now| {
            let news = warnings.news(status, seconds(now));
            news.into_iter().map(|(_, count)| count).collect::<Vec<_>>()
        };
        assert_eq!(counts(&status, 1), []);
        status.core.malformed = 3;
        assert_eq!(counts(&status, 2), [3]);
        status.core.malformed = 50;
        status.core.not_kept = 7;
        assert_eq!(
            counts(&status, 3),
            [7],
            "another kind has a time of its own"
        );
        assert_eq!(counts(&status, 11), []);
        status.core.malformed = 60;
        assert_eq!(counts(&status, 12), [57], "with all that came meanwhile");
        assert_eq!(counts(&status, 99), [], "there is nothing new");
    }

    #[test]
    fn what_links_count_is_summed() {
        let mut status = NodeStatus::default();
        status.links = [2, 5]
            .map(|foreign| crate::status::LinkStatus {
                foreign,
                ..Default::default()
            })
            .into();
        let news = Warnings::default().news(&status, seconds(0));
        assert_eq!(news.len(), 1);
        assert_eq!(news[0].1, 7);
    }
}
