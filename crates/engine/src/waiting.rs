//! How long received bytes wait for earlier ones: the in-order waiting time of each byte.
//!
//! A byte behind a gap waits from its arrival until the last byte before it has arrived. Bytes that
//! arrive in order do not wait.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Instant;

/// Pieces of one stream whose arrival is remembered. Bytes of further ones count as not waiting, so
/// that a peer that sends tiny pieces cannot use up memory.
const MAX_PIECES: usize = 4096;

/// Pieces that follow each other within this time of the first one count as arrived with it.
const MERGE: Duration = Duration::from_millis(1);

/// Arrivals of the bytes of a stream that are behind a gap.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// Start of each piece: its end, and the arrival of its first bytes.
    pieces: BTreeMap<u64, (u64, Instant)>,
}

impl Arrivals {
    /// The bytes from `start` to `end` have arrived behind a gap, some of them for a second time.
    pub(crate) fn note(&mut self, mut start: u64, end: u64, now: Instant) {
        while let Some((_, piece)) = self.pieces.range_mut(..=start).next_back()
            && (start..end).contains(&piece.0)
        {
            if now.saturating_sub(piece.1) < MERGE {
                piece.0 = end;
                return;
            }
            if piece.0 == start {
                break;
            }
            start = piece.0;
        }
        let before = self.pieces.range(..=start).next_back();
        if before.is_none_or(|(_, piece)| piece.0 <= start) {
            self.insert(start, end, now);
        }
    }

    fn insert(&mut self, start: u64, end: u64, now: Instant) {
        if self.pieces.len() < MAX_PIECES {
            self.pieces.entry(start).or_insert((end, now));
        }
    }

    /// All bytes below `to` can be read now; those below `from` could be before. Adds the waiting
    /// times.
    pub(crate) fn advance(&mut self, from: u64, to: u64, now: Instant, waits: &mut Waits) {
        let mut waited = 0;
        let mut counted = from;
        while let Some(first) = self.pieces.first_entry() {
            let (start, (end, at)) = (*first.key(), *first.get());
            if start >= to {
                break;
            }
            first.remove();
            // A piece that goes on behind the next gap.
            if end > to {
                self.pieces.insert(to, (end, at));
            }
            let bytes = end.min(to).saturating_sub(start.max(counted));
            counted = counted.max(end.min(to));
            waits.add(now.saturating_sub(at), bytes);
            waited += bytes;
        }
        waits.add(Duration::ZERO, (to - from).saturating_sub(waited));
    }

    /// The stream's bytes are dropped.
    pub(crate) fn clear(&mut self) {
        self.pieces.clear();
    }
}

/// Number of buckets: the last one begins at 32 s.
const BUCKETS: usize = 64;

/// Buckets for each doubling of the time.
const PER_DOUBLING: f64 = 4.0;

/// Shorter times fall into the first bucket.
const SHORTEST: Duration = Duration::from_millis(1);

/// Distribution of the waiting times of a session's bytes.
#[derive(Clone, Debug)]
pub(crate) struct Waits {
    /// Bytes by waiting time: up to [`SHORTEST`], and then four for each doubling.
    buckets: [u64; BUCKETS],
}

impl Default for Waits {
    fn default() -> Self {
        Self {
            buckets: [0; BUCKETS],
        }
    }
}

impl Waits {
    fn add(&mut self, time: Duration, bytes: u64) {
        // Most bytes: no logarithm.
        if time <= SHORTEST {
            self.buckets[0] += bytes;
            return;
        }
        let doublings = (time.as_secs_f64() / SHORTEST.as_secs_f64()).log2();
        let index = (doublings * PER_DOUBLING).ceil().max(0.0) as usize;
        self.buckets[index.min(BUCKETS - 1)] += bytes;
    }

