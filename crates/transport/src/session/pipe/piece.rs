//! The size of the pieces handed to a program: the amount that it reads in a few milliseconds.
//!
//! For the peer's credit a byte counts as read once it is handed to the program's end of the pipe,
//! which may be a relay whose program has stopped. A slow program therefore gets small pieces. A
//! fast one gets large ones, because each piece costs an exchange.

use std::time::{Duration, Instant};

use super::memory::CHUNK;

/// Smallest piece and size of a stream's first piece, in bytes.
const MIN: usize = 32 * 1024;

/// A program that wants the next piece within this time is fast.
const SOON: Duration = Duration::from_millis(4);

/// Fast reads in a row before the pieces grow: a socket accepts the first ones quickly even if its
/// program does not read.
const IN_A_ROW: u32 = 4;

/// A program that takes longer than this gets smaller pieces.
const LATE: Duration = Duration::from_millis(16);

/// The size of the pieces of one stream.
#[derive(Debug)]
pub(super) struct Piece {
    size: usize,
    /// Consecutive pieces of the current size after which the program was fast.
    soon: u32,
    /// When the program was last given a piece of the current size, unless it has asked for the
    /// next one since.
    given_at: Option<Instant>,
}

impl Default for Piece {
    fn default() -> Self {
        Self {
            size: MIN,
            soon: 0,
            given_at: None,
        }
    }
}

impl Piece {
    /// The size of the next piece, in bytes, for a program that has taken the last one.
    pub(super) fn size(&mut self, now: Instant) -> usize {
        if let Some(at) = self.given_at.take() {
            let time = now.saturating_duration_since(at);
            self.soon = if time <= SOON { self.soon + 1 } else { 0 };
            if self.soon == IN_A_ROW {
                (self.size, self.soon) = ((2 * self.size).min(CHUNK), 0);
            } else if time >= LATE {
                self.size = (self.size / 2).max(MIN);
            }
        }
        self.size
    }

    /// Records that `bytes` were given. Less than a full piece measures how fast data arrives, not
    /// how fast the program reads.
    pub(super) fn given(&mut self, bytes: usize, now: Instant) {
        self.given_at = (bytes >= self.size / 2).then_some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_piece_size_follows_the_programs_speed() {
        let mut now = Instant::now();
        let mut piece = Piece::default();
        let mut take = |after: u64, part: usize| {
            now += Duration::from_millis(after);
            let size = piece.size(now);
            piece.given(size / part, now);
            size
        };
        assert_eq!(take(0, 1), MIN);
        for step in 1..=12 {
            assert_eq!(take(4, 1), MIN << (step / 4));
        }
        take(4, 4);
        assert_eq!(take(100, 1), CHUNK, "only little data had arrived");
        assert_eq!(take(10, 1), CHUNK);
        for _ in 0..10 {
            take(100, 1);
        }
        assert_eq!(take(100, 1), MIN);
        assert_eq!(take(1, 1), MIN, "not enough fast reads yet");
    }
}
