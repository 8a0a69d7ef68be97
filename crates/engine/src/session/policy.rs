//! Paths that carry data only at times, because of their policy or their latency.

use std::time::Duration;

use super::{Event, Session};
use crate::path::{Control, Path, PathState};
use crate::policy::{PathPolicy, PeerPolicy, Priority};
use crate::{Instant, PathId};

/// Secondary paths carry data when the primary paths would need longer than this for the waiting
/// bytes.
const SECONDARY_AFTER: Duration = Duration::from_millis(100);

/// They continue for this long after that condition last held, so that they do not come and go with
/// every write.
const SECONDARY_STAYS: Duration = Duration::from_secs(1);

/// A path that was too slow carries data again below this share of its permitted added latency.
const FAST_AGAIN: f64 = 0.75;

impl Session {
    /// Sets this side's policy for a path.
    pub fn set_policy(&mut self, id: PathId, policy: PathPolicy) {
        if let Some(path) = self.paths.get_mut(&id)
            && path.standing.policy != policy
        {
            path.standing.policy = policy;
            path.standing.too_slow = false;
            self.datagrams.path_policy(id, policy, self.latest);
            self.note_policies();
            self.schedulers.paths_changed();
        }
    }

    /// Sends the peer its policy for a path, which replaces the previous one. The path may be a
    /// datagram path.
    pub fn send_policy(&mut self, id: PathId, policy: PeerPolicy, now: Instant) {
        let sent_policy = match self.paths.get_mut(&id) {
            Some(path) => &mut path.standing.sent_policy,
            None => match self.datagrams.sent_policy(id) {
                Some(sent_policy) => sent_policy,
                None => return,
            },
        };
        let (version, sent) = sent_policy.unwrap_or_default();
        if sent != policy && !self.closed {
            *sent_policy = Some((version + 1, policy));
            self.control.push_back((now, Control::Policy { path: id }));
        }
    }

    /// The peer sends this side's policy for a path. The frame goes over any path and may arrive
    /// before the path joins.
    pub(super) fn on_policy(&mut self, id: PathId, version: u64, peer_policy: PeerPolicy) {
        let newer = |known: Option<u64>| known.is_none_or(|known| version > known);
        match self.paths.get_mut(&id) {
            Some(path) if newer(path.standing.policy_version) => {
                path.standing.policy_version = Some(version);
                self.set_policy(id, peer_policy.policy);
                let (path, rate) = (id, peer_policy.rate);
                self.events.push_back(Event::PathLimited { path, rate });
            }
            Some(_) => {}
            None => match self.datagrams.policy_version(id) {
                Some(known) if newer(*known) => {
                    *known = Some(version);
                    let (path, rate) = (id, peer_policy.rate);
                    self.datagrams
                        .path_policy(id, peer_policy.policy, self.latest);
                    self.events.push_back(Event::PathLimited { path, rate });
                }
                Some(_) => {}
                None => self.unjoined.keep_policy(id, version, peer_policy),
            },
        }
    }

    /// Updates which paths may carry data now. Called before anything is sent.
    pub(super) fn review_policies(&mut self, now: Instant) {
        if !self.has_policies {
            return;
        }
        let mut changed = self.review_secondaries(now);
        changed |= self.review_latency();
        if changed {
            self.schedulers.paths_changed();
        }
    }

    /// Records whether any path is not primary or has a limit.
    pub(super) fn note_policies(&mut self) {
        let plain = PathPolicy::default();
        self.has_policies = self
            .paths
            .values()
            .any(|path| path.standing.policy != plain);
    }

    /// Returns whether secondary paths have started or stopped helping.
    fn review_secondaries(&mut self, now: Instant) -> bool {
        let delivers = |path: &&Path| path.state == PathState::Active;
        let first = self.paths.values().filter(delivers);
        let first = first.filter(|path| path.rank() == Some(Priority::Primary));
        let rate: f64 = first.map(Path::rate).sum();
        let ready = self.ready.iter().filter_map(|id| self.streams.get(id));
        let waiting: u64 = ready.map(|stream| stream.send.unsent.total()).sum();
        if waiting as f64 > rate * SECONDARY_AFTER.as_secs_f64() {
            self.secondaries_until = Some(now + SECONDARY_STAYS);
        } else if self.secondaries_until.is_some_and(|until| until <= now) {
            self.secondaries_until = None;
        }
        let helps = self.secondaries_until.is_some();
        let mut changed = false;
        for path in self.paths.values_mut() {
            let helps = helps && path.standing.policy.priority == Priority::Secondary;
            changed |= std::mem::replace(&mut path.standing.helps, helps) != helps;
        }
        changed
    }

    /// Returns whether any path has crossed its limit of added latency, in either direction.
    fn review_latency(&mut self) -> bool {
        let mut changed = false;
        let delay = |path: &Path| (path.id, path.delay());
        let active = self.paths.values();
        let active = active.filter(|path| path.state == PathState::Active);
        let mut delays: Vec<_> = active
            .filter(|path| path.rank().is_some())
            .map(delay)
            .collect();
        delays.sort_by_key(|(_, delay)| *delay);
        for path in self.paths.values_mut() {
            let Some(most) = path.standing.policy.max_added_latency else {
                continue;
            };
            let others = delays.iter().filter(|(id, _)| *id != path.id);
            let fastest = others.map(|(_, delay)| *delay).next();
            let added = fastest.map_or(Duration::ZERO, |best| path.delay().saturating_sub(best));
            let bound = match path.standing.too_slow {
                true => most.mul_f64(FAST_AGAIN),
                false => most,
            };
            let too_slow = added > bound;
            changed |= std::mem::replace(&mut path.standing.too_slow, too_slow) != too_slow;
        }
        changed
    }
}
