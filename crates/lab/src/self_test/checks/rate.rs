//! Rates, traces and queues: how fast a queue drains, and its capacity.

use std::time::Duration;

use sumlink_link::Trace;

use super::super::probes::Probes;
use super::{Check, Figure, LARGE, one, open, rate_asked, rate_of, word};
use crate::config::{Direction, Setting};
use crate::error::LabError;
use crate::laboratory::{Lab, LabConfig};

pub(super) const CHECKS: &[Check] = &[
    Check {
        subject: "rate",
        config: || one("probe:rate=10mbit,queue=100MB"),
        measure: rate,
    },
    Check {
        subject: "rate",
        config: || one("probe:rate=100mbit,queue=100MB"),
        measure: rate,
    },
    Check {
        subject: "rate",
        config: || one("probe:rate=1gbit,queue=100MB"),
        measure: rate,
    },
    Check {
        subject: "gso",
        config: || {
            Ok(LabConfig {
                gso: true,
                ..one("probe:rate=5gbit,queue=100MB")?
            })
        },
        measure: rate_of_super_packets,
    },
    Check {
        subject: "trace",
        config: || one("probe:rate=100mbit,queue=100MB"),
        measure: trace_in_microseconds,
    },
    Check {
        subject: "trace",
        config: || one("probe:rate=100mbit,queue=100MB"),
        measure: trace_in_milliseconds,
    },
    Check {
        subject: "queue",
        config: || one("probe:rate=10mbit,queue=150000B"),
        measure: queue_in_bytes,
    },
    Check {
        subject: "queue",
        config: || one("probe:rate=10mbit,queue=100ms"),
        measure: queue_in_time,
    },
];

fn rate(lab: &Lab) -> Result<Vec<Figure>, LabError> {
    let rate = rate_asked(lab);
    // Half a second.
    let count = (rate / 16 / LARGE as u64).clamp(500, 30_000);
    let mut probes = Probes::new(lab)?;
    let arrivals = probes.fill_and_drain(count, &open(rate))?;
    let figure = |(direction, arrivals): (_, &Vec<_>)| {
        let megabits = rate as f64 / 1e6;
        let name = format!("rate {megabits:.0} Mbit/s, {}", word(direction));
        Figure::new(name, "Mbit/s", megabits, rate_of(arrivals))
    };
    Ok(probes.directions().zip(&arrivals).map(figure).collect())
}

/// One direction after the other: both together exceed the emulator's capacity.
fn rate_of_super_packets(lab: &Lab) -> Result<Vec<Figure>, LabError> {
    let rate = rate_asked(lab);
    let one_way = |direction| {
        let arrivals = Probes::one_way(lab, direction)?.fill_and_drain(40_000, &open(rate))?;
        let megabits = rate as f64 / 1e6;
        let name = format!(
            "super-packets: rate {megabits:.0} Mbit/s, {}",
            word(direction)
        );
        Ok(Figure::new(name, "Mbit/s", megabits, rate_of(&arrivals[0])))
    };
    Direction::BOTH.into_iter().map(one_way).collect()
}

/// Rates of the traces' steps, in Mbit/s.
const STEPS: [u64; 3] = [96, 24, 0];
/// Duration of each step.
const STEP: Duration = Duration::from_millis(200);

fn trace_in_microseconds(lab: &Lab) -> Result<Vec<Figure>, LabError> {
    let fast = (1..=1600).map(|i| i * 125);
    let slow = (1..=400).map(|i| 200_000 + i * 500);
    // The last time stamp is the period.
    let stamps: Vec<_> = fast.chain(slow).chain([600_000]).collect();
    let trace = Trace::from_micros(stamps);
    trace_figures(
        lab,
        "us",
        trace.map_err(|error| LabError::system("making a trace", error))?,
    )
}

fn trace_in_milliseconds(lab: &Lab) -> Result<Vec<Figure>, LabError> {
    let fast = (1..=200).map(|ms| format!("{ms}\n").repeat(8));
    let slow = (201..=400).map(|ms| format!("{ms}\n").repeat(2));
    let text: String = fast.chain(slow).chain(["600\n".to_owned()]).collect();
    let trace = text.parse();
    trace_figures(
        lab,
        "ms",
        trace.map_err(|error| LabError::system("making a trace", error))?,
    )
}

fn trace_figures(lab: &Lab, unit: &str, trace: Trace) -> Result<Vec<Figure>, LabError> {
    // One period, and the beginning of the next.
    let periods = 1;
    let count = periods * trace.opportunities() as u64 + 1;
    let mean = trace.mean_rate() as f64 / 1e6;
    let mut probes = Probes::new(lab)?;
    let arrivals = probes.fill_and_drain(count, &Setting::Trace(trace))?;
    let mut figures = Vec::new();
    for (direction, arrivals) in probes.directions().zip(&arrivals) {
        let first = arrivals.first().map(|a| a.received).unwrap_or_default();
        let period = STEP.as_nanos() * STEPS.len() as u128;
        let fast = arrivals.iter().filter(|arrival| {
            let since = arrival.received.saturating_sub(first);
            since.as_nanos() % period < STEP.as_nanos()
        });
        let fast = super::megabits(fast.count(), STEP * periods as u32);
        let name = |what: &str| format!("trace in {unit}: {what}, {}", word(direction));
        figures.push(Figure::new(
            name("mean rate"),
            "Mbit/s",
            mean,
            rate_of(arrivals),
        ));
        let asked = STEPS[0] as f64;
        figures.push(Figure::new(
            name("rate of its fast part"),
            "Mbit/s",
            asked,
            fast,
        ));
    }
    Ok(figures)
}

fn queue_in_bytes(lab: &Lab) -> Result<Vec<Figure>, LabError> {
    let mut probes = Probes::new(lab)?;
    let arrivals = probes.fill_and_drain(300, &open(rate_asked(lab)))?;
    let figure = |(direction, arrivals): (_, &Vec<_>)| {
        let name = format!("queue 150000 bytes, {}", word(direction));
        let held = arrivals.len() * LARGE;
        Figure::new(name, "bytes", 150_000.0, held as f64)
    };
    Ok(probes.directions().zip(&arrivals).map(figure).collect())
}

fn queue_in_time(lab: &Lab) -> Result<Vec<Figure>, LabError> {
    let mut probes = Probes::new(lab)?;
    let arrivals = probes.fill_and_drain(300, &open(rate_asked(lab)))?;
    let figure = |(direction, arrivals): (_, &Vec<_>)| {
        // Since the opening of the link, one transmission before the first arrival.
        let time = (arrivals.len() * LARGE * 8) as f64 / 1e3 / rate_of(arrivals);
        Figure::new(
            format!("queue 100 ms, {}", word(direction)),
            "ms",
            100.0,
            time,
        )
    };
    Ok(probes.directions().zip(&arrivals).map(figure).collect())
}
