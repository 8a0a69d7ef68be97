//! One direction of a link: the parts put together.

use core::time::Duration;

use crate::delay::DelayLine;
use crate::loss::{Loss, LossProcess};
use crate::queue::DropTail;
use crate::rate::RateServer;
use crate::{Change, Counters, Packet, QueueLimit};

/// What one direction of a link is like.
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
    /// Seed of the loss; the same seed and the same packets give the same losses.
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
    queue: DropTail<P>,
    server: RateServer,
    loss: LossProcess,
    line: DelayLine<P>,
    /// What is counted as it happens; the backlog is filled in when asked for.
    counters: Counters,
}

impl<P: Packet> Link<P> {
    /// An empty link that is up.
    pub fn new(config: LinkConfig) -> Self {
        Self {
            now: Duration::ZERO,
            state: LinkState::Up,
            queue_limit: config.queue,
            nominal_rate: config.rate,
            queue: DropTail::new(config.queue.bytes(config.rate)),
            server: RateServer::new(config.rate),
            loss: LossProcess::new(config.loss, config.seed),
            line: DelayLine::new(config.delay),
            counters: Counters::default(),
        }
    }

    /// Puts a packet in. It is dropped, and counted, when the queue is full or the link is not up.
    pub fn enqueue(&mut self, now: Duration, packet: P) {
        self.advance(now);
        let bytes = packet.wire_len() as u64;
        self.counters.offered_packets += 1;
        self.counters.offered_bytes += bytes;
        if self.state != LinkState::Up {
            self.counters.discarded_packets += 1;
            self.counters.discarded_bytes += bytes;
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
        let (due, packet) = self.line.pop(self.now)?;
        self.counters.delivered_packets += 1;
        self.counters.delivered_bytes += packet.wire_len() as u64;
        Some(Delivery { due, packet })
    }

    /// When to poll next: no packet is due before. `None` while nothing is on its way.
    ///
    /// The packet behind it may turn out to be lost, then the poll at that time returns nothing.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.line
            .next_due()
            .or_else(|| self.server.end().map(|end| self.line.due(end)))
    }

    /// Changes one property.
    pub fn set(&mut self, now: Duration, change: Change) {
        match change {
            Change::Rate(rate) => self.set_rate(now, rate),
            Change::Delay(delay) => self.set_delay(now, delay),
            Change::Queue(limit) => self.set_queue(now, limit),
            Change::State(state) => self.set_state(now, state),
            Change::Loss(loss) => {
                self.advance(now);
                self.loss.set(loss);
            }
        }
    }

    /// Changes the rate in bits per second, also for the packet in transmission. 0 lets nothing pass.
    pub fn set_rate(&mut self, now: Duration, rate: u64) {
        self.advance(now);
        self.server.set_rate(self.now, rate);
        if rate != 0 {
            self.nominal_rate = rate;
        }
        self.queue
            .set_limit(self.queue_limit.bytes(self.nominal_rate));
    }

    /// Changes the one-way delay of packets that have not left the queue. Order is kept: after a change
    /// to a shorter delay nothing overtakes what is on its way.
    pub fn set_delay(&mut self, now: Duration, delay: Duration) {
        self.advance(now);
        self.line.set_delay(delay);
    }

    /// Changes the probability of loss, 0.0..=1.0 (other values are clamped).
    pub fn set_loss(&mut self, now: Duration, probability: f64) {
        self.set(now, Change::Loss(Loss::Independent(probability)));
    }

    /// Changes what the queue holds; packets that are in it already stay.
    pub fn set_queue(&mut self, now: Duration, limit: QueueLimit) {
        self.advance(now);
        self.queue_limit = limit;
        self.queue.set_limit(limit.bytes(self.nominal_rate));
    }

    /// Changes the state. Whatever is queued or on its way when the link stops being up is discarded.
    pub fn set_state(&mut self, now: Duration, state: LinkState) {
        self.advance(now);
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

    /// Whether the link carries packets.
    pub fn state(&self) -> LinkState {
        self.state
    }

    /// The rate in bits per second.
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
    /// Returns when the first of those on their way is due.
    pub(crate) fn advance(&mut self, now: Duration) -> Option<Duration> {
        self.now = self.now.max(now);
        while let Some(sent) = self.server.finish(self.now) {
            let Some(packet) = self.queue.pop() else {
                break;
            };
            if self.loss.loses_next() {
                self.counters.lost_packets += 1;
                self.counters.lost_bytes += packet.wire_len() as u64;
            } else {
                self.line.push(sent, packet);
            }
            self.start_next(sent);
        }
        self.line.next_due()
    }

    /// Starts the transmission of the first packet in the queue, unless one is under way.
    fn start_next(&mut self, idle_since: Duration) {
        if self.server.is_busy() {
            return;
        }
        if let Some(first) = self.queue.front() {
            let start = first.arrived.max(idle_since);
            self.server.begin(start, first.packet.wire_len());
        }
    }
}
