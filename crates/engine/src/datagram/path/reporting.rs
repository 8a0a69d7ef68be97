//! When packets of a path are reported to their sender, and over which paths.
//!
//! The best path reports promptly. Two others repeat its reports a little later, so that an outage
//! of one return direction hides nothing: the reported path, and the second best. If the best path
//! has just died, the reports of the path that replaces it must not be late by so much that their
//! receiver doubts that path, too.

use std::time::Duration;

use crate::{Instant, PathId};

/// The reported path repeats its report after this many intervals ...
const OWN_INTERVALS: u32 = 2;

/// ... and the second best path after this many.
const SECOND_INTERVALS: u32 = 4;

/// A packet after this time without any asks for a report at once.
const PAUSE: Duration = Duration::from_millis(500);

/// How one path reports another.
#[derive(Clone, Copy, Debug)]
struct Reporter {
    path: PathId,
    /// Arrival of the first packet that it has not reported.
    behind: Option<Instant>,
    last: Instant,
}

/// The reports about one path.
#[derive(Debug, Default)]
pub(in crate::datagram) struct Reporting {
    reporters: Vec<Reporter>,
    /// The next report must not wait.
    is_urgent: bool,
    last_arrival: Option<Instant>,
}

/// The role of a path that may report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::datagram) enum Role {
    Best,
    /// The reported path itself.
    Own,
    Second,
    Silent,
}

impl Reporting {
    /// A path can carry reports now.
    pub(in crate::datagram) fn add(&mut self, path: PathId, now: Instant) {
        let behind = self.last_arrival.map(|_| now);
        self.reporters.push(Reporter {
            path,
            behind,
            last: Instant::ZERO,
        });
    }

    /// A path has ended.
    pub(in crate::datagram) fn remove(&mut self, path: PathId) {
        self.reporters.retain(|reporter| reporter.path != path);
    }

    /// A packet that asks for a report has arrived.
    pub(in crate::datagram) fn note(&mut self, is_urgent: bool, now: Instant) {
        let is_first = self
            .last_arrival
            .is_none_or(|last| now.saturating_sub(last) >= PAUSE);
        self.last_arrival = Some(now);
        self.is_urgent |= is_urgent || is_first;
        for reporter in &mut self.reporters {
            reporter.behind.get_or_insert(now);
        }
    }

    /// When `path` sends an extra packet with the report, if nothing else takes it along.
    pub(in crate::datagram) fn due(
        &self,
        path: PathId,
        role: Role,
        interval: Duration,
    ) -> Option<Instant> {
        let reporter = self.reporter(path)?;
        let behind = reporter.behind?;
        match role {
            Role::Best if self.is_urgent => Some(behind),
            Role::Best => Some((behind + interval).max(reporter.last + interval)),
            Role::Own => Some(behind.max(reporter.last) + OWN_INTERVALS * interval),
            Role::Second => Some(behind.max(reporter.last) + SECOND_INTERVALS * interval),
            Role::Silent => None,
        }
    }

    /// Whether a packet that leaves `path` anyway takes the report along.
    pub(in crate::datagram) fn goes_along(
        &self,
        path: PathId,
        interval: Duration,
        now: Instant,
    ) -> bool {
        self.reporter(path)
            .is_some_and(|reporter| reporter.behind.is_some() && now >= reporter.last + interval)
    }

    /// `path` has taken the report.
    pub(in crate::datagram) fn reported(&mut self, path: PathId, role: Role, now: Instant) {
        self.is_urgent &= role != Role::Best;
        if let Some(reporter) = self.reporters.iter_mut().find(|known| known.path == path) {
            (reporter.behind, reporter.last) = (None, now);
        }
    }

    fn reporter(&self, path: PathId) -> Option<&Reporter> {
        self.reporters.iter().find(|reporter| reporter.path == path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const I: Duration = Duration::from_millis(5);

    #[test]
    fn the_first_report_is_prompt_and_the_next_ones_wait() {
        let mut reporting = Reporting::default();
        let (a, b) = (PathId(0), PathId(1));
        reporting.add(a, Instant::ZERO);
        reporting.add(b, Instant::ZERO);
        reporting.note(false, 1000 * MS);
        assert_eq!(reporting.due(a, Role::Best, I), Some(1000 * MS));
        assert_eq!(reporting.due(b, Role::Own, I), Some(1010 * MS));
        assert_eq!(reporting.due(b, Role::Second, I), Some(1020 * MS));
        assert_eq!(reporting.due(b, Role::Silent, I), None);
        reporting.reported(a, Role::Best, 1000 * MS);
        assert_eq!(reporting.due(a, Role::Best, I), None);
        reporting.note(false, 1001 * MS);
        assert_eq!(reporting.due(a, Role::Best, I), Some(1006 * MS));
        assert!(!reporting.goes_along(a, I, 1004 * MS));
        assert!(reporting.goes_along(b, I, 1004 * MS));
        reporting.note(true, 1002 * MS);
        assert!(reporting.due(a, Role::Best, I) <= Some(1002 * MS));
    }
}
