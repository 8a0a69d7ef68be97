//! Side-by-side tables of systems, for comparing a new scheduler with the existing ones.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use sumlink_scenario::results::{DatagramSummary, Measurement, Outcome, Spread};
use sumlink_scenario::scenario::Scenario;
use sumlink_scenario::system::System;

use crate::own::Own;
use crate::run::run_own;

/// Header of the table of [`row`]s.
pub const HEAD: &str =
    "system                 Mbit/s   least     done ms   twice  gaps kB memory kB\n";

const USAGE: &str = "usage: FILE... [--systems NAME,NAME] [--seeds N]";

/// The head of [`datagram_rows`].
pub const DATAGRAM_HEAD: &str = concat!(
    "system                                   way    lost %    p50    p95    p99 ",
    "jitter   gap repeat %   MOS\n"
);

/// Formats one table row from the runs of a system; `runs` must not be empty.
///
/// The columns are median and least goodput, median completion time per object size (or of the
/// answers), duplicated bytes as a share of the delivered bytes, the most bytes that receivers held
/// behind gaps, and the most memory that the sessions of both ends held together. `-` stands for a
/// figure that the system does not report.
pub fn row(system: &str, runs: &[Measurement]) -> String {
    let goodput = || runs.iter().map(|run| run.goodput_bps / 1e6);
    // Completion times by object size; answers have no size.
    let mut took: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for run in runs {
        let objects = run.completions.iter();
        let objects = objects.map(|done| (done.size_bytes, done.duration_s * 1e3));
        let answers = run.message_delays_ms.iter().map(|delay| (0, *delay));
        for (size, time) in objects.chain(answers) {
            took.entry(size).or_default().push(time);
        }
    }
    let took: Vec<String> = took
        .into_values()
        .filter_map(|times| median(times).map(|time| format!("{time:.0}")))
        .collect();
    let took = match took.is_empty() {
        true => "-".to_owned(),
        false => took.join(" | "),
    };
    let twice = runs.iter().filter_map(|run| {
        let twice = 100.0 * run.duplicates_bytes? as f64;
        Some(twice / run.bytes.max(1) as f64)
    });
    let kilobytes = |of: fn(&Measurement) -> Option<u64>| {
        let all = runs.iter().filter_map(of);
        or_dash(all.map(|bytes| bytes as f64 / 1e3), 0)
    };
    format!(
        "{system:<20} {:>8} {:>7} {took:>11} {:>5} % {:>8} {:>9}\n",
        or_dash(goodput(), 1),
        or_dash(goodput().min_by(f64::total_cmp), 1),
        or_dash(twice, 1),
        kilobytes(|run| run.reorder_peak_bytes),
        kilobytes(|run| run.memory_peak_bytes),
    )
}

/// Formats the flows of datagrams of a system, one row for each link and direction; none without
/// such flows.
///
/// The columns of [`DATAGRAM_HEAD`] are the lost part, the delays within which half, 95 % and 99 %
/// of the datagrams arrive, the jitter, the longest gap, the bytes sent again as a part of the
/// delivered ones in both directions, and the mean opinion score of a call. Each is the median over
/// the runs.
pub fn datagram_rows(system: &str, runs: &[Measurement]) -> String {
    let repeated = runs.iter().filter_map(|run| {
        let bytes: f64 = run.flows.iter().map(|flow| flow.goodput_bps).sum::<f64>() / 8.0;
        let bytes = bytes * run.duration_s;
        Some(100.0 * run.duplicates_bytes? as f64 / bytes.max(1.0))
    });
    let repeated = or_dash(repeated, 1);
    let mut text = String::new();
    for flow in DatagramSummary::of_all(runs) {
        let name = match &flow.link {
            Some(link) => format!("{system} {link}"),
            None => system.to_owned(),
        };
        let value = |spread: &Option<Spread>, scale: f64, decimals| {
            or_dash(
                spread.as_ref().map(|spread| scale * spread.median),
                decimals,
            )
        };
        text.push_str(&format!(
            "{name:<40} {:<5} {:>7} {:>6} {:>6} {:>6} {:>6} {:>5} {repeated:>8} {:>5}\n",
            flow.direction,
            value(&flow.loss, 100.0, 3),
            value(&flow.delay_p50_ms, 1.0, 1),
            value(&flow.delay_p95_ms, 1.0, 1),
            value(&flow.delay_p99_ms, 1.0, 1),
            value(&flow.jitter_ms, 1.0, 2),
            value(&flow.gap_ms, 1.0, 0),
            value(&flow.mos, 1.0, 2),
        ));
    }
    text
}

