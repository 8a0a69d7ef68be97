//! Goodput and gaps of a bond with a WiGig link, for each access scheme and number of competing
//! stations, in the simulator.

use sumlink_lab::results::{Outcome, Spread};
use sumlink_lab::scenario::Scenario;
use sumlink_mmwave::experiment::{Point, series};
use sumlink_mmwave::wigig::outages;
use sumlink_plot::figures::{Labels, lines};
use sumlink_scenario::experiment::BondExperiment;

/// The compared systems, with the names of their figures. `alone` means the WiGig link alone.
const SYSTEMS: [([&str; 3], &str); 3] = [
    (
        ["sumlink_mbps", "sumlink_gap_s", "sumlink_worst_gap_s"],
        "sumlink:fbdt",
    ),
    (["mptcp_mbps", "mptcp_gap_s", "mptcp_worst_gap_s"], "mptcp"),
    (["wigig_mbps", "wigig_gap_s", "wigig_worst_gap_s"], "alone"),
];

/// A scheme, a number of stations and a seed: every system runs under the same outages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Task {
    scheme: &'static str,
    stations: usize,
    seed: u64,
}

/// Result of a task.
#[derive(Debug)]
pub(super) struct Measured {
    /// Goodput in Mbit/s and the longest gap in seconds of each system; `None` for a failed one.
    systems: Vec<Option<(f64, f64)>>,
    /// Share of the run without data on the link, and the longest such time in seconds.
    gone: f64,
    outage_s: f64,
}

/// All tasks; the seeds of a point follow one another.
pub(super) fn tasks(experiment: &BondExperiment) -> Vec<Task> {
    let mut tasks = Vec::new();
    for scheme in &experiment.schemes {
        for stations in &experiment.stations {
            tasks.extend((1..=experiment.seeds).map(|seed| Task {
                scheme,
                stations: *stations,
                seed,
            }));
        }
    }
    tasks
}

/// Runs one task.
pub(super) fn measure(experiment: &BondExperiment, task: &Task) -> Result<Measured, String> {
    let scenario = experiment.scenario.under_access(task.scheme, task.stations);
    let scenario = scenario.ok_or("the scenario has no link with profile = \"mmwave\"")?;
    let wigig = scenario.wigig_links().next().unwrap_or_default().to_owned();
    let steps = scenario.wigig_schedule(task.seed).unwrap_or_default();
    let gone = outages(&steps);
    let interval_s = steps.get(1).map_or(0.0, |second| second.at.as_secs_f64());
    let longest = gone.iter().max().copied().unwrap_or(0) as f64 * interval_s;
    let systems = SYSTEMS.iter().map(|(_, system)| {
        let run = sumlink_sim::run(&scenario, system, task.seed)?;
        Ok(figures(&scenario, &run.outcome, *system == "alone", &wigig))
    });
    Ok(Measured {
        systems: systems.collect::<Result<_, String>>()?,
        gone: gone.iter().sum::<usize>() as f64 / steps.len().max(1) as f64,
        outage_s: longest,
    })
}

/// Goodput and longest gap, of all flows or of the WiGig link alone.
fn figures(scenario: &Scenario, outcome: &Outcome, alone: bool, wigig: &str) -> Option<(f64, f64)> {
    let Outcome::Measured(measured) = outcome else {
        return None;
    };
    let (bps, series) = if alone {
        let mut flows = measured.flows.iter();
        let flow = flows.find(|flow| flow.link.as_deref() == Some(wigig))?;
        (flow.goodput_bps, &flow.goodput)
    } else {
        (measured.goodput_bps, &measured.goodput)
    };
    let gap = series.longest_gap_s(scenario.warmup.as_secs_f64());
    Some((bps / 1e6, gap))
}

/// The figures of each scheme and number of stations over the seeds: medians, and the longest gap
/// of all.
pub(super) fn points(
    experiment: &BondExperiment,
    tasks: &[Task],
    measured: &[Measured],
) -> Vec<Point> {
    let seeds = usize::try_from(experiment.seeds).unwrap_or(usize::MAX);
    let groups = tasks.chunks(seeds).zip(measured.chunks(seeds));
    let point = |(tasks, measured): (&[Task], &[Measured])| {
        let mut point = Point::new();
        let median = |values: Vec<f64>| Spread::of(values).map(|spread| spread.median);
        point.text("scheme", tasks[0].scheme);
        point.count("stations", tasks[0].stations as u64);
        point.maybe(
            "gone",
            median(measured.iter().map(|one| one.gone).collect()),
        );
        let longest = measured.iter().map(|one| one.outage_s);
        point.maybe("outage_s", median(longest.collect()));
        let mut failed = 0;
        for (index, (names, _)) in SYSTEMS.iter().enumerate() {
            let all = measured.iter().filter_map(|one| one.systems[index]);
            let all: Vec<(f64, f64)> = all.collect();
            failed += measured.len() - all.len();
            point.maybe(names[0], median(all.iter().map(|one| one.0).collect()));
            point.maybe(names[1], median(all.iter().map(|one| one.1).collect()));
            let worst = all.iter().map(|one| one.1).reduce(f64::max);
            point.maybe(names[2], worst);
        }
        point.count("failed", failed as u64);
        point
    };
    groups.map(point).collect()
}

/// Charts of goodput and longest gap of each system, with the suffixes of their file names. All
/// charts of a figure share one scale.
pub(super) fn pictures(points: &[Point]) -> Vec<(&'static str, String)> {
    const GOODPUT: [(&str, &str, &str); 3] = [
        ("", "sumlink_mbps", "Goodput of sumlink"),
        ("-mptcp", "mptcp_mbps", "Goodput of MPTCP"),
        ("-wigig", "wigig_mbps", "Goodput of WiGig alone"),
    ];
    const GAPS: [(&str, &str, &str); 3] = [
        ("-sumlink-gap", "sumlink_gap_s", "Longest gap of sumlink"),
        ("-mptcp-gap", "mptcp_gap_s", "Longest gap of MPTCP"),
        ("-gap", "wigig_gap_s", "Longest gap of WiGig alone"),
    ];
    let mut pictures = Vec::new();
    for (figure, label) in [
        (GOODPUT, "Mbit/s, median over seeds"),
        (GAPS, "seconds without data, median over seeds"),
    ] {
        let all = figure.iter().flat_map(|(_, name, _)| {
            let found = points.iter().filter_map(|point| point.find(name));
            found.collect::<Vec<_>>()
        });
        let most = all.fold(0.1, f64::max);
        for (end, name, title) in figure {
            let labels = Labels {
                title: &format!("{title} by access scheme"),
                x: "competing stations",
                y: label,
            };
            let series = series(points, ("stations", name));
            pictures.push((end, lines(&labels, &series, (0.0, most * 1.05))));
        }
    }
    pictures
}
