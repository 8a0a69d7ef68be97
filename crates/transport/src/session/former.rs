//! The counters of sessions that have ended, so that those of the process never fall.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::api::status::PeerTotals;
use crate::api::status::SessionStatus;

/// Ended sessions that are still recognized. A status that was taken before a session ended, and is
/// added up afterwards, would otherwise count that session twice.
const MAX_RECENT: usize = 4096;

/// In place of a client's name, for the sum of removed ones.
const REMOVED: &str = "(removed)";

/// The counters of a process's ended sessions, by peer. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Former(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    peers: HashMap<String, PeerTotals>,
    /// The sum of all peers that were dropped.
    removed: PeerTotals,
    /// Peer and identifier of the newest ended sessions, oldest first.
    recent: VecDeque<(String, String)>,
}

impl Former {
    /// Adds a session that has ended.
    pub(crate) fn ended(&self, session: &SessionStatus) {
        let mut state = self.lock();
        let peer = key(session).to_owned();
        state.peers.entry(peer.clone()).or_default().add(session);
        if state.recent.len() >= MAX_RECENT {
            state.recent.pop_front();
        }
        state.recent.push_back((peer, session.session.clone()));
    }

    /// The totals of each peer, in the order of their keys, including these present sessions.
    pub(crate) fn with(&self, present: &[SessionStatus]) -> Vec<PeerTotals> {
        let state = self.lock();
        let mut peers = state.peers.clone();
        let recent = state.recent.iter();
        let recent: HashSet<(&str, &str)> = recent.map(|(peer, id)| (&**peer, &**id)).collect();
        for session in present.iter().filter(|session| !session.session.is_empty()) {
            let peer = key(session);
            let has_ended = recent.contains(&(peer, &*session.session));
            let totals = peers.entry(peer.to_owned()).or_default();
            if !has_ended {
                totals.add(session);
            }
        }
        let mut all: Vec<PeerTotals> = peers
            .into_iter()
            .map(|(peer, totals)| PeerTotals { peer, ..totals })
            .collect();
        all.sort_by(|a, b| a.peer.cmp(&b.peer));
        if state.removed.sessions > 0 {
            all.push(PeerTotals {
                client: REMOVED.to_owned(),
                ..state.removed.clone()
            });
        }
        all
    }

    /// Keeps only these peers, and the sum of all others.
    pub(crate) fn retain(&self, is_kept: impl Fn(&str) -> bool) {
        let mut state = self.lock();
        let State { peers, removed, .. } = &mut *state;
        peers.retain(|peer, totals| {
            let is_kept = is_kept(peer);
            if !is_kept {
                removed.merge(totals);
            }
            is_kept
        });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The peer's key; a server's status has the client's name behind it.
fn key(session: &SessionStatus) -> &str {
    session.peer.split(' ').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(peer: &str, id: &str, bytes: u64) -> SessionStatus {
        SessionStatus {
            peer: peer.to_owned(),
            session: id.to_owned(),
            bytes_sent: bytes,
            ..SessionStatus::default()
        }
    }

    #[test]
    fn a_session_counts_once_before_and_after_its_end() {
        let former = Former::default();
        let sum = |present: &[SessionStatus]| {
            let all = former.with(present);
            let sum = |count: fn(&PeerTotals) -> u64| all.iter().map(count).sum::<u64>();
            (all.len(), sum(|t| t.sessions), sum(|t| t.bytes_sent))
        };
        let present = [session("A (laptop)", "1", 10), session("B", "1", 5)];
        assert_eq!(sum(&present), (2, 2, 15));
        // It ends while the status is on its way, with two more bytes.
        former.ended(&session("A", "1", 12));
        assert_eq!(sum(&present), (2, 2, 17));
        assert_eq!(sum(&present[1..]), (2, 2, 17));
        assert_eq!(sum(&[]), (1, 1, 12));
        // Without a session there is nothing to count.
        assert_eq!(sum(&[session("", "", 0)]), (1, 1, 12));
        // The sum over all never falls.
        former.retain(|peer| peer != "A");
        assert_eq!(sum(&[]), (1, 1, 12));
        assert_eq!(former.with(&[])[0].client, REMOVED);
        former.ended(&session("B", "1", 5));
        former.retain(|_| false);
        assert_eq!(sum(&[]), (1, 2, 17));
    }
}
