//! The queue of a flow: bounded in bytes and in time, and the oldest datagram leaves first.
//!
//! Conversational flows have a plain deadline: their senders do not slow down for a loss, and a
//! frame of speech that is late is worth nothing, but one that is not late is worth sending even
//! behind others. All other classes also have CoDel (RFC 8289), because the programs behind them
//! control their own congestion: QUIC, SRT or WireGuard need one early loss as the signal to slow
//! down. A deadline alone would let the queue grow to the deadline and then lose a whole burst.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use super::codel::Codel;
use crate::Instant;
use crate::datagram::QueueLimits;

/// Bookkeeping of a queued datagram, which counts as memory together with its payload.
pub(crate) const OVERHEAD: usize = 64;

/// A datagram that has not been sent.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) payload: Bytes,
    /// When the program sent it.
    pub(crate) at: Instant,
}

/// Number of datagrams that a queue has dropped, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Drops {
    /// The queue was full.
    pub(crate) full: u64,
    /// They waited longer than their class permits.
    pub(crate) late: u64,
    /// CoDel's signal to the sender.
    pub(crate) codel: u64,
}

/// How long datagrams may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) limits: QueueLimits,
    /// CoDel's interval: a typical round trip of the flow; none without CoDel.
    pub(crate) interval: Option<Duration>,
    /// Least of CoDel's targets.
    pub(crate) target: Duration,
}

/// Datagrams of one flow in the order in which the program sent them.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    items: VecDeque<Queued>,
    bytes: usize,
    codel: Codel,
    /// CoDel has let the first datagram pass.
    is_head_admitted: bool,
}

impl Queue {
    /// Appends a datagram and drops older ones that exceed the limit.
    pub(crate) fn push(&mut self, payload: Bytes, now: Instant, limit: usize, drops: &mut Drops) {
        self.bytes += cost(&payload);
        self.items.push_back(Queued { payload, at: now });
        while self.bytes > limit && self.items.len() > 1 {
            self.drop_head();
            drops.full += 1;
        }
    }

    /// The datagram to be sent next, after those that must be dropped now.
    pub(crate) fn head(
        &mut self,
        now: Instant,
        rules: &Rules,
        drops: &mut Drops,
    ) -> Option<&Queued> {
        while let Some(head) = self.items.front() {
            let sojourn = now.saturating_sub(head.at);
            if sojourn > rules.limits.sojourn {
                self.drop_head();
                drops.late += 1;
                continue;
            }
            let codel = rules.interval.filter(|_| !self.is_head_admitted);
            if let Some(interval) = codel
                && self.codel.drops(sojourn, self.bytes, rules, interval, now)
            {
                self.drop_head();
                drops.codel += 1;
                continue;
            }
            self.is_head_admitted = true;
            break;
        }
        self.items.front()
    }

    /// Takes the first datagram.
    pub(crate) fn pop(&mut self) -> Option<Queued> {
        let head = self.items.pop_front()?;
        self.bytes -= cost(&head.payload);
        self.is_head_admitted = false;
        Some(head)
    }

    /// Undoes [`Queue::pop`].
    pub(crate) fn push_first(&mut self, payload: Bytes, at: Instant) {
        self.bytes += cost(&payload);
        self.items.push_front(Queued { payload, at });
        self.is_head_admitted = true;
    }

    /// Drops up to half of the bytes and at most `most` datagrams, because all queues together are
    /// too long; returns the number.
    pub(crate) fn shed(&mut self, most: u64, drops: &mut Drops) -> u64 {
        let (half, before) = (self.bytes / 2, drops.full);
        while self.bytes > half && drops.full - before < most && !self.items.is_empty() {
            self.drop_head();
            drops.full += 1;
        }
        drops.full - before
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Memory of all datagrams in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Length of the first datagram.
    pub(crate) fn first_len(&self) -> Option<usize> {
        self.items.front().map(|head| head.payload.len())
    }

    /// When the first datagram was queued.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.items.front().map(|head| head.at)
    }

    fn drop_head(&mut self) {
        self.pop();
    }
}

/// Memory of a queued datagram.
pub(crate) fn cost(payload: &Bytes) -> usize {
    payload.len() + OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn rules(codel: bool) -> Rules {
        Rules {
            limits: QueueLimits {
                bytes: 10_000,
                sojourn: 100 * MS,
            },
            interval: codel.then_some(100 * MS),
            target: 5 * MS,
        }
    }

    #[test]
    fn the_oldest_datagrams_make_room_for_the_newest() {
        let (mut queue, mut drops) = (Queue::default(), Drops::default());
        for index in 0..20u8 {
            let payload = Bytes::from(vec![index; 1000 - OVERHEAD]);
            queue.push(payload, Instant::ZERO, 10_000, &mut drops);
        }
        assert_eq!(
            (queue.items.len(), queue.bytes(), drops.full),
            (10, 10_000, 10)
        );
        let head = queue.head(Instant::ZERO, &rules(false), &mut drops);
        assert_eq!(head.unwrap().payload[0], 10);
        // One that alone exceeds the limit is still sent.
        queue.push(
            Bytes::from(vec![9; 20_000]),
            Instant::ZERO,
            10_000,
            &mut drops,
        );
        assert_eq!(queue.items.len(), 1);
    }

    #[test]
    fn a_datagram_past_its_deadline_is_dropped() {
        let (mut queue, mut drops) = (Queue::default(), Drops::default());
        queue.push(
            Bytes::from_static(b"old"),
            Instant::ZERO,
            10_000,
            &mut drops,
        );
        queue.push(Bytes::from_static(b"new"), 50 * MS, 10_000, &mut drops);
        let head = queue.head(101 * MS, &rules(false), &mut drops);
        assert_eq!(head.unwrap().payload, "new");
        assert_eq!(
            drops,
            Drops {
                late: 1,
                ..Drops::default()
            }
        );
    }

    #[test]
    fn codel_signals_a_standing_queue_with_single_losses() {
        let (mut queue, mut drops) = (Queue::default(), Drops::default());
        let rules = rules(true);
        let mut sent = 0;
        // One datagram per millisecond comes and goes, and thirty always wait.
        for ms in 0..1000u32 {
            let now = ms * MS;
            queue.push(Bytes::from(vec![0; 100]), now, 10_000, &mut drops);
            if ms >= 30 && queue.head(now, &rules, &mut drops).is_some() {
                queue.pop();
                sent += 1;
            }
        }
        assert_eq!((drops.full, drops.late), (0, 0));
        assert!((1..60).contains(&drops.codel), "{drops:?}");
        assert!(sent > 900);
    }

    #[test]
    fn shedding_takes_half_at_most() {
        let (mut queue, mut drops) = (Queue::default(), Drops::default());
        for _ in 0..100 {
            queue.push(Bytes::new(), Instant::ZERO, 10_000, &mut drops);
        }
        assert_eq!(queue.shed(1000, &mut drops), 50);
        assert_eq!(queue.shed(10, &mut drops), 10);
        assert_eq!((queue.items.len(), drops.full), (40, 60));
    }
}
