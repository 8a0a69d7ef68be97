//! How often it is told that bytes move.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// While bytes move that is told every [`EVERY`] for each link, and once after the last ones; where none move, nobody is woken.
#[derive(Debug)]
pub(super) struct Moving {
    /// Links with a carrier.
    links: u32,
    /// Some bytes have moved since it was last told.
    has_moved: bool,
    told: Instant,
}

/// Of two links, one that has lost its carrier is noticed twice as much later, at most; of sixteen, all of which are asked each
/// time, as many in a second are asked as of two.
const EVERY: Duration = Duration::from_millis(5);

impl Moving {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            links: 0,
            has_moved: false,
            told: now,
        }
    }

    /// The links' names, one for each carrier.
    pub(super) fn set_links<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        let names: BTreeSet<&str> = names.collect();
        self.links = u32::try_from(names.len()).unwrap_or(u32::MAX);
    }

    /// Whether to tell now; `moved` says whether bytes just did.
    pub(super) fn note(&mut self, moved: bool, now: Instant) -> bool {
        self.has_moved |= moved && self.links > 0;
        let tells = self.due().is_some_and(|due| now >= due);
        if tells {
            self.has_moved = false;
            self.told = now;
        }
        tells
    }

    /// When it is next to be told, unless nothing has moved since.
    pub(super) fn due(&self) -> Option<Instant> {
        let pause = EVERY.saturating_mul(self.links);
        self.has_moved.then(|| self.told + pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn moving(start: Instant, names: &[&str]) -> Moving {
        let mut moving = Moving::new(start);
        moving.set_links(names.iter().copied());
        moving
    }

    #[test]
    fn it_is_told_while_bytes_move_and_once_after_the_last() {
        let start = Instant::now();
        let mut moving = moving(start, &["a", "b"]);
        let told: Vec<u32> = (0..100)
            .filter(|&ms| moving.note((20..=41).contains(&ms), start + MS * ms))
            .collect();
        assert_eq!(told, [20, 30, 40, 50]);
        assert_eq!(moving.due(), None, "no wake-up is due while nothing moves");
    }

    #[test]
    fn of_more_links_it_is_told_less_often_whatever_connections_they_have() {
        let start = Instant::now();
        for (names, ms) in [
            (&["a"][..], 5),
            (&["a", "a", "a", "b"], 10),
            (&["c"; 16], 5),
        ] {
            let mut moving = moving(start, names);
            assert!(!moving.note(true, start));
            assert_eq!(moving.due(), Some(start + MS * ms), "{names:?}");
        }
        let mut none = moving(start, &[]);
        assert!(!none.note(true, start + MS));
        assert_eq!(none.due(), None);
    }
}
