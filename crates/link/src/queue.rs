//! The drop-tail queue in front of the rate server.

use core::time::Duration;
use std::collections::VecDeque;

use crate::Packet;

/// How much a queue holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueLimit {
    /// So many bytes.
    Bytes(u64),
    /// What the link sends in so much time: `rate * time / 8` bytes, by the mean rate of a trace. While the rate is 0 the last rate
    /// that was not 0 counts, and [`QueueLimit::MIN_BYTES`] where there was none.
    Time(Duration),
}

impl QueueLimit {
    /// The least that a queue limited by time holds, in bytes: two full Ethernet packets.
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

/// A packet and when it was put into the queue.
#[derive(Clone, Debug)]
pub(crate) struct Queued<P> {
    pub(crate) packet: P,
    pub(crate) arrived: Duration,
}

/// First in, first out; a packet that does not fit is dropped.
///
/// The packet in transmission stays in the queue until its last bit is sent, as in a device's buffer. An
/// empty queue takes any packet, else a link with a tiny queue would pass nothing.
#[derive(Clone, Debug)]
pub(crate) struct DropTail<P> {
    /// The packets, the one in transmission first.
    packets: VecDeque<Queued<P>>,
    /// Their bytes.
    bytes: u64,
    /// The most that `bytes` may be.
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

    /// Changes the limit; packets that are in the queue already stay.
    pub(crate) fn set_limit(&mut self, bytes: u64) {
        self.limit = bytes;
    }

    /// Puts the packet at the end, or gives it back when it does not fit.
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
    fn an_empty_queue_takes_any_packet() {
        let mut queue = DropTail::new(0);
        assert!(queue.push(Duration::ZERO, vec![0; 1500]).is_ok());
        assert!(queue.push(Duration::ZERO, vec![0; 1]).is_err());
    }

    #[test]
    fn time_is_turned_into_bytes_by_the_rate() {
        let limit = QueueLimit::Time(Duration::from_millis(50));
        assert_eq!(limit.bytes(60_000_000), 375_000);
        assert_eq!(limit.bytes(0), QueueLimit::MIN_BYTES);
        assert_eq!(QueueLimit::Time(Duration::MAX).bytes(u64::MAX), u64::MAX);
        assert_eq!(QueueLimit::Bytes(10).bytes(60_000_000), 10);
    }
}
