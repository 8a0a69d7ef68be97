//! Memory between programs and their session: bounded for all streams together and shared on
//! demand.
//!
//! Each stream has a reserved [`FLOOR`], so that none is starved; memory beyond the floor comes
//! from a pool of the session. A stream may take a quarter of the free pool (dynamic thresholds:
//! Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches",
//! IEEE/ACM ToN 6(2), 1998, eq. 1 with alpha = 1/4): a single stream gets all that it can use, and
//! many stalled streams leave space for the next one without returning any memory.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sumlink_engine::PAGE;

/// Bytes that every stream may hold in each direction of its pipe, independent of the other
/// streams. One page is the least that is handed to a program: less is not worth an exchange.
pub(crate) const FLOOR: usize = PAGE;

/// The largest piece that changes hands, in bytes.
pub(crate) const CHUNK: usize = 256 * 1024;

/// Bytes that one stream holds at most on its way to a program: a chunk on either side of the
/// exchange.
pub(crate) const MAX_DOWN: usize = 2 * CHUNK;

/// Bytes that one stream holds at most on its way to the session: two reads of a relay. They wait
/// in front of the engine's send buffer, which is bounded in time, so they are few. On slow links
/// the session permits less ([`Holding::set_limit`]).
pub(crate) const MAX_UP: usize = 128 * 1024;

/// The part of the free pool that one stream may take: 1 / alpha.
const SHARE: u64 = 4;

/// Memory of a session's pipes in one direction.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Free bytes beyond the floors.
    free: AtomicU64,
    /// Bytes that all pipes hold, floors included.
    held: AtomicU64,
    /// Bytes that one pipe may hold.
    most: usize,
}

impl Pool {
    /// A pool of `bytes` beyond the streams' floors, of which one pipe holds at most `most`.
    pub(crate) fn new(bytes: u64, most: usize) -> Self {
        Self {
            free: AtomicU64::new(bytes),
            held: AtomicU64::new(0),
            most,
        }
    }

    /// Bytes that all pipes hold.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Relaxed)
    }
}

/// Memory of one direction of one pipe, on both sides of the exchange. The owner must return all of
/// it.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    held: usize,
    /// Bytes that it may hold if that is less than the pool permits.
    limit: Option<usize>,
}

impl Holding {
    /// Lets it hold at most `bytes` from now on. What it holds beyond them stays until it leaves.
    pub(crate) fn set_limit(&mut self, bytes: usize) {
        self.limit = Some(bytes);
    }

    /// Takes up to `want` more bytes and returns the number taken. 0 for a nonzero `want` means
    /// that held data must leave first; an empty holding always gets some.
    pub(crate) fn take(&mut self, pool: &Pool, want: usize) -> usize {
        let want = want.min(CHUNK);
        let mut granted = 0;
        // Cannot fail: the request is at most a quarter of the free pool.
        let _ = pool.free.fetch_update(Relaxed, Relaxed, |free| {
            let most = pool.most.min(self.limit.unwrap_or(usize::MAX));
            granted = self.space(free, most).min(want);
            Some(free - (excess(self.held + granted) - excess(self.held)))
        });
        self.held += granted;
        pool.held.fetch_add(granted as u64, Relaxed);
        granted
    }

    /// Returns `bytes` to the pool.
    pub(crate) fn give_back(&mut self, pool: &Pool, bytes: usize) {
        // An allocator may have returned slightly more than requested.
        let bytes = bytes.min(self.held);
        let before = excess(self.held);
        self.held -= bytes;
        pool.free.fetch_add(before - excess(self.held), Relaxed);
        pool.held.fetch_sub(bytes as u64, Relaxed);
    }

    /// Returns everything.
    pub(crate) fn end(&mut self, pool: &Pool) {
        self.give_back(pool, self.held);
    }

