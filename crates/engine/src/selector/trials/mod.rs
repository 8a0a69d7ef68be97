//! Selection by trial: a path is parked only when goodput or delivery delay is measurably better
//! without it.
//!
//! The paper's algorithms judge a path in isolation, by comparing its value with that of the
//! others. This loses the slow path's share even if the path does no harm, and with FBDT it rarely
//! does. Here the path is left out for a short time, and the bytes that reach the peer in order are
//! compared with the periods before and after (`verdict`).
//!
//! - **Candidates**: paths that may do harm because they are much slower or have a much higher
//!   delay than the best one. Comparable paths are never left out.
//! - **Cost**: the account grows by [`SelectorConfig::budget`] of the time in which data is
//!   waiting. A trial begins only when the account covers its expected cost, its path's share of
//!   the goodput for the duration. The account is charged with the actual cost.
//! - **Hysteresis**: `VOTES` trials in a row must find that the path hurts. A path that is let in
//!   again must stay well below the harm for which it was parked.
//! - **Back-off**: each trial without a change doubles the time until the path's next one, up to
//!   [`LONGEST`]. If a path's round-trip time or rate has changed by half, it is examined anew. All
//!   paths are if one joins, ends, fails or recovers.
//! - A path that brings more than it costs is not parked: for delay only if goodput is no lower
//!   without it. If programs keep up and the other paths could not carry `SPARE` times the bytes
//!   sent, the path is not even left out. A trial in which bytes begin to wait is aborted after
//!   `PATIENCE` observations, because the bytes would be late. A path that was parked for its delay
//!   returns when bytes wait for `RECALL` observations.

mod measure;
mod member;
mod trial;
mod verdict;

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Decision, Seen, Selection, Selector, SelectorConfig};
use crate::{Instant, PathId};
use measure::{Sample, Window};
pub use member::LONGEST;
use member::Member;
use trial::Trial;

/// Time between two observations.
const LOOK: Duration = Duration::from_millis(50);

/// A longer time without an observation means that nothing was waiting to be sent.
const PAUSE: Duration = Duration::from_secs(1);

/// Round trips of the slowest path, within these bounds, for the data in flight at a change of the
/// paths.
const SETTLE: (u32, Duration, Duration) = (3, Duration::from_millis(200), Duration::from_secs(2));

/// Round trips of the slowest path, within these bounds, for a measured period.
const WINDOW: (u32, Duration, Duration) = (10, Duration::from_secs(1), Duration::from_secs(3));

/// Largest balance of the account, in seconds of goodput.
const MAX_SAVED: f64 = 3.0;

/// Number of observations in a row with waiting bytes after which paths return that were parked
/// when no bytes waited.
const RECALL: u32 = 10;

/// Selection by trial.
#[derive(Debug)]
pub struct Trials {
    margin: f64,
    budget: f64,
    members: BTreeMap<PathId, Member>,
    /// Seconds of goodput that trials may cost now.
    account: f64,
    /// The period that is being measured; none while the data in flight settles.
    window: Option<Window>,
    /// End of the settling time.
    settled_at: Instant,
    /// The latest period with the current paths, and the bytes that the peer had counted on each at
    /// its start.
    before: Option<Sample>,
    trial: Option<Trial>,
    /// Number of observations in a row with waiting bytes.
    waited: u32,
    reviewed: Option<Instant>,
}

impl Trials {
    /// Creates the selector with its margin and its budget.
    pub fn new(config: &SelectorConfig) -> Self {
        Self {
            margin: config.margin,
            budget: config.budget,
            members: BTreeMap::new(),
            account: 0.0,
            window: None,
            settled_at: Instant::ZERO,
            before: None,
            trial: None,
            waited: 0,
            reviewed: None,
        }
    }

    /// Updates the record of the paths; returns whether the set of delivering paths has changed.
    fn sync(&mut self, seen: &Seen<'_>) -> bool {
        let count = self.members.len();
        self.members
            .retain(|id, _| seen.paths.iter().any(|path| path.id == *id));
        let mut changed = self.members.len() != count;
        for path in seen.paths {
            let member = self.members.entry(path.id).or_insert_with(|| {
                changed = true;
                Member::new(path, seen.now)
            });
            changed |= std::mem::replace(&mut member.works, path.works) != path.works;
        }
        changed
    }

