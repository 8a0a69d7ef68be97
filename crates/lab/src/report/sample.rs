//! Synthetic results for the tests of the report; no value was measured.

use std::fs;
use std::path::Path;

use crate::health::Health;
use crate::results::{
    Completion, Environment, Flow, LinkSeries, Measurement, Outcome, Process, Run, Series,
};

/// Two links and the goodput of each system over them, in Mbit/s.
struct Case {
    name: &'static str,
    toml: &'static str,
    links: [(&'static str, f64); 2],
    systems: &'static [(&'static str, f64, f64)],
}

const LOS: &str = r#"
name = "los"
about = "Line of sight: 630 Mbit/s Wi-Fi and 1800 Mbit/s WiGig (thesis, figure 4.1)"
duration = "10s"
warmup = "2s"
seeds = 3
systems = ["alone", "simultaneous", "mptcp", "aggligator", "sumlink:fbdt", "sumlink:minrtt", "noq"]
[workload]
kind = "bulk"
[[link]]
name = "wifi"
[[link]]
name = "wigig"
"#;

const LOSS: &str = r#"
name = "loss"
about = "5 % loss on the fast link, which is gone for a second"
clean = "los"
duration = "10s"
warmup = "2s"
seeds = 3
systems = ["alone", "simultaneous", "mptcp", "aggligator", "sumlink:fbdt", "sumlink:minrtt", "noq"]
[workload]
kind = "bulk"
[[link]]
name = "wifi"
[[link]]
name = "wigig"
[[event]]
at = "6s"
link = "wigig"
rate = "0"
"#;

const FILES: &str = r#"
name = "files"
about = "Small files over 100 Mbit/s at 10 ms and 10 Mbit/s at 100 ms"
duration = "10s"
seeds = 3
systems = ["alone", "mptcp", "sumlink:fbdt"]
[workload]
kind = "files"
limit = "500ms"
[[link]]
name = "dsl"
[[link]]
name = "lte"
"#;

/// The limit in the scenario text above.
const LIMIT_S: f64 = 0.5;

const VOICE: &str = r#"
name = "voice"
about = "64 kbit/s of messages"
duration = "10s"
seeds = 3
systems = ["mptcp", "sumlink:fbdt"]
[workload]
kind = "cbr"
[[link]]
name = "dsl"
[[link]]
name = "lte"
"#;

const CASES: [Case; 4] = [
    Case {
        name: "los",
        toml: LOS,
        links: [("wifi", 606.0), ("wigig", 1699.0)],
        systems: &[
            ("alone", 606.0, 1699.0),
            ("simultaneous", 601.0, 1690.0),
            ("mptcp", 540.0, 1513.0),
            ("aggligator", 400.0, 1211.0),
            ("sumlink:fbdt", 590.0, 1655.0),
            ("sumlink:minrtt", 520.0, 1500.0),
        ],
    },
    Case {
        name: "loss",
        toml: LOSS,
        links: [("wifi", 606.0), ("wigig", 84.0)],
        systems: &[
            ("alone", 606.0, 84.0),
            ("simultaneous", 603.0, 80.0),
            ("mptcp", 301.0, 30.0),
            ("aggligator", 500.0, 30.0),
            ("sumlink:fbdt", 598.0, 79.0),
            ("sumlink:minrtt", 580.0, 35.0),
        ],
    },
    Case {
        name: "files",
        toml: FILES,
        links: [("dsl", 96.0), ("lte", 9.6)],
        systems: &[
            ("alone", 96.0, 9.6),
            ("mptcp", 70.0, 6.0),
            ("sumlink:fbdt", 94.0, 8.0),
        ],
    },
    Case {
        name: "voice",
        toml: VOICE,
        links: [("dsl", 96.0), ("lte", 9.6)],
        systems: &[("mptcp", 0.04, 0.024), ("sumlink:fbdt", 0.063, 0.001)],
    },
];

