//! Which runs there are to do, and how long that takes.

use std::fmt::Write;
use std::path::Path;

use sumlink_engine::scheduler;
use sumlink_transport::links::name_matches;

use crate::config::Direction;
use crate::results::{ALONE, MPTCP, Run, SIMULTANEOUS};
use crate::run::{Job, Room, Store, duration_in_words, planned};
use crate::scenario::{Scenario, Workload};

use super::BenchOptions;
use super::bar::Bar;
use super::matrix::{Group, Row};

/// Seconds to set up and take down a laboratory, for the estimate.
const AROUND: f64 = 0.35;

/// The runs of the chosen rows.
pub(super) struct Plan<'a> {
    pub(super) jobs: Vec<Job<'a>>,
    /// How many of them are done at once.
    pub(super) room: Room,
}

/// The rows that were asked for, with their variants.
pub(super) fn chosen<'a>(
    groups: &'a [Group],
    options: &'a BenchOptions,
) -> impl Iterator<Item = (&'a Group, &'a Row, &'a Scenario)> {
    let rows = groups
        .iter()
        .flat_map(|group| group.rows.iter().map(move |row| (group, row)));
    rows.flat_map(move |(group, row)| {
        let variants = row.variants.iter().enumerate();
        variants
            .filter(move |(number, _)| is_chosen(group, row, *number, options))
            .map(move |(_, scenario)| (group, row, scenario))
    })
}

/// Whether a variant of a row was asked for.
pub(super) fn is_chosen(group: &Group, row: &Row, variant: usize, options: &BenchOptions) -> bool {
    let name = format!("{}/{}", group.name, row.name);
    let named =
        options.rows.is_empty() || options.rows.iter().any(|glob| name_matches(glob, &name));
    // Who names rows tries just these.
    let quick = !options.quick || (variant == 0 && (row.quick || !options.rows.is_empty()));
    named && quick
}

/// The systems beside the one under test, in the order of the tables; what its bars are relative to is the first.
pub(super) fn alternatives(row: &Row, options: &BenchOptions) -> Vec<String> {
    let named: Vec<String> = if !options.systems.is_empty() {
        options.systems.clone()
    } else if options.quick {
        Vec::new()
    } else {
        let peers = [SIMULTANEOUS, MPTCP, "aggligator", "noq"].map(str::to_owned);
        let own = scheduler::NAMES
            .iter()
            .map(|name| format!("sumlink:{name}"));
        peers.into_iter().chain(own).collect()
    };
    let references = references(row);
    let others = named
        .into_iter()
        .filter(|name| name != ALONE && *name != row.judged && !references.contains(&&**name));
    let first = references.iter().map(|name| (*name).to_owned());
    first.chain(others).collect()
}

/// The systems that a row's bars are relative to, beside the links alone; they have every seed.
fn references(row: &Row) -> Vec<&'static str> {
    let mut names: Vec<_> = row
        .bars
        .iter()
        .filter_map(|bar| bar.quantity.reference())
        .collect();
    names.dedup();
    names
}

/// The alternatives that a variant is run with: schedulers only in the first one, unless they were named; and
/// independent flows only where they carry the same.
fn alternatives_of(
    row: &Row,
    scenario: &Scenario,
    first: bool,
    options: &BenchOptions,
) -> Vec<String> {
    let bulk = matches!(scenario.workload, Workload::Bulk);
    let references = references(row);
    let all = alternatives(row, options).into_iter();
    all.filter(|name| !references.contains(&&**name))
        .filter(|name| first || !options.systems.is_empty() || !name.starts_with("sumlink:"))
        .filter(|name| bulk || name != SIMULTANEOUS)
        .collect()
}

/// Seeds of the system under test, and of the others.
fn seeds(options: &BenchOptions) -> (u64, u64) {
    if options.quick {
        (1, 1)
    } else {
        (options.seeds, options.alternative_seeds)
    }
}

/// What the store holds of a variant.
pub(super) fn runs_of(
    row: &Row,
    scenario: &Scenario,
    options: &BenchOptions,
    store: &Store,
) -> Vec<Run> {
    let (seeds, fewer) = seeds(options);
    let mut runs = Vec::new();
    for seed in 1..=seeds.max(fewer) {
        let mut read = |system: &str| runs.extend(store.read(scenario, seed, system));
        if seed <= seeds {
            read(&row.judged);
        }
        read(ALONE);
        let references = references(row);
        for system in alternatives(row, options) {
            if seed <= fewer || references.contains(&&*system) {
                read(&system);
            }
        }
    }
    runs
}

