//! The time for which the selector has rested each link.

use std::collections::BTreeMap;

use sumlink_engine::PathId;

use crate::clock::Nanos;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Rests {
    /// Resting paths, with their links and the start of the rest.
    resting: BTreeMap<PathId, (usize, Nanos)>,
    /// Total of the completed rests, by link.
    over: BTreeMap<usize, Nanos>,
}

impl Rests {
    /// The selector decided about a path.
    pub(super) fn note(&mut self, path: PathId, link: usize, rests: bool, now: Nanos) {
        match rests {
            true => {
                self.resting.entry(path).or_insert((link, now));
            }
            false => self.end(path, now),
        }
    }

    /// The path stops resting, or ends.
    pub(super) fn end(&mut self, path: PathId, now: Nanos) {
        if let Some((link, since)) = self.resting.remove(&path) {
            *self.over.entry(link).or_default() += now - since;
        }
    }

    /// Total rest of a link, summed over its carriers.
    pub(super) fn of(&self, link: usize, now: Nanos) -> Nanos {
        let resting = self.resting.values().filter(|(of, _)| *of == link);
        let resting: Nanos = resting.map(|(_, since)| now - since).sum();
        resting + self.over.get(&link).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_add_up_and_end_with_the_path() {
        let mut rests = Rests::default();
        let (one, two) = (PathId(1), PathId(2));
        rests.note(one, 0, true, 10);
        rests.note(one, 0, true, 15);
        rests.note(one, 0, false, 20);
        rests.note(one, 0, true, 30);
        rests.note(two, 1, true, 30);
        rests.end(two, 35);
        assert_eq!(
            (rests.of(0, 50), rests.of(1, 50), rests.of(2, 50)),
            (30, 5, 0)
        );
    }
}
