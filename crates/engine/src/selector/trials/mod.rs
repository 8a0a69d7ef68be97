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
mod verdict;

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Decision, Seen, SeenPath, Selection, Selector, SelectorConfig};
use crate::{Instant, PathId};
use measure::{Sample, Window};
use verdict::{Compared, Verdict};

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// Longer without a look means that there was nothing to send.
const PAUSE: Duration = Duration::from_secs(1);

/// What was under way when the paths changed has so many round trips of the slowest one, within these bounds.
const SETTLE: (u32, Duration, Duration) = (3, Duration::from_millis(200), Duration::from_secs(2));

/// A stretch of time that is measured takes so many, within these bounds.
const WINDOW: (u32, Duration, Duration) = (10, Duration::from_secs(1), Duration::from_secs(3));

/// Trials in a row that have to say that a path hurts.
const VOTES: u32 = 2;

/// Time from one trial of a path to the next at first.
const FIRST: Duration = Duration::from_secs(5);

/// The same at most.
pub const LONGEST: Duration = Duration::from_secs(300);

/// The account holds no more than this, in seconds of goodput.
const MOST_SAVED: f64 = 3.0;

/// Paths that could carry so many times what is sent can spare one of them at no cost.
const SPARE: f64 = 1.25;

/// Looks in a row at which bytes waited, in a trial before which they did not.
const PATIENCE: u32 = 4;

/// The same without a trial, for paths that were parked when bytes did not.
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

#[derive(Debug)]
struct Member {
    selection: Selection,
    works: bool,
    /// Trials in a row that said that it hurts.
    votes: u32,
    /// No trial before.
    next_at: Instant,
    /// From one trial to the next.
    interval: Duration,
    /// It was parked while programs kept up.
    for_delay: bool,
    /// The part of the goodput that letting it in has cost the last time.
    cost: f64,
    /// Round-trip time in seconds and rate when it was last judged.
    known: (f64, f64),
}

