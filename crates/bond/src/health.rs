//! The health of paths: when a link is dialed again because its path does not deliver.

use std::time::Duration;

use sumlink_engine::{PathId, PathState, PathStats};

use crate::Instant;

/// Time without an acknowledgment after which a path's link is dialed again.
const UNACKNOWLEDGED: Duration = Duration::from_secs(3);

/// The same for a path that has been stalled for this long, at this side or by the peer's report.
/// Within a shorter time TCP often recovers.
const STALL_PATIENCE: Duration = Duration::from_millis(200);

/// Time between two checks of stalled paths.
const STALL_CHECK: Duration = Duration::from_millis(100);

/// Time without an acknowledgment after which a path counts as not delivering.
pub const NOT_DELIVERING: Duration = Duration::from_millis(500);

/// Finds the paths with old unacknowledged data.
#[derive(Clone, Debug)]
pub struct Health {
    /// When the paths are next checked.
    due: Instant,
}

impl Health {
    /// For a session that starts now.
    pub fn new(now: Instant) -> Self {
        Self {
            due: now + UNACKNOWLEDGED,
        }
    }

    /// The time of the next useful call of [`Health::look`].
    pub fn due(&self) -> Instant {
        self.due
    }

    /// A path has stalled; [`Health::look`] finds out soon whether that lasts.
    pub fn look_soon(&mut self, now: Instant) {
        self.due = self.due.min(now + STALL_PATIENCE);
    }

    /// The silent paths. `paths` is called when a check is due; a side that dials no links returns
    /// none.
    pub fn look(&mut self, now: Instant, paths: impl FnOnce() -> Vec<PathStats>) -> Vec<PathId> {
        if now < self.due {
            return Vec::new();
        }
        self.due = now + UNACKNOWLEDGED;
        let mut silent = Vec::new();
        for path in paths() {
            if path.unacknowledged_for.is_some() {
                self.due = self.due.min(now + UNACKNOWLEDGED / 6);
            }
            if path.stalled_for.is_some() {
                self.due = self.due.min(now + STALL_CHECK);
            }
            if is_silent(&path) {
                silent.push(path.id);
            }
        }
        silent
    }
}

fn is_silent(path: &PathStats) -> bool {
    let is_unacknowledged = path
        .unacknowledged_for
        .is_some_and(|time| time >= UNACKNOWLEDGED);
    let is_long = |time| time >= STALL_PATIENCE;
    // If TCP still gets a little data through, a new connection would get no more.
    let makes_no_progress = path.no_progress_for.is_none_or(is_long);
    is_unacknowledged || makes_no_progress && path.stalled_for.is_some_and(is_long)
}

/// Whether a path is stalled, at this side or by the peer's report.
pub fn is_stalled(paths: &[PathStats], id: PathId) -> bool {
    paths
        .iter()
        .any(|path| path.id == id && path.stalled_for.is_some())
}

/// Whether any path delivers, so that a stream may be opened without waiting for the peer.
pub fn is_delivering(paths: &[PathStats]) -> bool {
    paths.iter().any(|path| {
        path.state == PathState::Active
            && path.stalled_for.is_none()
            && path
                .unacknowledged_for
                .is_none_or(|time| time < NOT_DELIVERING)
    })
}

/// A state of a path of which the log reports the beginning and the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoggedState {
    /// The peer does not acknowledge this side's data on the path.
    Stalled,
    /// The peer reports the same for its data.
    StalledAtPeer,
}

/// The states of a path that the log reports. Each line about a state is followed by one
/// about its recovery or about the path's end, and none is repeated: a line is written when
/// [`LoggedStates::set`] reports a change.
#[derive(Clone, Debug, Default)]
pub struct LoggedStates([bool; 2]);

impl LoggedStates {
    /// Records whether the path is in this state; returns whether that is a change.
    #[must_use]
    pub fn set(&mut self, state: LoggedState, is_present: bool) -> bool {
        std::mem::replace(&mut self.0[state as usize], is_present) != is_present
    }
}
