//! How often it is told that bytes move.

use std::time::{Duration, Instant};

/// While bytes move that is told every [`EVERY`] for each carrier, and once after the last ones; where none move, nobody is woken.
#[derive(Debug)]
pub(super) struct Moving {
    /// Some have moved since it was last told.
    has_moved: bool,
    told: Instant,
}

/// Of two links, one that has lost its carrier is noticed twice as much later, at most; of sixteen, all of which are asked each
/// time, as many in a second are asked as of two.
const EVERY: Duration = Duration::from_millis(5);

impl Moving {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            has_moved: false,
            told: now,
        }
    }

    /// Whether to tell now; `moved` says whether bytes just did, over that many carriers.
    pub(super) fn note(&mut self, moved: bool, now: Instant, carriers: usize) -> bool {
        self.has_moved |= moved && carriers > 0;
        let tells = self.due(carriers).is_some_and(|due| now >= due);
        if tells {
            self.has_moved = false;
            self.told = now;
        }
        tells
    }

    /// When it is next to be told, unless nothing has moved since.
    pub(super) fn due(&self, carriers: usize) -> Option<Instant> {
        let carriers = u32::try_from(carriers).unwrap_or(u32::MAX).clamp(1, 1000);
        self.has_moved.then(|| self.told + EVERY * carriers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn it_is_told_while_bytes_move_and_once_after_the_last() {
        let start = Instant::now();
        let mut moving = Moving::new(start);
        let told: Vec<u32> = (0..100)
            .filter(|&ms| moving.note((20..=41).contains(&ms), start + MS * ms, 2))
            .collect();
        assert_eq!(told, [20, 30, 40, 50]);
        assert_eq!(moving.due(2), None, "nobody is woken at rest");
    }

    #[test]
    fn of_more_links_it_is_told_less_often() {
        let start = Instant::now();
        let mut moving = Moving::new(start);
        assert!(!moving.note(true, start, 16));
        assert_eq!(moving.due(16), Some(start + 80 * MS));
        assert!(!moving.note(true, start, 0));
    }
}
