//! Remembers recent results of connecting targets, which most likely repeat.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{Early, Instant};

/// How long a result predicts the next one for the same target.
const KNOWN_FOR: Duration = Duration::from_secs(60);

/// Maximum number of remembered targets.
const MAX: usize = 1024;

/// Results by target, encoded as in an OPEN frame.
#[derive(Debug, Default)]
pub struct Known {
    last: BTreeMap<Box<[u8]>, Outcome>,
    /// When the peer last reported that it lacks the resources for any connection.
    lacking: Option<Instant>,
}

/// The result of the last stream to a target.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    is_connected: bool,
    at: Instant,
}

impl Known {
    /// Records that a stream to `target` has been connected.
    pub fn connected(&mut self, target: &[u8], now: Instant) {
        self.note(target, true, now);
    }

    /// Records that a stream to `target` has failed before it was connected, or as if it never had
    /// been.
    ///
    /// A peer that lacks resources for a connection (`peer_lacks`), such as descriptors, can
    /// connect to no target, so this failure counts for all of them.
    pub fn failed(&mut self, target: &[u8], peer_lacks: bool, now: Instant) {
        if peer_lacks {
            self.lacking = Some(now);
        }
        self.note(target, false, now);
    }

    fn note(&mut self, target: &[u8], is_connected: bool, now: Instant) {
        if self.last.len() >= MAX {
            self.last.retain(|_, outcome| outcome.is_recent(now));
        }
        let at = now;
        let outcome = Outcome { is_connected, at };
        if self.last.len() >= MAX && !self.last.contains_key(target) {
            let oldest = self.last.iter().min_by_key(|(_, outcome)| outcome.at);
            if let Some(oldest) = oldest.map(|(target, _)| target.clone()) {
                self.last.remove(&oldest);
            }
        }
        self.last.insert(target.into(), outcome);
    }

    /// Whether a stream to `target` is treated as connected before the peer has confirmed it.
    pub fn is_early(&self, target: &[u8], early: Early, now: Instant) -> bool {
        let is_recent = |at: Instant| now.saturating_sub(at) < KNOWN_FOR;
        if self.lacking.is_some_and(is_recent) {
            return false;
        }
        let last = self.last.get(target);
        let last = last.filter(|outcome| outcome.is_recent(now));
        match early {
            Early::Never => false,
            Early::Known => last.is_some_and(|outcome| outcome.is_connected),
            Early::Always => last.is_none_or(|outcome| outcome.is_connected),
        }
    }
}

impl Outcome {
    fn is_recent(&self, now: Instant) -> bool {
        now.saturating_sub(self.at) < KNOWN_FOR
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::START;

    /// The results under never, known, always.
    fn early(known: &Known, target: &[u8], now: Instant) -> [bool; 3] {
        [Early::Never, Early::Known, Early::Always].map(|early| known.is_early(target, early, now))
    }

    #[test]
    fn results_are_remembered_for_a_minute() {
        let (mut known, now) = (Known::default(), START);
        assert_eq!(early(&known, b"a", now), [false, false, true]);
        known.connected(b"a", now);
        assert_eq!(
            early(&known, b"a", now + KNOWN_FOR / 2),
            [false, true, true]
        );
        assert_eq!(early(&known, b"b", now), [false, false, true]);
        assert_eq!(early(&known, b"a", now + KNOWN_FOR), [false, false, true]);
        known.failed(b"a", false, now);
        assert_eq!(early(&known, b"a", now), [false; 3]);
        assert_eq!(early(&known, b"a", now + KNOWN_FOR), [false, false, true]);
    }

    #[test]
    fn a_peer_that_lacks_descriptors_is_waited_for_whatever_the_target() {
        let (mut known, now) = (Known::default(), START);
        known.connected(b"a", now);
        known.connected(b"b", now);
        known.failed(b"a", true, now);
        assert_eq!(early(&known, b"b", now), [false; 3]);
        assert_eq!(early(&known, b"c", now), [false; 3]);
        // One success proves little: the peer may lack resources again.
        known.connected(b"a", now + KNOWN_FOR / 2);
        assert_eq!(early(&known, b"a", now + KNOWN_FOR / 2), [false; 3]);
        assert_eq!(early(&known, b"a", now + KNOWN_FOR), [false, true, true]);
    }

    #[test]
    fn the_number_of_remembered_targets_is_bounded() {
        let (mut known, now) = (Known::default(), START);
        let target = |n: usize| n.to_be_bytes();
        let at = |n| now + Duration::from_millis(n as u64);
        for n in 0..2 * MAX {
            known.connected(&target(n), at(n));
        }
        assert_eq!(known.last.len(), MAX);
        let now = at(2 * MAX);
        let is_known = |known: &Known, n| known.is_early(&target(n), Early::Known, now);
        assert!(
            is_known(&known, MAX) && !is_known(&known, MAX - 1),
            "the oldest go"
        );
        known.failed(&target(0), false, now);
        assert!(!known.is_early(&target(0), Early::Always, now));
        assert!(is_known(&known, MAX + 1) && !is_known(&known, MAX));
        let later = now + KNOWN_FOR;
        known.connected(&target(5000), later);
        assert_eq!(known.last.len(), 1);
    }
}
