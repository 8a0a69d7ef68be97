//! Compares completion times of objects in the simulator with those over the links alone: `cargo
//! run --release -p sumlink-sim --example objects -- FILE SYSTEM[,SYSTEM...] [SEEDS]`
//!
//! Prints the median over the seeds for each size, its ratio to the best link's median, and the
//! goodput as a share of the sum of the links.

#![allow(clippy::print_stdout, reason = "an example")]

use std::collections::BTreeMap;
use std::path::Path;

use sumlink_scenario::results::Outcome;
use sumlink_scenario::scenario::Scenario;
use sumlink_sim::run;

fn main() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: objects FILE SYSTEM[,SYSTEM...] [SEEDS]";
    let file = arguments.next().ok_or(usage)?;
    let systems = arguments.next().ok_or(usage)?;
    let seeds = arguments.next().map_or(Ok(1), |text| text.parse::<u64>());
    let seeds = seeds.map_err(|error| format!("SEEDS: {error}"))?;
    let scenario = Scenario::load(Path::new(&file)).map_err(|error| error.to_string())?;
    // Cold objects have a run each.
    let singles = scenario.single_objects();
    for scenario in singles.unwrap_or_else(|| vec![scenario.clone()]) {
        let alone = medians(&scenario, "alone", seeds)?;
        for system in systems.split(',') {
            for ((_, size), seconds) in medians(&scenario, system, seeds)? {
                let of_size = alone.iter().filter(|((_, known), _)| *known == size);
                let links: Vec<f64> = of_size.map(|(_, seconds)| *seconds).collect();
                let best = links.iter().copied().fold(f64::INFINITY, f64::min);
                let sum: f64 = links.iter().map(|seconds| 1.0 / seconds).sum();
                println!(
                    "{} bytes, {system}: {:.2} ms, {:.2} of the best link, goodput {:.3} of the sum",
                    size,
                    seconds * 1e3,
                    seconds / best,
                    1.0 / seconds / sum
                );
            }
        }
    }
    Ok(())
}

/// Median seconds by link (if there are several flows) and size.
fn medians(
    scenario: &Scenario,
    system: &str,
    seeds: u64,
) -> Result<BTreeMap<(Option<String>, u64), f64>, String> {
    let mut all: BTreeMap<(Option<String>, u64), Vec<f64>> = BTreeMap::new();
    for seed in 1..=seeds {
        let figures = match run(scenario, system, seed)?.outcome {
            Outcome::Measured(figures) => figures,
            other => return Err(format!("{system}, seed {seed}: {other:?}")),
        };
        for object in figures.completions {
            let kind = (object.link, object.size_bytes);
            all.entry(kind).or_default().push(object.duration_s);
        }
    }
    let median = |mut seconds: Vec<f64>| {
        seconds.sort_by(f64::total_cmp);
        seconds[seconds.len() / 2]
    };
    Ok(all
        .into_iter()
        .map(|(kind, seconds)| (kind, median(seconds)))
        .collect())
}
