//! The rates of the last hour, in a bounded ring.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::Report;

/// Points of an hour.
const POINTS: usize = 360;

/// Most links with a separate history.
const MAX_LINKS: usize = 32;

/// Name of the sum over all links.
const SUM: &str = "";

/// The average rates of each link, one point for every [`History::EVERY`].
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Oldest first; each link has as many points as all others.
    links: BTreeMap<String, VecDeque<Point>>,
    /// Number of points of every link.
    length: usize,
    /// Bytes of each link at the last point: sent, received.
    before: Option<(Instant, BTreeMap<String, [u64; 2]>)>,
}

/// Rates in bytes per second: sent, received.
type Point = [f32; 2];

impl History {
    /// Interval of the points.
    pub(crate) const EVERY: Duration = Duration::from_secs(10);

    /// Adds a point: the average rates since the last one.
    pub(crate) fn record(&self, report: &Report) {
        self.record_at(report, Instant::now());
    }

    fn record_at(&self, report: &Report, now: Instant) {
        let bytes = bytes(report);
        let mut state = self.lock();
        let Some((at, before)) = state.before.replace((now, bytes.clone())) else {
            return;
        };
        let seconds = now.saturating_duration_since(at).as_secs_f64().max(0.001);
        let length = state.length;
        for link in bytes.keys() {
            if !state.links.contains_key(link)
                && (state.links.len() < MAX_LINKS || link.as_str() == SUM)
            {
                let earlier = std::iter::repeat_n([0.0; 2], length).collect();
                state.links.insert(link.clone(), earlier);
            }
        }
        for (link, points) in &mut state.links {
            let rate = |way: usize| {
                let of = |all: &BTreeMap<String, [u64; 2]>| all.get(link).map(|both| both[way]);
                // A link that is new has begun at 0.
                let (old, new) = (of(&before).unwrap_or(0), of(&bytes));
                let moved = new.map_or(0, |new| new.saturating_sub(old));
                (moved as f64 / seconds) as f32
            };
            points.push_back([rate(0), rate(1)]);
            while points.len() > POINTS {
                points.pop_front();
            }
        }
        state.length = (length + 1).min(POINTS);
    }

    /// The history: `every_s`, and for each link in `links` its `name` (empty for the sum) and its
    /// rates in bit/s, oldest first, in `sent_bps` and `received_bps`.
    pub(crate) fn json(&self) -> String {
        let state = self.lock();
        let links = state.links.iter().map(|(name, points)| {
            let bits = |way: usize| {
                let rates = points.iter().map(|point| (point[way] * 8.0).round() as u64);
                rates.collect::<Vec<u64>>()
            };
            json!({ "name": name, "sent_bps": bits(0), "received_bps": bits(1) })
        });
        let links: Vec<_> = links.collect();
        json!({ "every_s": Self::EVERY.as_secs(), "links": links }).to_string()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes of each link, and of all together; a server has only the sum.
fn bytes(report: &Report) -> BTreeMap<String, [u64; 2]> {
    let mut all = BTreeMap::from([(SUM.to_owned(), [0; 2])]);
    let has_links = report.role != "server";
    for link in report.totals.iter().flat_map(|peer| &peer.links) {
        let both = [
            link.bytes_sent + link.datagram_bytes_sent,
            link.bytes_received + link.datagram_bytes_received,
        ];
        let mut add = |name: &str| {
            let entry: &mut [u64; 2] = all.entry(name.to_owned()).or_default();
            entry[0] = entry[0].saturating_add(both[0]);
            entry[1] = entry[1].saturating_add(both[1]);
        };
        add(SUM);
        if has_links && !link.link.is_empty() {
            add(&link.link);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use sumlink_transport::status::{LinkTotals, PeerTotals};

    use super::*;

    fn report(links: &[(&str, u64)]) -> Report {
        let link = |(name, bytes): &(&str, u64)| LinkTotals {
            link: (*name).to_owned(),
            bytes_sent: *bytes,
            ..LinkTotals::default()
        };
        Report {
            role: "client".to_owned(),
            totals: vec![PeerTotals {
                links: links.iter().map(link).collect(),
                ..PeerTotals::default()
            }],
            ..Report::default()
        }
    }

    fn sent(history: &History, link: &str) -> Vec<u64> {
        let json: serde_json::Value = serde_json::from_str(&history.json()).unwrap();
        let links = json["links"].as_array().unwrap();
        let link = links.iter().find(|found| found["name"] == link).unwrap();
        let rates = link["sent_bps"].as_array().unwrap().iter();
        rates.map(|rate| rate.as_u64().unwrap()).collect()
    }

    #[test]
    fn rates_are_averages_between_the_points() {
        let history = History::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        history.record_at(&report(&[("wlan0", 1_000_000)]), at(0));
        history.record_at(&report(&[("wlan0", 2_000_000)]), at(10));
        history.record_at(&report(&[("wlan0", 2_000_000), ("wwan0", 500_000)]), at(20));
        // Without a session the counters stay.
        history.record_at(&report(&[("wlan0", 2_000_000), ("wwan0", 500_000)]), at(30));
        assert_eq!(sent(&history, "wlan0"), [800_000, 0, 0]);
        assert_eq!(sent(&history, "wwan0"), [0, 400_000, 0]);
        assert_eq!(sent(&history, SUM), [800_000, 400_000, 0]);
    }

    #[test]
    fn the_memory_is_bounded() {
        let history = History::default();
        let start = Instant::now();
        for point in 0..2000_u64 {
            let name = format!("link{point}");
            let at = start + Duration::from_secs(10 * point);
            history.record_at(&report(&[("wlan0", point * 10), (&name, 1)]), at);
        }
        let state = history.lock();
        assert!(state.links.len() <= MAX_LINKS + 1);
        assert!(state.links.values().all(|points| points.len() == POINTS));
    }
}
