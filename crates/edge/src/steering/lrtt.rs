//! L-RTT: fills the queue of the link with the lowest trip time first (section III-A of the paper,
//! which takes "RTT" as the delay of the last hop only).
//!
//! The measured trip time includes the wait in the node's queue, so the order of the links would
//! change as soon as a queue fills. That contradicts the paper's "first fills the queue". The wait
//! (queue length divided by rate) is therefore subtracted. A link without a measurement is tried
//! first.

use std::time::Duration;

use super::{Offer, Steering, open};
use crate::LinkId;
use crate::queue::LinkQueue;

/// L-RTT steering.
#[derive(Clone, Debug, Default)]
pub struct LRtt {
    /// Lowest trip time of each link, without queueing.
    least: Vec<Option<Duration>>,
}

impl Steering for LRtt {
    fn name(&self) -> &'static str {
        "lrtt"
    }

    fn pick(&mut self, _offer: &Offer, links: &[LinkQueue]) -> Option<LinkId> {
        self.least.resize(links.len(), None);
        for (least, link) in self.least.iter_mut().zip(links) {
            *least = if link.is_up() {
                trip_without_queue(*least, link)
            } else {
                None
            };
        }
        let trip = |id: LinkId| self.least[usize::from(id.0)].unwrap_or_default();
        open(links)
            .map(|(id, _)| id)
            .min_by_key(|&id| (trip(id), id))
    }
}

/// Follows the lowest value down at once and up slowly: a link that has become slower is noticed
/// after a few hundred packets.
fn trip_without_queue(least: Option<Duration>, link: &LinkQueue) -> Option<Duration> {
    let trip = link.trip()?;
    let waiting = link
        .rate()
        .filter(|&rate| rate > 0.0)
        .map_or(0.0, |rate| link.bytes() as f64 / rate);
    let now = trip.saturating_sub(Duration::from_secs_f64(waiting.min(60.0)));
    Some(match least {
        Some(least) if now > least => least + (now - least) / 256,
        _ => now,
    })
}
