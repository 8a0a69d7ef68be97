//! The drop-tail queue in front of the rate server.

use core::time::Duration;
use std::collections::VecDeque;

use crate::Packet;

/// Capacity of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// A number of bytes.
    Bytes(u64),
    /// The bytes that the link sends in this time: `rate * time / 8`, with the mean rate of a
    /// trace. While the rate is 0 the last nonzero rate counts, and [`QueueLimit::MIN_BYTES`] if
    /// there was none.
    Time(Duration),
}

impl QueueLimit {
    /// Minimum capacity of a queue limited by time, in bytes: two full Ethernet packets.
    pub const MIN_BYTES: u64 = 3_000;

    /// The limit in bytes on a link of `rate` bits per second.
    pub fn bytes(self, rate: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Time(time) => {
                let bytes = u128::from(rate).saturating_mul(time.as_nanos()) / 8_000_000_000;
                u64::try_from(bytes)
                    .unwrap_or(u64::MAX)
                    .max(Self::MIN_BYTES)
            }
        }
    }
}

/// A packet and the time at which it was enqueued.
#[derive(Clone, Debug)]
pub(crate) struct Queued<P> {
    pub(crate) packet: P,
    pub(crate) arrived: Duration,
}

/// First in, first out; a packet that does not fit is dropped.
///
/// The packet in transmission stays in the queue until its last bit is sent, as in a device's
/// buffer. An empty queue accepts any packet; otherwise a link with a tiny queue would pass
/// nothing.
#[derive(Clone, Debug)]
pub(crate) struct DropTail<P> {
    /// The packets, the one in transmission first.
    packets: VecDeque<Queued<P>>,
    /// Their bytes.
    bytes: u64,
    /// Upper limit of `bytes`.
    limit: u64,
}

impl<P: Packet> DropTail<P> {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            packets: VecDeque::new(),
            bytes: 0,
            limit,
        }
    }

    /// Changes the limit; packets already in the queue stay.
    pub(crate) fn set_limit(&mut self, bytes: u64) {
        self.limit = bytes;
    }

    /// Appends the packet, or returns it if it does not fit.
    pub(crate) fn push(&mut self, now: Duration, packet: P) -> Result<(), P> {
        let len = packet.wire_len() as u64;
        if !self.packets.is_empty() && self.bytes.saturating_add(len) > self.limit {
            return Err(packet);
        }
        self.bytes += len;
        self.packets.push_back(Queued {
            packet,
            arrived: now,
        });
        Ok(())
    }

    pub(crate) fn front(&self) -> Option<&Queued<P>> {
        self.packets.front()
    }

    pub(crate) fn pop(&mut self) -> Option<P> {
        let queued = self.packets.pop_front()?;
        self.bytes -= queued.packet.wire_len() as u64;
        Some(queued.packet)
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

    #[test]
    fn the_limit_is_in_bytes_and_the_tail_is_dropped() {
        let mut queue = DropTail::new(3_000);
        assert!(queue.push(Duration::ZERO, vec![1; 1500]).is_ok());
        assert!(queue.push(Duration::ZERO, vec![2; 1400]).is_ok());
        assert_eq!(
            queue.push(Duration::ZERO, vec![3; 101]).unwrap_err().len(),
            101
        );
        assert!(queue.push(Duration::ZERO, vec![4; 100]).is_ok());
        assert_eq!((queue.len(), queue.bytes()), (3, 3_000));
        assert_eq!(queue.pop().unwrap()[0], 1);
        assert_eq!((queue.len(), queue.bytes()), (2, 1_500));
    }

    #[test]
    fn an_empty_queue_accepts_any_packet() {
        let mut queue = DropTail::new(0);
        assert!(queue.push(Duration::ZERO, vec![0; 1500]).is_ok());
        assert!(queue.push(Duration::ZERO, vec![0; 1]).is_err());
    }

    #[test]
    fn time_limits_are_converted_by_the_rate() {
        let limit = QueueLimit::Time(Duration::from_millis(50));
        assert_eq!(limit.bytes(60_000_000), 375_000);
        assert_eq!(limit.bytes(0), QueueLimit::MIN_BYTES);
        assert_eq!(QueueLimit::Time(Duration::MAX).bytes(u64::MAX), u64::MAX);
        assert_eq!(QueueLimit::Bytes(10).bytes(60_000_000), 10);
    }
}
