//! Reports of the peer about this side's packets.

use crate::datagram::clock;
use crate::datagram::path::Review;
use crate::datagram::path::sent::{Item, News};
use crate::datagram::state::Datagrams;
use crate::datagram::wire::Report;
use crate::{Instant, PathId, ProtocolError};

impl Datagrams {
    /// Evaluates a report. An error is the peer's fault.
    pub(super) fn on_report(&mut self, report: &Report, now: Instant) -> Result<(), ProtocolError> {
        let id = u32::try_from(report.path).map(PathId);
        // It may have ended here.
        let Some(path) = id.ok().and_then(|id| self.paths.get_mut(id)) else {
            return Ok(());
        };
        let mut news = News::default();
        path.sent
            .on_report(report, &mut news)
            .map_err(|_| ProtocolError::Reported)?;
        path.counters.packets_reported += news.packets;
        path.counters.packets_lost += news.lost;
        if let Some((sent_at, elicits)) = news.largest {
            path.note_relative(
                clock::between(clock::stamp(sent_at), report.received_at),
                now,
            );
            path.rate.note(news.bytes, report.received_at, now);
            if elicits {
                path.trip.note(now.saturating_sub(sent_at));
            }
        }
        path.note_losses(news.packets, news.lost, now);
        if news.packets > 0 {
            let carrier = path.carrier_trip();
            let review = path
                .health
                .note_delivery(&path.sent, &path.trip, carrier, now);
            if review == Review::Recovered || news.largest.is_some() {
                self.review_paths(now);
            }
        }
        let mut lost = Vec::new();
        for (item, has_arrived) in news.items {
            match item {
                Item::Open(at) if has_arrived => {
                    if let Some(flow) = self.flows.get_mut(at) {
                        flow.confirmed = true;
                    }
                }
                item if !has_arrived => lost.push(item),
                _ => {}
            }
        }
        self.settle_lost(lost, None, now);
        Ok(())
    }
}
