//! From the far side to the user: assigns every packet to a link.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::Edge;
use crate::flow::{FlowId, FlowKey, Kept, Phase};
use crate::lwa::Header;
use crate::packet::{self, Malformed, Parsed, Segment};
use crate::seq::Position;
use crate::steering::{Offer, hash_addresses};
use crate::{Instant, LinkId, Mode, Sack};

/// TCP's protocol number.
const TCP: u8 = 6;

/// Data from a flow's far end.
pub(super) struct Data {
    pub(super) flow: FlowId,
    pub(super) position: Position,
    /// The timestamp set by the far end.
    pub(super) theirs: Option<u32>,
    /// None of the data was received before, so its acknowledgment identifies the link that
    /// delivered it.
    pub(super) is_new: bool,
}

impl Edge {
    /// Handles a packet for a user from the far side.
    pub fn handle_far(&mut self, mut packet: Vec<u8>, now: Instant) {
        self.counters.down_packets += 1;
        let mut parsed = packet::parse(&packet, self.config.verify_checksums);
        if let Parsed::Malformed(reason, _) = &parsed {
            self.counters.malformed += 1;
            if *reason == Malformed::Ip {
                return; // no destination address
            }
        }
        self.expire_busy(now);
        let (flow, user) = identity(&parsed);
        let tracked = match &mut parsed {
            Parsed::Tcp(segment) => self.far_segment(&mut packet, segment, now),
            _ => None,
        };
        let packet: Arc<[u8]> = packet.into();
        let wanted = self.config.acks.filter(|_| is_bare_ack(&parsed));
        let link = self.steer(&packet, flow, user, wanted, now);
        if let (Some(data), Parsed::Tcp(segment)) = (tracked, &parsed) {
            match link {
                Some(link) => self.keep(data, segment, packet, link, now),
                None => self.keep_dropped(data, segment, packet, now),
            }
        }
    }

    /// Updates the flow with its segment. Returns the position of the segment's data, if it has
    /// any.
    fn far_segment(
        &mut self,
        packet: &mut [u8],
        segment: &mut Segment,
        now: Instant,
    ) -> Option<Data> {
        let key = FlowKey {
            far: segment.source,
            user: segment.destination,
        };
        self.edit_syn(packet, segment);
        let id = self.track_segment(key, segment, now)?;
        let visible = self.visible();
        let theirs = segment.options.timestamps.map(|(value, _)| value);
        // Data in a SYN begins one number after it (RFC 7413). The sender repeats it, as it repeats
        // the SYN.
        let is_data = segment.len > 0 && !segment.flags.syn;
        let arrived = self.with(id, now, |_, tracked| {
            let arrival = tracked.flow.far_segment(segment);
            if visible
                && !tracked.flow.sealed()
                && let Some(position) = arrival.position.filter(|_| is_data)
            {
                let before = tracked.copies.from(position);
                tracked.times.keep(packet, segment, before);
            }
            if tracked.orphaned.is_some() && tracked.flow.orphaned().is_none() {
                tracked.orphaned = None;
            }
            (arrival.position, arrival.new_bytes)
        });
        let (position, new_bytes) = arrived?;
        self.end_if_closed(id);
        Some(Data {
            flow: id,
            position: position.filter(|_| is_data)?,
            theirs,
            is_new: new_bytes >= segment.len as u64,
        })
    }

    /// The flow of a segment; `None` if it belongs to no flow.
    ///
    /// A SYN inside an existing flow may be late, forged, or the start of a new connection between
    /// the same ends. Only the reply of the other end shows which: a challenge for the first two
    /// (RFC 5961, section 4), a SYN for the third. Until then the flow is unchanged.
    pub(super) fn track_segment(
        &mut self,
        key: FlowKey,
        segment: &Segment,
        now: Instant,
    ) -> Option<FlowId> {
        let known = self.flows.find(&key);
        let begun = known
            .and_then(|id| Some((id, self.flows.get_mut(id)?)))
            .filter(|(_, tracked)| tracked.flow.phase() != Phase::HalfOpen);
        let Some((id, tracked)) = begun.filter(|_| segment.flags.syn) else {
            return self.track(key, now);
        };
        // The challenge must get through, even if it repeats the last acknowledgment.
        tracked.last_passed = None;
        if !segment.flags.ack {
            tracked.renewal = Some(Box::new(segment.clone()));
            return None;
        }
        let answers = |syn: &Segment| {
            syn.source == segment.destination && syn.sequence.wrapping_add(1) == segment.ack
        };
        if let Some(syn) = tracked.renewal.take_if(|syn| answers(syn)) {
            self.forget(id);
            let id = self.track(key, now)?;
            self.with(id, now, |_, tracked| match syn.source == key.far {
                true => drop(tracked.flow.far_segment(&syn)),
                false => drop(tracked.flow.user_segment(&syn)),
            })?;
        }
        self.track(key, now)
    }

    /// Forgets a flow that was reset.
    pub(super) fn end_if_closed(&mut self, id: FlowId) {
        if self
            .flows
            .get(id)
            .is_some_and(|tracked| tracked.flow.phase() == Phase::Closed)
        {
            self.forget(id);
        }
    }

