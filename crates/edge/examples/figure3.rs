//! Figure 3 of the paper as CSV: mean packets in both queues with L-RTT and with Q-Depl, for arrival rates from 0 to the sum of the
//! service rates. Arguments: the two service rates in packets a second, the places of each queue, and how many steps.
//!
//! `cargo run -p sumlink-edge --example figure3 -- 100 60 100 160`

use std::process::ExitCode;

use sumlink_edge::analysis::{Server, figure3};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((first, second, steps)) = read(&arguments) else {
        eprintln!("figure3: give RATE RATE PLACES STEPS, all above 0, say 100 60 100 160");
        return ExitCode::from(2);
    };
    println!("load,arrivals_per_s,lrtt_packets,qdepl_packets");
    let sum = first.rate + second.rate;
    for point in figure3(first, second, steps) {
        let arrivals = point.load * sum;
        println!(
            "{:.4},{arrivals:.2},{:.4},{:.4}",
            point.load, point.lrtt, point.qdepl
        );
    }
    ExitCode::SUCCESS
}

fn read(arguments: &[String]) -> Option<(Server, Server, u32)> {
    let [first, second, places, steps] = arguments else {
        return None;
    };
    let capacity = places.parse().ok().filter(|places| *places > 0)?;
    let server = |text: &String| {
        let rate = text
            .parse()
            .ok()
            .filter(|rate: &f64| rate.is_finite() && *rate > 0.0)?;
        Some(Server { rate, capacity })
    };
    let steps = steps.parse().ok().filter(|steps| *steps > 0)?;
    Some((server(first)?, server(second)?, steps))
}
