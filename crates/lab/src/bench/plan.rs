//! Determines the runs to do.

use std::collections::BTreeMap;
use std::path::Path;

use sumlink_engine::DatagramPolicy;
use sumlink_schedulers::NAMES;
use sumlink_transport::links::name_matches;

use crate::results::{ALONE, MPTCP, SIMULTANEOUS};
use crate::run::{Capacity, Job};
use crate::scenario::{Scenario, Workload};

use super::BenchOptions;
use super::matrix::{Group, Row};
use super::sources::{Part, Sources};
use super::vary::Variant;

/// The runs of the chosen rows.
pub(super) struct Plan<'a> {
    pub(super) jobs: Vec<Job<'a>>,
    /// The purpose of each run.
    pub(super) purposes: Vec<Purpose<'a>>,
    /// How many runs may be done at once.
    pub(super) capacity: Capacity,
}

/// The purpose of a run; if several lines share it, that of the first.
pub(super) struct Purpose<'a> {
    pub(super) group: &'a str,
    pub(super) row: &'a str,
    /// Whether a bar of some line depends on it; otherwise it is an alternative.
    pub(super) is_judged: bool,
}

/// The requested rows with their variants.
pub(super) fn chosen<'a>(
    groups: &'a [Group],
    options: &'a BenchOptions,
) -> impl Iterator<Item = (&'a Group, &'a Row, &'a Variant)> {
    let rows = groups
        .iter()
        .flat_map(|group| group.rows.iter().map(move |row| (group, row)));
    rows.flat_map(move |(group, row)| {
        let variants = row.variants.iter().enumerate();
        variants
            .filter(move |(number, _)| is_chosen(group, row, *number, options))
            .map(move |(_, variant)| (group, row, variant))
    })
}

/// Whether a variant of a row was requested.
pub(super) fn is_chosen(group: &Group, row: &Row, variant: usize, options: &BenchOptions) -> bool {
    let name = format!("{}/{}", group.name, row.name);
    let named =
        options.rows.is_empty() || options.rows.iter().any(|glob| name_matches(glob, &name));
    // With --rows, --quick runs exactly the named rows.
    let quick = !options.quick || (variant == 0 && (row.quick || !options.rows.is_empty()));
    named && quick
}

/// The systems compared with the one under test, in table order; the references of its bars come
/// first.
pub(super) fn alternatives(row: &Row, options: &BenchOptions) -> Vec<String> {
    let named: Vec<String> = if !options.systems.is_empty() {
        options.systems.clone()
    } else if options.quick {
        Vec::new()
    } else if needs_udp(row) {
        // Schedulers do not concern datagrams, and other systems do not carry them.
        let policies = DatagramPolicy::ALL.into_iter();
        let policies = policies.filter(|policy| *policy != DatagramPolicy::default());
        let own = policies.map(|policy| format!("sumlink:fbdt:datagrams={}", policy.name()));
        let peers = [SIMULTANEOUS, WIREGUARD].map(str::to_owned);
        peers.into_iter().chain(own).collect()
    } else {
        let peers = [SIMULTANEOUS, MPTCP, "aggligator", "noq"].map(str::to_owned);
        let own = NAMES.iter().map(|name| format!("sumlink:{name}"));
        peers.into_iter().chain(own).collect()
    };
    let references = references(row);
    let others = named
        .into_iter()
        .filter(|name| name != ALONE && *name != row.judged && !references.contains(name));
    references.iter().cloned().chain(others).collect()
}

/// The yardstick of a tunnel's overhead.
const WIREGUARD: &str = "wireguard";

/// Whether the measured traffic of the row consists of datagrams.
fn needs_udp(row: &Row) -> bool {
    let mut scenarios = row.variants.iter().map(|variant| &variant.scenario);
    scenarios.any(|scenario| scenario.workload.needs_udp())
}

/// The systems that a row's bars are relative to, besides the links alone; they run with every
/// seed.
fn references(row: &Row) -> Vec<String> {
    let mut names: Vec<_> = row
        .bars
        .iter()
        .filter_map(|bar| bar.quantity.reference(&row.judged))
        .collect();
    names.dedup();
    names
}

/// The alternatives of a variant: other schedulers only for the first variant unless named, and
/// independent flows only where they carry the same traffic.
fn alternatives_of(
    row: &Row,
    scenario: &Scenario,
    first: bool,
    options: &BenchOptions,
) -> Vec<String> {
    let bulk = matches!(
        scenario.workload,
        Workload::Bulk | Workload::Curl | Workload::Http3 { .. }
    );
    let references = references(row);
    let all = alternatives(row, options).into_iter();
    all.filter(|name| !references.contains(name))
        .filter(|name| first || !options.systems.is_empty() || !name.starts_with("sumlink:"))
        .filter(|name| bulk || name != SIMULTANEOUS)
        .collect()
}

/// Number of seeds of the system under test and of the alternatives; `first` is the row's first
/// variant.
fn seeds(options: &BenchOptions, first: bool) -> (u64, u64) {
    match (options.quick, first) {
        (true, _) => (1, 1),
        (false, true) => (options.seeds, options.alternative_seeds),
        (false, false) => {
            let own = options.other_seeds.unwrap_or(options.seeds);
            (own, options.alternative_seeds.min(own))
        }
    }
}