/// A trial that is going on.
#[derive(Debug)]
struct Trial {
    path: PathId,
    /// The path was parked, and is let in; otherwise it is left out.
    lets_in: bool,
    begun: Instant,
    before: Sample,
    /// The stretch in the middle, once it is over.
    during: Option<Sample>,
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
                Member {
                    selection: Selection::Active,
                    works: path.works,
                    votes: 0,
                    next_at: seen.now + FIRST,
                    interval: FIRST,
                    for_delay: false,
                    cost: 0.0,
                    known: of(path),
                }
            });
            changed |= std::mem::replace(&mut member.works, path.works) != path.works;
        }
        changed
    }

    /// What was found out before is worth little: everybody may be looked at soon, and nothing is compared with before.
    fn look_anew(&mut self, seen: &Seen<'_>) -> Vec<Decision> {
        for member in self.members.values_mut() {
            (member.votes, member.interval) = (0, FIRST);
            member.next_at = member.next_at.min(seen.now + FIRST);
        }
        self.abort(seen)
    }

    /// Ends a trial without a verdict.
    fn abort(&mut self, seen: &Seen<'_>) -> Vec<Decision> {
        self.before = None;
        self.settle(seen);
        let Some(trial) = self.trial.take() else {
            return Vec::new();
        };
        let to = match trial.lets_in {
            true => Selection::Parked,
            false => Selection::Active,
        };
        let reason = "the trial was broken off: the paths or the traffic changed".to_owned();
        self.decide(trial.path, to, reason).into_iter().collect()
    }

    /// Whether programs that kept up wait since a path was left out.
    fn makes_wait(&self) -> bool {
        let Some(trial) = &self.trial else {
            return false;
        };
        let leaves_out = !trial.lets_in && trial.during.is_none();
        leaves_out && !trial.before.greedy && self.waited >= PATIENCE
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

    /// Ends a trial because the path is needed.
    fn give_up(&mut self, seen: &Seen<'_>) -> Option<Decision> {
        let trial = self.trial.take()?;
        self.before = None;
        self.settle(seen);
        let member = self.members.get_mut(&trial.path)?;
        member.votes = 0;
        member.wait(seen.now);
        let reason = "it is needed: bytes began to wait without it".to_owned();
        self.decide(trial.path, Selection::Active, reason)
    }

    /// What is under way is waited for before anything is measured.
    fn settle(&mut self, seen: &Seen<'_>) {
        self.window = None;
        self.settled_at = seen.now + span(seen, SETTLE);
    }

    /// A stretch of time has been measured.
    fn measured(&mut self, sample: Sample, seen: &Seen<'_>) -> Vec<Decision> {
        let Some(mut trial) = self.trial.take() else {
            self.before = Some(sample);
            return self.begin_trial(seen).into_iter().collect();
        };
        let Some(during) = trial.during else {
            // Back to what was before, and once more the same.
            let to = match trial.lets_in {
                true => Selection::Parked,
                false => Selection::Active,
            };
            let back = self.decide(trial.path, to, "the trial is being judged".to_owned());
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

    fn judge(
        &mut self,
        trial: &Trial,
        verdict: Option<Verdict>,
        seen: &Seen<'_>,
    ) -> Option<Decision> {
        let member = self.members.get_mut(&trial.path)?;
        let Some(verdict) = verdict else {
            member.next_at = seen.now + member.interval;
            let selection = member.selection;
            let reason = "there was too little traffic to judge".to_owned();
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
            if verdict.serves {
                member.votes = 0;
                // Whoever comes and goes is tried less and less often.
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
            // At once: it would gain something.
            member.next_at = seen.now;
            let reason = format!("{reason}, as one trial says");
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
    fn begin_trial(&mut self, seen: &Seen<'_>) -> Option<Decision> {
        let before = self.before.filter(|sample| sample.says_something)?;
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
            let sensible = lets_in || (before.greedy || is_spared) && is_suspicious(path, &active);
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
        self.decide(path, to, format!("{reason} to see what it is worth"))
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

impl Member {
    /// Puts off the next trial, and the one after it further.
    fn wait(&mut self, now: Instant) {
        self.next_at = now + self.interval;
        self.interval = (self.interval * 2).min(LONGEST);
    }

    /// A path that is not what it was when it was judged is not waited for long.
    fn follow(&mut self, path: &SeenPath, now: Instant) {
        let (rtt, rate) = of(path);
        let differs = |old: f64, new: f64| new > 2.0 * old || new < old / 2.0;
        let (old_rtt, old_rate) = self.known;
        // What a parked path could carry is not measured.
        if differs(old_rtt, rtt) || !self.selection.rests() && differs(old_rate, rate) {
            self.known = (rtt, rate);
            self.interval = FIRST;
            self.next_at = self.next_at.min(now + FIRST);
        }
    }
}

/// What is remembered of a path.
fn of(path: &SeenPath) -> (f64, f64) {
    (path.srtt_s(), path.rate)
}

/// Whether harm could be expected of a path: the best one is more than twice as fast, or half as far away and 10 ms nearer.
fn is_suspicious(path: &SeenPath, active: &[&SeenPath]) -> bool {
    let others = active.iter().filter(|other| other.id != path.id);
    let fastest = others.clone().map(|other| other.rate).fold(0.0, f64::max);
    let Some(nearest) = others.map(|other| other.srtt).min() else {
        return false;
    };
    let is_best = path.rate >= fastest && path.srtt <= nearest;
    let far = path.srtt > 2 * nearest && path.srtt > nearest + Duration::from_millis(10);
    !is_best && (2.0 * path.rate < fastest || far)
}

/// So many round trips of the slowest path that works, within bounds.
fn span(seen: &Seen<'_>, (trips, least, most): (u32, Duration, Duration)) -> Duration {
    let working = seen.paths.iter().filter(|path| path.works);
    let slowest = working.map(|path| path.srtt).max().unwrap_or_default();
    (slowest * trips).clamp(least, most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selector::fixture::Fixture;

    const MS: Duration = Duration::from_millis(1);

    fn count(decisions: &[Decision], selection: Selection) -> usize {
        let of = decisions.iter().filter(|d| d.selection == selection);
        of.count()
    }

    #[test]
    fn comparable_paths_are_never_left_out() {
        let mut fixture = Fixture::new("trials", &[(20.0, 20), (12.0, 30)]);
        assert_eq!(fixture.run(120.0), []);
    }

    #[test]
    fn a_slow_path_that_does_no_harm_stays_and_its_trials_cost_a_hundredth() {
        let mut fixture = Fixture::new("trials", &[(20.0, 20), (2.0, 300)]);
        let decisions = fixture.run(600.0);
        assert!(count(&decisions, Selection::Trial) >= 2, "{decisions:#?}");
        assert_eq!(count(&decisions, Selection::Parked), 0, "{decisions:#?}");
        let goodput = fixture.world.delivered() * 8.0 / 600.0 / 22e6;
        assert!((0.985..1.0).contains(&goodput), "{goodput}");
    }

    #[test]
    fn a_path_that_costs_goodput_is_parked_after_two_trials_and_says_why() {
        let mut fixture = Fixture::new("trials", &[(20.0, 20), (2.0, 300)]);
        fixture.world.costs[1].0 = 0.4;
        let decisions = fixture.run(60.0);
        let parked = decisions
            .iter()
            .position(|d| d.selection == Selection::Parked);
        let parked = parked.expect("it is parked");
        assert_eq!(count(&decisions[..parked], Selection::Trial), 2);
        assert_eq!(
            decisions[parked].reason,
            "-6.8 Mbit/s with it: 13 Mbit/s against 20 Mbit/s"
        );
        assert_eq!(decisions[parked].path.0, 1);
    }

    #[test]
    fn a_path_that_delays_live_traffic_is_parked_and_comes_back_when_it_does_not_any_more() {
        let mut fixture = Fixture::new("trials", &[(20.0, 20), (8.0, 200)]);
        fixture.world.offered = Some(4e6);
        fixture.world.costs[1].1 = 140 * MS;
        let decisions = fixture.run(60.0);
        let parked = decisions.iter().find(|d| d.selection == Selection::Parked);
        let parked = parked.expect("it is parked");
        assert_eq!(parked.reason, "+140 ms delivery delay for +0.000 Mbit/s");
        // When more is sent than the others carry it is back at once, whatever delay it brings.
        fixture.world.offered = Some(24e6);
        fixture.run(1.0);
        assert_eq!(fixture.selection(1), Selection::Active);
        fixture.world.offered = Some(4e6);
        let decisions = fixture.run(60.0);
        assert!(count(&decisions, Selection::Parked) >= 1, "{decisions:#?}");
        fixture.world.costs[1].1 = Duration::ZERO;
        fixture.links[1].1 = 20;
        fixture.run(30.0);
        assert_eq!(fixture.selection(1), Selection::Active);
    }

    #[test]
    fn a_path_that_brings_more_than_it_costs_is_kept_whatever_delay_it_brings() {
        let mut fixture = Fixture::new("trials", &[(3.0, 20), (8.0, 200)]);
        fixture.world.offered = Some(6e6);
        fixture.world.costs[1].1 = 140 * MS;
        let decisions = fixture.run(120.0);
        assert_eq!(count(&decisions, Selection::Parked), 0);
        // The first link alone could not carry it: nobody has to try.
        assert!(decisions.iter().all(|d| d.path.0 == 0), "{decisions:#?}");
    }

    #[test]
    fn a_trial_that_makes_bytes_wait_is_broken_off_at_once() {
        let mut fixture = Fixture::new("trials", &[(20.0, 20), (8.0, 200)]);
        fixture.world.offered = Some(4e6);
        fixture.run(4.0);
        for _ in 0..1000 {
            fixture.run(0.05);
            if fixture.selection(1) == Selection::Trial {
                break;
            }
        }
        assert_eq!(fixture.selection(1), Selection::Trial);
        fixture.links[0].0 = 3.0;
        let decisions = fixture.run(0.4);
        assert_eq!(decisions.len(), 1, "{decisions:#?}");
        assert_eq!(fixture.selection(1), Selection::Active);
        assert_eq!(
            decisions[0].reason,
            "it is needed: bytes began to wait without it"
        );
    }

    #[test]
    fn a_parked_path_is_let_in_from_time_to_time_ever_less_often() {
        let mut fixture = Fixture::new("trials", &[(20.0, 20), (2.0, 300)]);
        fixture.world.costs[1].0 = 0.4;
        fixture.run(60.0);
        let early = count(&fixture.run(300.0), Selection::Probing);
        let late = count(&fixture.run(300.0), Selection::Probing);
        assert!(
            (1..=6).contains(&early) && (1..=early).contains(&late),
            "{early} {late}"
        );
    }

    #[test]
    fn a_trial_is_broken_off_when_the_others_fail() {
        let mut fixture = Fixture::new("trials", &[(20.0, 20), (2.0, 300)]);
        fixture.world.costs[1].0 = 0.4;
        for _ in 0..1000 {
            fixture.run(0.1);
            if fixture.selection(1) == Selection::Trial {
                break;
            }
        }
        assert_eq!(fixture.selection(1), Selection::Trial);
        fixture.works[0] = false;
        fixture.run(0.1);
        assert_eq!(fixture.selection(1), Selection::Active);
    }
}
