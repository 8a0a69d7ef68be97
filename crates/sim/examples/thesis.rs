//! Compares FBDT as in the thesis with its variants and with `fbdt`, in the simulator, in the table
//! of docs/notes/fbdt-thesis.md: `cargo run --release -p sumlink-sim --example thesis -- [--seeds N]
//! FILE...`
//!
//! Medians over the seeds: goodput as a share of the sum of the links alone, and percent sent
//! twice.

#![allow(clippy::print_stdout, reason = "an example")]

use std::path::Path;

use sumlink_scenario::results::{Measurement, Outcome};
use sumlink_scenario::scenario::Scenario;
use sumlink_schedulers::fbdt_thesis::{FbdtThesis, Rules};
use sumlink_sim::{Own, run_own};

/// Names of the variants with the rules that each replaces.
const VARIANTS: [(&str, Rules); 5] = [
    ("once", rules(false, false, true)),
    ("large", rules(true, false, false)),
    ("overlap", rules(false, true, false)),
    ("large-overlap", rules(true, true, false)),
    ("all-three", rules(true, true, true)),
];

const fn rules(large: bool, overlap: bool, once: bool) -> Rules {
    Rules {
        large,
        overlap,
        once,
    }
}

fn main() -> Result<(), String> {
    let (mut seeds, mut files) = (5, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(word) = arguments.next() {
        if word == "--seeds" {
            let number = arguments.next().and_then(|text| text.parse().ok());
            seeds = number.ok_or("--seeds needs a number")?;
        } else {
            files.push(word);
        }
    }
    let mut own = Own::default();
    for (name, rules) in VARIANTS {
        own.add_scheduler(name, move |_| Box::new(FbdtThesis::with(rules)))?;
    }
    let names = VARIANTS.map(|(name, _)| name);
    let systems = ["fbdt-thesis"].into_iter().chain(names).chain(["fbdt"]);
    let systems: Vec<&str> = systems.collect();
    println!("| links | sum | {} |", systems.join(" | "));
    println!("| --- | --- |{}", " --- |".repeat(systems.len()));
    for file in files {
        let scenario = Scenario::load(Path::new(&file)).map_err(|error| error.to_string())?;
        let alone = all(&scenario, "alone", seeds, &own)?;
        let sum = middle(&alone, |run| {
            run.flows.iter().map(|flow| flow.goodput_bps).sum()
        });
        let mut row = format!("| {} | {:.1} |", scenario.name, sum / 1e6);
        for system in &systems {
            let runs = all(&scenario, &format!("sumlink:{system}"), seeds, &own)?;
            let share = middle(&runs, |run| run.goodput_bps) / sum;
            let twice = middle(&runs, |run| {
                run.duplicates_bytes.unwrap_or_default() as f64 / run.bytes.max(1) as f64
            });
            row += &format!(" {share:.2}, {:.1} % |", 100.0 * twice);
        }
        println!("{row}");
    }
    Ok(())
}

fn all(
    scenario: &Scenario,
    system: &str,
    seeds: u64,
    own: &Own,
) -> Result<Vec<Measurement>, String> {
    let one = |seed| match run_own(scenario, system, seed, own, None)?.outcome {
        Outcome::Measured(figures) => Ok(*figures),
        other => Err(format!("{}, {system}: {other:?}", scenario.name)),
    };
    (1..=seeds).map(one).collect()
}

fn middle(runs: &[Measurement], figure: impl Fn(&Measurement) -> f64) -> f64 {
    let mut figures: Vec<f64> = runs.iter().map(figure).collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
