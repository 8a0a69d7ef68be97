//! How streams share a session's memory, so that those that stand still leave room for those that move.
//!
//! What a stream holds cannot be taken back, and greedy streams that come one after the other would each take a part of
//! what the last one left, until nothing is left. So the memory has three parts, used from the top:
//!
//! - the upper half goes to who needs it: a stream may hold eight times what is left of it (dynamic thresholds:
//!   Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", IEEE/ACM ToN 6(2), 1998,
//!   eq. 1 with alpha = 8), so that one stream alone gets nearly all of it;
//! - the next quarter is for up to [`MODEST`] bytes of a stream, with alpha = 1/8;
//! - the last quarter is divided by the number of streams that are possible at all: this much is always possible.

/// What a stream holds is modest up to so many bytes.
const MODEST: u64 = 64 * 1024;

/// A memory that streams share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    /// All of it, in bytes.
    memory: u64,
    /// Streams that are possible at once.
    streams: u64,
}

impl Share {
    pub(crate) fn new(memory: u64, streams: u64) -> Self {
        Self { memory, streams }
    }

    /// Bytes that a stream which holds `own` may hold beyond them, when `left` bytes of the memory are free.
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

    /// Whether so much less is left `now` than `before` that what [`Share::more`] gives must be looked at again.
    ///
    /// Who was told early enough for `more(0, before) / 2` is still in time up to here: more than half of what was above
    /// the next lower part of the memory is left.
    pub(crate) fn has_sunk(&self, before: u64, now: u64) -> bool {
        let quarter = self.memory / 4;
        let part = [2 * quarter, quarter]
            .into_iter()
            .find(|part| before > *part);
        part.is_some_and(|part| now.saturating_sub(part) < (before - part).div_ceil(2))
    }

    /// What any stream may hold, whatever the others do.
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
        /// Whoever heard of a stream when half of its part was used can go on until it hears again: at the latest when
        /// what is left has sunk.
        #[test]
        fn what_has_not_sunk_leaves_room_for_who_was_told_in_time(
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
