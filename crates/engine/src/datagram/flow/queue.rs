//! The queue of a flow: bounded in bytes and in time, and the oldest datagram leaves first.
//!
//! Conversational flows have a plain deadline: their senders do not slow down for a loss, and a
//! frame of speech that is late is worth nothing, but one that is not late is worth sending even
//! behind others. All other classes also have CoDel (RFC 8289), because the programs behind them
//! control their own congestion: QUIC, SRT or WireGuard need one early loss as the signal to slow
//! down. A deadline alone would let the queue grow to the deadline and then lose a whole burst.
//!
//! A slower path takes a datagram from behind those that faster paths will have carried when it
//! arrives. These have sequence numbers from then on, so CoDel drops the first one without.

use std::collections::VecDeque;

use bytes::Bytes;

use super::codel::Codel;
use super::rules::Rules;
use crate::Instant;

/// Bookkeeping of a queued datagram, which counts as memory together with its payload.
pub(crate) const OVERHEAD: usize = 64;

/// A datagram that has not been sent.
#[derive(Clone, Debug)]
pub(crate) struct Queued {
    pub(crate) payload: Bytes,
    /// When the program sent it.
    pub(crate) at: Instant,
    /// Its number in the flow, once a later one has been taken.
    pub(crate) sequence: Option<u64>,
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

/// Datagrams of one flow in the order in which the program sent them.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    items: VecDeque<Queued>,
    bytes: usize,
    /// Datagrams with a sequence number, all of them at the front, and their bytes.
    numbered: usize,
    numbered_bytes: usize,
    codel: Codel,
    /// CoDel has let the first datagram pass.
    is_head_admitted: bool,
}

