//! The node's queue in front of one link, with its measured service rate and trip time.

mod departures;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::Instant;
use departures::Departures;

/// A rate measurement covers at least this much backlogged time and this many packets.
const MIN_TIME: Duration = Duration::from_millis(10);
const MIN_PACKETS: u32 = 4;

/// Weight of a new measurement of the service rate.
const RATE_GAIN: f64 = 0.25;

/// Weight of a new link trip time (RFC 6298, section 2.3, as for round-trip times).
const TRIP_GAIN: f64 = 0.125;

/// The queue of one link.
#[derive(Clone, Debug)]
pub struct LinkQueue {
    /// Packets that the node sends again go first, because the user is waiting for them.
    urgent: VecDeque<Arc<[u8]>>,
    /// The others, with their times of entry.
    packets: VecDeque<(Instant, Arc<[u8]>)>,
    departures: Departures,
    bytes: usize,
    /// Capacity in packets (B^s of table I).
    limit: usize,
    up: bool,
    /// The link asked for a packet when the queue was empty.
    hungry: bool,
    service: Service,
    trip: Option<Duration>,
}

/// Service rate of the link while packets wait.
#[derive(Clone, Copy, Debug, Default)]
struct Service {
    /// Bytes per second; `None` before the first measurement.
    rate: Option<f64>,
    /// When the last packet was taken, if others have been waiting ever since.
    since: Option<Instant>,
    /// Time and bytes of the measurement in progress.
    time: Duration,
    bytes: usize,
    packets: u32,
}

