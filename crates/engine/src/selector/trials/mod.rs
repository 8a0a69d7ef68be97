//! Selection by trial: a path is parked only when goodput or delivery delay is measurably better without it.
//!
//! Beyond the paper: its algorithms judge a path by itself, by what it is worth against the others. That costs the slow
//! path's share also where it does no harm, and with FBDT it rarely does any. Here the path is left out for a moment, and what
//! reaches the peer in order is compared with the stretches of time before and after (`verdict`).
//!
//! - **Who is tried**: a path of which harm could be expected, much slower or further away than the best one. Comparable
//!   paths are never left out.
//! - **What it may cost**: the account grows by [`SelectorConfig::budget`] of the time in which there is something to send.
//!   A trial begins only when the account covers what it is expected to cost, its path's share of the goodput for as long as it
//!   takes, and is charged what it has cost.
//! - **Hysteresis**: `VOTES` trials in a row have to say that the path hurts; one that is let in again has to come well below the
//!   harm for which it was parked.
//! - **Back-off**: each trial that changes nothing doubles the time until the next one of its path, up to [`LONGEST`]. A path
//!   whose round-trip time or rate has changed by half, and all of them when one joins, leaves, fails or recovers, are looked at anew.
//! - A path that brings more than it costs is not parked: for delay only if goodput is no lower without it. Where programs
//!   keep up and the other paths could not carry `SPARE` times what is sent, it is not even left out, and a trial in which
//!   bytes begin to wait is broken off after `PATIENCE` looks: they would be late. One that was parked for its delay comes back
//!   when bytes wait for `RECALL` looks.

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

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// Longer without a look means that there was nothing to send.
const PAUSE: Duration = Duration::from_secs(1);

/// What was under way when the paths changed has so many round trips of the slowest one, within these bounds.
const SETTLE: (u32, Duration, Duration) = (3, Duration::from_millis(200), Duration::from_secs(2));

/// A stretch of time that is measured takes so many, within these bounds.
const WINDOW: (u32, Duration, Duration) = (10, Duration::from_secs(1), Duration::from_secs(3));

/// The account holds no more than this, in seconds of goodput.
const MOST_SAVED: f64 = 3.0;

/// Looks in a row at which bytes waited, after which paths come back that were parked when they did not.
const RECALL: u32 = 10;

/// See the module.
#[derive(Debug)]
pub struct Trials {
    margin: f64,
    budget: f64,
    members: BTreeMap<PathId, Member>,
    /// Seconds of goodput that trials may cost at this moment.
    account: f64,
    /// The stretch that is being measured; nothing while what was under way settles.
    window: Option<Window>,
    /// Until when that takes.
    settled_at: Instant,
    /// The newest stretch with the present paths, and what the peer had counted on each at its beginning.
    before: Option<Sample>,
    trial: Option<Trial>,
    /// Looks in a row at which bytes waited.
    waited: u32,
    reviewed: Option<Instant>,
}

impl Trials {
    /// With its margin and its budget.
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

    /// Takes note of the paths; whether others work than before.
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

    /// What was found out before is worth little: everybody may be looked at soon, and nothing is compared with before.
    fn look_anew(&mut self, seen: &Seen<'_>) -> Vec<Decision> {
        for member in self.members.values_mut() {
            member.look_anew(seen.now);
        }
        self.abort(seen)
    }

    /// Paths that were parked for their delay come back when the others do not keep up any more.
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
        let reason = "it is needed: bytes wait without it";
        let recalled = recalled.into_iter();
        let active = recalled.filter_map(|id| {
            self.members.get_mut(&id)?.wait(seen.now);
            self.decide(id, Selection::Active, reason.to_owned())
        });
        active.collect()
    }

    /// What is under way is waited for before anything is measured.
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

    /// Parked paths come back where no active one works any more.
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
            decisions.extend(self.look_anew(seen));
        } else if passed.is_none_or(|time| time > PAUSE) {
            decisions.extend(self.abort(seen));
        }
        if let Some(time) = passed.filter(|time| *time <= PAUSE) {
            self.account = (self.account + self.budget * time.as_secs_f64()).min(MOST_SAVED);
        }
        decisions.extend(self.rescue(seen));
        for path in seen.paths {
            if let Some(member) = self.members.get_mut(&path.id) {
                member.follow(path, seen.now);
            }
        }
        self.waited = if seen.waiting { self.waited + 1 } else { 0 };
        decisions.extend(self.recall(seen));
        if self.makes_wait() {
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

/// So many round trips of the slowest path that works, within bounds.
fn span(seen: &Seen<'_>, (trips, least, most): (u32, Duration, Duration)) -> Duration {
    let working = seen.paths.iter().filter(|path| path.works);
    let slowest = working.map(|path| path.srtt).max().unwrap_or_default();
    (slowest * trips).clamp(least, most)
}

#[cfg(test)]
mod tests;