/// A sequence of pseudo-random numbers in 0..1 (Knuth's MMIX generator).
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Writes the sample into a directory.
pub(crate) fn write(directory: &Path) {
    for case in &CASES {
        let scenario = directory.join(case.name);
        for seed in 1..=3 {
            let runs = scenario.join(format!("seed-{seed}"));
            fs::create_dir_all(&runs).unwrap();
            for run in case.runs(seed) {
                let name = run.system.replace(':', "-");
                let json = serde_json::to_string(&run).unwrap();
                fs::write(runs.join(format!("{name}.json")), json).unwrap();
            }
        }
        fs::write(scenario.join("scenario.toml"), case.toml).unwrap();
    }
}

impl Case {
    fn runs(&self, seed: u64) -> Vec<Run> {
        let mut dice = Dice(seed * 977 + self.name.len() as u64);
        let mut runs: Vec<Run> = Vec::new();
        for (index, (system, first, second)) in self.systems.iter().enumerate() {
            if self.name == "loss" && *system == "sumlink:minrtt" && seed == 3 {
                continue;
            }
            let mut figures = self.measurement(system, [*first, *second], &mut dice);
            if self.name == "los" && *system == "aggligator" && seed == 2 {
                figures.emulator.cpu_share = 0.97;
            }
            runs.push(self.run(
                system,
                seed,
                index as u64,
                Outcome::Measured(Box::new(figures)),
            ));
        }
        if self.name.starts_with("lo") {
            let reason = "noq is not installed; install it with: make peers".to_owned();
            runs.push(self.run("noq", seed, 9, Outcome::Skipped { reason }));
        }
        runs
    }

    fn run(&self, system: &str, seed: u64, index: u64, outcome: Outcome) -> Run {
        let peers = match system {
            "aggligator" => [("aggligator".to_owned(), "0.18.12".to_owned())].into(),
            _ => Default::default(),
        };
        Run {
            schema: 1,
            scenario: self.name.to_owned(),
            scenario_sha256: format!("{:064x}", self.name.len()),
            seed,
            system: system.to_owned(),
            started_unix_s: 1_795_305_600 + seed * 600 + index * 40,
            environment: Environment {
                kernel: "6.18.0".to_owned(),
                processors: 2,
                processor: "Sample".to_owned(),
                sumlink: "0.1.0".to_owned(),
                program: "0123456789abcdef".to_owned(),
                peers,
                congestion: "cubic".to_owned(),
                socket_buffer_max_bytes: 64 << 20,
                simulated: false,
            },
            outcome,
        }
    }

    fn measurement(&self, system: &str, mbps: [f64; 2], dice: &mut Dice) -> Measurement {
        let bound = matches!(system, "alone" | "simultaneous");
        let mut series: Vec<Series> = Vec::new();
        for (link, mbps) in mbps.iter().enumerate() {
            let luck = 0.985 + 0.03 * dice.roll();
            series.push(self.series(link, mbps * luck, dice));
        }
        let mean = |series: &Series| {
            let measured = &series.bps[20..];
            measured.iter().sum::<f64>() / measured.len() as f64
        };
        let means: Vec<f64> = series.iter().map(mean).collect();
        let total: f64 = means.iter().sum();
        let names = self.links.map(|(name, _)| name);
        let flow = |link: Option<&str>, goodput: &Series| Flow {
            link: link.map(str::to_owned),
            direction: "down".to_owned(),
            goodput_bps: mean(goodput),
            goodput: goodput.clone(),
            arrivals: self.arrivals(goodput),
        };
        let mut goodput = series[0].clone();
        for (sum, other) in goodput.bps.iter_mut().zip(&series[1].bps) {
            *sum += other;
        }
        let flows = if bound {
            let both = names.iter().zip(&series);
            both.map(|(name, series)| flow(Some(name), series))
                .collect()
        } else {
            vec![flow(None, &goodput)]
        };
        let links = names.iter().zip(&series).flat_map(|(name, series)| {
            let share = mean(series) / total;
            ["down", "up"].map(|direction| {
                let part = if direction == "down" { 1.04 } else { 0.02 };
                LinkSeries {
                    link: (*name).to_owned(),
                    direction: direction.to_owned(),
                    wire_bytes: (mean(series) * part) as u64,
                    share,
                    rate: Series {
                        bps: series.bps.iter().map(|bps| bps * part).collect(),
                        ..series.clone()
                    },
                    ..LinkSeries::default()
                }
            })
        });
        let program = |name: &str, cpu_s, memory: f64| Process {
            name: name.to_owned(),
            cpu_s,
            peak_memory_bytes: (memory * (1.0 + 0.1 * total / 1e9)) as u64,
        };
        let completions = self.completions(system, mbps, dice);
        let late = completions
            .iter()
            .filter(|object| object.duration_s > LIMIT_S);
        let over_limit = (self.name == "files").then(|| late.count() as u64);
        Measurement {
            duration_s: 8.0,
            goodput_bps: total,
            bytes: total as u64,
            flows,
            completions,
            over_limit,
            message_delays_ms: self.delays(system, dice),
            retransmissions: Some((1500.0 * dice.roll()) as u64),
            duplicates_bytes: system
                .starts_with("sumlink")
                .then(|| (2e6 * dice.roll()) as u64),
            links: links.collect(),
            goodput,
            processes: if bound || system == "mptcp" {
                Vec::new()
            } else {
                vec![
                    program("client", 4.0 + dice.roll(), 24e6),
                    program("server", 5.0, 31e6),
                ]
            },
            emulator: Health {
                packets: 1_000_000,
                lateness_p50_us: 8.0,
                lateness_p99_us: 90.0,
                cpu_share: 0.6,
                overruns: 0,
            },
            note: String::new(),
            ..Measurement::default()
        }
    }

