//! The earliest of many deadlines.

use core::time::Duration;

/// Marks an absent deadline in the tree.
const NEVER: Duration = Duration::MAX;

/// A tournament tree over numbered deadlines: reading the earliest one is O(1), changing one is
/// O(log n). Of equal deadlines the lower number comes first, so that runs can be repeated.
#[derive(Clone, Debug)]
pub(crate) struct Agenda {
    /// A complete binary tree. Node `n` has the children `2n` and `2n + 1` and holds the earlier of
    /// the two. The second half holds the deadlines themselves.
    tree: Vec<(Duration, usize)>,
}

impl Agenda {
    pub(crate) fn new() -> Self {
        Self {
            tree: vec![(NEVER, 0); 2],
        }
    }

    /// The earliest deadline and its number.
    #[inline]
    pub(crate) fn first(&self) -> Option<(Duration, usize)> {
        Some(self.tree[1]).filter(|(at, _)| *at != NEVER)
    }

    /// Changes one deadline; `None` removes it.
    pub(crate) fn set(&mut self, number: usize, deadline: Option<Duration>) {
        while number >= self.tree.len() / 2 {
            self.grow();
        }
        let mut node = self.tree.len() / 2 + number;
        let deadline = deadline.unwrap_or(NEVER);
        // Common case: a packet that joins a queue does not change the due time of the first
        // packet.
        if self.tree[node].0 == deadline {
            return;
        }
        self.tree[node] = (deadline, number);
        while node > 1 {
            node /= 2;
            let earlier = self.tree[2 * node].min(self.tree[2 * node + 1]);
            if self.tree[node] == earlier {
                break;
            }
            self.tree[node] = earlier;
        }
    }

    /// Doubles the capacity.
    fn grow(&mut self) {
        let places = self.tree.len();
        let mut tree = vec![(NEVER, 0); 2 * places];
        let old = self.tree.split_off(places / 2);
        for (number, place) in tree[places..].iter_mut().enumerate() {
            *place = old.get(number).copied().unwrap_or((NEVER, number));
        }
        for node in (1..places).rev() {
            tree[node] = tree[2 * node].min(tree[2 * node + 1]);
        }
        self.tree = tree;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_is_the_earliest_of_all(
            changes in proptest::collection::vec(
                (0usize..70, proptest::option::of(0u64..100)),
                1..300,
            ),
        ) {
            let mut agenda = Agenda::new();
            let mut all = std::collections::BTreeMap::new();
            prop_assert_eq!(agenda.first(), None);
            for (number, at) in changes {
                let at = at.map(Duration::from_nanos);
                agenda.set(number, at);
                all.insert(number, at);
                let earliest = all.iter().filter_map(|(n, at)| at.map(|at| (at, *n))).min();
                prop_assert_eq!(agenda.first(), earliest);
            }
        }
    }
}