    /// The time that the given share of the bytes, from 0 to 1, has not exceeded; up to a fifth too
    /// long, and 0 for less than a millisecond.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        let all: u64 = self.buckets.iter().sum();
        let mut left = (all as f64 * share).ceil() as u64;
        for (index, bytes) in self.buckets.iter().enumerate() {
            if *bytes >= left {
                return match index {
                    0 => Duration::ZERO,
                    _ => SHORTEST.mul_f64((index as f64 / PER_DOUBLING).exp2()),
                };
            }
            left -= bytes;
        }
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u32) -> Instant {
        Instant::from_secs(1) + ms * MS
    }

    #[test]
    fn bytes_wait_from_their_arrival_until_the_gap_is_closed() {
        let (mut arrivals, mut waits) = (Arrivals::default(), Waits::default());
        arrivals.note(1000, 2000, at(0));
        arrivals.note(2000, 3000, at(30));
        arrivals.note(5000, 6000, at(35));
        arrivals.advance(0, 3000, at(40), &mut waits);
        assert_eq!(waits.quantile(0.3), Duration::ZERO);
        let tenth = |time: Duration| (time.as_secs_f64() * 1e2).round();
        assert_eq!(tenth(waits.quantile(0.6)), 1.0, "{waits:?}");
        assert_eq!(tenth(waits.quantile(1.0)), 5.0, "40 ms, up to a fifth more");
        arrivals.advance(3000, 6000, at(135), &mut waits);
        assert!(arrivals.pieces.is_empty());
        assert!(waits.quantile(1.0) >= 100 * MS, "{waits:?}");
    }

    #[test]
    fn pieces_of_a_fast_path_keep_their_own_arrival() {
        let (mut arrivals, mut waits) = (Arrivals::default(), Waits::default());
        // For 100 ms, a piece arrives every half millisecond.
        for piece in 0..200 {
            let now = Instant::from_secs(1) + piece * (MS / 2);
            let start = 1000 * u64::from(piece + 1);
            arrivals.note(start, start + 1000, now);
        }
        arrivals.advance(0, 201_000, at(100), &mut waits);
        for (share, ms) in [(0.2, 20), (0.5, 50), (0.9, 90)] {
            let wait = waits.quantile(share).as_secs_f64() * 1e3;
            let most = f64::from(ms) * 1.2 + 1.0;
            assert!(
                (f64::from(ms) - 2.0..=most).contains(&wait),
                "{share}: {wait} ms"
            );
        }
    }

    #[test]
    fn a_piece_that_overlaps_earlier_ones_adds_its_end() {
        let (mut arrivals, mut waits) = (Arrivals::default(), Waits::default());
        arrivals.note(1000, 2000, at(0));
        arrivals.note(2000, 3000, at(10));
        arrivals.note(1500, 4000, at(50));
        arrivals.advance(0, 4000, at(100), &mut waits);
        let waited = |time: Duration| (time.as_secs_f64() * 10.0).round() / 10.0;
        assert_eq!(waits.quantile(0.25), Duration::ZERO);
        assert!(
            waits.quantile(0.5) >= 50 * MS && waits.quantile(0.5) < 60 * MS,
            "{waits:?}"
        );
        assert_eq!(waited(waits.quantile(1.0)), 0.1, "{waits:?}");
    }

    #[test]
    fn tiny_pieces_use_little_memory() {
        let mut arrivals = Arrivals::default();
        for piece in 0..100_000 {
            arrivals.note(2 * piece, 2 * piece + 1, at(2 * piece as u32));
        }
        assert_eq!(arrivals.pieces.len(), MAX_PIECES);
        let mut arrivals = Arrivals::default();
        for piece in 0..100_000 {
            arrivals.note(piece + 1, piece + 2, at(0));
        }
        assert_eq!(arrivals.pieces.len(), 1);
    }

    proptest! {
        /// Pieces arrive in any order, overlap, and come twice: each byte is counted once, and no
        /// wait is longer than the time that has passed.
        #[test]
        fn each_byte_counts_once(pieces in proptest::collection::vec((0u64..50, 1u64..20), 1..60)) {
            let (mut arrivals, mut waits) = (Arrivals::default(), Waits::default());
            let mut has = [false; 100];
            let mut next = 0;
            for (index, (start, len)) in pieces.iter().enumerate() {
                let now = at(3 * index as u32);
                let end = start + len;
                has[*start as usize..end as usize].fill(true);
                let to = has.iter().position(|has| !has).unwrap() as u64;
                if end > to {
                    arrivals.note(*start, end, now);
                }
                if to > next {
                    arrivals.advance(next, to, now, &mut waits);
                    next = to;
                }
                prop_assert_eq!(waits.buckets.iter().sum::<u64>(), next);
                prop_assert!(waits.quantile(1.0) <= (3 * index as u32 * MS).mul_f64(1.25));
            }
        }
    }
}
