//! A scenario of two links and measurements of it, for tests.

use std::path::Path;

use crate::results::{Completion, Flow, Measurement, Outcome, Process, Run, Series};
use crate::scenario::Scenario;

/// Two links of 80 and 20 Mbit/s with 10 ms and 25 ms one way, queues of 50 ms, 2 % loss on
/// the second.
pub(in crate::bench) fn scenario(more: &str) -> Scenario {
    let text = format!(
        "name = \"s\"\nduration = \"3s\"\nwarmup = \"1s\"\n{more}\n[[link]]\nname = \"a\"\n\
         rate = \"80mbit\"\n\
         delay = \"10ms\"\nqueue = \"50ms\"\n[[link]]\nname = \"b\"\nrate = \"20mbit\"\n\
         delay = \"25ms\"\n\
         queue = \"50ms\"\nloss = \"2%\"\n"
    );
    Scenario::parse(Path::new("s.toml"), &text).unwrap()
}

fn series(mbps: [f64; 3]) -> Series {
    Series {
        start_s: 0.0,
        interval_s: 0.5,
        bps: mbps
            .iter()
            .flat_map(|mbps| [mbps * 0.5e6, mbps * 1.5e6])
            .collect(),
    }
}

pub(in crate::bench) fn flow(link: &str, mbps: [f64; 3]) -> Flow {
    Flow {
        link: Some(link.to_owned()),
        direction: "down".to_owned(),
        goodput_bps: (mbps[1] + mbps[2]) * 0.5e6,
        goodput: series(mbps),
        arrivals: Vec::new(),
    }
}

pub(in crate::bench) fn run(system: &str, seed: u64, figures: Measurement) -> Run {
    Run::bare(system, seed, Outcome::Measured(Box::new(figures)))
}

fn object(link: Option<&str>, size_bytes: u64, duration_s: f64) -> Completion {
    Completion {
        size_bytes,
        start_s: 1.0,
        duration_s,
        link: link.map(str::to_owned),
    }
}

pub(in crate::bench) fn alone() -> Measurement {
    Measurement {
        flows: vec![flow("a", [80.0, 80.0, 80.0]), flow("b", [20.0, 20.0, 20.0])],
        completions: vec![
            object(Some("a"), 1000, 0.02),
            object(Some("b"), 1000, 0.05),
            object(Some("a"), 1_000_000, 0.1),
            object(Some("b"), 1_000_000, 0.4),
        ],
        link_delays_ms: [
            ("a".to_owned(), vec![21.0, 20.0, 22.0]),
            ("b".to_owned(), vec![50.0]),
        ]
        .into(),
        rival_bps: Some(20e6),
        ..Measurement::default()
    }
}

pub(in crate::bench) fn own(mbps: [f64; 3]) -> Measurement {
    Measurement {
        goodput_bps: (mbps[1] + mbps[2]) * 0.5e6,
        goodput: series(mbps),
        completions: vec![object(None, 1000, 0.025), object(None, 1_000_000, 0.1)],
        message_delays_ms: vec![21.5, 21.5, 90.0],
        duplicates_bytes: Some(750_000),
        reorder_peak_bytes: Some(1_250_000),
        rival_bps: Some(45e6),
        over_limit: Some(2),
        ..Measurement::default()
    }
}

/// A measurement of `bytes` delivered, with the CPU seconds of the system's programs and of the
/// traffic programs.
pub(in crate::bench) fn took(bytes: u64, system_s: &[f64], traffic_cpu_s: f64) -> Measurement {
    let of_process = |cpu_s: &f64| Process {
        cpu_s: *cpu_s,
        ..Process::default()
    };
    Measurement {
        bytes,
        processes: system_s.iter().map(of_process).collect(),
        traffic_cpu_s: Some(traffic_cpu_s),
        goodput_bps: bytes as f64 * 1e6,
        ..Measurement::default()
    }
}
