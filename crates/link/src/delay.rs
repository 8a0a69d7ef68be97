//! Propagation delay of packets in flight.

use core::time::Duration;
use std::collections::VecDeque;

use crate::random::Random;
use crate::{Jitter, Packet};

/// Holds each packet for the delay, which may vary. Packets change order only if the jitter allows
/// reordering.
#[derive(Clone, Debug)]
pub(crate) struct DelayLine<P> {
    /// Mean one-way delay of packets that depart from now on.
    delay: Duration,
    jitter: Jitter,
    /// Source of the jitter.
    random: Random,
    /// Packets with their due times, in the order of these.
    packets: VecDeque<(Duration, P)>,
    /// Bytes of `packets`.
    bytes: u64,
    /// Due time of the packet that departed last; a shorter delay must not let its successor
    /// overtake it.
    last_due: Duration,
}

impl<P: Packet> DelayLine<P> {
    pub(crate) fn new(delay: Duration, random: Random) -> Self {
        Self {
            delay,
            jitter: Jitter::NONE,
            random,
            packets: VecDeque::new(),
            bytes: 0,
            last_due: Duration::ZERO,
        }
    }

    /// Changes the delay of packets that depart from now on.
    pub(crate) fn set_delay(&mut self, delay: Duration) {
        self.delay = delay;
    }

    /// Changes the jitter of packets that depart from now on.
    pub(crate) fn set_jitter(&mut self, jitter: Jitter) {
        self.jitter = jitter;
    }

    /// The shortest possible delay of a packet.
    pub(crate) fn min_delay(&self) -> Duration {
        self.delay.saturating_sub(self.jitter.distribution.bound())
    }

    /// Lower bound of the due time of a packet that departs at `departure`.
    pub(crate) fn earliest_due(&self, departure: Duration) -> Duration {
        let due = departure.saturating_add(self.min_delay());
        if self.jitter.reorder {
            due
        } else {
            due.max(self.last_due)
        }
    }

    pub(crate) fn push(&mut self, departure: Duration, packet: P) {
        let delay = self.jitter.distribution.draw(self.delay, &mut self.random);
        let due = departure.saturating_add(delay);
        self.bytes += packet.wire_len() as u64;
        if due >= self.last_due || !self.jitter.reorder {
            self.last_due = self.last_due.max(due);
            self.packets.push_back((self.last_due, packet));
        } else {
            let place = self.packets.partition_point(|(other, _)| *other <= due);
            self.packets.insert(place, (due, packet));
        }
    }

    /// Due time of the first packet.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.packets.front().map(|(due, _)| *due)
    }

    /// Lower bound of the next due time if the next packet departs at `departure`.
    pub(crate) fn deadline(&self, departure: Option<Duration>) -> Option<Duration> {
        let first = self.next_due();
        if first.is_some() && !self.jitter.reorder {
            return first;
        }
        let next = departure.map(|departure| self.earliest_due(departure));
        first.into_iter().chain(next).min()
    }

    /// Removes the first packet if it is due by `now`; returns it with its due time.
    pub(crate) fn pop(&mut self, now: Duration) -> Option<(Duration, P)> {
        self.packets.front().filter(|(due, _)| *due <= now)?;
        let (due, packet) = self.packets.pop_front()?;
        self.bytes -= packet.wire_len() as u64;
        Some((due, packet))
    }

    /// Discards all packets in flight.
    pub(crate) fn clear(&mut self) {
        self.packets.clear();
        self.bytes = 0;
        self.last_due = Duration::ZERO;
    }

    pub(crate) fn len(&self) -> u64 {
        self.packets.len() as u64
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn line(delay: Duration) -> DelayLine<Vec<u8>> {
        DelayLine::new(delay, Random::new(1))
    }

    #[test]
    fn a_packet_is_due_exactly_after_the_delay() {
        let mut line = line(10 * MS);
        line.push(MS, vec![0; 100]);
        assert_eq!(line.next_due(), Some(11 * MS));
        assert!(line.pop(11 * MS - Duration::from_nanos(1)).is_none());
        assert_eq!(line.pop(20 * MS).unwrap().0, 11 * MS);
        assert_eq!((line.len(), line.bytes()), (0, 0));
    }

    #[test]
    fn a_shorter_delay_does_not_reorder() {
        let mut line = line(10 * MS);
        line.push(MS, vec![1]);
        line.set_delay(MS);
        line.push(2 * MS, vec![2]);
        line.push(20 * MS, vec![3]);
        let order: Vec<_> = std::iter::from_fn(|| line.pop(30 * MS))
            .map(|(due, p)| (due, p[0]))
            .collect();
        assert_eq!(order, [(11 * MS, 1), (11 * MS, 2), (21 * MS, 3)]);
    }

    /// Sends packets 1 ms apart with 5 ms of jitter; returns their numbers in order of arrival.
    fn jittered(jitter: Jitter) -> Vec<u8> {
        let mut line = line(10 * MS);
        line.set_jitter(jitter);
        let mut out = Vec::new();
        let mut last = Duration::ZERO;
        for number in 0..100 {
            let departure = u32::from(number) * MS;
            line.push(departure, vec![number]);
            while let Some((due, packet)) = line.pop(departure) {
                assert!(due >= last, "in the order of the due times");
                assert!(
                    due >= u32::from(packet[0]) * MS + 5 * MS,
                    "not before the smallest delay"
                );
                last = due;
                out.push(packet[0]);
            }
            assert!(line.deadline(Some(departure + MS)).unwrap() > departure);
        }
        out.extend(std::iter::from_fn(|| line.pop(1_000 * MS)).map(|(_, packet)| packet[0]));
        out
    }

    #[test]
    fn jitter_keeps_the_order_by_default() {
        let numbers: Vec<u8> = (0..100).collect();
        let jitter = Jitter::uniform(5 * MS);
        assert_eq!(jittered(jitter), numbers);
        let mut reordered = jittered(jitter.reordering());
        assert_ne!(reordered, numbers);
        reordered.sort_unstable();
        assert_eq!(reordered, numbers);
    }
}