    fn series(&self, link: usize, mbps: f64, dice: &mut Dice) -> Series {
        let bps = (0..100).map(|step| {
            let start = (f64::from(step) / 8.0).min(1.0);
            let outage = self.name == "loss" && link == 1 && (60..70).contains(&step);
            let up = if outage { 0.0 } else { 1.0 };
            up * start * mbps * 1e6 * (0.93 + 0.1 * dice.roll())
        });
        Series {
            start_s: 0.0,
            interval_s: 0.1,
            bps: bps.map(f64::round).collect(),
        }
    }

    /// Arrivals of 10 ms each, recorded in one of the cases.
    fn arrivals(&self, goodput: &Series) -> Vec<u64> {
        if self.name != "loss" {
            return Vec::new();
        }
        let tenths = goodput.bps.iter().flat_map(|bps| [*bps; 10]);
        tenths.map(|bps| (bps / 8.0 / 100.0) as u64).collect()
    }

    fn completions(&self, system: &str, mbps: [f64; 2], dice: &mut Dice) -> Vec<Completion> {
        if self.name != "files" {
            return Vec::new();
        }
        let objects = (0..40).flat_map(|n| {
            let size_bytes = [10_000, 100_000, 1_000_000][n % 3];
            let start_s = n as f64 * 0.2;
            let took = |mbps: f64, rtt: f64, dice: &mut Dice| {
                let windows = (size_bytes as f64 / 14_600.0 + 1.0).log2();
                rtt * (1.0 + windows) * (1.0 + 0.2 * dice.roll()) + size_bytes as f64 * 8e-6 / mbps
            };
            let object = |link: Option<&str>, duration_s| Completion {
                size_bytes,
                start_s,
                duration_s,
                link: link.map(str::to_owned),
            };
            match system {
                "alone" => vec![
                    object(Some("dsl"), took(mbps[0], 0.02, dice)),
                    object(Some("lte"), took(mbps[1], 0.2, dice)),
                ],
                "mptcp" => vec![object(
                    None,
                    took(60.0, 0.03 + 0.15 * dice.roll().powi(4), dice),
                )],
                _ => vec![object(None, took(100.0, 0.0195, dice))],
            }
        });
        objects.collect()
    }

    fn delays(&self, system: &str, dice: &mut Dice) -> Vec<f64> {
        if self.name != "voice" {
            return Vec::new();
        }
        let tail = if system == "mptcp" { 90.0 } else { 8.0 };
        (0..500)
            .map(|_| 10.2 + tail * dice.roll().powi(12))
            .collect()
    }
}
