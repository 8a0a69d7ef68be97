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

    /// What any stream may hold, whatever the others do.
    pub(crate) fn floor(&self) -> u64 {
        (self.memory / 4 / self.streams.max(1)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: u64 = 44 << 20;

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
