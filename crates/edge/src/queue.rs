//! The node's own queue before one link, with the rate at which it is served and the time that the link takes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::Instant;

/// Service is measured over at least so much time and so many packets in which something waited.
const LEAST_TIME: Duration = Duration::from_millis(10);
const LEAST_PACKETS: u32 = 4;

/// What a new measurement of the service rate counts.
const RATE_GAIN: f64 = 0.25;

/// What a new link trip time counts (RFC 6298, section 2.3, as for round-trip times).
const TRIP_GAIN: f64 = 0.125;

/// The queue of one link.
#[derive(Clone, Debug)]
pub struct LinkQueue {
    /// Packets sent again from here go first: somebody waits for them already.
    urgent: VecDeque<Arc<[u8]>>,
    packets: VecDeque<Arc<[u8]>>,
    bytes: usize,
    /// Packets that it holds at the most (B^s of table I).
    limit: usize,
    up: bool,
    /// The link could take more, and there was nothing.
    hungry: bool,
    service: Service,
    trip: Option<Duration>,
}

/// How fast the link takes packets while some wait.
#[derive(Clone, Copy, Debug, Default)]
struct Service {
    /// Bytes per second; nothing before the first measurement.
    rate: Option<f64>,
    /// When the last packet was taken, if another one has been waiting ever since.
    since: Option<Instant>,
    /// What is being measured.
    time: Duration,
    bytes: usize,
    packets: u32,
}

impl LinkQueue {
    /// An empty queue for `limit` packets before a link that is up. `rate` in bytes per second is believed until something
    /// is measured.
    pub fn new(limit: usize, rate: Option<f64>) -> Self {
        Self {
            urgent: VecDeque::new(),
            packets: VecDeque::new(),
            bytes: 0,
            limit: limit.max(1),
            up: true,
            hungry: true,
            service: Service {
                rate,
                ..Service::default()
            },
            trip: None,
        }
    }

    /// Puts a packet in. It is given back when the queue is full.
    pub fn push(&mut self, packet: Arc<[u8]>) -> Result<(), Arc<[u8]>> {
        if self.available() == 0 {
            return Err(packet);
        }
        self.bytes += packet.len();
        self.packets.push_back(packet);
        Ok(())
    }

    /// Puts a packet before all others. There is as much room again for these, so that a full queue stops no repair.
    pub fn push_urgent(&mut self, packet: Arc<[u8]>) -> Result<(), Arc<[u8]>> {
        if !self.has_urgent_room() {
            return Err(packet);
        }
        self.bytes += packet.len();
        self.urgent.push_back(packet);
        Ok(())
    }

    /// Whether there is room for another one of those.
    pub fn has_urgent_room(&self) -> bool {
        self.urgent.len() < self.limit
    }

    /// Whether half of that room is left: the other half is for what somebody waits for.
    pub fn has_spare_urgent_room(&self) -> bool {
        self.urgent.len() < self.limit.div_ceil(2)
    }

    /// The link can take a packet: the next one. What it takes while others wait is what its rate is measured by.
    pub fn pop(&mut self, now: Instant) -> Option<Arc<[u8]>> {
        let packet = self.urgent.pop_front().or_else(|| self.packets.pop_front());
        self.hungry = packet.is_none();
        self.bytes -= packet.as_ref().map_or(0, |packet| packet.len());
        self.service.taken(
            packet.as_ref().map(|packet| packet.len()),
            !self.is_empty(),
            now,
        );
        packet
    }

    /// What waits, in the order in which it will be given out.
    pub fn packets(&self) -> impl Iterator<Item = &[u8]> {
        self.urgent
            .iter()
            .chain(&self.packets)
            .map(|packet| &**packet)
    }

    /// Takes everything out: the link is dead.
    pub fn drain(&mut self) -> Vec<Arc<[u8]>> {
        self.bytes = 0;
        self.service.since = None;
        self.urgent
            .drain(..)
            .chain(self.packets.drain(..))
            .collect()
    }

    /// The link carries packets, or not.
    pub fn set_up(&mut self, up: bool) {
        self.up = up;
        self.hungry = up && self.is_empty();
        self.service.since = None;
    }

    /// How long a packet took over this link until it was acknowledged, its time in the queue included.
    pub fn trip_sample(&mut self, sample: Duration) {
        self.trip = Some(match self.trip {
            Some(trip) => trip.mul_f64(1.0 - TRIP_GAIN) + sample.mul_f64(TRIP_GAIN),
            None => sample,
        });
    }

