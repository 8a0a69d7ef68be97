//! Time: overdue reports, probes, and flows that expire.

use std::time::Duration;

use super::CloseReason;
use super::path::{Review, Usage};
use super::state::Datagrams;
use crate::{Event, Instant, PathId};

/// Flows count as active for this long after their last datagram ...
const ACTIVE: Duration = Duration::from_secs(2);

/// ... and calls for this long.
const ACTIVE_CALLS: Duration = Duration::from_secs(10);

/// Overdue work that no carrier has taken is tried again after this time.
const RETRY: Duration = Duration::from_millis(5);

impl Datagrams {
    /// Time of the next call of [`Datagrams::handle_timeout`]; a packet may be due then, too.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let mut earliest = self.flows.next_expiry();
        let mut consider = |at: Option<Instant>| {
            if let Some(at) = at {
                earliest = Some(earliest.map_or(at, |known| known.min(at)));
            }
        };
        consider(self.deliveries.next_end());
        consider(self.fragments.next_end(&self.config));
        consider(self.recheck_at);
        let has_paths = !self.paths.is_empty();
        consider(self.controls.deadline().filter(|_| has_paths));
        for path in self.paths.iter() {
            let carrier = path.carrier_trip();
            consider(path.health.changes_at(&path.sent, &path.trip, carrier));
            consider(self.probe_at(path.id));
            consider(self.report_due(path.id));
        }
        earliest.map(|at| {
            if at > self.handled {
                at
            } else {
                self.handled + RETRY
            }
        })
    }

    /// Does everything that is due. Some timeouts change nothing here because they are for
    /// [`Datagrams::poll`].
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.handled = self.handled.max(now);
        self.recheck_at = self.recheck_at.filter(|at| *at > now);
        self.end_due_waits(now);
        self.fragments.expire(&self.config, now);
        let mut index = 0;
        while let Some(path) = self.paths.nth_mut(index) {
            index += 1;
            let (id, carrier) = (path.id, path.carrier_trip());
            match path.health.review(&path.sent, &path.trip, carrier, now) {
                Review::Suspected => self.suspect(id, now),
                Review::Failed | Review::Recovered => self.review_paths(now),
                Review::Unchanged => {}
            }
        }
        while let Some(at) = self.flows.expired(now) {
            let reason = CloseReason::Idle;
            if let Some(flow) = self.end_flow(at, reason, now) {
                self.counters.flows_expired += 1;
                self.events.push_back(Event::FlowClosed { flow, reason });
            }
        }
    }

    /// Whether a path must be probed now.
    pub(super) fn is_probe_due(&self, id: PathId, now: Instant) -> bool {
        self.probe_at(id).is_some_and(|at| at <= now)
    }

    fn probe_at(&self, id: PathId) -> Option<Instant> {
        let path = self.paths.get(id)?;
        let since = |at: Option<Instant>, time| at.is_some_and(|at| self.handled < at + time);
        let is_active = since(self.active_at, ACTIVE) || since(self.called_at, ACTIVE_CALLS);
        let is_spare = path.usage == Usage::None || path.policy.metered;
        path.health.probe_at(is_active, is_spare)
    }
}