/// A system and a seed that a line needs.
pub(super) struct Wanted {
    pub(super) system: String,
    pub(super) seed: u64,
    /// Whether bars depend on it; otherwise it is an alternative.
    pub(super) is_judged: bool,
}

/// The runs that the line of a variant needs. All systems of a seed run in sequence, so that
/// changes of the machine affect them equally.
fn wanted(row: &Row, variant: &Variant, options: &BenchOptions) -> Vec<Wanted> {
    let first = is_first(row, variant);
    let (seeds, fewer) = seeds(options, first);
    let others = alternatives_of(row, &variant.scenario, first, options);
    // Only systems that are compared with the links alone need these, with the same seed.
    let compared = row.bars.iter().any(|bar| bar.quantity.needs_links());
    let mut all = Vec::new();
    for seed in 1..=seeds.max(fewer) {
        let mut want = |system: &str, is_judged: bool| {
            let system = system.to_owned();
            all.push(Wanted {
                system,
                seed,
                is_judged,
            });
        };
        if compared {
            want(ALONE, true);
        }
        if seed <= seeds {
            for reference in references(row) {
                want(&reference, true);
            }
            want(&row.judged, true);
        }
        for other in others.iter().filter(|_| seed <= fewer) {
            want(other, false);
        }
    }
    all
}

fn is_first(row: &Row, variant: &Variant) -> bool {
    let first = row.variants.first();
    first.is_some_and(|first| first.scenario.name == variant.scenario.name)
}

/// The seeds and systems that the line of a variant shows, if the store has them.
pub(super) fn shown(row: &Row, variant: &Variant, options: &BenchOptions) -> Vec<(u64, String)> {
    let (seeds, fewer) = seeds(options, is_first(row, variant));
    let references = references(row);
    let mut shown = Vec::new();
    for seed in 1..=seeds.max(fewer) {
        if seed <= seeds {
            shown.push((seed, row.judged.clone()));
        }
        shown.push((seed, ALONE.to_owned()));
        let others = alternatives(row, options).into_iter();
        let others = others.filter(|name| seed <= fewer || references.contains(name));
        shown.extend(others.map(|system| (seed, system)));
    }
    shown
}

impl<'a> Plan<'a> {
    /// The runs of the chosen lines, each once.
    pub(super) fn new(
        groups: &'a [Group],
        sources: &Sources<'a>,
        options: &'a BenchOptions,
        program: &'a Path,
    ) -> Self {
        let mut plan = Self {
            jobs: Vec::new(),
            purposes: Vec::new(),
            capacity: Capacity::of_this_machine(options.jobs.map(usize::from)),
        };
        let mut known: BTreeMap<(&str, u64, String), usize> = BTreeMap::new();
        for (group, row, variant) in chosen(groups, options) {
            for wanted in wanted(row, variant, options) {
                for Part { scenario, .. } in sources.parts(variant, &wanted.system) {
                    let system = wanted.system.clone();
                    let key = (scenario.name.as_str(), wanted.seed, system.clone());
                    if let Some(index) = known.get(&key) {
                        plan.purposes[*index].is_judged |= wanted.is_judged;
                        continue;
                    }
                    known.insert(key, plan.jobs.len());
                    plan.jobs.push(Job {
                        scenario,
                        seed: wanted.seed,
                        system,
                        program,
                        rate: sources.rate(scenario),
                        trace: None,
                    });
                    plan.purposes.push(Purpose {
                        group: &group.name,
                        row: &row.name,
                        is_judged: wanted.is_judged,
                    });
                }
            }
        }
        plan.gather_light_runs();
        plan
    }

    /// Moves runs that may share the machine to the front of each row: between two exclusive runs,
    /// such a run would be alone as well.
    fn gather_light_runs(&mut self) {
        let mut rows: Vec<(&str, &str)> = Vec::new();
        let jobs = std::mem::take(&mut self.jobs).into_iter();
        let all = jobs.zip(std::mem::take(&mut self.purposes));
        let keyed = all.map(|(job, purpose)| {
            let row = (purpose.group, purpose.row);
            let place = rows.iter().rposition(|known| *known == row);
            let place = place.unwrap_or_else(|| {
                rows.push(row);
                rows.len() - 1
            });
            ((place, self.capacity.width(&job) == 1), job, purpose)
        });
        let mut keyed: Vec<_> = keyed.collect();
        keyed.sort_by_key(|(key, _, _)| *key);
        let sorted = keyed.into_iter().map(|(_, job, purpose)| (job, purpose));
        (self.jobs, self.purposes) = sorted.unzip();
    }

    /// The scenarios, each once.
    pub(super) fn scenarios(&self) -> Vec<&'a Scenario> {
        let by_name = self
            .jobs
            .iter()
            .map(|job| (&job.scenario.name, job.scenario));
        by_name.collect::<BTreeMap<_, _>>().into_values().collect()
    }
}
