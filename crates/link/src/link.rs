//! One direction of a link, assembled from its parts.

use core::time::Duration;

use crate::delay::DelayLine;
use crate::layer2::{Attempt, Layer2};
use crate::loss::LossProcess;
use crate::policer::Bucket;
use crate::queue::DropTail;
use crate::random::{Random, purpose};
use crate::server::Server;
use crate::{Change, Counters, Loss, Packet, QueueLimit};

/// Initial properties of one direction of a link. All others (a trace, jitter, other kinds of loss)
/// are set with a [`Change`] before the first packet.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Bits per second; 0 stops the link (packets wait in the queue).
    pub rate: u64,
    /// One-way propagation delay, in addition to queueing and transmission.
    pub delay: Duration,
    /// Probability that a packet is lost, 0.0..=1.0 (other values are clamped).
    pub loss: f64,
    /// Queue limit, including the packet in transmission.
    pub queue: QueueLimit,
    /// Seed of all random numbers; the same seed and the same calls give the same deliveries.
    pub seed: u64,
}

/// Whether a link carries packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkState {
    /// It carries packets.
    #[default]
    Up,
    /// It carries none, and both ends detect that: the interface has no carrier.
    Down,
    /// It carries none, and neither end detects that: the interface has carrier but packets vanish.
    Blackhole,
}

/// A packet delivered by a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<P> {
    /// Its due time; a caller that polls late can measure its lateness.
    pub due: Duration,
    /// The packet, unchanged.
    pub packet: P,
}

/// One direction of a link. See the [crate's documentation](crate) for the rules for callers.
#[derive(Clone, Debug)]
pub struct Link<P> {
    /// Latest time passed by the caller.
    now: Duration,
    state: LinkState,
    queue_limit: QueueLimit,
    /// The last nonzero rate, for a queue limited by time.
    nominal_rate: u64,
    policer: Option<Bucket>,
    queue: DropTail<P>,
    server: Server,
    layer2: Layer2,
    loss: LossProcess,
    line: DelayLine<P>,
    /// Counters of events; the backlog is filled in when they are read.
    counters: Counters,
}

impl<P: Packet> Link<P> {
    /// An empty link that is up.
    pub fn new(config: LinkConfig) -> Self {
        let random = Random::new(config.seed);
        Self {
            now: Duration::ZERO,
            state: LinkState::Up,
            queue_limit: config.queue,
            nominal_rate: config.rate,
            policer: None,
            queue: DropTail::new(config.queue.bytes(config.rate)),
            server: Server::new(config.rate),
            layer2: Layer2::new(random.split(purpose::LAYER2)),
            loss: LossProcess::new(config.loss, random.split(purpose::LOSS)),
            line: DelayLine::new(config.delay, random.split(purpose::JITTER)),
            counters: Counters::default(),
        }
    }

    /// Enqueues a packet. It is dropped and counted if the policer has too few tokens, the queue is
    /// full or the link is not up.
    pub fn enqueue(&mut self, now: Duration, packet: P) {
        self.counters.offered_packets += 1;
        self.counters.offered_bytes += packet.wire_len() as u64;
        self.enqueue_counted(now, packet);
    }

    /// Like [`Self::enqueue`], for a packet that was already counted as offered.
    pub(crate) fn enqueue_counted(&mut self, now: Duration, packet: P) {
        self.advance(now);
        let bytes = packet.wire_len() as u64;
        if self.state != LinkState::Up {
            self.counters.discarded_packets += 1;
            self.counters.discarded_bytes += bytes;
        } else if !self.conforms(bytes) {
            self.counters.policed_packets += 1;
            self.counters.policed_bytes += bytes;
        } else if self.queue.push(self.now, packet).is_err() {
            self.counters.dropped_queue_packets += 1;
            self.counters.dropped_queue_bytes += bytes;
        } else {
            self.start_next(self.now);
        }
    }

    /// Returns the next packet that is due by `now`.
    pub fn poll(&mut self, now: Duration) -> Option<Delivery<P>> {
        self.advance(now);
        self.pop_due()
    }

    /// Like [`Self::poll`], for a caller that has already advanced the link.
    pub(crate) fn pop_due(&mut self) -> Option<Delivery<P>> {
        let (due, packet) = self.line.pop(self.now)?;
        self.counters.delivered_packets += 1;
        self.counters.delivered_bytes += packet.wire_len() as u64;
        Some(Delivery { due, packet })
    }

