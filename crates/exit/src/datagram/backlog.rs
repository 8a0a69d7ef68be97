//! Datagrams that wait for something other than a link: a name lookup, or a session.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// A short queue of datagrams. It drops the oldest first: what a real-time program sent last is
/// worth most, and the retransmission of another program is among the last, too.
#[derive(Debug)]
pub struct Backlog<T> {
    entries: VecDeque<(Instant, usize, T)>,
    bytes: usize,
    dropped: u64,
}

impl<T> Backlog<T> {
    /// Most datagrams that wait. A program that got no answer yet rarely sends more: a QUIC
    /// client's first flight has up to ten datagrams (RFC 9002, section 7.2).
    pub const MAX: usize = 32;

    /// Most payload bytes that wait, unless a single datagram is longer.
    pub const MAX_BYTES: usize = 64 * 1024;

    /// Longest wait. A program has repeated an older request: resolvers after 5 s
    /// (resolv.conf(5)), QUIC after 1 s (RFC 9002, section 6.2.2).
    pub const LIFETIME: Duration = Duration::from_secs(5);

    /// Appends a datagram with a payload of `bytes`, and returns the bytes of the datagrams dropped
    /// for it.
    pub fn push(&mut self, entry: T, bytes: usize, now: Instant) -> usize {
        let before = self.bytes;
        while self.entries.len() >= Self::MAX
            || (self.bytes.saturating_add(bytes) > Self::MAX_BYTES && !self.entries.is_empty())
        {
            self.pop();
            self.dropped += 1;
        }
        let freed = before - self.bytes;
        self.entries.push_back((now, bytes, entry));
        self.bytes += bytes;
        freed
    }

    /// Takes the datagrams that are not too old, in order, and empties the queue.
    pub fn take(&mut self, now: Instant) -> impl Iterator<Item = T> + use<T> {
        let entries = std::mem::take(&mut self.entries);
        let is_fresh = move |at: Instant| now.saturating_duration_since(at) <= Self::LIFETIME;
        let fresh = entries.iter().filter(|(at, ..)| is_fresh(*at)).count();
        self.dropped += (entries.len() - fresh) as u64;
        self.bytes = 0;
        entries
            .into_iter()
            .filter(move |(at, ..)| is_fresh(*at))
            .map(|(_, _, entry)| entry)
    }

    /// The payload bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether no datagram waits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Datagrams dropped so far: for want of room, or because they waited too long.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn pop(&mut self) {
        if let Some((_, bytes, _)) = self.entries.pop_front() {
            self.bytes -= bytes;
        }
    }
}

impl<T> Default for Backlog<T> {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            bytes: 0,
            dropped: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_newest_datagrams_stay_and_the_old_ones_expire() {
        let mut backlog = Backlog::default();
        let start = Instant::now();
        for number in 0..40 {
            backlog.push(number, 10, start);
        }
        assert_eq!((backlog.bytes(), backlog.dropped()), (320, 8));
        let late = start + Backlog::<i32>::LIFETIME;
        backlog.push(40, 10, late);
        assert!(backlog.take(late).eq(9..=40));
        backlog.push(1, 10, start);
        backlog.push(2, 10, late);
        assert!(backlog.take(late + Duration::from_secs(1)).eq([2]));
        assert!(backlog.is_empty() && backlog.bytes() == 0);
    }

    #[test]
    fn a_datagram_longer_than_the_queue_waits_alone() {
        let mut backlog = Backlog::default();
        let now = Instant::now();
        backlog.push("short", 1, now);
        assert_eq!(backlog.push("long", 70_000, now), 1);
        assert!(backlog.take(now).eq(["long"]));
    }

    proptest! {
        #[test]
        fn the_queue_is_bounded_and_keeps_the_order(
            lengths in proptest::collection::vec(0..crate::datagram::MAX_PAYLOAD, 0..100),
        ) {
            let (mut backlog, now) = (Backlog::default(), Instant::now());
            let mut held = 0usize;
            for (number, length) in lengths.iter().enumerate() {
                held += length;
                held -= backlog.push(number, *length, now);
                prop_assert_eq!(backlog.bytes(), held);
                prop_assert!(held <= Backlog::<usize>::MAX_BYTES.max(*length));
            }
            let dropped = usize::try_from(backlog.dropped()).unwrap();
            let kept: Vec<usize> = backlog.take(now).collect();
            prop_assert!(kept.len() <= Backlog::<usize>::MAX);
            prop_assert!(kept.into_iter().eq(dropped..lengths.len()));
        }
    }
}
