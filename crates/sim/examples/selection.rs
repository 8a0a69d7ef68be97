//! Compares systems in the simulator, in the tables of docs/selection.md: `cargo run --release -p
//! sumlink-sim --example selection -- [--seeds N] [--systems NAME,NAME] FILE...`
//!
//! For each system the medians over the seeds: goodput in Mbit/s, as a share of the sum of the
//! links alone and of the best link; the median and the 99th percentile of the message delay; the
//! share of the time that links rested. The range of the goodput is in brackets.

#![allow(clippy::print_stdout, reason = "an example")]

use std::collections::BTreeMap;
use std::path::Path;

use sumlink_scenario::results::{Measurement, Outcome};
use sumlink_scenario::scenario::Scenario;
use sumlink_sim::run;

fn main() -> Result<(), String> {
    let (mut seeds, mut systems, mut files) = (None, None, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(word) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--seeds" => {
                let number = value()?.parse::<u64>();
                seeds = Some(number.map_err(|error| format!("--seeds: {error}"))?);
            }
            "--systems" => systems = Some(value()?.split(',').map(str::to_owned).collect()),
            _ => files.push(word),
        }
    }
    for file in files {
        let scenario = Scenario::load(Path::new(&file)).map_err(|error| error.to_string())?;
        let systems: &Vec<String> = systems.as_ref().unwrap_or(&scenario.systems);
        print_table(&scenario, systems, seeds.unwrap_or(scenario.seeds))?;
    }
    Ok(())
}

fn print_table(scenario: &Scenario, systems: &[String], seeds: u64) -> Result<(), String> {
    let alone = measured(scenario, "alone", seeds)?;
    let of_links = |fold: fn(f64, f64) -> f64| {
        let runs = alone.iter().map(|run| {
            let links = run.flows.iter().map(|flow| flow.goodput_bps);
            links.fold(0.0, fold)
        });
        middle(runs.collect())
    };
    let (sum, best) = (of_links(|a, b| a + b), of_links(f64::max));
    println!("### {}\n", scenario.name);
    println!(
        "Alone: sum {:.2}, best {:.2} Mbit/s.\n",
        sum / 1e6,
        best / 1e6
    );
    println!("| system | Mbit/s | of the sum | of the best | delay p50, p99 | rested |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for system in systems.iter().filter(|name| *name != "alone") {
        let runs = measured(scenario, system, seeds)?;
        let all: Vec<f64> = runs.iter().map(|run| run.goodput_bps).collect();
        let range = all.iter().fold((f64::MAX, 0.0f64), |(least, most), value| {
            (least.min(*value), most.max(*value))
        });
        let goodput = middle(all);
        println!(
            "| {system} | {:.2} [{:.2}, {:.2}] | {:.2} | {:.2} | {} | {} |",
            goodput / 1e6,
            range.0 / 1e6,
            range.1 / 1e6,
            goodput / sum,
            goodput / best,
            delays(&runs),
            rested(&runs)
        );
    }
    println!();
    Ok(())
}

fn measured(scenario: &Scenario, system: &str, seeds: u64) -> Result<Vec<Measurement>, String> {
    let one = |seed| match run(scenario, system, seed)?.outcome {
        Outcome::Measured(figures) => Ok(*figures),
        other => Err(format!("{}, {system}: {other:?}", scenario.name)),
    };
    (1..=seeds).map(one).collect()
}

/// Delays of all messages of all runs.
fn delays(runs: &[Measurement]) -> String {
    let all = runs
        .iter()
        .flat_map(|run| run.message_delays_ms.iter().copied());
    let mut all: Vec<f64> = all.collect();
    all.sort_by(f64::total_cmp);
    match all.len() {
        0 => "-".to_owned(),
        count => format!("{:.0}, {:.0} ms", all[count / 2], all[count * 99 / 100]),
    }
}

fn rested(runs: &[Measurement]) -> String {
    let mut links: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (index, run) in runs.iter().enumerate() {
        for (link, part) in &run.rested {
            links.entry(link).or_insert_with(|| vec![0.0; runs.len()])[index] = *part;
        }
    }
    let lines = links.into_iter().map(|(link, parts)| (link, middle(parts)));
    let lines = lines.filter(|(_, part)| *part > 0.0);
    let lines: Vec<String> = lines
        .map(|(link, part)| format!("{link} {:.0} %", part * 100.0))
        .collect();
    match lines.is_empty() {
        true => "-".to_owned(),
        false => lines.join(", "),
    }
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
