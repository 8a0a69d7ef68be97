//! Figure 3 of the paper: mean number of packets in both queues with L-RTT and with Q-Depl, for
//! arrival rates from 0 to the sum of the service rates. The output is CSV with a line per rate, or
//! with `--svg` a picture of the distributions. Arguments: both service rates in packets per
//! second, the capacity of each queue, and the number of steps.
//!
//! `cargo run -p sumlink-edge --example figure3 -- 100 60 100 160 --svg > figure3.svg`

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example")]

use std::process::ExitCode;

use sumlink_edge::analysis::{Point, Server, figure3};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 360.0;
/// Margins around the axes of a panel, and its width.
const LEFT: f64 = 56.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = HEIGHT - 48.0;
const PLOT: f64 = WIDTH / 2.0 - LEFT - 20.0;

const CURVES: [(&str, &str); 2] = [("L-RTT", "#c1440e"), ("Q-Depl", "#1f5fa8")];

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_picture = arguments.last().is_some_and(|last| last == "--svg");
    arguments.truncate(arguments.len() - usize::from(is_picture));
    let Some((first, second, steps)) = read(&arguments) else {
        eprintln!("usage: figure3 RATE RATE CAPACITY STEPS [--svg]; for example 100 60 100 160");
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

/// Colors for readers who prefer a dark color scheme.
const DARK: &str = "<style>@media screen and (prefers-color-scheme:dark){text{fill:#e6e9ed}\
                    rect{fill:#14181d}[stroke=\"#ddd\"]{stroke:#353d47}}</style>";

/// The figure as in the paper (the distribution of both lengths over all arrival rates), and beside
/// it the lengths over the load.
fn picture(first: Server, second: Server, steps: u32) -> String {
    let points = figure3(first, second, steps);
    let sorted = |of: fn(&Point) -> f64| {
        let mut lengths: Vec<f64> = points.iter().map(of).collect();
        lengths.sort_by(f64::total_cmp);
        let count = lengths.len() as f64;
        let shares = (1..=lengths.len()).map(|n| n as f64 / count);
        lengths.into_iter().zip(shares).collect()
    };
    let over_load = |of: fn(&Point) -> f64| points.iter().map(|at| (at.load, of(at))).collect();
    let panels = [
        Panel {
            left: LEFT,
            below: "mean packets in both queues",
            beside: "share of the arrival rates",
            curves: [sorted(|at| at.lrtt), sorted(|at| at.qdepl)],
        },
        Panel {
            left: LEFT + WIDTH / 2.0,
            below: "load: arrival rate over the sum of the service rates",
            beside: "mean packets in both queues",
            curves: [over_load(|at| at.lrtt), over_load(|at| at.qdepl)],
        },
    ];
    let mut lines = vec![
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">"
        ),
        DARK.to_owned(),
        format!("<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>"),
        text(
            (LEFT, 20.0),
            "start",
            &format!(
                "M/M/1/N, {} and {} packets/s, {} packets each, arrivals from 0 to {} packets/s",
                first.rate,
                second.rate,
                first.capacity,
                first.rate + second.rate
            ),
        ),
    ];
    for panel in &panels {
        panel.draw(&mut lines);
    }
    for (number, (name, ink)) in CURVES.into_iter().enumerate() {
        let (x, y) = (LEFT + PLOT - 90.0, TOP + 60.0 + 18.0 * number as f64);
        lines.push(format!(
            "<line x1=\"{x}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\" \
             stroke=\"{ink}\" stroke-width=\"2\"/>",
            x + 24.0
        ));
        lines.push(text((x + 30.0, y + 4.0), "start", name));
    }
    lines.push("</svg>\n".to_owned());
    lines.join("\n")
}

/// One of the two panels.
struct Panel {
    left: f64,
    below: &'static str,
    beside: &'static str,
    /// Curves of L-RTT and Q-Depl.
    curves: [Vec<(f64, f64)>; 2],
}

impl Panel {
    fn draw(&self, lines: &mut Vec<String>) {
        let points = || self.curves.iter().flatten();
        let (x_step, x_top) = scale(points().map(|at| at.0).fold(0.0, f64::max));
        let (y_step, y_top) = scale(points().map(|at| at.1).fold(0.0, f64::max));
        let x = |value: f64| self.left + value / x_top * PLOT;
        let y = |value: f64| BOTTOM - value / y_top * (BOTTOM - TOP);
        for (value, label) in ticks(y_step, y_top) {
            let (from, to, at) = (x(0.0), x(x_top), y(value));
            lines.push(format!(
                "<line x1=\"{from}\" x2=\"{to}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>"
            ));
            lines.push(text((from - 8.0, at + 4.0), "end", &label));
        }
        for (value, label) in ticks(x_step, x_top) {
            lines.push(text((x(value), BOTTOM + 18.0), "middle", &label));
        }
        let middle = self.left + PLOT / 2.0;
        lines.push(text((middle, HEIGHT - 10.0), "middle", self.below));
        lines.push(text((self.left, TOP - 10.0), "start", self.beside));
        for (curve, (_, ink)) in self.curves.iter().zip(CURVES) {
            let path = curve
                .iter()
                .map(|at| format!("{:.1},{:.1}", x(at.0), y(at.1)));
            lines.push(format!(
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{ink}\" stroke-width=\"2\"/>",
                path.collect::<Vec<_>>().join(" ")
            ));
        }
    }
}

/// The tick distance of an axis (1, 2 or 5 times a power of ten, for four to ten ticks) and its
/// end.
fn scale(most: f64) -> (f64, f64) {
    let power = 10f64.powf((most / 4.0).log10().floor());
    let step = [5.0, 2.0, 1.0].map(|part| part * power);
    let step = step.into_iter().find(|step| *step <= most / 4.0);
    let step = step.unwrap_or(power);
    (step, (most / step - 1e-9).ceil() * step)
}

fn ticks(step: f64, top: f64) -> impl Iterator<Item = (f64, String)> {
    let digits = (-step.log10().floor()).max(0.0) as usize;
    let count = (top / step).round() as u32;
    (0..=count).map(move |tick| {
        let value = f64::from(tick) * step;
        (value, format!("{value:.digits$}"))
    })
}

fn text((x, y): (f64, f64), anchor: &str, words: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>")
}