    /// Whether the link carries packets.
    pub fn is_up(&self) -> bool {
        self.up
    }

    /// Whether it is up and has room for one more.
    pub fn is_open(&self) -> bool {
        self.up && self.available() > 0
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.packets.is_empty()
    }

    /// Whether the link stands idle.
    pub fn is_hungry(&self) -> bool {
        self.hungry && self.is_empty()
    }

    /// Packets that wait.
    pub fn len(&self) -> usize {
        self.urgent.len() + self.packets.len()
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Packets that it holds at the most (B^s of table I).
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Packets that still fit (B^a of table I).
    pub fn available(&self) -> usize {
        self.limit.saturating_sub(self.packets.len())
    }

    /// B^a / B^s: 1 for an empty queue, 0 for a full one.
    pub fn share_available(&self) -> f64 {
        self.available() as f64 / self.limit as f64
    }

    /// Bytes per second while something waits (the queue's depletion rate), where it is known.
    pub fn rate(&self) -> Option<f64> {
        self.service.rate
    }

    /// Smoothed time from a packet's entry into the queue to its acknowledgement (LTT), where it is known.
    pub fn trip(&self) -> Option<Duration> {
        self.trip
    }
}

impl Service {
    /// A packet of `bytes` was taken (or none was there); `backlogged`: more wait behind it.
    ///
    /// Only the time from one packet to the next counts, and only if the next one was there already. What a link takes while
    /// its queue is empty now and then says how much it was given, not what it can do.
    fn taken(&mut self, bytes: Option<usize>, backlogged: bool, now: Instant) {
        if let (Some(since), Some(bytes)) = (self.since, bytes) {
            self.time += now.saturating_sub(since);
            self.bytes += bytes;
            self.packets += 1;
        }
        self.since = (bytes.is_some() && backlogged).then_some(now);
        if self.time >= LEAST_TIME && self.packets >= LEAST_PACKETS {
            let measured = self.bytes as f64 / self.time.as_secs_f64();
            self.rate = Some(
                self.rate
                    .map_or(measured, |rate| rate + RATE_GAIN * (measured - rate)),
            );
            (self.time, self.bytes, self.packets) = (Duration::ZERO, 0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(len: usize) -> Arc<[u8]> {
        vec![0; len].into()
    }

    #[test]
    fn the_rate_is_that_of_service_not_of_what_arrives() {
        let mut queue = LinkQueue::new(40, None);
        let mut now = Duration::ZERO;
        // One packet of 1000 bytes every 10 ms to a link that takes them in 1 ms: nothing ever waits.
        for _ in 0..50 {
            queue.push(packet(1000)).unwrap();
            assert!(queue.pop(now).is_some());
            assert!(queue.pop(now + Duration::from_millis(1)).is_none());
            now += Duration::from_millis(10);
        }
        assert_eq!(queue.rate(), None);
        // Nor if somebody asks only when there is a packet.
        for _ in 0..50 {
            queue.push(packet(1000)).unwrap();
            assert!(queue.pop(now).is_some());
            now += Duration::from_millis(10);
        }
        assert_eq!(queue.rate(), None);
        for _ in 0..40 {
            queue.push(packet(1000)).unwrap();
        }
        while queue.pop(now).is_some() {
            now += Duration::from_millis(1);
        }
        let rate = queue.rate().unwrap();
        assert!((rate - 1e6).abs() < 1.0, "{rate} bytes per second");
    }

    #[test]
    fn a_full_queue_has_room_for_repairs_and_they_go_first() {
        let mut queue = LinkQueue::new(2, None);
        queue.push(packet(1)).unwrap();
        queue.push(packet(2)).unwrap();
        assert!(queue.push(packet(3)).is_err());
        assert_eq!((queue.share_available(), queue.bytes()), (0.0, 3));
        queue.push_urgent(packet(4)).unwrap();
        queue.push_urgent(packet(5)).unwrap();
        assert!(queue.push_urgent(packet(6)).is_err());
        let order: Vec<usize> = std::iter::from_fn(|| queue.pop(Duration::ZERO))
            .map(|p| p.len())
            .collect();
        assert_eq!((order, queue.bytes()), (vec![4, 5, 1, 2], 0));
        assert!(queue.is_hungry());
    }
}