impl LinkQueue {
    /// An empty queue of `limit` packets for a link that is up. `rate`, in bytes per second,
    /// applies until a rate has been measured.
    pub fn new(limit: usize, rate: Option<f64>) -> Self {
        Self {
            urgent: VecDeque::new(),
            packets: VecDeque::new(),
            departures: Departures::default(),
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

    /// Appends a packet; returns it if the queue is full.
    pub fn push(&mut self, packet: Arc<[u8]>, now: Instant) -> Result<(), Arc<[u8]>> {
        if self.available() == 0 {
            return Err(packet);
        }
        self.bytes += packet.len();
        self.packets.push_back((now, packet));
        Ok(())
    }

    /// Adds a packet ahead of the regular ones. Such packets have an equally large queue of their
    /// own, so a full queue delays no repair.
    pub fn push_urgent(&mut self, packet: Arc<[u8]>) -> Result<(), Arc<[u8]>> {
        if !self.has_urgent_room() {
            return Err(packet);
        }
        self.bytes += packet.len();
        self.urgent.push_back(packet);
        Ok(())
    }

    /// Whether another urgent packet fits.
    pub fn has_urgent_room(&self) -> bool {
        self.urgent.len() < self.limit
    }

    /// Whether half of the urgent queue is free; the other half is reserved for packets that a user
    /// waits for.
    pub fn has_spare_urgent_room(&self) -> bool {
        self.urgent.len() < self.limit.div_ceil(2)
    }

    /// Takes the next packet for a link that can take one. The rate is measured from packets taken
    /// while others wait.
    pub fn pop(&mut self, now: Instant) -> Option<Arc<[u8]>> {
        let packet = self.urgent.pop_front().or_else(|| {
            let (entered, packet) = self.packets.pop_front()?;
            self.departures.push(entered, now);
            Some(packet)
        });
        self.hungry = packet.is_none();
        self.bytes -= packet.as_ref().map_or(0, |packet| packet.len());
        self.service.taken(
            packet.as_ref().map(|packet| packet.len()),
            !self.is_empty(),
            now,
        );
        packet
    }

    /// Queued packets, in the order of their departure.
    pub fn packets(&self) -> impl Iterator<Item = &[u8]> {
        self.urgent
            .iter()
            .chain(self.packets.iter().map(|(_, packet)| packet))
            .map(|packet| &**packet)
    }

    /// Empties the queue of a dead link.
    pub fn drain(&mut self) -> Vec<Arc<[u8]>> {
        self.bytes = 0;
        self.service.since = None;
        self.urgent
            .drain(..)
            .chain(self.packets.drain(..).map(|(_, packet)| packet))
            .collect()
    }

    /// Marks the link as up or down.
    pub fn set_up(&mut self, up: bool) {
        self.up = up;
        self.hungry = up && self.is_empty();
        self.service.since = None;
    }

    /// Adds a trip time sample: the time from a packet's entry into the queue to its
    /// acknowledgment.
    pub fn trip_sample(&mut self, sample: Duration) {
        self.trip = Some(match self.trip {
            Some(trip) => trip.mul_f64(1.0 - TRIP_GAIN) + sample.mul_f64(TRIP_GAIN),
            None => sample,
        });
    }

    /// The latest time at which a packet left that entered at `entered`, urgently or not; `None`
    /// while it may wait.
    pub fn departed(&self, entered: Instant, urgent: bool) -> Option<Instant> {
        if urgent {
            return self.urgent.is_empty().then_some(entered);
        }
        let waits = self.packets.front().is_some_and(|(at, _)| *at <= entered);
        (!waits).then(|| self.departures.of(entered))
    }

    /// A packet that left at `departed` was acknowledged.
    pub fn flight_sample(&mut self, departed: Instant, now: Instant) {
        self.departures.sample(now.saturating_sub(departed));
    }

    /// How long after its departure an acknowledgment of a packet may take, at least `least` more
    /// than the mean; `None` before the first sample.
    pub fn longest_flight(&self, least: Duration) -> Option<Duration> {
        self.departures.longest_flight(least)
    }

    /// Whether the link is up.
    pub fn is_up(&self) -> bool {
        self.up
    }

    /// Whether the link is up and the queue has room.
    pub fn is_open(&self) -> bool {
        self.up && self.available() > 0
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.packets.is_empty()
    }

    /// Whether the link is idle.
    pub fn is_hungry(&self) -> bool {
        self.hungry && self.is_empty()
    }

    /// Number of queued packets.
    pub fn len(&self) -> usize {
        self.urgent.len() + self.packets.len()
    }

    /// Number of queued bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Capacity in packets (B^s of table I).
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Free room in packets (B^a of table I).
    pub fn available(&self) -> usize {
        self.limit.saturating_sub(self.packets.len())
    }

    /// B^a / B^s: 1 for an empty queue, 0 for a full one.
    pub fn share_available(&self) -> f64 {
        self.available() as f64 / self.limit as f64
    }

    /// Service rate in bytes per second while packets wait (the queue's depletion rate), if known.
    pub fn rate(&self) -> Option<f64> {
        self.service.rate
    }

    /// Smoothed time from a packet's entry into the queue to its acknowledgment (LTT), if known.
    pub fn trip(&self) -> Option<Duration> {
        self.trip
    }
}

impl Service {
    /// Records that the link took `bytes`, or found the queue empty; `backlogged`: more packets
    /// wait.
    ///
    /// Only the time between two packets counts, and only if the second was already waiting at the
    /// start. A link whose queue runs empty shows its load, not its capacity.
    fn taken(&mut self, bytes: Option<usize>, backlogged: bool, now: Instant) {
        if let (Some(since), Some(bytes)) = (self.since, bytes) {
            self.time += now.saturating_sub(since);
            self.bytes += bytes;
            self.packets += 1;
        }
        self.since = (bytes.is_some() && backlogged).then_some(now);
        if self.time >= MIN_TIME && self.packets >= MIN_PACKETS {
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
    fn the_rate_is_the_service_rate_not_the_arrival_rate() {
        let mut queue = LinkQueue::new(40, None);
        let mut now = Duration::ZERO;
        // One packet of 1000 bytes every 10 ms, on a link that takes 1 ms for each: no packet ever
        // waits.
        for _ in 0..50 {
            queue.push(packet(1000), now).unwrap();
            assert!(queue.pop(now).is_some());
            assert!(queue.pop(now + Duration::from_millis(1)).is_none());
            now += Duration::from_millis(10);
        }
        assert_eq!(queue.rate(), None);
        // The same if the link is polled only when there is a packet.
        for _ in 0..50 {
            queue.push(packet(1000), now).unwrap();
            assert!(queue.pop(now).is_some());
            now += Duration::from_millis(10);
        }
        assert_eq!(queue.rate(), None);
        for _ in 0..40 {
            queue.push(packet(1000), now).unwrap();
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
        let now = Duration::ZERO;
        queue.push(packet(1), now).unwrap();
        queue.push(packet(2), now).unwrap();
        assert!(queue.push(packet(3), now).is_err());
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
