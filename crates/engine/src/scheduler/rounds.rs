//! Rounds: in each one every path may send its quota, and then waits until the round ends.
//!
//! A scheduler keeps a [`Rounds`] and sets the quotas. `roundrobin.rs`, `wrr.rs` and `musher.rs` do
//! so, and name their sources.

use std::collections::BTreeMap;

use super::subflow::is_available;
use super::{Pick, View, lowest_unsent};
use crate::PathId;
use crate::path::Path;

/// The bytes that each path has sent in the current round.
#[derive(Debug, Default)]
pub struct Rounds {
    taken: BTreeMap<PathId, u64>,
}

/// Treatment of a path that has not used its quota and cannot accept data now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// It misses the rest of its turn.
    Skip,
    /// The others wait for it.
    Wait,
}

impl Rounds {
    /// Bytes that `asking` may send now, 0 while others have not had their turn. The round ends
    /// with the last turn.
    pub fn turn(
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

    /// The pick for `asking` with quotas in bytes: the lowest unsent bytes within its turn.
    pub fn pick(
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
    pub fn take(&mut self, path: PathId, len: u64) {
        *self.taken.entry(path).or_default() += len;
    }

    /// Begins a new round.
    pub fn reset(&mut self) {
        self.taken.clear();
    }
}
