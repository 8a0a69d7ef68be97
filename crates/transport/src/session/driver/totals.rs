//! Per-link totals of a session, over all current and former paths of each link.

use std::collections::BTreeMap;

use sumlink_engine::PathStats;

use crate::api::status::LinkTotals;

/// The counters of ended paths, added up by link.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals(BTreeMap<String, Total>);

#[derive(Clone, Debug, Default)]
struct Total {
    totals: LinkTotals,
    data_sent: u64,
    data_received: u64,
}

impl Total {
    fn add(&mut self, path: &PathStats) {
        let totals = &mut self.totals;
        totals.paths_total += 1;
        totals.bytes_sent += path.bytes_sent;
        totals.bytes_received += path.bytes_received;
        totals.retransmissions += path.retransmitted;
        totals.duplicates_sent_bytes += path.duplicates_sent;
        self.data_sent += path.data_sent;
        self.data_received += path.data_received;
    }
}

impl Totals {
    /// Adds the final counters of a path of the link.
    pub(super) fn ended(&mut self, link: &str, path: &PathStats) {
        self.0.entry(link.to_owned()).or_default().add(path);
    }

    /// The totals including the current paths, by link name.
    pub(super) fn with<'a>(
        &self,
        present: impl Iterator<Item = (&'a str, &'a PathStats)>,
    ) -> Vec<LinkTotals> {
        let mut all = self.clone();
        for (link, path) in present {
            let total = all.0.entry(link.to_owned()).or_default();
            total.add(path);
            total.totals.paths += 1;
        }
        let sum = |count: fn(&Total) -> u64| all.0.values().map(count).sum::<u64>().max(1) as f64;
        let (sent, received) = (sum(|t| t.data_sent), sum(|t| t.data_received));
        let totals = all.0.into_iter().map(|(link, total)| LinkTotals {
            link,
            send_share: total.data_sent as f64 / sent,
            receive_share: total.data_received as f64 / received,
            ..total.totals
        });
        totals.collect()
    }
}
