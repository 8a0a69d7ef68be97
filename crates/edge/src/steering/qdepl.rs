//! Q-Depl: splits packets in proportion to the rates at which backlogged queues drain (section
//! III-A and III-B of the paper: lambda_i = mu_i / sum(mu) * lambda).
//!
//! Virtual time keeps the proportion: a byte on a link costs 1 / mu_i, and the link with the least
//! accumulated time goes next. Two rules correct a wrong rate. A link that was skipped because it
//! was full or down does not catch up afterwards. And an idle link takes the packet while others
//! have a queue: a rate can only be measured under backlog, and a link thought to be slow would
//! otherwise never have one.

use super::{Offer, Steering, open};
use crate::LinkId;
use crate::queue::LinkQueue;

/// Q-Depl steering.
#[derive(Clone, Debug, Default)]
pub struct QDepl {
    /// Accumulated service time of each link in seconds.
    given: Vec<f64>,
}

impl Steering for QDepl {
    fn name(&self) -> &'static str {
        "qdepl"
    }

    fn pick(&mut self, offer: &Offer, links: &[LinkQueue]) -> Option<LinkId> {
        self.given.resize(links.len(), 0.0);
        let given = |id: LinkId| self.given[usize::from(id.0)];
        let least = |a: &(LinkId, _), b: &(LinkId, _)| {
            given(a.0).total_cmp(&given(b.0)).then(a.0.cmp(&b.0))
        };
        let (mut id, mut link) = open(links).min_by(least)?;
        if !link.is_empty()
            && let Some(idle) = open(links)
                .filter(|(_, link)| link.is_hungry())
                .min_by(least)
        {
            (id, link) = idle;
        }
        let begin = given(id);
        let rate = link.rate().unwrap_or_else(|| believed(links)).max(1.0);
        self.given[usize::from(id.0)] += offer.bytes as f64 / rate;
        for other in &mut self.given {
            *other = other.max(begin);
        }
        // Only differences matter; large values would lose precision.
        let floor = self.given.iter().copied().fold(f64::INFINITY, f64::min);
        self.given.iter_mut().for_each(|given| *given -= floor);
        Some(id)
    }
}

/// The assumed rate of a link without a measurement: the mean of the others.
fn believed(links: &[LinkQueue]) -> f64 {
    let known: Vec<f64> = links.iter().filter_map(LinkQueue::rate).collect();
    if known.is_empty() {
        1e6
    } else {
        known.iter().sum::<f64>() / known.len() as f64
    }
}