impl Queue {
    /// Appends a datagram and drops older ones that exceed the limit, if possible none that has a
    /// sequence number: the receiver would wait for it.
    pub(crate) fn push(&mut self, payload: Bytes, now: Instant, limit: usize, drops: &mut Drops) {
        self.bytes += cost(&payload);
        self.items.push_back(Queued {
            payload,
            at: now,
            sequence: None,
        });
        while self.bytes > limit && self.items.len() > 1 {
            self.drop_one();
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
                self.pop();
                drops.late += 1;
                continue;
            }
            let codel = rules.interval.filter(|_| !self.is_head_admitted);
            if let Some(interval) = codel
                && self.codel.drops(sojourn, self.bytes, rules, interval, now)
                && self.numbered < self.items.len()
            {
                self.drop_one();
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
        self.is_head_admitted = false;
        self.take(0)
    }

    /// Takes the first datagram without a sequence number that has `behind` bytes before it; those
    /// before it get the numbers from `next` on, and it gets the one after them.
    pub(crate) fn pop_behind(&mut self, behind: usize, next: &mut u64) -> Option<Queued> {
        let (mut before, mut index) = (self.numbered_bytes, self.numbered);
        while before < behind {
            before += cost(&self.items.get(index)?.payload);
            index += 1;
        }
        if index >= self.items.len() {
            return None;
        }
        for item in self.items.range_mut(self.numbered..=index) {
            item.sequence = Some(*next);
            *next += 1;
        }
        (self.numbered, self.numbered_bytes) = (index, before);
        let item = self.items.remove(index)?;
        self.bytes -= cost(&item.payload);
        Some(item)
    }

    /// Undoes [`Queue::pop`] or [`Queue::pop_behind`] of a datagram that has a sequence number by
    /// now.
    pub(crate) fn put_back(&mut self, payload: Bytes, at: Instant, sequence: u64) {
        let cost = cost(&payload);
        // It was the first one, or the one after those with a number.
        let first = self.items.front().and_then(|first| first.sequence);
        let index = match first.is_some_and(|first| first < sequence) {
            true => self.numbered,
            false => 0,
        };
        self.is_head_admitted |= index == 0;
        self.bytes += cost;
        self.numbered += 1;
        self.numbered_bytes += cost;
        let sequence = Some(sequence);
        let item = Queued {
            payload,
            at,
            sequence,
        };
        self.items.insert(index, item);
    }

    /// Bytes of the datagrams that have a sequence number.
    pub(crate) fn numbered_bytes(&self) -> usize {
        self.numbered_bytes
    }

    /// Removes the datagram at a position.
    fn take(&mut self, index: usize) -> Option<Queued> {
        let item = self.items.remove(index)?;
        self.bytes -= cost(&item.payload);
        if item.sequence.is_some() {
            self.numbered -= 1;
            self.numbered_bytes -= cost(&item.payload);
        }
        Some(item)
    }

    /// Drops up to half of the bytes and at most `most` datagrams, because all queues together are
    /// too long; returns the number.
    pub(crate) fn shed(&mut self, most: u64, drops: &mut Drops) -> u64 {
        let (half, before) = (self.bytes / 2, drops.full);
        while self.bytes > half && drops.full - before < most && !self.items.is_empty() {
            self.drop_one();
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

    /// Drops the oldest datagram without a sequence number, or else the oldest one.
    fn drop_one(&mut self) {
        match self.numbered {
            0 => drop(self.pop()),
            index if index < self.items.len() => drop(self.take(index)),
            _ => drop(self.pop()),
        }
    }
}

/// Memory of a queued datagram.
pub(crate) fn cost(payload: &Bytes) -> usize {
    payload.len() + OVERHEAD
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::datagram::QueueLimits;

    const MS: Duration = Duration::from_millis(1);

    fn rules(codel: bool) -> Rules {
        Rules {
            limits: QueueLimits {
                bytes: 10_000,
                sojourn: 100 * MS,
            },
            interval: codel.then_some(100 * MS),
            target: 5 * MS,
            standing: 0,
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

    fn sequence(queued: Option<Queued>) -> Option<(u8, Option<u64>)> {
        queued.map(|queued| (queued.payload[0], queued.sequence))
    }

    #[test]
    fn a_datagram_from_behind_fixes_the_numbers_of_those_before_it() {
        let (mut queue, mut drops) = (Queue::default(), Drops::default());
        for index in 0..6u8 {
            let payload = Bytes::from(vec![index; 1000 - OVERHEAD]);
            queue.push(payload, Instant::ZERO, 10_000, &mut drops);
        }
        let mut next = 40;
        let from_behind = queue.pop_behind(1500, &mut next).unwrap();
        assert_eq!(sequence(Some(from_behind.clone())), Some((2, Some(42))));
        assert_eq!(
            (next, queue.numbered_bytes(), queue.bytes()),
            (43, 2000, 5000)
        );
        // It did not fit after all, and keeps its place.
        queue.put_back(from_behind.payload, from_behind.at, 42);
        assert_eq!(queue.numbered_bytes(), 3000);
        // The next one from behind has no number yet, however short the queue before it is.
        assert_eq!(
            sequence(queue.pop_behind(1, &mut next)),
            Some((3, Some(43)))
        );
        assert!(queue.pop_behind(6000, &mut next).is_none());
        let left = std::iter::from_fn(|| sequence(queue.pop()));
        let expected = [
            (0, Some(40)),
            (1, Some(41)),
            (2, Some(42)),
            (4, None),
            (5, None),
        ];
        assert_eq!(left.collect::<Vec<_>>(), expected);
        assert_eq!((queue.bytes(), queue.numbered_bytes(), next), (0, 0, 44));
    }

    #[test]
    fn codel_drops_no_datagram_that_has_a_number() {
        let (mut queue, mut drops) = (Queue::default(), Drops::default());
        for index in 0..4u8 {
            queue.push(vec![index; 900].into(), Instant::ZERO, 5000, &mut drops);
        }
        let mut next = 0;
        assert!(queue.pop_behind(1, &mut next).is_some());
        // More than half of the limit.
        let mut rules = rules(true);
        rules.limits.bytes = 5000;
        let head = queue.head(50 * MS, &rules, &mut drops);
        assert_eq!(head.unwrap().payload[0], 0);
        assert_eq!(drops.codel, 1);
        let left = std::iter::from_fn(|| sequence(queue.pop()));
        assert_eq!(left.collect::<Vec<_>>(), [(0, Some(0)), (3, None)]);
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