    /// Edits a SYN from either end.
    pub(super) fn edit_syn(&self, packet: &mut [u8], segment: &Segment) {
        if !segment.flags.syn || segment.options.signed {
            return;
        }
        if self.visible() && self.config.sack == Sack::Strip && !segment.options.sealed {
            packet::strip_sack_permitted(packet, segment);
        }
        // This includes Multipath TCP: its keys and checksums do not cover the MSS (RFC 8684,
        // sections 3.1 to 3.3).
        if let Some(most) = self.config.mss {
            // The setting is for IPv4, whose header is 20 bytes shorter.
            let longer = if segment.source.is_ipv6() { 20 } else { 0 };
            packet::clamp_mss(packet, segment, most.saturating_sub(longer));
        }
    }

    /// Puts a packet into a link's queue, the preferred one if it accepts it; `None` if no link has
    /// room.
    fn steer(
        &mut self,
        packet: &Arc<[u8]>,
        flow: u64,
        user: Option<IpAddr>,
        wanted: Option<LinkId>,
        now: Instant,
    ) -> Option<LinkId> {
        let offer = Offer {
            bytes: packet.len(),
            flow,
        };
        let wanted = wanted.filter(|link| self.links[usize::from(link.0)].is_open());
        let Some(link) = wanted.or_else(|| self.steering.pick(&offer, &self.links)) else {
            self.counters.dropped += 1;
            return None;
        };
        let packet = if self.config.mode == Mode::Lwa {
            self.number(packet, user, now)
        } else {
            packet.clone()
        };
        let pushed = self.links[usize::from(link.0)].push(packet, now);
        self.counters.dropped += u64::from(pushed.is_err());
        pushed.is_ok().then_some(link)
    }

    /// Adds the next sequence number of the packet's user, or leaves the packet unnumbered if too
    /// many users have numbers. A number is assigned only once the packet has a place in a queue;
    /// otherwise the receiver would wait for it.
    fn number(&mut self, packet: &Arc<[u8]>, user: Option<IpAddr>, now: Instant) -> Arc<[u8]> {
        let bits = self.config.sequence_bits;
        match user.and_then(|user| self.sequences.next(user, now)) {
            Some((sequence, true)) => Header { sequence }.write_young(bits, packet).into(),
            Some((sequence, false)) => Header { sequence }.write(bits, packet).into(),
            None => {
                self.counters.not_numbered += 1;
                packet.clone()
            }
        }
    }

    /// Keeps a copy for retransmission, as far as memory allows. Without VISIBLE, keeps only the
    /// send time, for the trip times.
    fn keep(
        &mut self,
        data: Data,
        segment: &Segment,
        packet: Arc<[u8]>,
        link: LinkId,
        now: Instant,
    ) {
        let packet = if self.visible() {
            packet
        } else {
            Arc::from([])
        };
        let room = self.has_memory(packet.len(), now);
        let most = self.config.kept_per_flow;
        let Data {
            flow,
            position,
            theirs,
            is_new,
        } = data;
        let end = position + segment.len as u64;
        let kept = self.with(flow, now, |edge, tracked| {
            if !is_new {
                tracked.recovers_until = tracked.flow.highest();
                tracked.note_repetition(position..end, theirs);
            }
            let flow = &tracked.flow;
            let fits = room && tracked.copies.bytes() + packet.len() <= most;
            if flow.sealed() || flow.acked().is_none_or(|acked| end <= acked) {
                return true;
            }
            if let Some(before) = tracked.copies.at_mut(position)
                && before.end >= end
            {
                // The sender retransmits it: the time until its acknowledgment is ambiguous now.
                (before.sent, before.urgent) = ((now, link), false);
                (before.again, before.repeated, before.theirs) = (true, true, theirs);
                before.waits = false;
                if edge.config.visible.proof && tracked.repair.is_some() {
                    edge.await_proof(tracked, now);
                }
                return true;
            }
            if fits && (flow.owed() == 0 || flow.ack_sent() <= position) {
                // A copy of acknowledged data stays unchanged.
                let timestamp = segment.options.timestamps.map(|(value, _)| value);
                tracked.copies.keep(
                    position,
                    Kept {
                        end,
                        packet,
                        timestamp,
                        theirs,
                        sent: (now, link),
                        urgent: false,
                        again: !is_new,
                        repeated: !is_new,
                        repaired: 0,
                        waits: false,
                    },
                );
            }
            fits
        });
        self.counters.not_kept += u64::from(kept == Some(false) && self.visible());
        if !is_new {
            self.send_waiting(flow, now);
        }
    }
}

/// Whether a segment carries no data and neither opens nor closes a connection.
fn is_bare_ack(parsed: &Parsed) -> bool {
    let Parsed::Tcp(segment) = parsed else {
        return false;
    };
    let flags = &segment.flags;
    segment.len == 0 && !flags.syn && !flags.fin && !flags.rst
}

/// The flow hash of a packet and its destination user, as far as they can be read.
pub(super) fn identity(parsed: &Parsed) -> (u64, Option<IpAddr>) {
    match parsed {
        Parsed::Tcp(segment) => (
            hash_addresses(segment.source, segment.destination, TCP),
            Some(segment.destination.ip()),
        ),
        Parsed::Other(other) | Parsed::Malformed(_, Some(other)) => {
            let (source, destination) = other.ports.unwrap_or_default();
            let source = SocketAddr::new(other.source, source);
            let destination = SocketAddr::new(other.destination, destination);
            (
                hash_addresses(source, destination, other.protocol),
                Some(other.destination),
            )
        }
        Parsed::Malformed(_, None) => (0, None),
    }
}
