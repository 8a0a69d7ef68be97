//! Assembles the runs of a line. Runs of a single link are shared by all rows with that link; runs
//! of a whole scenario by all rows that differ only in name.

use std::collections::BTreeMap;

use crate::results::{ALONE, Measurement, Outcome, Run};
use crate::run::{Store, join, link_rates};
use crate::scenario::Scenario;

use super::matrix::{Group, Row};
use super::vary::Variant;

/// Where the runs of all lines of a matrix are stored.
pub(super) struct Sources<'a> {
    /// The first scenario of each content.
    whole: BTreeMap<&'a str, &'a Scenario>,
    /// Rate by scenario name, for scenarios that may run alongside others.
    rates: BTreeMap<&'a str, Option<u64>>,
}

/// One of the runs that a system's figures are assembled from.
pub(super) struct Part<'a> {
    /// The row's name of the link, for a run of a single link.
    pub(super) link: Option<&'a str>,
    /// The scenario that was run; its name is the key in the store.
    pub(super) scenario: &'a Scenario,
}

impl<'a> Sources<'a> {
    pub(super) fn new(groups: &'a [Group]) -> Self {
        let mut sources = Self {
            whole: BTreeMap::new(),
            rates: BTreeMap::new(),
        };
        for row in groups.iter().flat_map(|group| &group.rows) {
            for variant in &row.variants {
                let whole = sources.whole.entry(&variant.content);
                let whole = *whole.or_insert(&variant.scenario);
                let links = variant.links.iter().map(|link| &link.scenario);
                for scenario in links.chain([whole]) {
                    let rate = rate(row, scenario);
                    // The strictest of the rows that share the scenario decides whether it may
                    // share the machine.
                    let known = sources.rates.entry(&scenario.name).or_insert(rate);
                    *known = known.and(rate);
                }
            }
        }
        sources
    }

    /// The runs that a system's figures are assembled from, for each seed.
    pub(super) fn parts(&self, variant: &'a Variant, system: &str) -> Vec<Part<'a>> {
        if system == ALONE && !variant.links.is_empty() {
            let links = variant.links.iter().map(|link| Part {
                link: Some(&link.name),
                scenario: &link.scenario,
            });
            return links.collect();
        }
        let first = self.whole.get(variant.content.as_str());
        vec![Part {
            link: None,
            scenario: first.copied().unwrap_or(&variant.scenario),
        }]
    }

    /// The scenario's rate if it may run alongside others.
    pub(super) fn rate(&self, scenario: &Scenario) -> Option<u64> {
        self.rates.get(scenario.name.as_str()).copied().flatten()
    }

    /// The runs of a line's system with a seed; `None` if a part is missing.
    pub(super) fn read(
        &self,
        store: &Store,
        variant: &'a Variant,
        seed: u64,
        system: &str,
    ) -> Option<Vec<(Part<'a>, Run)>> {
        let parts = self.parts(variant, system).into_iter();
        let read = |part: Part<'a>| {
            let run = store.read(part.scenario, seed, system)?;
            Some((part, run))
        };
        parts.map(read).collect()
    }
}

/// Combines the parts into one run of the line's scenario: the goodputs of the links, measured one
/// after another, add up. If any part has no figures, neither has the whole.
pub(super) fn assembled(variant: &Variant, parts: &[(Part<'_>, Run)]) -> Option<Run> {
    let (_, newest) = parts.iter().max_by_key(|(_, run)| run.started_unix_s)?;
    let without = parts.iter().find_map(|(part, run)| {
        let during = |reason: &String| match part.link {
            Some(link) => format!("{link}: {reason}"),
            None => reason.clone(),
        };
        Some(match &run.outcome {
            Outcome::Measured(_) => return None,
            Outcome::Skipped { reason } => Outcome::Skipped {
                reason: during(reason),
            },
            Outcome::Refused { reason } => Outcome::Refused {
                reason: during(reason),
            },
            Outcome::Failed { reason } => Outcome::Failed {
                reason: during(reason),
            },
        })
    });
    let measured = parts.iter().filter_map(|(part, run)| match &run.outcome {
        Outcome::Measured(figures) => Some(renamed((**figures).clone(), part.link)),
        _ => None,
    });
    let outcome = match without {
        Some(outcome) => outcome,
        None => Outcome::Measured(Box::new(measured.reduce(join)?)),
    };
    Some(Run {
        scenario: variant.scenario.name.clone(),
        scenario_sha256: variant.scenario.sha256.clone(),
        outcome,
        ..newest.clone()
    })
}

/// Replaces the link's name by the one in the row.
fn renamed(mut figures: Measurement, link: Option<&str>) -> Measurement {
    let Some(link) = link.map(str::to_owned) else {
        return figures;
    };
    for flow in &mut figures.flows {
        flow.link = flow.link.as_ref().map(|_| link.clone());
    }
    for object in &mut figures.completions {
        object.link = object.link.as_ref().map(|_| link.clone());
    }
    for series in &mut figures.links {
        series.link.clone_from(&link);
    }
    let delays = std::mem::take(&mut figures.link_delays_ms);
    let delays = delays.into_values().map(|delays| (link.clone(), delays));
    figures.link_delays_ms = delays.collect();
    figures
}

/// The scenario's rate if it may run alongside others for that row: the judged figures must not
/// depend on milliseconds or CPU time.
fn rate(row: &Row, scenario: &Scenario) -> Option<u64> {
    let is_sensitive = row.bars.iter().any(|bar| bar.quantity.needs_quiet());
    (!is_sensitive).then(|| link_rates(scenario)).flatten()
}
