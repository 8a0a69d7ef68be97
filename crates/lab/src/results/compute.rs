//! From the runs of a scenario to its summary.

use std::collections::{BTreeMap, HashMap};

use super::summary::{Bounds, LinkPart, Missing, Quantiles, Spread, Summary, SystemSummary};
use super::{Measurement, Outcome, Run};

/// The system that measures each link by itself.
pub const ALONE: &str = "alone";
/// The system that measures all links at once with independent flows.
pub const SIMULTANEOUS: &str = "simultaneous";
/// Kernel MPTCP.
pub const MPTCP: &str = "mptcp";

/// Averages may exceed a bound by so much without anybody wondering: what one seed's noise does.
const TOLERANCE: f64 = 0.05;

/// What a summary says of the scenario beside the figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScenarioHeader {
    /// Its name.
    pub name: String,
    /// What it is about.
    pub about: String,
    /// `down`, `up` or `both`.
    pub direction: String,
    /// The kind of workload: `bulk`, `files`, `cbr` or `command`.
    pub workload: String,
    /// How many seeds were asked for; 0 if that is not known.
    pub seeds: usize,
    /// The links in the order of the scenario.
    pub links: Vec<String>,
    /// The systems in the order of the scenario.
    pub systems: Vec<String>,
    /// MPTCP's median on the same links without interference, for eq. 5.1 and 5.2 (see [`Bounds`]).
    pub clean_mptcp_bps: Option<f64>,
}

/// The capacities C_i of one seed.
struct Capacity {
    sum: f64,
    max: f64,
}

