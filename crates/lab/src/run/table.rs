//! The results of a scenario on a terminal.

use std::fmt::Write;

use crate::prose::{first_sentence, wrapped};
use crate::report::words;
use crate::results::{DatagramSummary, Measurement, Outcome, Run, ScenarioHeader, Spread, Summary};
use crate::scenario::Scenario;

use super::progress::describe;

/// Width of the table in characters.
const WIDTH: usize = 80;

/// Median and spread of the goodput of each system.
pub fn of(scenario: &Scenario, runs: &[Run]) -> String {
    let mut text = String::new();
    let head = format!("{}: {}", scenario.name, first_sentence(&scenario.about));
    let _ = writeln!(text, "{}", wrapped(&head, WIDTH, 2));
    let _ = writeln!(
        text,
        "  {:<28} {:>5} {:>12} {:>12} {:>12}",
        "SYSTEM", "RUNS", "MEDIAN", "MIN", "MAX"
    );
    let header = ScenarioHeader {
        name: scenario.name.clone(),
        ..ScenarioHeader::default()
    };
    let summary = Summary::from_runs(&header, runs);
    let mut names: Vec<&str> = Vec::new();
    for run in runs {
        if !names.contains(&run.system.as_str()) {
            names.push(&run.system);
        }
    }
    for name in names {
        let of_system = || runs.iter().filter(|run| run.system == name);
        let measured = || {
            of_system().filter_map(|run| match &run.outcome {
                Outcome::Measured(figures) => Some(figures),
                _ => None,
            })
        };
        row(
            &mut text,
            name,
            measured().map(|figures| figures.goodput_bps),
        );
        if name == "alone" || name == "simultaneous" {
            for link in scenario.links() {
                let flows = measured()
                    .flat_map(|figures| &figures.flows)
                    .filter(|flow| flow.link.as_deref() == Some(&link.name));
                row(
                    &mut text,
                    &format!("  {}", link.name),
                    flows.map(|flow| flow.goodput_bps),
                );
            }
        }
        datagram_rows(&mut text, measured().map(|figures| &**figures));
        if let Some(summary) = summary.system(name)
            && let Some(lag) = words::lag(summary)
        {
            let _ = writeln!(text, "    {lag}");
        }
        for run in of_system() {
            if !matches!(run.outcome, Outcome::Measured(_)) {
                let _ = writeln!(text, "    seed {}: {}", run.seed, describe(&run.outcome));
            }
        }
    }
    text
}

/// A line for each flow of datagrams: the medians over the seeds.
fn datagram_rows<'a>(text: &mut String, runs: impl Iterator<Item = &'a Measurement>) {
    for flow in DatagramSummary::of_all(runs) {
        let _ = writeln!(
            text,
            "    {}: {}",
            words::flow(&flow),
            words::datagrams(&flow)
        );
    }
}

fn row(text: &mut String, name: &str, goodput: impl Iterator<Item = f64>) {
    if let Some(spread) = Spread::of(goodput) {
        let megabits = |bps: f64| format!("{:.1} Mbit/s", bps / 1e6);
        let _ = writeln!(
            text,
            "  {name:<28} {:>5} {:>12} {:>12} {:>12}",
            spread.count,
            megabits(spread.median),
            megabits(spread.min),
            megabits(spread.max)
        );
    }
}
