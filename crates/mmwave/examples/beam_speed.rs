//! Simulation speed of a cell: 10 s of 16 stations under each access scheme, standing and walking,
//! on one thread: `cargo run --release -p sumlink-mmwave --example beam_speed`. Arguments after
//! `--` set other speeds in m/s. The time includes placing the stations.

#![allow(clippy::print_stdout, reason = "an example")]

use std::error::Error;
use std::time::Instant;

use sumlink_mmwave::cell::{Access, Cell, CellConfig, SCHEMES, run};
use sumlink_mmwave::mobility::Walk;

fn main() -> Result<(), Box<dyn Error>> {
    let given = std::env::args().skip(1).map(|text| text.parse::<f64>());
    let given: Vec<f64> = given
        .collect::<Result<_, _>>()
        .map_err(|error| format!("usage: speed [METRES PER SECOND...]: {error}"))?;
    let all = if given.is_empty() {
        vec![0.0, 1.4, 3.0]
    } else {
        given
    };
    for speed in all {
        let walk = Walk {
            speed,
            ..Walk::PEDESTRIAN
        };
        let config = CellConfig {
            walk: Some(walk),
            ..CellConfig::default()
        };
        for scheme in SCHEMES {
            let access = Access::named(scheme).ok_or("unknown scheme")?;
            let begun = Instant::now();
            let cell = Cell::draw(&config, 1)?;
            let outcome = run(&cell, &access, 1)?;
            let took = begun.elapsed().as_secs_f64();
            let contests: u32 = outcome.stations.iter().map(|one| one.attempts).sum();
            println!("{scheme} at {speed} m/s: {took:.3} s, {contests} contests");
        }
    }
    Ok(())
}
