//! Runs scenario files in the simulator and prints the results: `cargo run --release -p sumlink-sim
//! --example compare -- FILE SYSTEM[,SYSTEM...] [SEEDS]`

#![allow(clippy::print_stdout, reason = "an example")]

use std::path::Path;
use std::time::Instant;

use sumlink_scenario::results::{Lag, Outcome};
use sumlink_scenario::scenario::Scenario;
use sumlink_sim::run_logged;

fn main() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: compare FILE SYSTEM[,SYSTEM...] [SEEDS]";
    let file = arguments.next().ok_or(usage)?;
    let systems = arguments.next().ok_or(usage)?;
    let seeds = arguments.next().map_or(Ok(1), |text| text.parse::<u64>());
    let seeds = seeds.map_err(|error| format!("SEEDS: {error}"))?;
    let scenario = Scenario::load(Path::new(&file)).map_err(|error| error.to_string())?;
    for seed in 1..=seeds {
        let (alone, _) = run_logged(&scenario, "alone", seed)?;
        for system in systems.split(',') {
            let begun = Instant::now();
            let (run, log) = run_logged(&scenario, system, seed)?;
            let took = begun.elapsed().as_secs_f64();
            match run.outcome {
                Outcome::Measured(figures) => {
                    let flows: Vec<String> = figures
                        .flows
                        .iter()
                        .map(|flow| format!("{:.1}", flow.goodput_bps / 1e6))
                        .collect();
                    let rival = figures.rival_bps.map_or(String::new(), |bps| {
                        format!(", rival {:.2} Mbit/s", bps / 1e6)
                    });
                    let lag = match &alone.outcome {
                        Outcome::Measured(alone) => Lag::of(&figures, alone),
                        _ => None,
                    };
                    let lag = lag.map_or(String::new(), |lag| {
                        let (greatest, above) = (lag.greatest_s * 1e3, lag.above_s * 1e3);
                        format!(", lag {greatest:.0} ms, {above:.0} ms above its limit")
                    });
                    println!(
                        "{} seed {seed} {system}: {:.2} Mbit/s [{}]{rival}{lag}, duplicates {:.3} %, reorder peak {:.2} MB, \
                         retransmissions {}, {} objects; {took:.2} s, events {}, log {:016x}; {}",
                        scenario.name,
                        figures.goodput_bps / 1e6,
                        flows.join(" + "),
                        figures.duplicates_bytes.unwrap_or(0) as f64 * 100.0
                            / figures.bytes.max(1) as f64,
                        figures.reorder_peak_bytes.unwrap_or(0) as f64 / 1e6,
                        figures.retransmissions.unwrap_or(0),
                        figures.completions.len(),
                        log.entries(),
                        log.hash(),
                        figures.note
                    );
                }
                other => println!("{} seed {seed} {system}: {other:?}", scenario.name),
            }
        }
    }
    Ok(())
}
