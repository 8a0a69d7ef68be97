//! The health of paths: when a link is dialed again because its path is silent.

use std::time::Duration;

use sumlink_engine::{PathId, PathState, PathStats};

use crate::Instant;

/// A path on which nothing is acknowledged for this long is worth a new connection on its link.
const SILENCE: Duration = Duration::from_secs(3);

/// The same for a path that has been stalled for this long, here or by the peer's report: within less
/// time TCP often gets through.
const USELESS: Duration = Duration::from_millis(200);

/// Time between two looks at stalled paths.
const USELESS_CHECK: Duration = Duration::from_millis(100);

/// A path on which nothing has been acknowledged for so long delivers nothing.
pub const STUCK: Duration = Duration::from_millis(500);

/// Finds the paths that are silent.
#[derive(Clone, Debug)]
pub struct Health {
    /// When the paths are next looked at.
    due: Instant,
}

impl Health {
    /// Of a session that begins now.
    pub fn new(now: Instant) -> Self {
        Self { due: now + SILENCE }
    }

    /// When [`Health::look`] is next worth a call.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// A path is of no use: [`Health::look`] finds out soon whether that lasts.
    pub fn look_soon(&mut self, now: Instant) {
        self.due = self.due.min(now + USELESS);
    }

    /// The paths that are silent. `paths` is called when a look is due; a side that dials no links
    /// gives it nothing.
    pub fn look(&mut self, now: Instant, paths: impl FnOnce() -> Vec<PathStats>) -> Vec<PathId> {
        if now < self.due {
            return Vec::new();
        }
        self.due = now + SILENCE;
        let mut silent = Vec::new();
        for path in paths() {
            if path.stuck_for.is_some() {
                self.due = self.due.min(now + SILENCE / 6);
            }
            if path.useless_for.is_some() {
                self.due = self.due.min(now + USELESS_CHECK);
            }
            if is_silent(&path) {
                silent.push(path.id);
            }
        }
        silent
    }
}

fn is_silent(path: &PathStats) -> bool {
    let is_stuck = path.stuck_for.is_some_and(|time| time >= SILENCE);
    let is_long = |time| time >= USELESS;
    // Where TCP still gets a little through, a new connection would get no more.
    let is_still = path.still_for.is_none_or(is_long);
    is_stuck || is_still && path.useless_for.is_some_and(is_long)
}

/// Whether a path is of no use, here or by the peer's report.
pub fn is_useless(paths: &[PathStats], id: PathId) -> bool {
    paths
        .iter()
        .any(|path| path.id == id && path.useless_for.is_some())
}

/// Whether any path delivers, so that a stream may be opened without waiting for the peer.
pub fn is_delivering(paths: &[PathStats]) -> bool {
    paths.iter().any(|path| {
        path.state == PathState::Active
            && path.useless_for.is_none()
            && path.stuck_for.is_none_or(|time| time < STUCK)
    })
}

/// A way in which a path is ill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ill {
    /// The peer does not acknowledge what this side sends on it.
    Stalled,
    /// The peer reports the same of its own data.
    Doubted,
}

/// The ills of a path that the log shows. Each line of illness is followed by one of recovery, or by
/// that of the path's end, and neither is repeated: a line is written where [`Ills::set`] reports a
/// change.
#[derive(Clone, Debug, Default)]
pub struct Ills([bool; 2]);

impl Ills {
    /// Notes whether the path suffers from `ill`; whether that is a change.
    #[must_use]
    pub fn set(&mut self, ill: Ill, is_ill: bool) -> bool {
        std::mem::replace(&mut self.0[ill as usize], is_ill) != is_ill
    }
}
