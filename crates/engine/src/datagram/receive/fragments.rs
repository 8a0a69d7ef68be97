//! Halves of datagrams that wait for their other half.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};

use crate::Instant;
use crate::datagram::wire::Half;
use crate::datagram::{DatagramConfig, FlowId};

/// Bookkeeping of a half, which counts as memory.
const OVERHEAD: usize = 128;

/// Entries of joined halves that are always tolerated.
const MIN_SWEEP: usize = 64;

/// A half that waits.
#[derive(Debug)]
struct Waiting {
    since: Instant,
    half: Half,
    payload: Bytes,
}

/// Since when a half waits, its flow and its sequence number.
type Entry = (Instant, FlowId, u64);

/// Whether the half of this entry still waits.
fn is_waiting(waiting: &BTreeMap<(FlowId, u64), Waiting>, entry: &Entry) -> bool {
    let (since, flow, sequence) = *entry;
    let half = waiting.get(&(flow, sequence));
    half.is_some_and(|half| half.since == since)
}

/// The halves of all flows.
#[derive(Debug, Default)]
pub(in crate::datagram) struct Fragments {
    waiting: BTreeMap<(FlowId, u64), Waiting>,
    /// Since when each of them waits, the oldest first. Those that have been joined or replaced are
    /// still here.
    order: VecDeque<Entry>,
    bytes: usize,
    /// Halves that were dropped without the other one.
    pub(in crate::datagram) given_up: u64,
}

impl Fragments {
    /// Adds a half and returns the datagram if it is complete.
    pub(in crate::datagram) fn add(
        &mut self,
        flow: FlowId,
        sequence: u64,
        half: Half,
        payload: &[u8],
        limits: &DatagramConfig,
        now: Instant,
    ) -> Option<Bytes> {
        self.expire(limits, now);
        let key = (flow, sequence);
        if let Some(other) = self.waiting.get(&key) {
            if other.half == half && other.payload.len() == payload.len() {
                return None;
            }
            let other = self.remove(key)?;
            let parts = match (half, other.half) {
                (Half::First, Half::Second { offset }) => {
                    Some((payload, &other.payload[..], offset))
                }
                (Half::Second { offset }, Half::First) => {
                    Some((&other.payload[..], payload, offset))
                }
                _ => None,
            };
            if let Some((first, second, offset)) = parts
                && first.len() as u64 == offset
            {
                let mut whole = BytesMut::with_capacity(first.len() + second.len());
                whole.extend_from_slice(first);
                whole.extend_from_slice(second);
                return Some(whole.freeze());
            }
            // A copy that was split in another place: its other part is to be expected now.
            self.given_up += 1;
        }
        let cost = payload.len() + OVERHEAD;
        while self.bytes + cost > limits.fragment_memory
            && let Some(entry) = self.order.pop_front()
        {
            self.give_up(entry);
        }
        self.bytes += cost;
        let payload = Bytes::copy_from_slice(payload);
        let waiting = Waiting {
            since: now,
            half,
            payload,
        };
        self.waiting.insert(key, waiting);
        // Joined ones leave entries behind; they must not outnumber the others by far.
        if self.order.len() > 2 * self.waiting.len() + MIN_SWEEP {
            let waiting = &self.waiting;
            self.order.retain(|entry| is_waiting(waiting, entry));
        }
        self.order.push_back((now, flow, sequence));
        None
    }

    /// Memory of all halves in bytes.
    pub(in crate::datagram) fn bytes(&self) -> usize {
        self.bytes
    }

    /// When [`Fragments::expire`] is due; it may find nothing then.
    pub(in crate::datagram) fn next_end(&self, limits: &DatagramConfig) -> Option<Instant> {
        let (since, ..) = self.order.front()?;
        Some(*since + limits.fragment_wait)
    }

    /// Drops halves that have waited for too long.
    pub(in crate::datagram) fn expire(&mut self, limits: &DatagramConfig, now: Instant) {
        while let Some(&entry) = self.order.front() {
            let is_over = entry.0 + limits.fragment_wait <= now;
            if !is_over && is_waiting(&self.waiting, &entry) {
                break;
            }
            self.order.pop_front();
            self.give_up(entry);
        }
    }

    /// Drops the half of an entry, unless it has been joined or replaced.
    fn give_up(&mut self, entry: Entry) {
        if is_waiting(&self.waiting, &entry) {
            self.given_up += 1;
            self.remove((entry.1, entry.2));
        }
    }

    fn remove(&mut self, key: (FlowId, u64)) -> Option<Waiting> {
        let waiting = self.waiting.remove(&key)?;
        self.bytes -= waiting.payload.len() + OVERHEAD;
        Some(waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second part behind "hel".
    const SECOND: Half = Half::Second { offset: 3 };

    #[test]
    fn parts_of_copies_that_are_split_in_different_places_are_not_joined() {
        let limits = DatagramConfig::default();
        let mut fragments = Fragments::default();
        let mut add =
            |half, payload: &[u8]| fragments.add(4, 1, half, payload, &limits, Instant::ZERO);
        let second = |offset| Half::Second { offset };
        assert_eq!(add(Half::First, b"hel"), None);
        assert_eq!(add(second(2), b"llo"), None);
        assert_eq!(add(Half::First, b"he").unwrap(), "hello");
        assert_eq!(add(second(4), b"o"), None);
        assert_eq!(add(second(1), b"ello"), None);
        assert_eq!(add(Half::First, b"h").unwrap(), "hello");
        assert_eq!(fragments.given_up, 2);
        assert_eq!(fragments.bytes, 0);
    }

    #[test]
    fn a_part_that_has_replaced_another_waits_from_its_own_arrival() {
        let limits = DatagramConfig::default();
        let mut fragments = Fragments::default();
        let mut add = |half, payload: &[u8], now| fragments.add(4, 1, half, payload, &limits, now);
        let start = Instant::ZERO;
        assert_eq!(add(Half::First, b"he", start), None);
        let later = start + limits.fragment_wait / 2;
        assert_eq!(add(Half::First, b"hel", later), None);
        let end = start + limits.fragment_wait;
        assert_eq!(add(SECOND, b"lo", end).unwrap(), "hello");
        assert_eq!(fragments.given_up, 1);
    }

    #[test]
    fn two_halves_join_in_any_order_and_only_in_time() {
        let limits = DatagramConfig::default();
        let mut fragments = Fragments::default();
        let mut add = |sequence, half, payload: &[u8], now| {
            fragments.add(4, sequence, half, payload, &limits, now)
        };
        let start = Instant::ZERO;
        assert_eq!(add(1, SECOND, b"lo", start), None);
        assert_eq!(add(1, SECOND, b"lo", start), None, "twice the same");
        assert_eq!(add(1, Half::First, b"hel", start).unwrap(), "hello");
        assert_eq!(add(2, Half::First, b"hel", start), None);
        let late = start + limits.fragment_wait;
        assert_eq!(add(2, SECOND, b"lo", late), None);
        assert_eq!(fragments.given_up, 1);
    }

    #[test]
    fn memory_is_bounded() {
        let limits = DatagramConfig::default();
        let mut fragments = Fragments::default();
        for sequence in 0..10_000 {
            fragments.add(4, sequence, Half::First, &[0; 700], &limits, Instant::ZERO);
            assert!(fragments.bytes() <= limits.fragment_memory);
            assert_eq!(fragments.order.len(), fragments.waiting.len());
        }
    }
}
