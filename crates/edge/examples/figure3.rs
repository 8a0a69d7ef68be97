//! Figure 3 of the paper, as CSV or with `--svg` as a picture: mean packets in both queues with L-RTT and with Q-Depl, for arrival
//! rates from 0 to the sum of the service rates. Arguments: the two service rates in packets a second, the places of each queue,
//! and how many steps.
//!
//! `cargo run -p sumlink-edge --example figure3 -- 100 60 100 160 --svg > figure3.svg`

use std::process::ExitCode;

use sumlink_edge::analysis::{Point, Server, figure3};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
/// Around the axes.
const LEFT: f64 = 56.0;
const RIGHT: f64 = WIDTH - 20.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = HEIGHT - 48.0;

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_picture = arguments.last().is_some_and(|last| last == "--svg");
    arguments.truncate(arguments.len() - usize::from(is_picture));
    let Some((first, second, steps)) = read(&arguments) else {
        eprintln!("figure3: give RATE RATE PLACES STEPS [--svg], all above 0, say 100 60 100 160");
        return ExitCode::from(2);
    };
    if is_picture {
        print!("{}", picture(first, second, steps));
        return ExitCode::SUCCESS;
    }
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

/// Both curves over the load.
fn picture(first: Server, second: Server, steps: u32) -> String {
    let points = figure3(first, second, steps);
    let most = points.iter().map(|at| at.lrtt.max(at.qdepl));
    let most = most.fold(1.0, f64::max);
    // 1, 2 or 5 times a power of ten, four to ten of them.
    let power = 10f64.powf((most / 4.0).log10().floor());
    let step = [5.0, 2.0, 1.0].map(|part| part * power);
    let step = step.into_iter().find(|step| *step <= most / 4.0);
    let step = step.unwrap_or(power);
    let top = (most / step).ceil() * step;
    let x = |load: f64| LEFT + load * (RIGHT - LEFT);
    let y = |packets: f64| BOTTOM - packets / top * (BOTTOM - TOP);
    let mut lines = vec![
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">"
        ),
        format!("<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>"),
        format!(
            "<text x=\"{LEFT}\" y=\"20\">Mean packets in both queues: {} and {} packets/s, {} places each</text>",
            first.rate, second.rate, first.capacity
        ),
    ];
    let text = |x: f64, y: f64, anchor: &str, words: &str| {
        format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>")
    };
    for tick in 0..=(top / step).round() as u32 {
        let value = f64::from(tick) * step;
        let at = y(value);
        lines.push(format!(
            "<line x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>"
        ));
        lines.push(text(LEFT - 8.0, at + 4.0, "end", &value.to_string()));
    }
    for fifth in 0..=5 {
        let load = f64::from(fifth) / 5.0;
        lines.push(text(x(load), BOTTOM + 18.0, "middle", &load.to_string()));
    }
    let below = "load: arrivals, as a part of what both links serve";
    lines.push(text((LEFT + RIGHT) / 2.0, HEIGHT - 10.0, "middle", below));
    type Curve = (&'static str, &'static str, fn(&Point) -> f64);
    let curves: [Curve; 2] = [
        ("L-RTT", "#c1440e", |at| at.lrtt),
        ("Q-Depl", "#1f5fa8", |at| at.qdepl),
    ];
    for (number, (name, ink, of)) in curves.into_iter().enumerate() {
        let path: Vec<String> = points
            .iter()
            .map(|at| format!("{:.1},{:.1}", x(at.load), y(of(at))))
            .collect();
        lines.push(format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{ink}\" stroke-width=\"2\"/>",
            path.join(" ")
        ));
        let at = TOP + 18.0 * (number + 1) as f64;
        lines.push(format!(
            "<line x1=\"{0}\" x2=\"{1}\" y1=\"{at}\" y2=\"{at}\" stroke=\"{ink}\" stroke-width=\"2\"/>",
            LEFT + 16.0,
            LEFT + 40.0
        ));
        lines.push(text(LEFT + 46.0, at + 4.0, "start", name));
    }
    lines.push("</svg>\n".to_owned());
    lines.join("\n")
}