    /// Discards most of the earlier results: every path may be tried soon, and nothing is compared
    /// with earlier periods.
    fn start_over(&mut self, seen: &Seen<'_>) -> Vec<Decision> {
        for member in self.members.values_mut() {
            member.start_over(seen.now);
        }
        self.abort(seen)
    }

    /// Reactivates paths that were parked for their delay if the others no longer keep up.
    fn recall(&mut self, seen: &Seen<'_>) -> Vec<Decision> {
        if self.waited < RECALL || self.trial.is_some() {
            return Vec::new();
        }
        let late = |member: &Member| member.selection == Selection::Parked && member.for_delay;
        let members = self.members.iter().filter(|(_, member)| late(member));
        let recalled: Vec<PathId> = members.map(|(id, _)| *id).collect();
        if !recalled.is_empty() {
            self.before = None;
            self.settle(seen);
        }
        let reason = "needed: bytes wait without it";
        let recalled = recalled.into_iter();
        let active = recalled.filter_map(|id| {
            self.members.get_mut(&id)?.wait(seen.now);
            self.decide(id, Selection::Active, reason.to_owned())
        });
        active.collect()
    }

    /// Waits for the data in flight before the next measurement.
    fn settle(&mut self, seen: &Seen<'_>) {
        self.window = None;
        self.settled_at = seen.now + span(seen, SETTLE);
    }

    fn is_active(&self, path: PathId) -> bool {
        let member = self.members.get(&path);
        member.is_some_and(|member| !member.selection.rests())
    }

    fn decide(&mut self, path: PathId, selection: Selection, reason: String) -> Option<Decision> {
        self.members.get_mut(&path)?.selection = selection;
        Some(Decision {
            path,
            selection,
            reason,
        })
    }

    /// Reactivates parked paths if no active one delivers.
    fn rescue(&mut self, seen: &Seen<'_>) -> Vec<Decision> {
        let mut working = seen.paths.iter().filter(|path| path.works);
        if working.any(|path| self.is_active(path.id)) {
            return Vec::new();
        }
        let resting = seen.paths.iter().filter(|path| !self.is_active(path.id));
        let resting: Vec<PathId> = resting.map(|path| path.id).collect();
        let reason = "no other path delivers";
        resting
            .into_iter()
            .filter_map(|id| self.decide(id, Selection::Active, reason.to_owned()))
            .collect()
    }
}

impl Selector for Trials {
    fn name(&self) -> &'static str {
        "trials"
    }

    fn review(&mut self, seen: &Seen<'_>) -> Vec<Decision> {
        let passed = self.reviewed.map(|before| seen.now.saturating_sub(before));
        self.reviewed = Some(seen.now);
        let mut decisions = Vec::new();
        if self.sync(seen) {
            decisions.extend(self.start_over(seen));
        } else if passed.is_none_or(|time| time > PAUSE) {
            decisions.extend(self.abort(seen));
        }
        if let Some(time) = passed.filter(|time| *time <= PAUSE) {
            self.account = (self.account + self.budget * time.as_secs_f64()).min(MAX_SAVED);
        }
        decisions.extend(self.rescue(seen));
        for path in seen.paths {
            if let Some(member) = self.members.get_mut(&path.id) {
                member.follow(path, seen.now);
            }
        }
        self.waited = if seen.waiting { self.waited + 1 } else { 0 };
        decisions.extend(self.recall(seen));
        if self.delays_programs() {
            decisions.extend(self.give_up(seen));
        }
        if seen.now < self.settled_at {
            return decisions;
        }
        let window = self.window.get_or_insert_with(|| Window::begin(seen));
        window.note(seen);
        if window.age(seen.now) >= span(seen, WINDOW)
            && let Some(window) = self.window.take()
        {
            decisions.extend(self.measured(window.end(seen), seen));
        }
        decisions
    }

    fn next_review(&self, busy: bool) -> Option<Instant> {
        let next = self.reviewed.map_or(Instant::ZERO, |at| at + LOOK);
        (busy || self.trial.is_some()).then_some(next)
    }

    fn reads_delays(&self) -> bool {
        true
    }
}

/// A number of round trips of the slowest delivering path, within bounds.
fn span(seen: &Seen<'_>, (trips, least, most): (u32, Duration, Duration)) -> Duration {
    let working = seen.paths.iter().filter(|path| path.works);
    let slowest = working.map(|path| path.srtt).max().unwrap_or_default();
    (slowest * trips).clamp(least, most)
}

#[cfg(test)]
mod tests;
