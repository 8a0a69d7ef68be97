//! Round robin: links take turns, packet by packet; those that are down or full are skipped. The
//! paper's "naive steering" (section I).

use super::{Offer, Steering, open};
use crate::LinkId;
use crate::queue::LinkQueue;

/// Round-robin steering.
#[derive(Clone, Debug, Default)]
pub struct RoundRobin {
    last: Option<LinkId>,
}

impl Steering for RoundRobin {
    fn name(&self) -> &'static str {
        "roundrobin"
    }

    fn pick(&mut self, _offer: &Offer, links: &[LinkQueue]) -> Option<LinkId> {
        let mut open = open(links).map(|(id, _)| id);
        let next = open
            .clone()
            .find(|&id| self.last.is_none_or(|last| id > last))
            .or_else(|| open.next())?;
        self.last = Some(next);
        Some(next)
    }
}
