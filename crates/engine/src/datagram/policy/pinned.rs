//! `pinned`: one path, the one with the least expected delay.
//!
//! The flow leaves its path as soon as that is suspect. It comes back, or moves to a better path,
//! only after that one has been better by a margin for a second, and after a path that has failed
//! has proved itself again. Each move may reorder, so few are good.

use std::time::Duration;

use super::{DatagramPolicy, Facts, FlowPolicy, Offer, Placement, ms};
use crate::datagram::path::{DatagramPath, Paths, Usage};
use crate::{Instant, PathId};

/// Another path must be better by this much ...
const MARGIN: Duration = Duration::from_millis(5);

/// ... and by this part of the present path's delay, ...
const MARGIN_PART: u32 = 5;

/// ... for this long.
const BETTER_FOR: Duration = Duration::from_secs(1);

/// The state of a pinned flow.
#[derive(Debug, Default)]
pub(in crate::datagram) struct Pinned {
    path: Option<PathId>,
    cause: Cause,
    /// Time since when another path has been better by the margin.
    better_since: Option<Instant>,
}

/// Why the flow is on its path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Cause {
    #[default]
    Least,
    /// The path before became suspect or ended.
    Left(PathId),
}

impl Pinned {
    /// The path of the flow now.
    pub(in crate::datagram) fn path(&mut self, facts: &Facts, paths: &Paths) -> Option<PathId> {
        let queued = |path: &&DatagramPath| (path.delay + path.queue_delay(facts.now), path.id);
        let best = paths.main().min_by_key(queued)?;
        let now = self.path.and_then(|path| paths.get(path));
        let Some(present) = now.filter(|path| path.usage == Usage::Main) else {
            // A suspect path is left at once, and so is one with a lower rank.
            self.cause = match self.path {
                Some(left) => Cause::Left(left),
                None => Cause::Least,
            };
            (self.path, self.better_since) = (Some(best.id), None);
            return self.path;
        };
        let margin = MARGIN.max(present.delay / MARGIN_PART);
        let may_return = paths
            .main()
            .filter(|path| path.health.may_return(facts.now));
        let best = may_return.min_by_key(|path| (path.delay, path.id));
        let Some(better) = best.filter(|path| path.delay + margin < present.delay) else {
            self.better_since = None;
            return self.path;
        };
        let since = *self.better_since.get_or_insert(facts.now);
        if facts.now >= since + BETTER_FOR {
            (self.path, self.cause) = (Some(better.id), Cause::Least);
            self.better_since = None;
        }
        self.path
    }
}

impl FlowPolicy for Pinned {
    fn place(&mut self, facts: &Facts, paths: &Paths) -> Placement {
        self.path(facts, paths)
            .map_or(Placement::Nowhere, Placement::One)
    }

    fn offer(&mut self, _facts: &Facts, path: &DatagramPath, _paths: &Paths) -> Offer {
        match self.path == Some(path.id) && path.usage == Usage::Main {
            true => Offer::Take,
            false => Offer::Unlist,
        }
    }

    fn in_use(&self) -> DatagramPolicy {
        DatagramPolicy::Pinned
    }

    fn reason(&self, paths: &Paths) -> String {
        let Some(path) = self.path.and_then(|path| paths.get(path)) else {
            return "no path carries datagrams".to_owned();
        };
        let delay = ms(path.delay);
        match self.cause {
            Cause::Least => format!("path {} has the least delay, {delay} ms", path.id.0),
            Cause::Left(left) => format!(
                "path {} did not deliver; path {} has the least delay of the others, {delay} ms",
                left.0, path.id.0
            ),
        }
    }
}
