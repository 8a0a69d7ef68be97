//! The forward role: the choice of the path that takes a window's bytes from the front.

use std::time::Duration;

use crate::path::Path;
use crate::scheduler::{View, may_work};
use crate::{Instant, PathId};

/// A path becomes forward only with this share of the fastest path's rate ...
///
/// The reader gets a window at the rate of the forward path until it reaches the bytes of the
/// others. Behind a path with a fifth of the rate most of each window waits, however reliable that
/// path is (docs/notes/fading-links.md).
const ENOUGH: f64 = 0.45;

/// ... and stays forward down to this share.
const STILL_ENOUGH: f64 = 0.35;

/// Among fast paths, one becomes forward only if the current one is more unreliable by this much
/// ...
const UNRELIABILITY_MARGIN: f64 = 0.25;

/// ... or, at equal reliability, has a delay this many times as long.
const DELAY_MARGIN: f64 = 1.5;

/// Shortest time for which a path stays forward while it may carry data.
pub(super) const FORWARD_STAYS: Duration = Duration::from_millis(500);

/// The state of the forward role.
#[derive(Debug, Default)]
pub(super) struct ForwardRole {
    /// The forward path, and the time since when it has been forward.
    present: Option<(PathId, Instant)>,
}

impl ForwardRole {
    /// The forward path.
    pub(super) fn path(&self) -> Option<PathId> {
        self.present.map(|(id, _)| id)
    }

    /// Chooses the most reliable of the paths that are fast enough to feed the reader, and among
    /// equals the one with the least delay. A change requires a margin. Returns whether the path
    /// changed.
    pub(super) fn choose(&mut self, view: &View<'_>) -> bool {
        let now = view.now;
        let present = self
            .present
            .and_then(|(id, since)| Some((view.path(id)?, since)));
        // A path that is parked, a backup again or a resting secondary would keep the role and
        // never ask. All paths that carry data would then send every window backwards.
        let present = present.filter(|(path, _)| may_work(view.paths, path));
        if let Some((_, since)) = present
            && now.saturating_sub(since) < FORWARD_STAYS
        {
            return false;
        }
        let unreliability = |path: &Path| (path.unreliability(now) / UNRELIABILITY_MARGIN).floor();
        let fastest = view.active_paths().map(Path::rate).fold(0.0, f64::max);
        let fast = view.active_paths();
        let fast = fast.filter(|path| path.rate() >= ENOUGH * fastest);
        let best = fast.min_by(|a, b| {
            unreliability(a)
                .total_cmp(&unreliability(b))
                .then(a.srtt().cmp(&b.srtt()))
                .then(a.id().cmp(&b.id()))
        });
        let Some(best) = best else { return false };
        let stays = present.is_some_and(|(path, _)| {
            path.id() == best.id()
                || (path.rate() >= STILL_ENOUGH * fastest
                    && path.unreliability(now) - best.unreliability(now) < UNRELIABILITY_MARGIN
                    && path.srtt().as_secs_f64() < DELAY_MARGIN * best.srtt().as_secs_f64())
        });
        match self.present {
            Some((id, _)) if stays => self.present = Some((id, now)),
            _ => self.present = Some((best.id(), now)),
        }
        !stays
    }
}
