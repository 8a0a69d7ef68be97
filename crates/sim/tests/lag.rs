//! Golden table of lag: how far in-order delivery is behind that of each link alone, moment by
//! moment.
//!
//! Like the tables of `golden.rs`, it states the present results.

use std::fmt::Write;
use std::path::Path;

use sumlink_scenario::results::{Lag, Measurement, Outcome};
use sumlink_scenario::scenario::Scenario;
use sumlink_sim::run;

const SEEDS: u64 = 3;

const SYSTEMS: [&str; 4] = [
    "sumlink:fbdt",
    "sumlink:minrtt",
    "sumlink:blest",
    "sumlink:ecf",
];

/// A link: its rate, its one-way delay, and further lines.
type Link = (&'static str, &'static str, &'static str);

const LINKS: [(&str, [Link; 2]); 4] = [
    (
        "100/5 + 10/50",
        [("100mbit", "5ms", ""), ("10mbit", "50ms", "")],
    ),
    (
        "40/10 + 20/30",
        [("40mbit", "10ms", ""), ("20mbit", "30ms", "")],
    ),
    (
        "40/35 + 20/160 with 0.5 % loss",
        [
            ("40mbit", "35ms", ""),
            ("20mbit", "160ms", "loss = \"0.5%\"\n"),
        ],
    ),
    (
        "100/5 + 5/5 with a queue of 400 ms",
        [
            ("100mbit", "5ms", ""),
            ("5mbit", "5ms", "queue = \"400ms\"\n"),
        ],
    ),
];

#[test]
fn lag_behind_the_best_link() {
    let mut table = format!(
        "{:<36} {:<16} {:>9} {:>12} {:>9}\n",
        "links", "system", "Mbit/s", "greatest ms", "above ms"
    );
    for (name, links) in LINKS {
        let scenario = scenario(&links);
        for system in SYSTEMS {
            let mut worst = Lag::default();
            let mut goodput = f64::INFINITY;
            for seed in 1..=SEEDS {
                let run = measured(&scenario, system, seed);
                let lag = Lag::of(&run, &measured(&scenario, "alone", seed)).unwrap();
                worst.greatest_s = worst.greatest_s.max(lag.greatest_s);
                worst.above_s = worst.above_s.max(lag.above_s);
                goodput = goodput.min(run.goodput_bps);
            }
            writeln!(
                table,
                "{name:<36} {system:<16} {:>9.1} {:>12.0} {:>9.0}",
                goodput / 1e6,
                worst.greatest_s * 1e3,
                worst.above_s * 1e3
            )
            .unwrap();
        }
    }
    insta::assert_snapshot!("lag", table);
}

fn scenario(links: &[Link]) -> Scenario {
    let mut text = "name = \"lag\"\nduration = \"4s\"\n".to_owned();
    for (index, (rate, delay, more)) in links.iter().enumerate() {
        write!(
            text,
            "[[link]]\nname = \"{}\"\nrate = \"{rate}\"\ndelay = \"{delay}\"\n{more}",
            ["a", "b"][index]
        )
        .unwrap();
    }
    Scenario::parse(Path::new("lag.toml"), &text).unwrap()
}

fn measured(scenario: &Scenario, system: &str, seed: u64) -> Measurement {
    match run(scenario, system, seed).unwrap().outcome {
        Outcome::Measured(figures) => *figures,
        other => panic!("{system}, seed {seed}: {other:?}"),
    }
}
