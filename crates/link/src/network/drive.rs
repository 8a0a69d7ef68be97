//! The effects of links on each other, event by event.
//!
//! A plain link needs no events: it depends on its own packets only, and is advanced on access. A
//! link that other components act on is *driven*: everything that happens to it is an event in one
//! agenda, and all events up to `now` are processed in time order first. Late polls therefore
//! change nothing here either.

use core::time::Duration;

use super::Network;
use super::radio::{Moved, Side};
use crate::{Delivery, LinkState, Packet};

/// Purposes of the network's random streams. Purposes of the network's random streams.
pub(super) const LINKS: u64 = 1;
pub(super) const AIRS: u64 = 2;
pub(super) const INTERFERERS: u64 = 3;

/// The component that an event belongs to, by number. The component that an event belongs to, by
/// number.
#[derive(Clone, Copy, Debug)]
pub(super) enum Actor {
    /// The current transmission of a driven link ends.
    Transmission(usize),
    /// A packet of a link reaches the hotspot that forwards it. A packet of a link reaches the
    /// hotspot that forwards it.
    Arrival(usize),
    /// A back-off or a transmission in a coupling group ends.
    Air(usize),
    /// An interferer becomes busy or silent.
    Interferer(usize),
    /// A card with virtual interfaces changes its state.
    Card(usize),
}

/// Components that act on a link. The last number of each is the number of the actor.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ties {
    /// Group, member.
    pub(super) air: Option<(usize, usize, usize)>,
    /// Interferer, member.
    pub(super) interferer: Option<(usize, usize, usize)>,
    /// Card, channel, side.
    pub(super) radio: Option<(usize, usize, Side, usize)>,
    /// The actors of its transmissions and arrivals, if it is driven.
    driven: Option<(usize, usize)>,
}

impl<P: Packet> Network<P> {
    /// Assigns a number to an actor.
    pub(super) fn add_actor(&mut self, actor: Actor) -> usize {
        self.actors.push(actor);
        self.actors.len() - 1
    }

    /// Makes a link driven.
    pub(super) fn drive(&mut self, link: usize) {
        if self.ties[link].driven.is_none() {
            let transmission = self.add_actor(Actor::Transmission(link));
            let arrival = self.add_actor(Actor::Arrival(link));
            self.ties[link].driven = Some((transmission, arrival));
        }
        self.links[link].advance(self.now);
        self.reschedule(link, self.now);
        self.update_slack();
    }

    /// Lets everything happen that is due by `now`.
    #[inline]
    pub(super) fn advance(&mut self, now: Duration) {
        self.now = self.now.max(now);
        // Without links that act on each other there are no events at all.
        if self.events.first().is_some_and(|(at, _)| at <= self.now) {
            self.process_events();
        }
    }

    #[inline(never)]
    fn process_events(&mut self) {
        while let Some((at, actor)) = self.events.first().filter(|(at, _)| *at <= self.now) {
            match self.actors[actor] {
                Actor::Transmission(link) => {
                    self.links[link].advance(at);
                    self.reschedule(link, at);
                }
                Actor::Arrival(link) => self.arrive(link, at),
                Actor::Air(group) => {
                    if let Some(link) = self.airs[group].fire(at) {
                        self.reschedule(link, at);
                    }
                }
                Actor::Interferer(number) => {
                    self.interferers[number].fire(at);
                    self.spread_interference(number, at);
                }
                Actor::Card(card) => {
                    if let Some(moved) = self.cards[card].fire(at) {
                        self.forward(moved, at);
                    }
                    self.events.set(actor, self.cards[card].next());
                }
            }
        }
    }

    /// Schedules the next events of a link after its state has changed.
    pub(super) fn reschedule(&mut self, link: usize, now: Duration) {
        if let Some((transmission, arrival)) = self.ties[link].driven {
            let backlogged = self.links[link].is_backlogged();
            if let Some((group, member, actor)) = self.ties[link].air {
                self.airs[group].update(now, member, backlogged);
                self.events.set(actor, self.airs[group].next());
            }
            if let Some((number, member, actor)) = self.ties[link].interferer {
                if self.interferers[number].update(now, member, backlogged) {
                    self.spread_interference(number, now);
                }
                self.events.set(actor, self.interferers[number].next());
            }
            self.apply_share(link, now);
            self.events
                .set(transmission, self.links[link].transmission_end());
            if matches!(self.ties[link].radio, Some((_, _, Side::Down, _))) {
                self.events.set(arrival, self.links[link].next_due());
            }
        }
        self.update_due(link);
    }

    /// Records the next due time of a link.
    pub(super) fn update_due(&mut self, link: usize) {
        let ties = &self.ties[link];
        let due = if let Some((card, channel, Side::Down, _)) = ties.radio {
            let arrived = &self.cards[card].channels[channel].arrived;
            arrived.front().map(|(at, _)| *at)
        } else if ties.driven.is_some() {
            self.links[link].next_due()
        } else {
            self.links[link].next_deadline()
        };
        self.due.set(link, due);
    }

