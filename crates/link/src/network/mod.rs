//! All links of one experiment.

mod agenda;
mod air;
mod drive;
mod interferer;
mod radio;

use core::time::Duration;

use crate::random::Random;
use crate::{Change, Counters, Delivery, Link, LinkConfig, LinkState, ModelError, Packet};
use agenda::Agenda;
use air::AirGroup;
use drive::{Actor, Ties};
use interferer::Interference;
use radio::{Card, Side};

pub use air::Air;
pub use interferer::Interferer;
pub use radio::{Hotspot, Radio, Schedule};

/// One direction of a link in a [`Network`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(usize);

impl LinkId {
    /// Its number: links are counted from 0 in the order in which they were added.
    pub fn index(self) -> usize {
        self.0
    }
}

/// An interferer in a [`Network`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfererId(usize);

/// All directions of all links of one experiment, under one clock and one seed.
///
/// The rules for callers are those of the [crate](crate): after every call that changes something
/// query [`Network::next_deadline`], and poll at that time until [`Network::poll`] returns `None`.
/// Late polls change neither the deliveries nor their due times.
///
/// Finding the next deadline and the next packet does not visit all links: the cost of a packet
/// grows with the logarithm of their number.
#[derive(Clone, Debug)]
pub struct Network<P> {
    /// Latest time passed by the caller.
    now: Duration,
    /// Root of all random streams.
    random: Random,
    links: Vec<Link<P>>,
    /// For each link, the components that act on it.
    ties: Vec<Ties>,
    /// For each plain link, a lower bound of its next due time. For a driven link, the due time of
    /// the first packet that has passed all events.
    due: Agenda,
    /// Internal events of driven links that precede the due time of a packet.
    events: Agenda,
    /// The component of each event.
    actors: Vec<Actor>,
    /// Minimum time from an event to a delivery.
    slack: Duration,
    airs: Vec<AirGroup>,
    interferers: Vec<Interference>,
    cards: Vec<Card<P>>,
}

impl<P: Packet> Network<P> {
    /// A network without links. The same seed and the same calls give the same deliveries.
    pub fn new(seed: u64) -> Self {
        Self {
            now: Duration::ZERO,
            random: Random::new(seed),
            links: Vec::new(),
            ties: Vec::new(),
            due: Agenda::new(),
            events: Agenda::new(),
            actors: Vec::new(),
            slack: Duration::MAX,
            airs: Vec::new(),
            interferers: Vec::new(),
            cards: Vec::new(),
        }
    }

    /// Adds one direction of a link.
    ///
    /// Its random streams are split from the network's seed, the link's number and `config.seed`.
    pub fn add(&mut self, config: LinkConfig) -> LinkId {
        let id = LinkId(self.links.len());
        let random = self.random.split(drive::LINKS).split(id.0 as u64);
        let seed = random.split(config.seed).next_u64();
        self.links.push(Link::new(LinkConfig { seed, ..config }));
        self.ties.push(Ties::default());
        id
    }

    /// Makes links share the air as a coupling group; see [`Air`] for the model. Their configured
    /// rates are their rates alone. A link can be in one group.
    pub fn couple(&mut self, links: &[LinkId], air: Air) -> Result<(), ModelError> {
        if air.links() != links.len() {
            return Err(ModelError::WrongCount {
                what: "the list of coupled links",
                got: links.len(),
                expected: air.links(),
            });
        }
        self.check_free(links, "coupling groups", |ties| ties.air.is_some())?;
        let number = self.airs.len();
        let numbers: Vec<usize> = links.iter().map(|id| id.0).collect();
        let random = self.random.split(drive::AIRS).split(number as u64);
        self.airs.push(AirGroup::new(air, &numbers, &random));
        let actor = self.add_actor(Actor::Air(number));
        for (member, link) in numbers.into_iter().enumerate() {
            self.ties[link].air = Some((number, member, actor));
            self.drive(link);
        }
        Ok(())
    }

    /// Puts an interferer on the channel of links. A link can have one, which may be inactive at
    /// first ([`Interferer::NONE`]).
    pub fn interfere(
        &mut self,
        links: &[LinkId],
        interferer: Interferer,
    ) -> Result<InterfererId, ModelError> {
        interferer.check()?;
        self.check_free(links, "groups of an interferer", |ties| {
            ties.interferer.is_some()
        })?;
        let number = self.interferers.len();
        let numbers: Vec<usize> = links.iter().map(|id| id.0).collect();
        let random = self.random.split(drive::INTERFERERS).split(number as u64);
        self.interferers
            .push(Interference::new(interferer, numbers.clone(), random));
        let actor = self.add_actor(Actor::Interferer(number));
        for (member, link) in numbers.into_iter().enumerate() {
            self.ties[link].interferer = Some((number, member, actor));
            self.drive(link);
        }
        self.spread_interference(number, self.now);
        Ok(InterfererId(number))
    }

    /// Changes the parameters of an interferer.
    ///
    /// # Panics
    ///
    /// If `id` belongs to another network and this one has fewer interferers.
    pub fn set_interferer(
        &mut self,
        now: Duration,
        id: InterfererId,
        interferer: Interferer,
    ) -> Result<(), ModelError> {
        interferer.check()?;
        self.advance(now);
        self.interferers[id.0].change(self.now, interferer);
        self.spread_interference(id.0, self.now);
        Ok(())
    }

