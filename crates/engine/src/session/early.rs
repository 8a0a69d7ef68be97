//! Frames about a path that has not joined on this side yet. The peer sends them over any path, and
//! the last flight of a handshake may be lost and arrive later than they do.

use std::collections::BTreeMap;

use crate::PathId;
use crate::frame::PathWord;
use crate::policy::PeerPolicy;

/// Most paths that are remembered. Beyond that the oldest are dropped; most of them have ended.
const MOST: usize = 64;

/// Stored frames about paths that have not joined yet.
#[derive(Debug, Default)]
pub(super) struct Early {
    policies: BTreeMap<PathId, (u64, PeerPolicy)>,
    words: BTreeMap<PathId, (u64, PathWord)>,
}

impl Early {
    /// Keeps a policy if it is newer than the stored one.
    pub(super) fn keep_policy(&mut self, id: PathId, version: u64, said: PeerPolicy) {
        let known = self.policies.get(&id);
        if known.is_none_or(|(known, _)| version > *known) {
            keep(&mut self.policies, id, (version, said));
        }
    }

    /// Keeps the peer's state of a path if it is newer than the stored one.
    pub(super) fn keep_word(&mut self, id: PathId, version: u64, word: PathWord) {
        let known = self.words.get(&id);
        if known.is_none_or(|(known, _)| version > *known) {
            keep(&mut self.words, id, (version, word));
        }
    }

    /// The path joins: returns the stored frames about it.
    #[expect(clippy::type_complexity, reason = "two words with their versions")]
    pub(super) fn take(
        &mut self,
        id: PathId,
    ) -> (Option<(u64, PeerPolicy)>, Option<(u64, PathWord)>) {
        (self.policies.remove(&id), self.words.remove(&id))
    }
}

fn keep<T>(map: &mut BTreeMap<PathId, T>, id: PathId, said: T) {
    map.insert(id, said);
    if map.len() > MOST {
        // The oldest path has most likely ended.
        map.pop_first();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_counts_and_no_more_than_so_many_are_kept() {
        let mut early = Early::default();
        early.keep_word(PathId(1), 2, PathWord::Delivers);
        early.keep_word(PathId(1), 1, PathWord::Stalled);
        early.keep_word(PathId(2), 1, PathWord::Stalled);
        early.keep_word(PathId(3), 3, PathWord::Left);
        early.keep_word(PathId(3), 2, PathWord::Delivers);
        let mut word = |id| early.take(PathId(id)).1;
        assert_eq!(word(1), Some((2, PathWord::Delivers)));
        assert_eq!(word(2), Some((1, PathWord::Stalled)));
        assert_eq!(word(2), None, "it is said once");
        assert_eq!(word(3), Some((3, PathWord::Left)));
        for id in 0..1000 {
            early.keep_word(PathId(id), 1, PathWord::Left);
            early.keep_policy(PathId(id), 1, PeerPolicy::default());
        }
        assert_eq!((early.words.len(), early.policies.len()), (MOST, MOST));
    }

    #[test]
    fn an_older_policy_does_not_replace_a_newer_one() {
        let mut early = Early::default();
        for version in [2, 3, 1] {
            early.keep_policy(PathId(0), version, PeerPolicy::default());
        }
        let (policy, _) = early.take(PathId(0));
        assert_eq!(policy, Some((3, PeerPolicy::default())));
    }
}
