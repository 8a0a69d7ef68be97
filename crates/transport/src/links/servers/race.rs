//! The choice among servers by their answers.

use std::collections::BTreeSet;

use super::known::Rank;

/// The answers of servers so far.
#[derive(Debug)]
pub(super) struct Race {
    /// The servers that have not answered, by preference.
    waiting: BTreeSet<(Rank, usize)>,
    /// The best that has answered.
    best: Option<(Rank, usize)>,
}

impl Race {
    pub(super) fn new(servers: impl IntoIterator<Item = (Rank, usize)>) -> Self {
        Self {
            waiting: servers.into_iter().collect(),
            best: None,
        }
    }

    pub(super) fn best(&self) -> Option<usize> {
        self.best.map(|(_, place)| place)
    }

    /// Records an answer, or that there will be none; returns whether the race is over.
    pub(super) fn note(&mut self, place: usize, answers: bool) -> bool {
        let server = self.waiting.iter().find(|(_, waiting)| *waiting == place);
        let Some((rank, _)) = server.copied() else {
            return self.is_over();
        };
        self.waiting.remove(&(rank, place));
        if answers && self.best.is_none_or(|(best, _)| rank < best) {
            self.best = Some((rank, place));
        }
        self.is_over()
    }

    fn is_over(&self) -> bool {
        let first = self.waiting.first();
        match self.best {
            None => first.is_none(),
            Some((best, _)) => first.is_none_or(|(rank, _)| *rank >= best),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A rank for a list without priorities.
    fn listed(place: usize) -> (Rank, usize) {
        ((place, 0, 0), place)
    }

    #[test]
    fn the_fastest_of_equal_servers_ends_the_race() {
        let mut race = Race::new([0, 1, 2].map(|place| ((0, 0, 0), place)));
        assert!(!race.note(2, false));
        assert!(race.note(1, true));
        assert_eq!(race.best(), Some(1));
    }

    #[test]
    fn a_later_server_of_the_list_waits_for_the_earlier_ones() {
        let mut race = Race::new([0, 1, 2].map(listed));
        assert!(!race.note(2, true));
        assert!(!race.note(0, false));
        assert_eq!(race.best(), Some(2), "after the grace");
        assert!(race.note(1, true));
        assert_eq!(race.best(), Some(1));
    }

    proptest! {
        /// Whatever the order of the answers: the first answer among the most preferred servers
        /// that answer.
        #[test]
        fn every_race_has_the_right_winner(
            answers in prop::collection::btree_map(0..8_usize, (any::<bool>(), 0..3_usize), 1..8),
            seed in any::<u64>(),
        ) {
            let rank = |place: usize| (0, answers[&place].1, 0);
            let mut order: Vec<usize> = answers.keys().copied().collect();
            let mut race = Race::new(order.iter().map(|place| (rank(*place), *place)));
            order.sort_by_key(|place| (*place as u64).wrapping_mul(seed | 1).rotate_left(17));
            let mut ended = false;
            for place in &order {
                prop_assert!(!ended);
                ended = race.note(*place, answers[place].0);
                if ended {
                    break;
                }
            }
            prop_assert!(ended, "all have answered or failed");
            let answering = order.iter().copied().filter(|place| answers[place].0);
            prop_assert_eq!(race.best(), answering.min_by_key(|place| rank(*place)));
        }
    }

    #[test]
    fn a_race_without_answers_ends_with_the_last_failure() {
        let mut race = Race::new([0, 2].map(listed));
        assert!(!race.note(0, false));
        assert!(race.note(2, false));
        assert_eq!(race.best(), None);
    }
}
