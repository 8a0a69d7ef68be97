//! Computes the summary of a scenario's runs.

mod system;
mod warnings;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::summary::{Bounds, Quantiles, Spread, Summary, SystemSummary};
use super::{Measurement, Outcome, Run};

use system::{capacities, of_system};
use warnings::warnings;

/// The system that measures each link alone.
pub const ALONE: &str = "alone";
/// The system that measures all links at once with independent flows.
pub const SIMULTANEOUS: &str = "simultaneous";
/// Kernel MPTCP.
pub const MPTCP: &str = "mptcp";

/// Properties of the scenario that a summary contains.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScenarioHeader {
    /// Name of the scenario.
    pub name: String,
    /// Description of the scenario.
    pub about: String,
    /// `down`, `up` or `both`.
    pub direction: String,
    /// The kind of workload: `bulk`, `files`, `requests`, `cbr` or `command`.
    pub workload: String,
    /// Time limit for an object of a workload of files, in seconds.
    pub limit_s: Option<f64>,
    /// Number of requested seeds; 0 if unknown.
    pub seeds: usize,
    /// The links in the order of the scenario.
    pub links: Vec<String>,
    /// The systems in the order of the scenario.
    pub systems: Vec<String>,
    /// MPTCP's median on the same links without interference, for eq. 5.1 and 5.2 (see [`Bounds`]).
    pub clean_mptcp_bps: Option<f64>,
}

impl Summary {
    /// Summarizes the runs of one scenario. Systems and links that the header does not name follow
    /// those that it names. Of several runs with the same system and seed, the newest is used.
    pub fn from_runs(header: &ScenarioHeader, runs: &[Run]) -> Self {
        let runs = newest(runs);
        let mut summary = Self {
            about: header.about.clone(),
            direction: header.direction.clone(),
            workload: header.workload.clone(),
            limit_s: header.limit_s,
            ..Self::new(&header.name)
        };
        if let Some(run) = runs.iter().max_by_key(|run| run.started_unix_s) {
            summary.environment = run.environment.clone();
        }
        let links = in_order(&header.links, runs.iter().flat_map(|run| links_of(run)));
        let systems = in_order(&header.systems, runs.iter().map(|run| run.system.as_str()));
        summary.alone = per_link(&runs, ALONE, &links);
        summary.simultaneous = per_link(&runs, SIMULTANEOUS, &links);
        summary.best_alone_completion_s = best_completion(&runs, &links);
        summary.bounds = bounds(&summary, header.clean_mptcp_bps);
        let capacities = capacities(&runs);
        summary.systems = systems
            .iter()
            .map(|system| {
                let runs: Vec<&Run> = runs
                    .iter()
                    .copied()
                    .filter(|run| run.system == *system)
                    .collect();
                of_system(system, &runs, &links, &capacities, header.seeds)
            })
            .collect();
        summary.warnings = warnings(&summary, &runs);
        summary
    }

    /// The system of that name.
    pub fn system(&self, name: &str) -> Option<&SystemSummary> {
        self.systems.iter().find(|system| system.system == name)
    }

    /// The fastest link alone.
    pub fn best_link(&self) -> Option<&str> {
        let best = self
            .alone
            .iter()
            .max_by(|a, b| a.1.median.total_cmp(&b.1.median))?;
        Some(&best.0)
    }
}

/// The valid figures of a run, or the kind and reason of its problem.
pub fn figures(run: &Run) -> Result<&Measurement, (&'static str, String)> {
    match &run.outcome {
        Outcome::Skipped { reason } => Err(("skipped", reason.clone())),
        Outcome::Refused { reason } => Err(("refused", reason.clone())),
        Outcome::Failed { reason } => Err(("failed", reason.clone())),
        Outcome::Measured(figures) => {
            if let Some(objection) = figures.emulator.objection() {
                return Err(("refused", objection));
            }
            if !(figures.goodput_bps.is_finite() && figures.goodput_bps >= 0.0) {
                let reason = format!("{} bit/s is not a valid goodput", figures.goodput_bps);
                return Err(("failed", reason));
            }
            Ok(figures)
        }
    }
}