impl Summary {
    /// Of the runs of one scenario. Systems and links that the header does not name come after those that it
    /// does. Where there are several runs of one system and seed, the newest counts.
    pub fn from_runs(header: &ScenarioHeader, runs: &[Run]) -> Self {
        let runs = newest(runs);
        let mut summary = Self {
            about: header.about.clone(),
            direction: header.direction.clone(),
            workload: header.workload.clone(),
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

/// The figures of a run that may be believed, or what is wrong with it: its kind and why.
pub(crate) fn figures(run: &Run) -> Result<&Measurement, (&'static str, String)> {
    match &run.outcome {
        Outcome::Skipped { reason } => Err(("skipped", reason.clone())),
        Outcome::Refused { reason } => Err(("refused", reason.clone())),
        Outcome::Failed { reason } => Err(("failed", reason.clone())),
        Outcome::Measured(figures) => {
            if let Some(objection) = figures.emulator.objection() {
                return Err(("refused", objection));
            }
            if !(figures.goodput_bps.is_finite() && figures.goodput_bps >= 0.0) {
                let reason = format!("{} bit/s is no goodput", figures.goodput_bps);
                return Err(("failed", reason));
            }
            Ok(figures)
        }
    }
}

/// What a link contributed to a run: see [`LinkPart`]. `None` if the run does not tell.
pub(crate) fn link_goodput(figures: &Measurement, link: &str) -> Option<f64> {
    if figures.flows.iter().any(|flow| flow.link.is_some()) {
        let bound = figures
            .flows
            .iter()
            .filter(|flow| flow.link.as_deref() == Some(link));
        let mut bound = bound.map(|flow| flow.goodput_bps).peekable();
        bound.peek()?;
        return Some(bound.sum()).filter(|sum: &f64| sum.is_finite());
    }
    // What flows the other way are acknowledgements, which would blur the division.
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

/// One run for each system and seed, by system and seed.
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

/// The names of the header, then the others in the order in which they come.
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

/// What the links delivered alone, seed by seed.
fn capacities(runs: &[&Run]) -> HashMap<u64, Capacity> {
    let alone = runs.iter().filter(|run| run.system == ALONE);
    alone
        .filter_map(|run| {
            let figures = figures(run).ok()?;
            let mut links: BTreeMap<&str, f64> = BTreeMap::new();
            for flow in &figures.flows {
                *links.entry(flow.link.as_deref()?).or_default() += flow.goodput_bps;
            }
            let sum: f64 = links.values().sum();
            let max = links.values().copied().fold(0.0, f64::max);
            (sum.is_finite() && sum > 0.0).then_some((run.seed, Capacity { sum, max }))
        })
        .collect()
}

fn of_system(
    system: &str,
    runs: &[&Run],
    links: &[&str],
    capacities: &HashMap<u64, Capacity>,
    seeds: usize,
) -> SystemSummary {
    let mut missing: Vec<Missing> = Vec::new();
    let mut note = |kind: &str, reason: String, runs: usize| match missing
        .iter_mut()
        .find(|m| m.kind == kind && m.reason == reason)
    {
        Some(known) => known.runs += runs,
        None => missing.push(Missing {
            kind: kind.to_owned(),
            reason,
            runs,
        }),
    };
    let mut measured: Vec<(u64, &Measurement)> = Vec::new();
    for run in runs {
        match figures(run) {
            Ok(figures) => measured.push((run.seed, figures)),
            Err((kind, reason)) => note(kind, reason, 1),
        }
    }
    if seeds > runs.len() {
        note("not run", "not run yet".to_owned(), seeds - runs.len());
    }
    let all = || measured.iter().map(|(_, figures)| *figures);
    // The links alone would be compared with themselves.
    let compared: Vec<(f64, &Capacity)> = measured
        .iter()
        .filter(|_| system != ALONE)
        .filter_map(|(seed, figures)| Some((figures.goodput_bps, capacities.get(seed)?)))
        .collect();
    SystemSummary {
        system: system.to_owned(),
        runs: measured.len(),
        goodput_bps: Spread::of(all().map(|run| run.goodput_bps)),
        completion_s: Quantiles::of(
            all().flat_map(|run| run.completions.iter().map(|object| object.duration_s)),
        ),
        message_delay_ms: Quantiles::of(
            all().flat_map(|run| run.message_delays_ms.iter().copied()),
        ),
        aggregation_ratio: Spread::of(compared.iter().map(|(x, c)| x / c.sum)),
        aggregation_benefit: Spread::of(compared.iter().filter_map(|(x, c)| benefit(*x, c))),
        below_best: compared.iter().filter(|(x, c)| *x < c.max).count(),
        // Links that differ are no sign of unfairness where each was alone.
        fairness: Spread::of(all().filter(|_| system != ALONE).filter_map(jain)),
        links: links
            .iter()
            .filter_map(|link| {
                Some(LinkPart {
                    link: (*link).to_owned(),
                    goodput_bps: Spread::of(all().filter_map(|run| link_goodput(run, link)))?,
                })
            })
            .collect(),
        retransmissions: Spread::of(all().filter_map(|run| run.retransmissions.map(|n| n as f64))),
        duplicates_bytes: Spread::of(
            all().filter_map(|run| run.duplicates_bytes.map(|n| n as f64)),
        ),
        cpu_share: Spread::of(all().filter_map(|run| {
            let cpu: f64 = run.processes.iter().map(|process| process.cpu_s).sum();
            (!run.processes.is_empty() && run.duration_s > 0.0).then(|| cpu / run.duration_s)
        })),
        peak_memory_bytes: Spread::of(all().filter_map(|run| {
            let peaks = run
                .processes
                .iter()
                .map(|process| process.peak_memory_bytes);
            peaks.max().map(|bytes| bytes as f64)
        })),
        missing,
    }
}

/// WhiteHaul dissertation, eq. 3.2; `None` where one link is all there is and nothing can be gained.
fn benefit(x: f64, capacity: &Capacity) -> Option<f64> {
    let Capacity { sum, max } = *capacity;
    let value = if x >= max {
        (x - max) / (sum - max)
    } else {
        (x - max) / max
    };
    value.is_finite().then_some(value)
}

/// Jain's index (DEC-TR-301): (sum x)^2 / (n sum x^2).
fn jain(figures: &Measurement) -> Option<f64> {
    let (count, sum, squares) = figures
        .flows
        .iter()
        .map(|flow| flow.goodput_bps)
        .fold((0.0, 0.0, 0.0), |(n, sum, squares), x| {
            (n + 1.0, sum + x, squares + x * x)
        });
    (count > 1.0 && squares > 0.0).then(|| sum * sum / (count * squares))
}

/// What contradicts itself, or eq. 5.3.
fn warnings(summary: &Summary, runs: &[&Run]) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut warn = |text: String| warnings.push(text);
    let of = &summary.environment;
    let differs = runs.iter().any(|run| {
        let other = &run.environment;
        other.kernel != of.kernel
            || other.processors != of.processors
            || other.sumlink != of.sumlink
            || other.congestion != of.congestion
            || other.socket_buffer_max_bytes != of.socket_buffer_max_bytes
    });
    if differs {
        warn(
            "runs of different kernels, versions, congestion controls or socket buffers are mixed here: \
             repeat them all in a new directory"
                .to_owned(),
        );
    }
    let megabits = |bps: f64| format!("{:.1} Mbit/s", bps / 1e6);
    if let (Some(at_once), Some(alone)) = (
        summary.bounds.sum_simultaneous_bps,
        summary.bounds.sum_alone_bps,
    ) && at_once > alone * (1.0 + TOLERANCE)
    {
        warn(format!(
            "all links at once delivered {}, more than the links alone together ({}): they were not the same in \
             both measurements",
            megabits(at_once),
            megabits(alone)
        ));
    }
    for system in &summary.systems {
        if let Some(ratio) = &system.aggregation_ratio
            && system.system != SIMULTANEOUS
            && ratio.median > 1.0 + TOLERANCE
        {
            warn(format!(
                "{} delivered {:.2} times the sum of the links alone: one of the two measurements is wrong",
                system.system, ratio.median
            ));
        }
    }
    if summary.alone.is_empty() && !runs.is_empty() {
        warn(
            "the links alone were not measured: there is nothing to compare the systems with (add alone to systems)"
                .to_owned(),
        );
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Flow;

    fn run(system: &str, seed: u64, flows: &[(Option<&str>, f64)]) -> Run {
        let flows: Vec<Flow> = flows
            .iter()
            .map(|(link, mbps)| Flow {
                link: link.map(str::to_owned),
                direction: "down".to_owned(),
                goodput_bps: mbps * 1e6,
                ..Flow::default()
            })
            .collect();
        Run {
            schema: 1,
            scenario: "s".to_owned(),
            scenario_sha256: String::new(),
            seed,
            system: system.to_owned(),
            started_unix_s: seed,
            environment: Default::default(),
            outcome: Outcome::Measured(Box::new(Measurement {
                duration_s: 10.0,
                goodput_bps: flows.iter().map(|flow| flow.goodput_bps).sum(),
                flows,
                ..Measurement::default()
            })),
        }
    }

    fn header(clean_mptcp_bps: Option<f64>) -> ScenarioHeader {
        ScenarioHeader {
            links: vec!["wh1".to_owned(), "wh2".to_owned()],
            seeds: 1,
            clean_mptcp_bps,
            ..ScenarioHeader::default()
        }
    }

    /// The dissertation's table 4.1: (20-80), with the ratios and benefits that its text computes from it.
    #[test]
    fn ratio_and_benefit_are_those_of_the_dissertation() {
        let of = |mptcp: f64| {
            let runs = [
                run(ALONE, 1, &[(Some("wh1"), 61.9), (Some("wh2"), 256.0)]),
                run(MPTCP, 1, &[(None, mptcp)]),
            ];
            let summary = Summary::from_runs(&header(None), &runs);
            let system = summary.system(MPTCP).unwrap().clone();
            let rounded = |spread: Option<Spread>| (spread.unwrap().median * 100.0).round();
            (
                rounded(system.aggregation_ratio),
                rounded(system.aggregation_benefit),
                system.below_best,
            )
        };
        // The dissertation prints 0.59 for the benefit of its clean channel; its figures give 37.0 / 61.9.
        assert_eq!(of(58.6 + 234.4), (92.0, 60.0, 0));
        assert_eq!(of(58.1 + 182.1), (76.0, -6.0, 1));
    }

    /// The dissertation's table 5.1: (80-80).
    #[test]
    fn bounds_are_the_lesser_of_the_links_and_clean_mptcp() {
        let runs = [
            run(ALONE, 1, &[(Some("wh1"), 215.0), (Some("wh2"), 112.0)]),
            run(
                SIMULTANEOUS,
                1,
                &[(Some("wh1"), 164.0), (Some("wh2"), 101.0)],
            ),
        ];
        let bounds = |clean| Summary::from_runs(&header(clean), &runs).bounds;
        let without = bounds(None);
        assert_eq!(without.hard_bps, Some(327e6));
        assert_eq!(without.soft_bps, Some(265e6));
        let with = bounds(Some(300e6));
        assert_eq!((with.hard_bps, with.soft_bps), (Some(300e6), Some(265e6)));
        assert_eq!(with.sum_alone_bps, Some(327e6));
        assert_eq!(with.best_alone_bps, Some(215e6));
    }

    #[test]
    fn seeds_are_compared_with_their_own_links() {
        let links = |a, b| [(Some("wh1"), a), (Some("wh2"), b)];
        let runs = [
            run(ALONE, 1, &links(100.0, 100.0)),
            run(ALONE, 2, &links(10.0, 10.0)),
            run("x", 1, &[(None, 90.0)]),
            run("x", 2, &[(None, 19.0)]),
            run("x", 3, &[(None, 1000.0)]),
        ];
        let summary = Summary::from_runs(&header(None), &runs);
        let system = summary.system("x").unwrap();
        let ratio = system.aggregation_ratio.clone().unwrap();
        assert_eq!((ratio.min, ratio.max, ratio.count), (0.45, 0.95, 2));
        assert_eq!((system.runs, system.below_best), (3, 1));
    }

    #[test]
    fn one_link_has_no_benefit() {
        let runs = [
            run(ALONE, 1, &[(Some("wh1"), 100.0)]),
            run("x", 1, &[(None, 100.0)]),
        ];
        let summary = Summary::from_runs(&header(None), &runs);
        assert_eq!(summary.system("x").unwrap().aggregation_benefit, None);
        assert_eq!(summary.system("x").unwrap().below_best, 0);
    }

    #[test]
    fn a_summary_is_read_as_it_was_written() {
        let runs = [
            run(ALONE, 1, &[(Some("wh1"), 100.0), (Some("wh2"), 300.0)]),
            run(MPTCP, 1, &[(None, 200.0)]),
        ];
        let header = ScenarioHeader {
            seeds: 2,
            ..header(Some(250e6))
        };
        let summary = Summary::from_runs(&header, &runs);
        let text = serde_json::to_string(&summary).unwrap();
        assert_eq!(serde_json::from_str::<Summary>(&text).unwrap(), summary);
    }

    #[test]
    fn jains_index_is_that_of_the_report() {
        let index = |flows: &[f64]| {
            let flows: Vec<_> = flows.iter().map(|bps| (None, *bps)).collect();
            let summary = Summary::from_runs(&header(None), &[run("x", 1, &flows)]);
            summary.systems[0].fairness.as_ref().map(|f| f.median)
        };
        assert_eq!(index(&[5.0, 5.0, 5.0]), Some(1.0));
        assert_eq!(index(&[8.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(index(&[5.0]), None);
        assert_eq!(index(&[0.0, 0.0]), None);
    }

    #[test]
    fn runs_without_figures_are_counted_by_reason() {
        let mut late = run("x", 1, &[(None, 1.0)]);
        let Outcome::Measured(figures) = &mut late.outcome else {
            unreachable!()
        };
        figures.emulator.cpu_share = 1.0;
        let skipped = |seed| Run {
            outcome: Outcome::Skipped {
                reason: "not installed".to_owned(),
            },
            ..run("x", seed, &[])
        };
        let broken = run("x", 4, &[(None, f64::NAN)]);
        let header = ScenarioHeader {
            seeds: 6,
            ..header(None)
        };
        let runs = [late, skipped(2), skipped(3), broken];
        let summary = Summary::from_runs(&header, &runs);
        let system = &summary.systems[0];
        let missing: Vec<_> = system
            .missing
            .iter()
            .map(|m| (m.kind.as_str(), m.runs))
            .collect();
        assert_eq!(system.runs, 0);
        assert_eq!(
            missing,
            [
                ("refused", 1),
                ("skipped", 2),
                ("failed", 1),
                ("not run", 2)
            ]
        );
    }

    #[test]
    fn what_contradicts_itself_is_said() {
        let links = |a, b| [(Some("wh1"), a), (Some("wh2"), b)];
        let mut other = run("x", 1, &[(None, 250.0)]);
        other.environment.kernel = "6.1".to_owned();
        let runs = [
            run(ALONE, 1, &links(100.0, 100.0)),
            run(SIMULTANEOUS, 1, &links(150.0, 150.0)),
            other,
        ];
        let warnings = Summary::from_runs(&header(None), &runs).warnings;
        assert_eq!(warnings.len(), 3, "{warnings:?}");
    }
}
