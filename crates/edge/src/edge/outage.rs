//! Links that fail and return: their packets move to other links or are sent again.

use super::down::identity;
use super::{Edge, Event, Waiting};
use crate::flow::FlowKey;
use crate::packet::{self, Parsed, Segment};
use crate::steering::Offer;
use crate::{Instant, LinkId};

impl Edge {
    /// Marks a link as down. Packets in its queue move to other links. Packets already given to it
    /// and not acknowledged are sent again, as far as copies exist.
    pub fn link_down(&mut self, link: LinkId, now: Instant) {
        let Some(queue) = self
            .links
            .get_mut(usize::from(link.0))
            .filter(|queue| queue.is_up())
        else {
            return;
        };
        queue.set_up(false);
        self.blur(link);
        if !self.links.iter().any(|link| link.is_up()) {
            // It is sent over the first link that comes up, see `link_up`.
            self.stranded[usize::from(link.0)] = true;
            return self.event(Event::LinkDown {
                link,
                moved: 0,
                lost: 0,
            });
        }
        let (moved, lost) = self.move_packets(link, now);
        self.event(Event::LinkDown { link, moved, lost });
        self.send_again_from(link, &Waiting::new(), now);
    }

    /// Marks a link as up.
    pub fn link_up(&mut self, link: LinkId, now: Instant) {
        let Some(queue) = self
            .links
            .get_mut(usize::from(link.0))
            .filter(|queue| !queue.is_up())
        else {
            return;
        };
        queue.set_up(true);
        self.event(Event::LinkUp { link });
        let stranded = std::mem::take(&mut self.stranded[usize::from(link.0)]);
        let waiting = stranded.then(|| self.waiting(link));
        let dead: Vec<LinkId> = (0..self.links.len())
            .map(|n| LinkId(n as u8))
            .filter(|id| !self.links[usize::from(id.0)].is_up())
            .collect();
        for other in dead {
            self.stranded[usize::from(other.0)] = false;
            self.move_packets(other, now);
            self.send_again_from(other, &Waiting::new(), now);
        }
        // Packets given to the link before it died are lost as well, unless another link took them
        // over.
        if let Some(waiting) = waiting {
            self.send_again_from(link, &waiting, now);
        }
        self.restart_repairs(now);
    }

    /// The segments in a link's queue, which are not lost.
    fn waiting(&self, link: LinkId) -> Waiting {
        let place = |packet: &[u8]| {
            let Parsed::Tcp(segment) = packet::parse(packet, false) else {
                return None;
            };
            let key = FlowKey {
                far: segment.source,
                user: segment.destination,
            };
            let id = self.flows.find(&key)?;
            let tracked = self.flows.get(id)?;
            Some((id, tracked.flow.locate(segment.sequence)))
        };
        let packets = self.links[usize::from(link.0)].packets();
        packets.filter_map(place).collect()
    }

    /// Marks trip times of packets given to a dead link as ambiguous: they wait for that link or
    /// another one, so their delay describes neither (LTT). PDUs are opaque, so none of their times
    /// count.
    fn blur(&mut self, dead: LinkId) {
        for id in self.with_copies() {
            if let Some(tracked) = self.flows.get_mut(id) {
                tracked.copies.blur(dead);
            }
        }
    }

    /// Moves the queue of a dead link to other links. Returns the numbers of packets moved and
    /// dropped for lack of room.
    fn move_packets(&mut self, dead: LinkId, now: Instant) -> (usize, usize) {
        let (mut moved, mut lost) = (0, 0);
        for packet in self.links[usize::from(dead.0)].drain() {
            // LWA PDUs are opaque; any link will do.
            let parsed = packet::parse(&packet, false);
            let offer = Offer {
                bytes: packet.len(),
                flow: identity(&parsed).0,
            };
            let Some(link) = self.steering.pick(&offer, &self.links) else {
                lost += 1;
                continue;
            };
            if self.links[usize::from(link.0)].push(packet, now).is_err() {
                lost += 1;
                continue;
            }
            moved += 1;
            if let Parsed::Tcp(segment) = parsed {
                self.moved(&segment, (now, link));
            }
        }
        self.counters.dropped += lost as u64;
        (moved, lost)
    }

    /// Records that a segment's copy now waits for another link, so that it does not count as lost
    /// with the first.
    fn moved(&mut self, segment: &Segment, sent: (Instant, LinkId)) {
        let key = FlowKey {
            far: segment.source,
            user: segment.destination,
        };
        let Some(tracked) = self.flows.find(&key).and_then(|id| self.flows.get_mut(id)) else {
            return;
        };
        let position = tracked.flow.locate(segment.sequence);
        if let Some(kept) = tracked.copies.at_mut(position) {
            (kept.sent, kept.urgent) = (sent, false);
        }
    }
}