/// A link's contribution to a run: see `LinkPart`. `None` if unknown.
pub fn link_goodput(figures: &Measurement, link: &str) -> Option<f64> {
    if figures.flows.iter().any(|flow| flow.link.is_some()) {
        let bound = figures
            .flows
            .iter()
            .filter(|flow| flow.link.as_deref() == Some(link));
        let mut bound = bound.map(|flow| flow.goodput_bps).peekable();
        bound.peek()?;
        return Some(bound.sum()).filter(|sum: &f64| sum.is_finite());
    }
    // The other direction carries acknowledgments, which would distort the shares.
    let carries = |direction: &str| {
        figures.flows.is_empty() || figures.flows.iter().any(|flow| flow.direction == direction)
    };
    let counted = || {
        figures
            .links
            .iter()
            .filter(|series| carries(&series.direction))
    };
    let total: f64 = counted().map(|series| series.wire_bytes as f64).sum();
    let own: f64 = counted()
        .filter(|series| series.link == link)
        .map(|series| series.wire_bytes as f64)
        .sum();
    (total > 0.0).then(|| figures.goodput_bps * own / total)
}

/// One run for each system and seed, sorted by system and seed.
fn newest(runs: &[Run]) -> Vec<&Run> {
    let mut newest: BTreeMap<(&str, u64), &Run> = BTreeMap::new();
    for run in runs {
        let kept = newest.entry((&run.system, run.seed)).or_insert(run);
        if run.started_unix_s > kept.started_unix_s {
            *kept = run;
        }
    }
    newest.into_values().collect()
}

fn links_of(run: &Run) -> Vec<&str> {
    let Ok(figures) = figures(run) else {
        return Vec::new();
    };
    let flows = figures.flows.iter().filter_map(|flow| flow.link.as_deref());
    let series = figures.links.iter().map(|series| series.link.as_str());
    flows.chain(series).collect()
}

/// The names in the header, then the others in order of appearance.
fn in_order<'a>(header: &'a [String], others: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = std::collections::HashSet::new();
    header
        .iter()
        .map(String::as_str)
        .chain(others)
        .filter(|name| seen.insert(*name))
        .collect()
}

fn per_link(runs: &[&Run], system: &str, links: &[&str]) -> Vec<(String, Spread)> {
    let figures: Vec<&Measurement> = runs
        .iter()
        .filter(|run| run.system == system)
        .filter_map(|run| figures(run).ok())
        .collect();
    links
        .iter()
        .filter_map(|link| {
            let values = figures.iter().filter_map(|run| link_goodput(run, link));
            Some(((*link).to_owned(), Spread::of(values)?))
        })
        .collect()
}

fn best_completion(runs: &[&Run], links: &[&str]) -> Option<(String, Quantiles)> {
    let alone = || runs.iter().filter(|run| run.system == ALONE);
    let of_link = |link: &&str| {
        let objects = alone()
            .filter_map(|run| figures(run).ok())
            .flat_map(|run| &run.completions)
            .filter(|object| object.link.as_deref() == Some(*link));
        let times = Quantiles::of(objects.map(|object| object.duration_s))?;
        Some(((*link).to_owned(), times))
    };
    links
        .iter()
        .filter_map(of_link)
        .min_by(|a, b| a.1.p50.total_cmp(&b.1.p50))
}

/// WhiteHaul dissertation, eq. 5.1 and 5.2, on sums over the links.
fn bounds(summary: &Summary, clean_mptcp_bps: Option<f64>) -> Bounds {
    let sum = |links: &[(String, Spread)]| {
        (!links.is_empty()).then(|| links.iter().map(|(_, spread)| spread.median).sum::<f64>())
    };
    let clean_mptcp_bps = clean_mptcp_bps.filter(|bps| bps.is_finite());
    let lesser = |bound: Option<f64>| Some(bound?.min(clean_mptcp_bps.unwrap_or(f64::INFINITY)));
    let sum_alone_bps = sum(&summary.alone);
    let sum_simultaneous_bps = sum(&summary.simultaneous);
    Bounds {
        sum_alone_bps,
        sum_simultaneous_bps,
        best_alone_bps: summary
            .alone
            .iter()
            .map(|(_, spread)| spread.median)
            .reduce(f64::max),
        clean_mptcp_bps,
        hard_bps: lesser(sum_alone_bps),
        soft_bps: lesser(sum_simultaneous_bps),
    }
}