/// Runs scenarios with the caller's schedulers (`sumlink:NAME`), all schedulers of the simulator
/// and each link alone, and writes one table per scenario.
///
/// `arguments` is a command line: FILE..., `--systems` selects other systems, `--seeds` sets the
/// number of runs of each system.
///
/// # Errors
///
/// Invalid arguments, files or names are reported before anything runs. An invalid answer of the
/// caller's scheduler is reported with its location, after the rows before it are written.
pub fn compare(
    arguments: impl IntoIterator<Item = String>,
    own: &Own,
    out: &mut dyn Write,
) -> Result<(), String> {
    let names: Vec<&str> = own.scheduler_names().collect();
    let asked = Asked::parse(arguments, &names)?;
    for (number, scenario) in asked.scenarios.iter().enumerate() {
        let between = if number > 0 { "\n" } else { "" };
        say(out, &format!("{between}{}\n{HEAD}", scenario.name))?;
        for system in &asked.systems {
            let line = of_system(scenario, system, asked.seeds, own)?;
            say(out, &line)?;
        }
    }
    Ok(())
}

/// The parsed command line.
struct Asked {
    scenarios: Vec<Scenario>,
    systems: Vec<String>,
    seeds: u64,
}

impl Asked {
    fn parse(arguments: impl IntoIterator<Item = String>, own: &[&str]) -> Result<Self, String> {
        let (mut scenarios, mut systems, mut seeds) = (Vec::new(), None, 1);
        let mut arguments = arguments.into_iter();
        while let Some(word) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{word}: {USAGE}"));
            match word.as_str() {
                "--systems" => systems = Some(value()?.split(',').map(str::to_owned).collect()),
                "--seeds" => {
                    let number = value()?;
                    let known = number.parse().ok().filter(|n| (1..=100_000).contains(n));
                    seeds = known.ok_or(format!(
                        "--seeds {number}: must be a number from 1 to 100000"
                    ))?;
                }
                option if option.starts_with('-') => return Err(format!("{option}: {USAGE}")),
                file => scenarios.push(load(file)?),
            }
        }
        if scenarios.is_empty() {
            return Err(USAGE.to_owned());
        }
        let all = || {
            let schedulers = own.iter().chain(&sumlink_schedulers::NAMES);
            let bonds = schedulers.map(|name| format!("sumlink:{name}"));
            bonds.chain(["alone".to_owned()]).collect()
        };
        let systems: Vec<String> = systems.unwrap_or_else(all);
        for system in &systems {
            System::parse_with(system, own).map_err(|error| format!("--systems: {error}"))?;
        }
        Ok(Self {
            scenarios,
            systems,
            seeds,
        })
    }
}

fn load(file: &str) -> Result<Scenario, String> {
    Scenario::load(Path::new(file)).map_err(|error| error.to_string())
}

/// Runs a system with all seeds and formats its row.
fn of_system(scenario: &Scenario, system: &str, seeds: u64, own: &Own) -> Result<String, String> {
    let mut runs = Vec::new();
    for seed in 1..=seeds {
        match run_own(scenario, system, seed, own, None)?.outcome {
            Outcome::Measured(figures) => runs.push(*figures),
            Outcome::Failed { reason } if own.stop().reason().is_some() => {
                let name = &scenario.name;
                return Err(format!(
                    "scenario {name}, seed {seed}, system {system}, at {reason}"
                ));
            }
            Outcome::Skipped { reason }
            | Outcome::Refused { reason }
            | Outcome::Failed { reason } => return Ok(format!("{system:<20} {reason}\n")),
        }
    }
    Ok(row(system, &runs) + &datagram_rows(system, &runs))
}

fn say(out: &mut dyn Write, text: &str) -> Result<(), String> {
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| format!("cannot write the table: {error}"))
}

/// Formats the median with the given number of decimals, or `-` without values.
fn or_dash(values: impl IntoIterator<Item = f64>, decimals: usize) -> String {
    let value = median(values);
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}

/// The median; the lower of the middle two for an even number of values.
fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}
