//! How streams share a session's memory, so that streams with a stopped reader leave memory for
//! those that move.
//!
//! Memory that a stream holds cannot be taken back. Greedy streams that come one after the other
//! would each take a part of the rest until nothing is left. So the memory has three parts, used
//! from the top:
//!
//! - the upper half goes to the streams that need it: a stream may hold eight times the remaining
//!   bytes (dynamic thresholds: Choudhury and Hahne, "Dynamic queue length thresholds for
//!   shared-memory packet switches", IEEE/ACM ToN 6(2), 1998, eq. 1 with alpha = 8), so that a
//!   single stream gets nearly all of it;
//! - the next quarter serves up to [`MODEST`] bytes per stream, with alpha = 1/8;
//! - the last quarter is divided by the highest possible number of streams: each may always hold
//!   that share.

/// A stream is modest while it holds at most this many bytes.
const MODEST: u64 = 64 * 1024;

/// Memory that streams share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    /// Total size in bytes.
    memory: u64,
    /// Highest number of streams that can exist at once.
    streams: u64,
}

impl Share {
    pub(crate) fn new(memory: u64, streams: u64) -> Self {
        Self { memory, streams }
    }

    /// Additional bytes that a stream holding `own` bytes may hold, when `left` bytes of the memory
    /// are free.
    pub(crate) fn more(&self, own: u64, left: u64) -> u64 {
        let quarter = self.memory / 4;
        let floor = self.floor().saturating_sub(own);
        // own + x <= (left - quarter - x) / 8
        let modest = left
            .saturating_sub(quarter)
            .saturating_sub(own.saturating_mul(8))
            / 9;
        let modest = modest.min(MODEST.saturating_sub(own));
        // own + x <= 8 (left - 2 quarters - x)
        let upper = left.saturating_sub(2 * quarter).saturating_mul(8);
        let upper = upper.saturating_sub(own) / 9;
        floor.max(modest).max(upper).min(left)
    }

    /// Whether the free memory has sunk so far, from `before` to `now`, that the result of
    /// [`Share::more`] must be recomputed.
    ///
    /// A stream that was granted `more(0, before) / 2` in time is still in time until then: more
    /// than half of the free memory above the next lower part is left.
    pub(crate) fn has_sunk(&self, before: u64, now: u64) -> bool {
        let quarter = self.memory / 4;
        let part = [2 * quarter, quarter]
            .into_iter()
            .find(|part| before > *part);
        part.is_some_and(|part| now.saturating_sub(part) < (before - part).div_ceil(2))
    }

    /// Bytes that any stream may hold, regardless of the others.
    pub(crate) fn floor(&self) -> u64 {
        (self.memory / 4 / self.streams.max(1)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MEMORY: u64 = 44 << 20;

    proptest! {
        /// A stream that is granted credit when half of its part is used can go on until its next
        /// grant, which comes at the latest when the free memory has sunk.
        #[test]
        fn memory_that_has_not_sunk_covers_earlier_grants(
            memory in 1u64 << 16..1 << 28,
            streams in 1u64..4096,
            before in 0.0..1.0f64,
            now in 0.0..1.0f64,
            since in 0.0..1.0f64,
        ) {
            let share = Share::new(memory, streams);
            let part = |of: u64, share: f64| (of as f64 * share) as u64;
            let before = part(memory, before).max(1);
            let now = part(before, now).max(1);
            prop_assume!(!share.has_sunk(before, now));
            let since = part(share.more(0, before) / 2, since);
            prop_assert!(share.more(since, now) > 0, "{before} {now} {since}");
        }
    }

    fn greedy(share: Share, left: &mut u64) -> u64 {
        let mut own = 0;
        loop {
            let more = share.more(own, *left);
            if more == 0 {
                return own;
            }
            own += more;
            *left -= more;
        }
    }

    #[test]
    fn one_stream_alone_gets_nearly_half_of_it() {
        let mut left = MEMORY;
        let own = greedy(Share::new(MEMORY, 2048), &mut left);
        assert!(own * 100 / MEMORY >= 44, "{own}");
    }

    #[test]
    fn greedy_streams_one_after_the_other_leave_every_one_its_floor() {
        for streams in [1, 2, 100, 2048, 131_072] {
            let share = Share::new(MEMORY, streams);
            let mut left = MEMORY;
            for stream in 0..streams {
                let own = greedy(share, &mut left);
                assert!(
                    own >= share.floor(),
                    "stream {stream} of {streams} got {own}"
                );
            }
        }
    }

    #[test]
    fn a_hundred_greedy_streams_leave_a_modest_piece_to_the_next() {
        let share = Share::new(MEMORY, 2048);
        let mut left = MEMORY;
        (0..100).for_each(|_| {
            greedy(share, &mut left);
        });
        assert_eq!(greedy(share, &mut left), MODEST);
    }
}
