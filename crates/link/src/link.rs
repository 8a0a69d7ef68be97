//! One direction of a link: the parts put together.

use core::time::Duration;

use crate::delay::DelayLine;
use crate::layer2::{Attempt, Layer2};
use crate::loss::LossProcess;
use crate::policer::Bucket;
use crate::queue::DropTail;
use crate::random::{Random, purpose};
use crate::server::Server;
use crate::{Change, Counters, Loss, Packet, QueueLimit};

/// What one direction of a link is like at the start. Whatever else there is (a trace, jitter, other
/// kinds of loss) is set with a [`Change`] before the first packet.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Bits per second; 0 lets nothing pass (packets wait in the queue).
    pub rate: u64,
    /// One-way propagation delay, in addition to queueing and transmission.
    pub delay: Duration,
    /// Probability that a packet is lost, 0.0..=1.0 (other values are clamped).
    pub loss: f64,
    /// What the queue holds, the packet in transmission included.
    pub queue: QueueLimit,
    /// Seed of everything random; the same seed and the same calls give the same deliveries.
    pub seed: u64,
}

/// Whether a link carries packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkState {
    /// It does.
    #[default]
    Up,
    /// It does not, and both ends can tell: the interface has no carrier.
    Down,
    /// It does not, and neither end can tell: the carrier is up and nothing gets through.
    Blackhole,
}

/// A packet that came out of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<P> {
    /// When it was due; a caller that polls late sees by how much.
    pub due: Duration,
    /// The packet as it was put in.
    pub packet: P,
}

/// One direction of a link. See the [crate's documentation](crate) for the law of its use.
#[derive(Clone, Debug)]
pub struct Link<P> {
    /// Latest time the caller has told.
    now: Duration,
    state: LinkState,
    queue_limit: QueueLimit,
    /// The last rate that was not 0, for a queue limited by time.
    nominal_rate: u64,
    policer: Option<Bucket>,
    queue: DropTail<P>,
    server: Server,
    layer2: Layer2,
    loss: LossProcess,
    line: DelayLine<P>,
    /// What is counted as it happens; the backlog is filled in when asked for.
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

    /// Puts a packet in. It is dropped, and counted, when the policer has no tokens for it, when the queue
    /// is full or when the link is not up.
    pub fn enqueue(&mut self, now: Duration, packet: P) {
        self.counters.offered_packets += 1;
        self.counters.offered_bytes += packet.wire_len() as u64;
        self.admit(now, packet);
    }

    /// As [`Self::enqueue`], for a packet that was counted as offered before.
    pub(crate) fn admit(&mut self, now: Duration, packet: P) {
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

    /// The next packet that is due by `now`.
    pub fn poll(&mut self, now: Duration) -> Option<Delivery<P>> {
        self.advance(now);
        self.take_due()
    }

    /// As [`Self::poll`], for somebody who has brought the link up to date.
    pub(crate) fn take_due(&mut self) -> Option<Delivery<P>> {
        let (due, packet) = self.line.pop(self.now)?;
        self.counters.delivered_packets += 1;
        self.counters.delivered_bytes += packet.wire_len() as u64;
        Some(Delivery { due, packet })
    }

    /// When to poll next: no packet is due before. `None` while nothing is on its way.
    ///
    /// The packet behind it may turn out to be lost or, with jitter, to be due later; then the poll at that
    /// time returns nothing, and the next deadline is later than it.
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

    /// Changes the rate in bits per second, also for the packet in transmission. 0 lets nothing pass.
    pub fn set_rate(&mut self, now: Duration, rate: u64) {
        self.set(now, Change::Rate(rate));
    }

    /// Changes the one-way delay of packets that have not left the queue. Order is kept: after a change
    /// to a shorter delay nothing overtakes what is on its way.
    pub fn set_delay(&mut self, now: Duration, delay: Duration) {
        self.set(now, Change::Delay(delay));
    }

    /// Changes the probability of loss, 0.0..=1.0 (other values are clamped).
    pub fn set_loss(&mut self, now: Duration, probability: f64) {
        self.set(now, Change::Loss(Loss::Independent(probability)));
    }

    /// Changes what the queue holds; packets that are in it already stay.
    pub fn set_queue(&mut self, now: Duration, limit: QueueLimit) {
        self.set(now, Change::Queue(limit));
    }

    /// Changes the state. Whatever is queued or on its way when the link stops being up is discarded.
    pub fn set_state(&mut self, now: Duration, state: LinkState) {
        self.set(now, Change::State(state));
    }

    /// Whether the link carries packets.
    pub fn state(&self) -> LinkState {
        self.state
    }

    /// The rate in bits per second; that of a trace is its mean.
    pub fn rate(&self) -> u64 {
        self.server.rate()
    }

    /// What passed and what did not, as of the latest call.
    pub fn counters(&self) -> Counters {
        Counters {
            queued_packets: self.queue.len(),
            queued_bytes: self.queue.bytes(),
            in_flight_packets: self.line.len(),
            in_flight_bytes: self.line.bytes(),
            ..self.counters
        }
    }

    /// Brings the rate server up to `now`: packets whose last bit has been sent set off, or are lost.
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
            // The dice of the loss are thrown for every packet, whatever became of it on layer 2.
            let lost = self.loss.loses_next(sent);
            if lost || attempt == Attempt::GivenUp {
                self.counters.lost_packets += 1;
                self.counters.lost_bytes += packet.wire_len() as u64;
            } else {
                self.line.push(sent, packet);
            }
            self.start_next(sent);
        }
    }

    /// When the packet in transmission is sent.
    pub(crate) fn transmission_end(&self) -> Option<Duration> {
        self.server.end()
    }

    /// When the first packet on its way is due.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.line.next_due()
    }

    /// The least time between the end of a transmission and the packet's coming out.
    pub(crate) fn least_delay(&self) -> Duration {
        self.line.least_delay()
    }

    /// Whether it would send if it could.
    pub(crate) fn is_backlogged(&self) -> bool {
        self.queue.len() > 0 && self.server.rate() > 0
    }

    /// Leaves the link only so much of the medium: 1 is what it has alone.
    pub(crate) fn set_share(&mut self, now: Duration, share: f64) {
        self.advance(now);
        self.server.set_share(self.now, share);
    }

    /// A packet that is due, for somebody who carries it on; it counts as delivered only later.
    pub(crate) fn hand_on(&mut self, now: Duration) -> Option<P> {
        self.advance(now);
        self.line.pop(self.now).map(|(_, packet)| packet)
    }

    /// Access to layer 2, as of `now`.
    pub(crate) fn layer2(&mut self, now: Duration) -> &mut Layer2 {
        self.advance(now);
        &mut self.layer2
    }

    /// Access to the counters of what happens outside of the link's own parts.
    pub(crate) fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }

    /// Whether the policer, if there is one, lets a packet of that size pass now.
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

    /// Starts the transmission of the first packet in the queue, unless one is under way.
    fn start_next(&mut self, idle_since: Duration) {
        if self.server.is_busy() {
            return;
        }
        if let Some(first) = self.queue.front() {
            let start = first.arrived.max(idle_since);
            if first.arrived >= idle_since {
                // The end of the last packet is rounded up; what is left of that nanosecond is over.
                self.server.rest();
            }
            self.layer2.begin();
            self.server.begin(start, first.packet.wire_len());
        }
    }
}
