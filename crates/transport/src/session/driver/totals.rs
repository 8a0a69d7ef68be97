//! Per-link totals of a session, over all current and former paths of each link.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use sumlink_engine::{DatagramCarrier, DatagramPathStats, PathStats};

use super::carriers::link_number;
use crate::api::status::LinkTotals;
use crate::carrier::tcp_info::TcpInfo;

/// The counters of ended paths, added up by link.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals {
    links: BTreeMap<String, Total>,
    /// The names of the links by the numbers that the engine knows.
    names: HashMap<u64, String>,
    /// Links that have stalled or lost their last path, and when.
    outages: HashMap<String, Instant>,
}

#[derive(Clone, Debug, Default)]
struct Total {
    totals: LinkTotals,
    data_sent: u64,
    data_received: u64,
}

impl Total {
    fn add(&mut self, path: &PathStats, tcp: &TcpInfo) {
        let totals = &mut self.totals;
        totals.paths_total += 1;
        totals.bytes_sent += path.bytes_sent;
        totals.bytes_received += path.bytes_received;
        totals.retransmissions += path.retransmitted;
        totals.duplicates_sent_bytes += path.duplicates_sent;
        totals.tcp_bytes_sent += tcp.bytes_sent;
        totals.tcp_bytes_retransmitted += tcp.bytes_retrans;
        self.data_sent += path.data_sent;
        self.data_received += path.data_received;
    }

    fn add_datagrams(&mut self, path: &DatagramPathStats) {
        let totals = &mut self.totals;
        totals.datagram_packets_sent += path.packets_sent;
        totals.datagram_packets_received += path.packets_received;
        totals.datagram_packets_lost += path.packets_lost;
        // Those over TCP are a part of the TCP path's bytes.
        if path.carrier == DatagramCarrier::Quic {
            totals.datagram_bytes_sent += path.bytes_sent;
            totals.datagram_bytes_received += path.bytes_received;
        }
    }
}

impl Totals {
    /// Notes the name of a link that the engine knows by a number.
    pub(super) fn note_link(&mut self, link: &str) {
        if let Some(number) = link_number(link) {
            self.names.entry(number).or_insert_with(|| link.to_owned());
        }
    }

    /// Adds the final counters of a path of the link.
    pub(super) fn ended(&mut self, link: &str, path: &PathStats, tcp: &TcpInfo) {
        self.of(link).add(path, tcp);
    }

    /// Adds the final counters of a path of datagrams.
    pub(super) fn ended_datagrams(&mut self, path: &DatagramPathStats) {
        let link = self.name(path);
        self.of(&link).add_datagrams(path);
    }

    /// A path of the link has stalled, and had delivered nothing for this long.
    pub(super) fn stalled(&mut self, link: &str, silent_for: Duration) {
        self.of(link).totals.failovers.add(silent_for);
        self.lost(link);
    }

    /// The link does not deliver: it has stalled or lost its last path.
    pub(super) fn lost(&mut self, link: &str) {
        if !self.outages.contains_key(link) {
            self.outages.insert(link.to_owned(), Instant::now());
        }
    }

    /// The link delivers: it has a new path, or a stalled one has recovered.
    pub(super) fn returned(&mut self, link: &str) {
        if let Some(since) = self.outages.remove(link) {
            self.of(link).totals.returns.add(since.elapsed());
        }
    }

    /// The totals including the current paths, by link name.
    pub(super) fn with<'a>(
        &self,
        present: impl Iterator<Item = (&'a str, &'a PathStats, &'a TcpInfo)>,
        datagrams: &[DatagramPathStats],
    ) -> Vec<LinkTotals> {
        let mut all = self.clone();
        for (link, path, tcp) in present {
            let total = all.of(link);
            total.add(path, tcp);
            total.totals.paths += 1;
        }
        for path in datagrams {
            all.ended_datagrams(path);
        }
        let all = all.links;
        let sum = |count: fn(&Total) -> u64| all.values().map(count).sum::<u64>().max(1) as f64;
        let (sent, received) = (sum(|t| t.data_sent), sum(|t| t.data_received));
        let totals = all.into_iter().map(|(link, total)| LinkTotals {
            link,
            send_share: total.data_sent as f64 / sent,
            receive_share: total.data_received as f64 / received,
            ..total.totals
        });
        totals.collect()
    }

    fn of(&mut self, link: &str) -> &mut Total {
        self.links.entry(link.to_owned()).or_default()
    }

    fn name(&self, path: &DatagramPathStats) -> String {
        self.names.get(&path.link).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_return_is_counted_once_for_each_outage() {
        let mut totals = Totals::default();
        totals.returned("wlan0");
        totals.stalled("wlan0", Duration::from_millis(120));
        // The path then ends, and a new one joins.
        totals.lost("wlan0");
        totals.returned("wlan0");
        totals.returned("wlan0");
        let links = totals.with(std::iter::empty(), &[]);
        assert_eq!(links.len(), 1);
        let (failovers, returns) = (&links[0].failovers, &links[0].returns);
        assert_eq!((failovers.count(), returns.count()), (1, 1));
        assert_eq!(failovers.counts[2], 1, "{failovers:?}");
    }
}
