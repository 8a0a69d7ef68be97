//! Frames about a path that has not joined on this side yet. The peer sends them over any path, and
//! the last flight of a handshake may be lost and arrive later than they do.

use std::collections::BTreeMap;

use crate::PathId;
use crate::frame::ReportedState;
use crate::policy::PeerPolicy;

/// Most paths that are remembered. Beyond that the oldest are dropped; most of them have ended.
const MAX_PATHS: usize = 64;

/// Stored frames about paths that have not joined yet.
#[derive(Debug, Default)]
pub(super) struct UnjoinedPaths {
    policies: BTreeMap<PathId, (u64, PeerPolicy)>,
    states: BTreeMap<PathId, (u64, ReportedState)>,
}

impl UnjoinedPaths {
    /// Keeps a policy if it is newer than the stored one.
    pub(super) fn keep_policy(&mut self, id: PathId, version: u64, policy: PeerPolicy) {
        let known = self.policies.get(&id);
        if known.is_none_or(|(known, _)| version > *known) {
            keep(&mut self.policies, id, (version, policy));
        }
    }

    /// Keeps the peer's state of a path if it is newer than the stored one.
    pub(super) fn keep_state(&mut self, id: PathId, version: u64, state: ReportedState) {
        let known = self.states.get(&id);
        if known.is_none_or(|(known, _)| version > *known) {
            keep(&mut self.states, id, (version, state));
        }
    }

    /// The path joins: returns the stored frames about it.
    #[expect(
        clippy::type_complexity,
        reason = "a policy and a state with their versions"
    )]
    pub(super) fn take(
        &mut self,
        id: PathId,
    ) -> (Option<(u64, PeerPolicy)>, Option<(u64, ReportedState)>) {
        (self.policies.remove(&id), self.states.remove(&id))
    }
}

fn keep<T>(map: &mut BTreeMap<PathId, T>, id: PathId, value: T) {
    map.insert(id, value);
    if map.len() > MAX_PATHS {
        // The oldest path has most likely ended.
        map.pop_first();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_state_counts_and_the_number_of_paths_is_bounded() {
        let mut unjoined = UnjoinedPaths::default();
        unjoined.keep_state(PathId(1), 2, ReportedState::Delivers);
        unjoined.keep_state(PathId(1), 1, ReportedState::Stalled);
        unjoined.keep_state(PathId(2), 1, ReportedState::Stalled);
        unjoined.keep_state(PathId(3), 3, ReportedState::Left);
        unjoined.keep_state(PathId(3), 2, ReportedState::Delivers);
        let mut state = |id| unjoined.take(PathId(id)).1;
        assert_eq!(state(1), Some((2, ReportedState::Delivers)));
        assert_eq!(state(2), Some((1, ReportedState::Stalled)));
        assert_eq!(state(2), None, "it is returned once");
        assert_eq!(state(3), Some((3, ReportedState::Left)));
        for id in 0..1000 {
            unjoined.keep_state(PathId(id), 1, ReportedState::Left);
            unjoined.keep_policy(PathId(id), 1, PeerPolicy::default());
        }
        assert_eq!(
            (unjoined.states.len(), unjoined.policies.len()),
            (MAX_PATHS, MAX_PATHS)
        );
    }

    #[test]
    fn an_older_policy_does_not_replace_a_newer_one() {
        let mut unjoined = UnjoinedPaths::default();
        for version in [2, 3, 1] {
            unjoined.keep_policy(PathId(0), version, PeerPolicy::default());
        }
        let (policy, _) = unjoined.take(PathId(0));
        assert_eq!(policy, Some((3, PeerPolicy::default())));
    }
}
