//! A trial from its start to its verdict: a period as before, one without the path (or with a
//! parked one), and another one as before.

use std::time::Duration;

use super::measure::Sample;
use super::member::of;
use super::verdict::{Compared, Verdict};
use super::{SETTLE, Trials, WINDOW, span};
use crate::selector::{Decision, Seen, SeenPath, Selection};
use crate::{Instant, PathId};

/// Number of trials in a row that must find that a path hurts.
const VOTES: u32 = 2;

/// Paths that could carry this many times the bytes sent can spare one of them at no cost.
const SPARE: f64 = 1.25;

/// Number of observations in a row with waiting bytes that abort a trial, if no bytes waited before
/// it.
const PATIENCE: u32 = 4;

/// A trial in progress.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) path: PathId,
    /// The path was parked and is let in; otherwise it is left out.
    pub(super) lets_in: bool,
    pub(super) begun: Instant,
    pub(super) before: Sample,
    /// The middle period, once it is over.
    pub(super) during: Option<Sample>,
}

impl Trials {
    /// A period has been measured.
    pub(super) fn measured(&mut self, sample: Sample, seen: &Seen<'_>) -> Vec<Decision> {
        let Some(mut trial) = self.trial.take() else {
            self.before = Some(sample);
            return self.begin_trial(seen).into_iter().collect();
        };
        let Some(during) = trial.during else {
            // Restore the state before the trial for the last period.
            let to = match trial.lets_in {
                true => Selection::Parked,
                false => Selection::Active,
            };
            let back = self.decide(trial.path, to, "the trial is being evaluated".to_owned());
            trial.during = Some(sample);
            self.trial = Some(trial);
            self.settle(seen);
            return back.into_iter().collect();
        };
        let compared = match trial.lets_in {
            true => Compared::let_in(trial.before, during, sample),
            false => Compared::left_out(trial.before, during, sample),
        };
        self.before = Some(sample);
        let verdict = compared.verdict(self.margin);
        self.judge(&trial, verdict, seen).into_iter().collect()
    }

    pub(super) fn judge(
        &mut self,
        trial: &Trial,
        verdict: Option<Verdict>,
        seen: &Seen<'_>,
    ) -> Option<Decision> {
        let member = self.members.get_mut(&trial.path)?;
        let Some(verdict) = verdict else {
            member.next_at = seen.now + member.interval;
            let selection = member.selection;
            let reason = "too little traffic for a verdict".to_owned();
            return self.decide(trial.path, selection, reason);
        };
        let half = seen.now.saturating_sub(trial.begun).as_secs_f64() / 2.0;
        self.account -= verdict.cost * half;
        if let Some(path) = seen.paths.iter().find(|path| path.id == trial.path) {
            member.known = of(path);
        }
        let reason = verdict.reason;
        if trial.lets_in {
            member.cost = verdict.cost;
            if verdict.helps {
                member.votes = 0;
                // A path that keeps changing is tried less and less often.
                member.wait(seen.now);
                self.settle(seen);
                return self.decide(trial.path, Selection::Active, reason);
            }
            member.wait(seen.now);
            return self.decide(trial.path, Selection::Parked, reason);
        }
        if !verdict.hurts {
            member.votes = 0;
            member.wait(seen.now);
            return self.decide(trial.path, Selection::Active, reason);
        }
        member.votes += 1;
        if member.votes < VOTES {
            // At once, because the session would benefit.
            member.next_at = seen.now;
            let reason = format!("{reason} in one trial");
            return self.decide(trial.path, Selection::Active, reason);
        }
        member.votes = 0;
        member.for_delay = !trial.before.greedy;
        member.wait(seen.now);
        self.before = None;
        self.settle(seen);
        self.decide(trial.path, Selection::Parked, reason)
    }

    /// Begins the trial that is due first and that the account covers.
    pub(super) fn begin_trial(&mut self, seen: &Seen<'_>) -> Option<Decision> {
        let before = self.before.filter(|sample| sample.is_significant)?;
        let active: Vec<&SeenPath> = seen
            .paths
            .iter()
            .filter(|path| path.works && self.is_active(path.id))
            .collect();
        let rates: f64 = active.iter().map(|path| path.rate).sum();
        let takes = (span(seen, SETTLE) + span(seen, WINDOW)).as_secs_f64();
        let mut due = None;
        for path in seen.paths.iter().filter(|path| path.works) {
            let Some(member) = self.members.get(&path.id) else {
                continue;
            };
            let lets_in = member.selection.rests();
            let is_spared = rates - path.rate >= SPARE * before.goodput;
            let cost = match lets_in {
                true => member.cost,
                false if before.greedy => path.rate / rates.max(1.0),
                false => 0.0,
            };
            let sensible = lets_in || (before.greedy || is_spared) && may_harm(path, &active);
            let earlier = due.is_none_or(|(_, _, at)| member.next_at < at);
            if sensible && member.next_at <= seen.now && cost * takes <= self.account && earlier {
                due = Some((path.id, lets_in, member.next_at));
            }
        }
        let (path, lets_in, _) = due?;
        self.trial = Some(Trial {
            path,
            lets_in,
            begun: seen.now,
            before,
            during: None,
        });
        self.settle(seen);
        let (to, reason) = match lets_in {
            true => (Selection::Probing, format!("let in for {takes:.1} s")),
            false => (Selection::Trial, format!("left out for {takes:.1} s")),
        };
        self.decide(path, to, format!("{reason} to measure its effect"))
    }

    /// Ends a trial without a verdict.
    pub(super) fn abort(&mut self, seen: &Seen<'_>) -> Vec<Decision> {
        self.before = None;
        self.settle(seen);
        let Some(trial) = self.trial.take() else {
            return Vec::new();
        };
        let to = match trial.lets_in {
            true => Selection::Parked,
            false => Selection::Active,
        };
        let reason = "trial aborted: the paths or the traffic changed".to_owned();
        self.decide(trial.path, to, reason).into_iter().collect()
    }

    /// Whether programs that kept up have had to wait since a path was left out.
    pub(super) fn delays_programs(&self) -> bool {
        let Some(trial) = &self.trial else {
            return false;
        };
        let leaves_out = !trial.lets_in && trial.during.is_none();
        leaves_out && !trial.before.greedy && self.waited >= PATIENCE
    }

    /// Ends a trial because the path is needed.
    pub(super) fn give_up(&mut self, seen: &Seen<'_>) -> Option<Decision> {
        let trial = self.trial.take()?;
        self.before = None;
        self.settle(seen);
        let member = self.members.get_mut(&trial.path)?;
        member.votes = 0;
        member.wait(seen.now);
        let reason = "needed: bytes began to wait without it".to_owned();
        self.decide(trial.path, Selection::Active, reason)
    }
}

/// Whether a path may do harm: the best one has more than twice its rate, or less than half its
/// round trip with at least 10 ms less.
fn may_harm(path: &SeenPath, active: &[&SeenPath]) -> bool {
    let others = active.iter().filter(|other| other.id != path.id);
    let fastest = others.clone().map(|other| other.rate).fold(0.0, f64::max);
    let Some(nearest) = others.map(|other| other.srtt).min() else {
        return false;
    };
    let is_best = path.rate >= fastest && path.srtt <= nearest;
    let far = path.srtt > 2 * nearest && path.srtt > nearest + Duration::from_millis(10);
    !is_best && (2.0 * path.rate < fastest || far)
}
