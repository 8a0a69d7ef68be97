//! Measures the speed of the simulator, and whether its memory grows with time: one minute and ten
//! minutes of sumlink over two links of 100 Mbit/s, on one thread. `cargo run --release -p
//! sumlink-sim --example speed` runs it; other durations in seconds can follow `--`.

#![allow(clippy::print_stdout, reason = "an example")]

use std::fs;
use std::path::Path;
use std::time::Instant;

use sumlink_scenario::results::Outcome;
use sumlink_scenario::scenario::Scenario;
use sumlink_sim::run_logged;

fn main() -> Result<(), String> {
    let given = std::env::args().skip(1).map(|text| text.parse::<u32>());
    let given: Vec<u32> = given
        .collect::<Result<_, _>>()
        .map_err(|error| format!("usage: speed [SECONDS...]: {error}"))?;
    let all = if given.is_empty() {
        vec![60, 600]
    } else {
        given
    };
    for seconds in all {
        let text = format!(
            "name = \"speed\"\nduration = \"{seconds}s\"\nwarmup = \"2s\"\n\
             [[link]]\nname = \"first\"\nrate = \"100mbit\"\ndelay = \"10ms\"\n\
             [[link]]\nname = \"second\"\nrate = \"100mbit\"\ndelay = \"20ms\"\n"
        );
        let scenario = Scenario::parse(Path::new("speed.toml"), &text)
            .map_err(|problems| format!("{problems:?}"))?;
        let (begun, cpu) = (Instant::now(), cpu_seconds());
        let (run, log) = run_logged(&scenario, "sumlink:fbdt", 1)?;
        let took = begun.elapsed().as_secs_f64();
        let Outcome::Measured(figures) = run.outcome else {
            return Err(format!("{:?}", run.outcome));
        };
        let cpu = cpu_seconds().zip(cpu).map(|(after, before)| after - before);
        let cpu = cpu.map_or_else(String::new, |cpu| {
            let times = f64::from(seconds) / cpu;
            format!("{cpu:.2} s of processor time, {times:.0} times faster than real time; ")
        });
        let memory = peak_memory().map_or_else(String::new, |megabytes| {
            format!(", peak memory {megabytes:.1} MB")
        });
        println!(
            "{seconds} s at {:.1} Mbit/s: {cpu}{took:.2} s by the clock; {:.1} million events{memory}",
            figures.goodput_bps / 1e6,
            log.entries() as f64 / 1e6
        );
    }
    Ok(())
}

/// Processor time of this process in seconds, user and system; `None` without proc(5).
fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // After the process name, which may contain any character: fields 14 and 15, in hundredths of a
    // second.
    let (_, rest) = stat.rsplit_once(')')?;
    let ticks = rest.split_whitespace().skip(11).take(2);
    let ticks = ticks.map(|word| word.parse::<f64>().ok());
    ticks.sum::<Option<f64>>().map(|ticks| ticks / 100.0)
}

/// Peak resident memory of this process in MB.
fn peak_memory() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kilobytes: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024.0 / 1e6)
}
