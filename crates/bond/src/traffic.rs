//! The traffic of each link, for the choice of its number of carriers.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Instant;

/// Time between two reports.
const EVERY: Duration = Duration::from_millis(250);

/// The traffic of one link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkTraffic<L> {
    /// The link.
    pub link: L,
    /// Bytes sent and received, including those of carriers that have ended.
    pub bytes: u64,
    /// Packets wait in a queue of the link.
    pub is_queueing: bool,
}

/// Adds up the traffic of each link's carriers.
#[derive(Clone, Debug)]
pub struct Traffic<L> {
    /// Bytes of carriers that have ended.
    ended: BTreeMap<L, u64>,
    reported: Instant,
}

impl<L: Ord + Clone> Traffic<L> {
    /// For a session that starts now.
    pub fn new(now: Instant) -> Self {
        Self {
            ended: BTreeMap::new(),
            reported: now,
        }
    }

    /// Records that a carrier of the link has ended after `bytes`.
    pub fn ended(&mut self, link: L, bytes: u64) {
        *self.ended.entry(link).or_default() += bytes;
    }

    /// Whether a report is due.
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.reported + EVERY
    }

    /// The traffic of each link. `carriers` yields for each carrier its link, its bytes, and
    /// whether its packets wait in a queue.
    pub fn report(
        &mut self,
        carriers: impl Iterator<Item = (L, u64, bool)>,
        now: Instant,
    ) -> Vec<LinkTraffic<L>> {
        self.reported = now;
        let of_ended = |(link, bytes): (&L, &u64)| LinkTraffic {
            link: link.clone(),
            bytes: *bytes,
            is_queueing: false,
        };
        let mut links: Vec<_> = self.ended.iter().map(of_ended).collect();
        for (link, bytes, is_queueing) in carriers {
            match links.iter_mut().find(|known| known.link == link) {
                Some(known) => {
                    known.bytes += bytes;
                    known.is_queueing |= is_queueing;
                }
                None => links.push(LinkTraffic {
                    link,
                    bytes,
                    is_queueing,
                }),
            }
        }
        links
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::START;

    #[test]
    fn a_link_has_the_bytes_of_all_its_carriers_and_of_those_before() {
        let mut traffic = Traffic::new(START);
        traffic.ended("a", 5);
        traffic.ended("a", 6);
        traffic.ended("gone", 1);
        assert!(!traffic.is_due(START + EVERY / 2));
        let now = START + EVERY;
        assert!(traffic.is_due(now));
        let carriers = [("a", 100, false), ("b", 7, false), ("a", 1000, true)];
        let links = traffic.report(carriers.into_iter(), now);
        let reported: Vec<_> = links
            .iter()
            .map(|link| (link.link, link.bytes, link.is_queueing))
            .collect();
        assert_eq!(
            reported,
            [("a", 1111, true), ("gone", 1, false), ("b", 7, false)]
        );
        assert!(!traffic.is_due(now));
    }
}