    /// Time of the next poll: no packet is due before it. `None` while no packet is queued or in
    /// flight.
    ///
    /// The packet may turn out to be lost or, with jitter, to be due later. The poll at that time
    /// then returns `None`, and the next deadline is later.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.line.deadline(self.server.end())
    }

    /// Changes one property.
    pub fn set(&mut self, now: Duration, change: Change) {
        self.advance(now);
        match change {
            Change::Rate(rate) => {
                self.server.set_rate(self.now, rate);
                self.resize_queue();
            }
            Change::Burst(bytes) => self.server.set_burst(self.now, bytes),
            Change::Trace(trace) => {
                self.server.set_trace(self.now, trace);
                self.resize_queue();
            }
            Change::Delay(delay) => self.line.set_delay(delay),
            Change::Jitter(jitter) => self.line.set_jitter(jitter),
            Change::Loss(loss) => self.loss.set(loss),
            Change::Queue(limit) => {
                self.queue_limit = limit;
                self.resize_queue();
            }
            Change::Policer(policer) => {
                self.policer = policer.map(|policer| Bucket::full(policer, self.now));
            }
            Change::State(state) => self.change_state(state),
        }
    }

    /// Changes the rate in bits per second, also for the packet in transmission. 0 stops the link.
    pub fn set_rate(&mut self, now: Duration, rate: u64) {
        self.set(now, Change::Rate(rate));
    }

    /// Changes the one-way delay of packets that have not left the queue. Order is kept: after a
    /// change to a shorter delay no packet overtakes those in flight.
    pub fn set_delay(&mut self, now: Duration, delay: Duration) {
        self.set(now, Change::Delay(delay));
    }

    /// Changes the probability of loss, 0.0..=1.0 (other values are clamped).
    pub fn set_loss(&mut self, now: Duration, probability: f64) {
        self.set(now, Change::Loss(Loss::Independent(probability)));
    }

    /// Changes the queue limit; packets already in the queue stay.
    pub fn set_queue(&mut self, now: Duration, limit: QueueLimit) {
        self.set(now, Change::Queue(limit));
    }

    /// Changes the state. Leaving the up state discards all packets that are queued or in flight.
    pub fn set_state(&mut self, now: Duration, state: LinkState) {
        self.set(now, Change::State(state));
    }

    /// Whether the link carries packets.
    pub fn state(&self) -> LinkState {
        self.state
    }

    /// The rate in bits per second; the mean rate if a trace is set.
    pub fn rate(&self) -> u64 {
        self.server.rate()
    }

    /// Counters as of the latest call.
    pub fn counters(&self) -> Counters {
        Counters {
            queued_packets: self.queue.len(),
            queued_bytes: self.queue.bytes(),
            in_flight_packets: self.line.len(),
            in_flight_bytes: self.line.bytes(),
            ..self.counters
        }
    }

    /// Advances the rate server to `now`: packets that are completely sent depart or are lost.
    pub(crate) fn advance(&mut self, now: Duration) {
        self.now = self.now.max(now);
        while let Some(sent) = self.server.finish(self.now) {
            let attempt = self.layer2.end();
            if let (Attempt::Again(wait), Some(first)) = (attempt, self.queue.front()) {
                self.counters.layer2_retransmissions += 1;
                self.server.begin(sent + wait, first.packet.wire_len());
                continue;
            }
            let Some(packet) = self.queue.pop() else {
                break;
            };
            // Draws the loss for every packet, also for those lost on layer 2.
            let lost = self.loss.loses_next(sent);
            if lost || attempt == Attempt::LimitReached {
                self.counters.lost_packets += 1;
                self.counters.lost_bytes += packet.wire_len() as u64;
            } else {
                self.line.push(sent, packet);
            }
            self.start_next(sent);
        }
    }

    /// End of the current transmission.
    pub(crate) fn transmission_end(&self) -> Option<Duration> {
        self.server.end()
    }

    /// Due time of the first packet in flight.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.line.next_due()
    }

    /// The shortest time between the end of a transmission and the packet's due time.
    pub(crate) fn min_delay(&self) -> Duration {
        self.line.min_delay()
    }

    /// Whether it has packets to send.
    pub(crate) fn is_backlogged(&self) -> bool {
        self.queue.len() > 0 && self.server.rate() > 0
    }

    /// Sets the link's share of the medium; 1 is full use.
    pub(crate) fn set_share(&mut self, now: Duration, share: f64) {
        self.advance(now);
        self.server.set_share(self.now, share);
    }

    /// Removes a due packet for another component that forwards it; it counts as delivered only
    /// later.
    pub(crate) fn take_forwarded(&mut self, now: Duration) -> Option<P> {
        self.advance(now);
        self.line.pop(self.now).map(|(_, packet)| packet)
    }

    /// Layer 2, advanced to `now`.
    pub(crate) fn layer2(&mut self, now: Duration) -> &mut Layer2 {
        self.advance(now);
        &mut self.layer2
    }

    /// The counters, for events outside the link's own parts.
    pub(crate) fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// Whether the policer, if any, passes a packet of that size now.
    fn conforms(&mut self, bytes: u64) -> bool {
        match &mut self.policer {
            Some(bucket) => bucket.passes(self.now, bytes),
            None => true,
        }
    }

    fn resize_queue(&mut self) {
        if self.server.rate() != 0 {
            self.nominal_rate = self.server.rate();
        }
        self.queue
            .set_limit(self.queue_limit.bytes(self.nominal_rate));
    }

    fn change_state(&mut self, state: LinkState) {
        self.state = state;
        if state == LinkState::Up {
            return;
        }
        self.counters.discarded_packets += self.queue.len() + self.line.len();
        self.counters.discarded_bytes += self.queue.bytes() + self.line.bytes();
        self.server.abort();
        while self.queue.pop().is_some() {}
        self.line.clear();
    }

    /// Starts the transmission of the first packet in the queue, unless one is in progress.
    fn start_next(&mut self, idle_since: Duration) {
        if self.server.is_busy() {
            return;
        }
        if let Some(first) = self.queue.front() {
            let start = first.arrived.max(idle_since);
            if first.arrived >= idle_since {
                // The end of the last packet is rounded up; the rest of that nanosecond is not
                // credited.
                self.server.drop_credit();
            }
            self.layer2.begin();
            self.server.begin(start, first.packet.wire_len());
        }
    }
}
