//! Counters of a whole process: the sum over all present and former sessions, which never falls.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{LinkTotals, SessionStatus};

/// Most links of a peer with separate totals. A client chooses the names of its links.
const MAX_LINKS: usize = 64;

/// Name for the totals of further links.
const OTHER_LINKS: &str = "(others)";

/// How long something took, each time that it happened: a histogram.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Durations {
    /// How often it took at most as long as the bound in [`Durations::BOUNDS_S`] with the same
    /// index and longer than the bound before; the last element counts those above all bounds.
    /// Empty before the first time.
    pub counts: Vec<u64>,
    /// Sum of all durations, in seconds.
    pub sum_s: f64,
}

impl Durations {
    /// Upper bounds of the histogram's buckets, in seconds.
    pub const BOUNDS_S: [f64; 12] = [
        0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 3.0, 10.0, 30.0, 60.0, 300.0,
    ];

    /// How often it happened.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Adds one duration.
    pub(crate) fn add(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = Self::BOUNDS_S.partition_point(|bound| *bound < seconds);
        self.counts.resize(Self::BOUNDS_S.len() + 1, 0);
        self.counts[bucket] += 1;
        self.sum_s += seconds;
    }

    /// Adds all durations of `other`.
    fn merge(&mut self, other: &Self) {
        let length = self.counts.len().max(other.counts.len());
        self.counts.resize(length, 0);
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sum_s += other.sum_s;
    }
}

/// The counters of one peer since this process began, over all present and former sessions with
/// it. They never fall while the process runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PeerTotals {
    /// The peer's public key; empty for the sum of all clients whose keys were removed.
    pub peer: String,
    /// At a server the client's name in the configuration; empty if it has none, and at a client.
    /// `(removed)` for that sum.
    pub client: String,
    /// Sessions.
    pub sessions: u64,
    /// Streams.
    pub streams: u64,
    /// Application bytes taken from local streams.
    pub bytes_sent: u64,
    /// Application bytes delivered to local streams.
    pub bytes_received: u64,
    /// Bytes that this side sent more than once.
    pub duplicates_sent_bytes: u64,
    /// Bytes that arrived more than once and were dropped.
    pub duplicates_received_bytes: u64,
    /// Datagrams dropped because the session or a local program did not take them in time.
    pub datagrams_dropped: u64,
    /// The links in the order of their first use. `paths`, `send_share` and `receive_share` are 0
    /// here: they belong to one session. Links beyond the 64th are added up as `(others)`.
    pub links: Vec<LinkTotals>,
}

impl PeerTotals {
    /// Adds the counters of a session.
    pub(crate) fn add(&mut self, session: &SessionStatus) {
        self.merge(&Self {
            sessions: 1,
            streams: session.streams_total,
            bytes_sent: session.bytes_sent,
            bytes_received: session.bytes_received,
            duplicates_sent_bytes: session.duplicates_sent_bytes,
            duplicates_received_bytes: session.duplicates_received_bytes,
            datagrams_dropped: session.datagrams_dropped,
            links: session.links.clone(),
            ..Self::default()
        });
    }

    /// Adds all counters of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.sessions += other.sessions;
        self.streams += other.streams;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        self.duplicates_sent_bytes += other.duplicates_sent_bytes;
        self.duplicates_received_bytes += other.duplicates_received_bytes;
        self.datagrams_dropped += other.datagrams_dropped;
        for link in &other.links {
            self.link(&link.link).add(link);
        }
    }

    /// The totals of this link, made on its first use.
    fn link(&mut self, name: &str) -> &mut LinkTotals {
        let known = |name: &str| self.links.iter().position(|link| link.link == name);
        let (name, index) = match known(name) {
            None if self.links.len() >= MAX_LINKS => (OTHER_LINKS, known(OTHER_LINKS)),
            index => (name, index),
        };
        let index = index.unwrap_or(self.links.len());
        if index == self.links.len() {
            self.links.push(LinkTotals {
                link: name.to_owned(),
                ..LinkTotals::default()
            });
        }
        &mut self.links[index]
    }
}

impl LinkTotals {
    /// Adds the counters of a session's link.
    fn add(&mut self, more: &Self) {
        self.label.clone_from(&more.label);
        self.paths_total += more.paths_total;
        self.bytes_sent += more.bytes_sent;
        self.bytes_received += more.bytes_received;
        self.retransmissions += more.retransmissions;
        self.duplicates_sent_bytes += more.duplicates_sent_bytes;
        self.tcp_bytes_sent += more.tcp_bytes_sent;
        self.tcp_bytes_retransmitted += more.tcp_bytes_retransmitted;
        self.datagram_packets_sent += more.datagram_packets_sent;
        self.datagram_packets_received += more.datagram_packets_received;
        self.datagram_packets_lost += more.datagram_packets_lost;
        self.datagram_bytes_sent += more.datagram_bytes_sent;
        self.datagram_bytes_received += more.datagram_bytes_received;
        self.failovers.merge(&more.failovers);
        self.returns.merge(&more.returns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_the_bucket_of_its_bound() {
        let mut all = Durations::default();
        for ms in [50, 51, 100, 299_000, 301_000] {
            all.add(Duration::from_millis(ms));
        }
        assert_eq!(all.counts, [1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(all.count(), 5);
        assert!((all.sum_s - 600.201).abs() < 1e-9, "{}", all.sum_s);
        let mut twice = Durations::default();
        twice.merge(&all);
        twice.merge(&all);
        assert_eq!((twice.count(), twice.counts[1]), (10, 4));
    }

    #[test]
    fn a_client_with_many_links_has_bounded_totals() {
        let mut totals = PeerTotals::default();
        let link = |number: usize| LinkTotals {
            link: format!("link{number}"),
            bytes_sent: 1,
            ..LinkTotals::default()
        };
        let session = SessionStatus {
            links: (0..1000).map(link).collect(),
            ..SessionStatus::default()
        };
        totals.add(&session);
        totals.add(&session);
        assert_eq!((totals.sessions, totals.links.len()), (2, MAX_LINKS + 1));
        assert_eq!(totals.links[0].bytes_sent, 2);
        let all: u64 = totals.links.iter().map(|link| link.bytes_sent).sum();
        assert_eq!(all, 2000);
    }
}
