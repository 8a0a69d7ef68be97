//! The traffic of each link over time.

use crate::laboratory::{DirectionReport, LinkStatus};
use crate::results::{LinkSeries, direction_name, series, set_shares};

use super::Observed;

/// Both directions of every link.
pub(super) fn link_series(watched: &Observed) -> Vec<LinkSeries> {
    let [first, last] = &watched.counters;
    let mut all: Vec<_> = watched
        .series
        .iter()
        .map(|wire| {
            // If the run ended during the warm-up, the first counters may be missing.
            let counters = |links: &[LinkStatus]| {
                let link = links.iter().find(|link| link.name == wire.link)?;
                Some(link.directions[wire.direction.index()].clone())
            };
            let grown = |count: fn(&DirectionReport) -> u64| {
                let of = |links: &[LinkStatus]| counters(links).as_ref().map_or(0, count);
                of(last).saturating_sub(of(first))
            };
            LinkSeries {
                link: wire.link.clone(),
                direction: direction_name(wire.direction).to_owned(),
                wire_bytes: grown(|report| report.delivered_bytes),
                share: 0.0,
                lost_packets: grown(|report| report.lost_packets),
                dropped_packets: grown(|report| {
                    report.policed_packets + report.dropped_queue_packets
                }),
                rate: series(&wire.wire_bytes, wire.interval),
                delay_s: None,
            }
        })
        .collect();
    set_shares(&mut all);
    all
}
