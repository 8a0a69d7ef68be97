//! How many unsent bytes a QUIC connection may hold.
//!
//! The queue of a path should be where its order can be changed: above the connection, in the
//! engine.

use std::time::Duration;

use super::quic::SEND_BUFFER;

/// Time that datagrams may wait in the connection for the path's rate. Longer, and the engine's
/// choice of the next datagram comes too late; shorter, and the path idles until the session's task
/// runs again.
const QUEUE: Duration = Duration::from_millis(4);

/// Part of the queue that leaves before the task is woken to refill it, for batches.
const REFILL: usize = 4;

/// Datagrams of any size that may wait at any rate: one that waits, and one that replaces it.
const MIN_QUEUE: usize = 2;

/// Datagrams that leave in one system call (quinn's `MAX_TRANSMIT_SEGMENTS`).
const BURST: usize = 10;

/// The limit on unsent bytes in a connection. Every datagram counts with its overhead in the
/// connection's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    limit: usize,
    /// A datagram of the largest size, with its overhead.
    one: usize,
    overhead: usize,
}

impl Room {
    /// For a path with a congestion window of `window` bytes, of which `open` bytes are not in
    /// flight, and a smoothed round trip, once measured. A datagram has at most `largest` bytes,
    /// and `overhead` more in the connection's buffer.
    pub fn new(
        window: u64,
        open: u64,
        srtt: Option<Duration>,
        (largest, overhead): (usize, usize),
    ) -> Self {
        let one = largest + overhead;
        // Before the first measurement, the window alone is the limit.
        let paced = match srtt {
            Some(srtt) => window as f64 * QUEUE.as_secs_f64() / srtt.as_secs_f64(),
            None => 0.0,
        };
        let open = usize::try_from(open).unwrap_or(usize::MAX);
        let limit = (paced as usize)
            .max(open.min(BURST * one))
            .max(MIN_QUEUE * one + overhead)
            .min(SEND_BUFFER);
        Self {
            limit,
            one,
            overhead,
        }
    }

    /// Bytes that have room beside the `buffered` ones: a shorter datagram is accepted.
    pub fn left(&self, buffered: usize) -> usize {
        self.limit.saturating_sub(buffered + self.overhead)
    }

    /// Bytes that may wait when a connection without room is refilled; it is not refilled before.
    pub fn refill_at(&self) -> usize {
        self.limit.saturating_sub(self.one.max(self.limit / REFILL))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OVERHEAD: usize = 32;
    const ONE: usize = 1434 + OVERHEAD;

    fn room(window: u64, open: u64, srtt: Option<Duration>) -> Room {
        Room::new(window, open, srtt, (ONE - OVERHEAD, OVERHEAD))
    }

    fn limit(window: u64, open: u64, srtt: u64) -> usize {
        room(window, open, Some(Duration::from_micros(srtt))).limit
    }

    #[test]
    fn the_queue_is_what_leaves_within_milliseconds() {
        // 100 Mbit/s: 250 kB in 20 ms, and 50 kB in 4 ms.
        assert_eq!(limit(250_000, 0, 20_000), 50_000);
        // Even faster paths have a bounded queue.
        assert_eq!(limit(100_000_000, 0, 1_000), SEND_BUFFER);
    }

    #[test]
    fn a_slow_path_has_room_for_two_datagrams_and_for_its_window() {
        let two = 2 * ONE + OVERHEAD;
        assert_eq!(limit(12_000, 0, 100_000), two);
        assert_eq!(limit(12_000, 12_000, 100_000), 12_000);
        assert_eq!(limit(1_000_000, 1_000_000, 1_000_000), BURST * ONE);
        assert_eq!(room(12_000, 0, None).limit, two);
    }

    #[test]
    fn a_full_queue_is_refilled_after_a_part_of_it_has_left() {
        let room = room(250_000, 0, Some(Duration::from_millis(20)));
        assert_eq!(room.left(0), 50_000 - OVERHEAD);
        assert_eq!(room.left(60_000), 0);
        assert_eq!(room.refill_at(), 37_500);
        let slow = self::room(12_000, 0, Some(Duration::from_millis(100)));
        assert!(slow.left(slow.refill_at()) >= ONE - OVERHEAD);
    }
}