    /// Bytes that may be taken when the pool has `free` bytes and one pipe holds at most `most`.
    fn space(&self, free: u64, most: usize) -> usize {
        let taken = excess(self.held);
        let share = (free / SHARE).saturating_sub(taken);
        let floor = FLOOR.saturating_sub(self.held);
        let space = floor.saturating_add(usize::try_from(share).unwrap_or(most));
        match space.min(most.saturating_sub(self.held)) {
            crumb if crumb < FLOOR && self.held > 0 => 0,
            space => space,
        }
    }
}

/// The part of `held` that comes out of the pool.
fn excess(held: usize) -> u64 {
    held.saturating_sub(FLOOR) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_stream_alone_gets_a_chunk_on_either_side() {
        let pool = Pool::new(8 << 20, MAX_DOWN);
        let mut holding = Holding::default();
        assert_eq!(holding.take(&pool, usize::MAX), CHUNK);
        assert_eq!(holding.take(&pool, usize::MAX), CHUNK);
        assert_eq!(holding.take(&pool, usize::MAX), 0);
        holding.give_back(&pool, CHUNK);
        assert_eq!(holding.take(&pool, 1000), 1000);
    }

    #[test]
    fn a_writer_is_at_most_two_reads_ahead_of_its_session() {
        let pool = Pool::new(8 << 20, MAX_UP);
        let mut holding = Holding::default();
        assert_eq!(holding.take(&pool, usize::MAX), MAX_UP);
        assert_eq!(holding.take(&pool, usize::MAX), 0);
        holding.give_back(&pool, MAX_UP / 2);
        assert_eq!(holding.take(&pool, usize::MAX), MAX_UP / 2);
    }

    #[test]
    fn an_empty_pool_leaves_every_stream_its_floor() {
        let pool = Pool::new(0, MAX_DOWN);
        let mut holdings: Vec<Holding> = (0..100).map(|_| Holding::default()).collect();
        for holding in &mut holdings {
            assert_eq!(holding.take(&pool, CHUNK), FLOOR);
            assert_eq!(
                holding.take(&pool, CHUNK),
                0,
                "less than a page is not worth an exchange"
            );
        }
        assert_eq!(pool.held(), 100 * FLOOR as u64);
    }

    #[test]
    fn full_streams_leave_memory_for_the_next() {
        let pool = Pool::new(1 << 20, MAX_DOWN);
        let mut holdings: Vec<Holding> = (0..1000).map(|_| Holding::default()).collect();
        for holding in &mut holdings {
            while holding.take(&pool, CHUNK) > 0 {}
        }
        assert!(pool.held() <= (1 << 20) + 1000 * FLOOR as u64);
        assert!(Holding::default().take(&pool, CHUNK) >= FLOOR);
    }

    proptest! {
        /// In any sequence of operations, the sum stays below the pool plus the floors, and
        /// everything returns.
        #[test]
        fn the_bound_holds(
            size in 0..10_000_000_u64,
            steps in prop::collection::vec((0..20_usize, any::<bool>(), 0..600_000_usize), 0..200),
        ) {
            let pool = Pool::new(size, MAX_DOWN);
            let mut holdings: Vec<Holding> = (0..20).map(|_| Holding::default()).collect();
            for (which, take, bytes) in steps {
                let holding = &mut holdings[which];
                if take {
                    let before = holding.held;
                    let granted = holding.take(&pool, bytes);
                    prop_assert!(granted <= bytes);
                    prop_assert!(granted > 0 || before > 0 || bytes == 0);
                } else {
                    let bytes = bytes.min(holding.held);
                    holding.give_back(&pool, bytes);
                }
                let held: usize = holdings.iter().map(|holding| holding.held).sum();
                prop_assert_eq!(pool.held(), held as u64);
                prop_assert!(pool.held() <= size + 20 * FLOOR as u64);
            }
            holdings.iter_mut().for_each(|holding| holding.end(&pool));
            prop_assert_eq!(pool.held(), 0);
            prop_assert_eq!(pool.free.load(Relaxed), size);
        }
    }
}