    /// Updates the network's lower bound of the time from an event to a delivery.
    pub(super) fn update_slack(&mut self) {
        self.slack = self
            .links
            .iter()
            .zip(&self.ties)
            .filter(|(_, ties)| ties.driven.is_some())
            .map(|(link, ties)| match ties.radio {
                // The last step is the Wi-Fi hop, which is itself an event.
                Some((_, _, Side::Down, _)) => Duration::ZERO,
                _ => link.min_delay(),
            })
            .min()
            .unwrap_or(Duration::MAX);
    }

    /// Passes the state of an interferer to its links.
    pub(super) fn spread_interference(&mut self, number: usize, now: Duration) {
        let spec = self.interferers[number].spec;
        let is_busy = self.interferers[number].is_busy();
        for i in 0..self.interferers[number].links.len() {
            let link = self.interferers[number].links[i];
            let layer2 = self.links[link].layer2(now);
            if is_busy {
                layer2.begin_interference(spec.frame_error, spec.retry_limit);
            } else {
                layer2.end_interference();
            }
            self.apply_share(link, now);
            if let Ties {
                interferer: Some((_, _, actor)),
                driven: Some((transmission, _)),
                ..
            } = self.ties[link]
            {
                self.events
                    .set(transmission, self.links[link].transmission_end());
                self.events.set(actor, self.interferers[number].next());
            }
        }
    }

    /// Sets the speed of a link's server to the share that the other components leave. Sets the
    /// speed of a link's server to the share that the other components leave.
    fn apply_share(&mut self, link: usize, now: Duration) {
        let ties = &self.ties[link];
        let air = ties
            .air
            .map_or(1.0, |(group, member, _)| self.airs[group].share(member));
        let rest = ties
            .interferer
            .map_or(1.0, |(number, ..)| self.interferers[number].share());
        self.links[link].set_share(now, air * rest);
    }

    /// Queues a packet at the card that its link is behind.
    pub(super) fn queue_at_card(&mut self, card: usize, channel: usize, link: usize, packet: P) {
        let bytes = packet.wire_len() as u64;
        let is_up = self.links[link].state() == LinkState::Up;
        let counters = self.links[link].counters_mut();
        counters.offered_packets += 1;
        counters.offered_bytes += bytes;
        if !is_up {
            counters.discarded_packets += 1;
            counters.discarded_bytes += bytes;
        } else if self.cards[card].send(self.now, channel, packet).is_err() {
            counters.dropped_queue_packets += 1;
            counters.dropped_queue_bytes += bytes;
        }
        self.schedule_card(link);
    }

    /// Removes a packet that has reached the card.
    pub(super) fn take_from_card(
        &mut self,
        card: usize,
        channel: usize,
        link: usize,
    ) -> Option<Delivery<P>> {
        let channel = &mut self.cards[card].channels[channel];
        let (due, packet) = channel.arrived.pop_front()?;
        let bytes = packet.wire_len() as u64;
        channel.arrived_bytes -= bytes;
        let counters = self.links[link].counters_mut();
        counters.delivered_packets += 1;
        counters.delivered_bytes += bytes;
        Some(Delivery { due, packet })
    }

    /// Discards the packets that wait at a card or a hotspot for a link that has left the up state.
    pub(super) fn clear_card(&mut self, link: usize) {
        if let Some((card, channel, side, _)) = self.ties[link].radio {
            let (packets, bytes) = self.cards[card].clear(self.now, channel, side);
            let counters = self.links[link].counters_mut();
            counters.discarded_packets += packets;
            counters.discarded_bytes += bytes;
            self.schedule_card(link);
        }
    }

    /// A packet of a link reaches the hotspot, which buffers it for the card.
    fn arrive(&mut self, link: usize, at: Duration) {
        if let Some((card, channel, Side::Down, _)) = self.ties[link].radio
            && let Some(packet) = self.links[link].take_forwarded(at)
        {
            let bytes = packet.wire_len() as u64;
            if self.cards[card].buffer(at, channel, packet).is_err() {
                let counters = self.links[link].counters_mut();
                counters.dropped_queue_packets += 1;
                counters.dropped_queue_bytes += bytes;
            }
            self.schedule_card(link);
        }
        self.reschedule(link, at);
    }

    /// Forwards a packet that has crossed the Wi-Fi hop.
    fn forward(&mut self, moved: Moved<P>, at: Duration) {
        match moved {
            Moved::Up(link, packet) => {
                self.links[link].enqueue_counted(at, packet);
                self.reschedule(link, at);
            }
            Moved::Down(link) => self.update_due(link),
        }
    }

    /// Schedules the next event of a link's card.
    fn schedule_card(&mut self, link: usize) {
        if let Some((card, _, _, actor)) = self.ties[link].radio {
            self.events.set(actor, self.cards[card].next());
        }
    }
}
