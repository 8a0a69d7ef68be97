//! Propagation: packets that are on their way.

use core::time::Duration;
use std::collections::VecDeque;

use crate::Packet;

/// Holds each packet for a fixed time and never changes the order.
#[derive(Clone, Debug)]
pub(crate) struct DelayLine<P> {
    /// One-way delay of packets that set off from now on.
    delay: Duration,
    /// Packets with the time at which they are due, in order.
    packets: VecDeque<(Duration, P)>,
    /// Bytes of `packets`.
    bytes: u64,
    /// When the last packet that set off is due; a shorter delay must not let its successor overtake it.
    last_due: Duration,
}

impl<P: Packet> DelayLine<P> {
    pub(crate) fn new(delay: Duration) -> Self {
        Self {
            delay,
            packets: VecDeque::new(),
            bytes: 0,
            last_due: Duration::ZERO,
        }
    }

    /// Changes the delay of packets that set off from now on.
    pub(crate) fn set_delay(&mut self, delay: Duration) {
        self.delay = delay;
    }

    /// When a packet that sets off at `departure` would be due.
    pub(crate) fn due(&self, departure: Duration) -> Duration {
        departure.saturating_add(self.delay).max(self.last_due)
    }

    pub(crate) fn push(&mut self, departure: Duration, packet: P) {
        let due = self.due(departure);
        self.last_due = due;
        self.bytes += packet.wire_len() as u64;
        self.packets.push_back((due, packet));
    }

    /// When the first packet is due.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.packets.front().map(|(due, _)| *due)
    }

    /// The first packet, if it is due by `now`, with the time at which it was.
    pub(crate) fn pop(&mut self, now: Duration) -> Option<(Duration, P)> {
        self.packets.front().filter(|(due, _)| *due <= now)?;
        let (due, packet) = self.packets.pop_front()?;
        self.bytes -= packet.wire_len() as u64;
        Some((due, packet))
    }

    /// Forgets every packet on its way.
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

    #[test]
    fn a_packet_is_due_after_the_delay_and_not_before() {
        let mut line = DelayLine::new(10 * MS);
        line.push(MS, vec![0; 100]);
        assert_eq!(line.next_due(), Some(11 * MS));
        assert!(line.pop(11 * MS - Duration::from_nanos(1)).is_none());
        assert_eq!(line.pop(20 * MS).unwrap().0, 11 * MS);
        assert_eq!((line.len(), line.bytes()), (0, 0));
    }

    #[test]
    fn a_shorter_delay_does_not_reorder() {
        let mut line = DelayLine::new(10 * MS);
        line.push(MS, vec![1]);
        line.set_delay(MS);
        line.push(2 * MS, vec![2]);
        line.push(20 * MS, vec![3]);
        let order: Vec<_> = std::iter::from_fn(|| line.pop(30 * MS))
            .map(|(due, p)| (due, p[0]))
            .collect();
        assert_eq!(order, [(11 * MS, 1), (11 * MS, 2), (21 * MS, 3)]);
    }
}
