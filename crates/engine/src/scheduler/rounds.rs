//! Taking turns: in each round every path may send its quota, and waits when it has until the round is over. The quotas are of
//! `roundrobin.rs`, `wrr.rs` and `musher.rs`, which have their sources.

use std::collections::BTreeMap;

use super::subflow::is_available;
use super::{Pick, View, lowest_unsent};
use crate::PathId;
use crate::path::Path;

/// Who has had how much of the present round.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    taken: BTreeMap<PathId, u64>,
}

/// What a round does with a path that has not used its quota and cannot take anything now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// It misses the rest of its turn.
    Skip,
    /// The others wait for it.
    Wait,
}

impl Rounds {
    /// Bytes that `asking` may send now, 0 while others have not had their turn. The round ends with the last turn.
    pub(super) fn turn(
        &mut self,
        asking: &Path,
        view: &View<'_>,
        full: Full,
        quota: impl Fn(&Path) -> u64,
    ) -> u64 {
        let left = |taken: &BTreeMap<PathId, u64>, path: &Path| {
            let taken = taken.get(&path.id()).copied().unwrap_or_default();
            quota(path).saturating_sub(taken)
        };
        let own = left(&self.taken, asking);
        if own > 0 {
            return own;
        }
        let others_turn = view
            .active_paths()
            .filter(|path| path.id() != asking.id())
            .any(|path| left(&self.taken, path) > 0 && (full == Full::Wait || is_available(path)));
        if others_turn {
            return 0;
        }
        self.taken.clear();
        quota(asking)
    }

    /// What `asking` sends if quotas are in bytes: the lowest unsent ones, as far as its turn goes.
    pub(super) fn pick(
        &mut self,
        asking: &Path,
        budget: u64,
        view: &View<'_>,
        full: Full,
        quota: impl Fn(&Path) -> u64,
    ) -> Pick {
        let turn = self.turn(asking, view, full, quota);
        if turn == 0 {
            return Pick::Idle;
        }
        let pick = lowest_unsent(view, budget.min(turn));
        if let Pick::Send { range, .. } = &pick {
            self.take(asking.id(), range.end - range.start);
        }
        pick
    }

    /// `path` sends `len` bytes.
    pub(super) fn take(&mut self, path: PathId, len: u64) {
        *self.taken.entry(path).or_default() += len;
    }

    /// A new round begins.
    pub(super) fn reset(&mut self) {
        self.taken.clear();
    }
}
