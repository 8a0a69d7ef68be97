//! All links of one experiment.

mod agenda;

use core::time::Duration;

use crate::random::Random;
use crate::{Change, Counters, Delivery, Link, LinkConfig, LinkState, Packet};
use agenda::Agenda;

/// One direction of a link in a [`Network`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(usize);

impl LinkId {
    /// Its number: links are counted from 0 in the order in which they were added.
    pub fn index(self) -> usize {
        self.0
    }
}

/// All directions of all links of one experiment, under one clock and one seed.
///
/// The law of its use is that of the [crate](crate): after every call that changes something ask
/// [`Network::next_deadline`], and poll at that time until [`Network::poll`] returns `None`. When it polls
/// and how late changes nothing about what comes out, nor about when it was due.
///
/// Finding the next deadline and the next packet does not look at all links: the cost of a packet grows
/// with the logarithm of their number.
#[derive(Clone, Debug)]
pub struct Network<P> {
    /// Latest time the caller has told.
    now: Duration,
    /// From which every stream of random numbers is split.
    random: Random,
    links: Vec<Link<P>>,
    /// For each link the time before which no packet can come out of it.
    due: Agenda,
}

impl<P: Packet> Network<P> {
    /// A network without links. The same seed and the same calls give the same deliveries.
    pub fn new(seed: u64) -> Self {
        Self {
            now: Duration::ZERO,
            random: Random::new(seed),
            links: Vec::new(),
            due: Agenda::new(),
        }
    }

    /// Adds one direction of a link.
    ///
    /// Its random streams are split from the network's seed, the link's number and `config.seed`.
    pub fn add(&mut self, config: LinkConfig) -> LinkId {
        let id = LinkId(self.links.len());
        let seed = self.random.split(id.0 as u64).split(config.seed).next_u64();
        self.links.push(Link::new(LinkConfig { seed, ..config }));
        id
    }

    /// Puts a packet into a link. It is dropped, and counted, when the queue is full or the link is not up.
    ///
    /// # Panics
    ///
    /// Here and elsewhere, if `id` is of another network and this one has fewer links.
    pub fn enqueue(&mut self, now: Duration, id: LinkId, packet: P) {
        self.now = self.now.max(now);
        self.links[id.0].enqueue(self.now, packet);
        self.touch(id.0);
    }

    /// The next packet that is due by `now` on any link. Packets come out in the order in which they are
    /// due, those of the same moment in the order of the links.
    pub fn poll(&mut self, now: Duration) -> Option<(LinkId, Delivery<P>)> {
        self.now = self.now.max(now);
        loop {
            let (due, number) = self.due.first().filter(|(due, _)| *due <= self.now)?;
            let link = &mut self.links[number];
            // The deadline may have been a lower bound; then the turn goes to whoever is first now.
            link.advance(self.now);
            let first = link.next_due() == Some(due);
            let delivery = if first { link.poll(self.now) } else { None };
            self.touch(number);
            if let Some(delivery) = delivery {
                return Some((LinkId(number), delivery));
            }
        }
    }

    /// When to poll next: no packet is due before. `None` while nothing is on its way.
    ///
    /// The packet behind it may turn out to be lost, then the poll at that time returns nothing; the next
    /// deadline is later than that time.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.due.first().map(|(due, _)| due)
    }

    /// Changes one property of a link.
    pub fn set(&mut self, now: Duration, id: LinkId, change: Change) {
        self.now = self.now.max(now);
        self.links[id.0].set(self.now, change);
        self.touch(id.0);
    }

    /// What passed through a link and what did not, as of the latest call that concerned it.
    pub fn counters(&self, id: LinkId) -> Counters {
        self.links[id.0].counters()
    }

    /// Whether a link carries packets.
    pub fn state(&self, id: LinkId) -> LinkState {
        self.links[id.0].state()
    }

    /// How many links there are.
    pub fn len(&self) -> usize {
        self.links.len()
    }

    /// Whether there is no link.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// The ids of all links, in the order in which they were added.
    pub fn ids(&self) -> impl Iterator<Item = LinkId> + use<P> {
        (0..self.links.len()).map(LinkId)
    }

    /// Takes note of what a link does next.
    fn touch(&mut self, number: usize) {
        self.due.set(number, self.links[number].next_deadline());
    }
}