impl<'a> Plan<'a> {
    /// All systems of a seed after each other, so that what changes on the machine meanwhile meets all alike.
    pub(super) fn new(groups: &'a [Group], options: &'a BenchOptions, program: &'a Path) -> Self {
        let (seeds, fewer) = seeds(options);
        let mut jobs = Vec::new();
        for (_, row, scenario) in chosen(groups, options) {
            let first = row
                .variants
                .first()
                .is_some_and(|first| first.name == scenario.name);
            let rate = rate(row, scenario);
            let others = alternatives_of(row, scenario, first, options);
            for seed in 1..=seeds.max(fewer) {
                let references = references(row).into_iter().map(str::to_owned);
                let own = [ALONE.to_owned()].into_iter().chain(references);
                let own = own.chain([row.judged.clone()]);
                // Whoever is compared with the links alone needs them with the same seed; nobody else does.
                let compared = row.bars.iter().any(|bar| bar.quantity.needs_links());
                let own = own.filter(|system| match system == ALONE {
                    true => compared,
                    false => seed <= seeds,
                });
                let beside = others.iter().filter(|_| seed <= fewer).cloned();
                jobs.extend(own.chain(beside).map(|system| Job {
                    scenario,
                    seed,
                    system,
                    program,
                    rate,
                }));
            }
        }
        let room = Room::of_this_machine(options.jobs.map(usize::from));
        Self { jobs, room }
    }

    /// The scenarios, each once.
    pub(super) fn scenarios(&self) -> Vec<&'a Scenario> {
        let mut scenarios: Vec<&Scenario> = self.jobs.iter().map(|job| job.scenario).collect();
        scenarios.dedup_by_key(|scenario| &scenario.name);
        scenarios
    }

    /// How long the runs take that the store does not have.
    pub(super) fn estimate(&self, store: &Store) -> String {
        let missing = |job: &&Job<'_>| store.done(job.scenario, job.seed, &job.system).is_none();
        let missing: Vec<_> = self.jobs.iter().filter(missing).collect();
        format!(
            "{} runs of {} scenarios are to be done, which takes about {}",
            missing.len(),
            self.scenarios().len(),
            duration_in_words(missing.iter().map(|job| self.seconds(job)).sum())
        )
    }

    /// What a run takes, laboratories included; of runs that share the machine, its part.
    fn seconds(&self, job: &Job<'_>) -> f64 {
        let (traffic, laboratories) = planned(job);
        (traffic + AROUND * laboratories as f64) / self.room.width(job) as f64
    }

    /// The chosen rows with their bars, and what they take.
    pub(super) fn list(&self, groups: &[Group], options: &BenchOptions) -> String {
        let mut text = String::new();
        let mut last = String::new();
        for (group, row, _) in chosen(groups, options) {
            let name = format!("{}/{}", group.name, row.name);
            if name == last {
                continue;
            }
            let of_row = |scenario: &Scenario| row.variants.iter().any(|v| v.name == scenario.name);
            let jobs = self.jobs.iter().filter(|job| of_row(job.scenario));
            let time = duration_in_words(jobs.map(|job| self.seconds(job)).sum());
            let bars = row
                .bars
                .iter()
                .map(|bar| format!("{} {bar}", bar.quantity.name()));
            let bars: Vec<_> = bars.collect();
            let variants = chosen(groups, options)
                .filter(|(_, r, _)| std::ptr::eq(*r, row))
                .count();
            let _ = writeln!(
                text,
                "{name:<34} {variants} x {time:>7}  {}",
                bars.join(", ")
            );
            last = name;
        }
        let time = duration_in_words(self.jobs.iter().map(|job| self.seconds(job)).sum());
        let _ = writeln!(
            text,
            "{} runs of {} scenarios, about {time} in all",
            self.jobs.len(),
            self.scenarios().len()
        );
        text
    }
}

/// The rate of a row's links that may be measured beside others: what is judged must not be a matter of milliseconds
/// or of processors.
fn rate(row: &Row, scenario: &Scenario) -> Option<u64> {
    let disturbed = |bar: &Bar| bar.quantity.needs_quiet();
    if scenario.unshaped || row.bars.iter().any(disturbed) {
        return None;
    }
    let ways = [Direction::Up, Direction::Down];
    let rates = ways.map(|way| scenario.rates_bps(way, 1));
    Some(rates[0].max(rates[1]) as u64)
}