    /// Puts hotspots behind one radio; see [`Radio`]. The links lie behind the hotspots' Wi-Fi. A
    /// link can be behind one radio.
    pub fn radio(&mut self, hotspots: &[Hotspot], radio: Radio) -> Result<(), ModelError> {
        radio.check(hotspots.len())?;
        let links: Vec<LinkId> = hotspots.iter().flat_map(|h| [h.up, h.down]).collect();
        self.check_free(&links, "places behind a radio", |ties| ties.radio.is_some())?;
        let number = self.cards.len();
        self.cards.push(Card::new(radio, hotspots));
        let actor = self.add_actor(Actor::Card(number));
        for (channel, hotspot) in hotspots.iter().enumerate() {
            for (id, side) in [(hotspot.up, Side::Up), (hotspot.down, Side::Down)] {
                self.ties[id.0].radio = Some((number, channel, side, actor));
                self.drive(id.0);
            }
        }
        Ok(())
    }

    /// Enqueues a packet on a link. It is dropped and counted if the queue is full or the link is
    /// not up.
    ///
    /// # Panics
    ///
    /// Here and elsewhere, if `id` belongs to another network and this one has fewer links.
    pub fn enqueue(&mut self, now: Duration, id: LinkId, packet: P) {
        self.advance(now);
        if let Some((card, channel, Side::Up, _)) = self.ties[id.0].radio {
            self.queue_at_card(card, channel, id.0, packet);
        } else {
            self.links[id.0].enqueue(self.now, packet);
            self.reschedule(id.0, self.now);
        }
    }

    /// Returns the next packet that is due by `now` on any link. Packets come in the order of their
    /// due times, and at equal times in the order of the links.
    pub fn poll(&mut self, now: Duration) -> Option<(LinkId, Delivery<P>)> {
        self.advance(now);
        loop {
            let (due, number) = self.due.first().filter(|(due, _)| *due <= self.now)?;
            let delivery = if let Some((card, channel, Side::Down, _)) = self.ties[number].radio {
                self.take_from_card(card, channel, number)
            } else {
                let link = &mut self.links[number];
                link.advance(self.now);
                // The deadline may have been a lower bound; then another link may be first now.
                let is_first = link.next_due() == Some(due);
                if is_first { link.pop_due() } else { None }
            };
            self.update_due(number);
            if let Some(delivery) = delivery {
                return Some((LinkId(number), delivery));
            }
        }
    }

    /// Time of the next poll: no packet is due before it. `None` while no packet is queued or in
    /// flight.
    ///
    /// The packet may turn out to be lost or to be due later. The poll at that time then returns
    /// `None`, and the next deadline is later.
    pub fn next_deadline(&self) -> Option<Duration> {
        let inside = self
            .events
            .first()
            .map(|(at, _)| at.saturating_add(self.slack));
        let due = self.due.first().map(|(due, _)| due);
        inside.into_iter().chain(due).min()
    }

    /// Changes one property of a link.
    pub fn set(&mut self, now: Duration, id: LinkId, change: Change) {
        self.advance(now);
        let is_down = matches!(change, Change::State(state) if state != LinkState::Up);
        self.links[id.0].set(self.now, change);
        if is_down {
            self.clear_card(id.0);
        }
        self.reschedule(id.0, self.now);
        self.update_slack();
    }

    /// Packets in the queue of a link, including the one in transmission, and the expected end of
    /// that transmission; `None` while the link sends nothing. For a caller with a queue of its own
    /// in front of the link's.
    pub fn backlog(&mut self, now: Duration, id: LinkId) -> (u64, Option<Duration>) {
        self.advance(now);
        let link = &mut self.links[id.0];
        link.advance(self.now);
        let backlog = (link.counters().queued_packets, link.transmission_end());
        self.update_due(id.0);
        backlog
    }

    /// Counters of a link, as of the latest call that concerned it.
    pub fn counters(&self, id: LinkId) -> Counters {
        let mut counters = self.links[id.0].counters();
        if let Some((card, channel, side, _)) = self.ties[id.0].radio {
            let channel = &self.cards[card].channels[channel];
            match side {
                Side::Up => {
                    counters.queued_packets += channel.waiting.len();
                    counters.queued_bytes += channel.waiting.bytes();
                }
                Side::Down => {
                    counters.in_flight_packets +=
                        channel.buffered.len() + channel.arrived.len() as u64;
                    counters.in_flight_bytes += channel.buffered.bytes() + channel.arrived_bytes;
                }
            }
        }
        counters
    }

    /// Whether a link carries packets.
    pub fn state(&self, id: LinkId) -> LinkState {
        self.links[id.0].state()
    }

    /// The rate of a link in bits per second, as of the latest call that concerned it; the mean
    /// rate if a trace is set.
    pub fn rate(&self, id: LinkId) -> u64 {
        self.links[id.0].rate()
    }

    /// Number of links.
    pub fn len(&self) -> usize {
        self.links.len()
    }

    /// Whether the network has no links.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// The ids of all links, in the order in which they were added.
    pub fn ids(&self) -> impl Iterator<Item = LinkId> + use<P> {
        (0..self.links.len()).map(LinkId)
    }

    /// Checks that the links exist, are named once, and belong to no group of that kind.
    fn check_free(
        &self,
        links: &[LinkId],
        groups: &'static str,
        taken: impl Fn(&Ties) -> bool,
    ) -> Result<(), ModelError> {
        for (i, LinkId(link)) in links.iter().copied().enumerate() {
            let ties = self
                .ties
                .get(link)
                .ok_or(ModelError::UnknownLink { link })?;
            if taken(ties) || links[..i].contains(&LinkId(link)) {
                return Err(ModelError::InTwoGroups { link, groups });
            }
        }
        Ok(())
    }
}
