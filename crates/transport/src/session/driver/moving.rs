//! Rate-limits the notification that bytes are moving.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Notifies every [`EVERY`] per link while bytes move, and once after the last ones. No wake-up is
/// due while nothing moves.
#[derive(Debug)]
pub(super) struct Moving {
    /// Number of links with a carrier.
    links: u32,
    /// Bytes have moved since the last notification.
    has_moved: bool,
    notified: Instant,
}

/// With two links, the loss of an interface's carrier is noticed at most twice as late as with one.
/// Each notification checks all links, so that sixteen links cost as many checks per second as two.
const EVERY: Duration = Duration::from_millis(5);

impl Moving {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            links: 0,
            has_moved: false,
            notified: now,
        }
    }

    /// Sets the links by name, one name for each carrier.
    pub(super) fn set_links<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        let names: BTreeSet<&str> = names.collect();
        self.links = u32::try_from(names.len()).unwrap_or(u32::MAX);
    }

    /// Whether to notify now; `moved` says whether bytes have just moved.
    pub(super) fn note(&mut self, moved: bool, now: Instant) -> bool {
        self.has_moved |= moved && self.links > 0;
        let tells = self.due().is_some_and(|due| now >= due);
        if tells {
            self.has_moved = false;
            self.notified = now;
        }
        tells
    }

    /// When the next notification is due; `None` if nothing has moved since the last one.
    pub(super) fn due(&self) -> Option<Instant> {
        let pause = EVERY.saturating_mul(self.links);
        self.has_moved.then(|| self.notified + pause)
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
    fn notifies_while_bytes_move_and_once_after_the_last() {
        let start = Instant::now();
        let mut moving = moving(start, &["a", "b"]);
        let notified: Vec<u32> = (0..100)
            .filter(|&ms| moving.note((20..=41).contains(&ms), start + MS * ms))
            .collect();
        assert_eq!(notified, [20, 30, 40, 50]);
        assert_eq!(moving.due(), None, "no wake-up is due while nothing moves");
    }

    #[test]
    fn more_links_are_notified_less_often_whatever_their_connections() {
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
