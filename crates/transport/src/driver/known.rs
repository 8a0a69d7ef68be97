//! Targets that have been connected a moment ago, and will most likely be again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A connection says so much about the next one to the same target.
const KNOWN_FOR: Duration = Duration::from_secs(60);

/// Targets that are remembered at most.
const MOST: usize = 1024;

/// What is remembered of targets, as OPEN frames say them.
#[derive(Debug, Default)]
pub(super) struct Known {
    connected: HashMap<Box<[u8]>, Instant>,
}

impl Known {
    /// A stream to `target` has been connected.
    pub(super) fn connected(&mut self, target: &[u8], now: Instant) {
        if self.connected.len() >= MOST {
            self.connected.retain(|_, at| is_recent(*at, now));
        }
        if self.connected.len() < MOST || self.connected.contains_key(target) {
            self.connected.insert(target.into(), now);
        }
    }

    /// A stream to `target` has failed before it was connected, or as if it never had been.
    pub(super) fn failed(&mut self, target: &[u8]) {
        self.connected.remove(target);
    }

    /// Whether one to `target` may be taken for connected before the peer says so.
    pub(super) fn is_known(&self, target: &[u8], now: Instant) -> bool {
        let at = self.connected.get(target);
        at.is_some_and(|at| is_recent(*at, now))
    }
}

fn is_recent(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) < KNOWN_FOR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_known_for_a_minute_and_until_it_fails() {
        let (mut known, now) = (Known::default(), Instant::now());
        assert!(!known.is_known(b"a", now));
        known.connected(b"a", now);
        assert!(known.is_known(b"a", now + KNOWN_FOR / 2));
        assert!(!known.is_known(b"b", now));
        assert!(!known.is_known(b"a", now + KNOWN_FOR));
        known.failed(b"a");
        assert!(!known.is_known(b"a", now));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut known, now) = (Known::default(), Instant::now());
        let target = |n: usize| n.to_be_bytes();
        for n in 0..2 * MOST {
            known.connected(&target(n), now);
        }
        assert_eq!(known.connected.len(), MOST);
        assert!(known.is_known(&target(0), now));
        let later = now + KNOWN_FOR;
        known.connected(&target(5000), later);
        assert_eq!(known.connected.len(), 1);
    }
}
