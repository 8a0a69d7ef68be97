//! Cumulative distributions: completion times, delays of messages, or the goodput of intervals.

use std::fmt::Write;

use super::{Figure, footer, measured};
use crate::report::{View, words};
use crate::results::{ALONE, Measurement, Series, quantile, sorted};
use sumlink_plot::{Across, Anchor, Axis, Ink, Style, Svg, Unit, short, shortened};

const WIDTH: f64 = 640.0;
const PLOT: (f64, f64) = (48.0, 624.0);
const TOP: f64 = 14.0;
const HEIGHT: f64 = 260.0;
/// Number of points of a curve.
const POINTS: usize = 200;
const LEGEND_LINE: f64 = 18.0;

/// The distributed quantity.
#[derive(Clone, Copy, PartialEq)]
enum Quantity {
    Completion,
    Delay,
    Goodput,
}

struct Curve {
    system: String,
    /// Label in the legend.
    name: String,
    style: Style,
    /// In seconds or bit/s.
    values: Vec<f64>,
}

pub(super) fn draw(view: &View<'_>) -> Option<Figure> {
    let has = |pick: &dyn Fn(&Measurement) -> bool| {
        let systems = view.summary.systems.iter();
        systems
            .flat_map(|system| measured(view, &system.system))
            .any(pick)
    };
    let quantity = if has(&|run| !run.completions.is_empty()) {
        Quantity::Completion
    } else if has(&|run| !run.message_delays_ms.is_empty()) {
        Quantity::Delay
    } else {
        Quantity::Goodput
    };
    let all = curves(view, quantity);
    let shown = view.shown(all.iter().map(|curve| curve.system.as_str()));
    let of_shown = all.iter().filter(|curve| shown.has(&curve.system));
    let curves: Vec<&Curve> = of_shown.collect();
    let largest = curves
        .iter()
        .filter_map(|curve| curve.values.last())
        .copied();
    let largest = largest.reduce(f64::max).filter(|value| *value > 0.0)?;
    let values = || curves.iter().flat_map(|curve| &curve.values).copied();
    let least = values()
        .filter(|value| *value > 0.0)
        .fold(f64::INFINITY, f64::min);
    // Objects differ in size by powers of ten, and so do their completion times.
    let logarithmic = quantity != Quantity::Goodput && largest / least > 50.0;
    let x = if logarithmic {
        Axis::logarithmic([least, largest], PLOT)
    } else {
        Axis::covering(values(), PLOT, 8.0)
    };
    let unit = match quantity {
        Quantity::Goodput => Unit::of_rate(largest),
        _ if logarithmic => Unit {
            name: "s",
            size: 1.0,
        },
        _ => Unit::of_time(largest),
    };
    let (title, what) = match quantity {
        Quantity::Completion => ("Completion times", "completion time"),
        Quantity::Delay => ("Message delays", "delay from sending to delivery"),
        Quantity::Goodput => ("Goodput from moment to moment", "goodput in an interval"),
    };
    let rows = curves.len().div_ceil(2) as f64;
    let height = TOP + HEIGHT + 52.0 + LEGEND_LINE * rows + 18.0;
    let mut svg = Svg::new(WIDTH, height, &format!("{}: {title}", view.title()));
    let y = Axis::exact(1.0, (TOP + HEIGHT, TOP), 5.0);
    ground(&mut svg, &x, &y, unit, what);
    for curve in &curves {
        svg.polyline(
            &steps(curve, &x, &y),
            Ink::Color(curve.style.color),
            1.8,
            curve.style.dash(),
        );
    }
    // Values without a position on a logarithmic axis.
    let firsts = curves.iter();
    let firsts = firsts.map(|curve| (curve.values[0], Ink::Color(curve.style.color)));
    let firsts: Vec<_> = firsts.collect();
    let number = |value: f64| unit.tick(value);
    svg.beyond(&x, Across::Y(TOP + HEIGHT - 6.0), &firsts, number);
    for (index, curve) in curves.iter().enumerate() {
        let left = if index % 2 == 0 {
            PLOT.0
        } else {
            f64::midpoint(PLOT.0, PLOT.1)
        };
        let at = TOP + HEIGHT + 56.0 + LEGEND_LINE * (index / 2) as f64;
        let ink = Ink::Color(curve.style.color);
        svg.line(
            (left, at - 4.0),
            (left + 24.0, at - 4.0),
            ink,
            2.4,
            curve.style.dash(),
        );
        let median = quantile(&curve.values, 0.5).unwrap_or(0.0);
        let median = match quantity {
            Quantity::Goodput => words::rate(median),
            _ => words::time(median),
        };
        let text = format!("{} ({median})", shortened(&curve.name, 26));
        svg.text((left + 31.0, at), 12.0, Ink::Text, Anchor::Start, "", &text);
    }
    footer(&mut svg, view, &shown, (WIDTH, height - 8.0));
    Some(Figure {
        id: "distribution",
        title: title.to_owned(),
        caption: caption(quantity, logarithmic),
        svg: svg.finish(),
        csv: csv(&all, quantity),
    })
}

fn ground(svg: &mut Svg, x: &Axis, y: &Axis, unit: Unit, what: &str) {
    for tick in &y.ticks {
        let at = y.at(*tick);
        svg.line((PLOT.0, at), (PLOT.1, at), Ink::Grid, 1.0, "");
        let text = format!("{:.0} %", tick * 100.0);
        svg.text(
            (PLOT.0 - 6.0, at + 4.0),
            11.0,
            Ink::Muted,
            Anchor::End,
            "",
            &text,
        );
    }
    let sparse = x.ticks.len().div_ceil(12);
    for tick in x.ticks.iter().step_by(sparse) {
        let at = x.at(*tick);
        svg.line((at, TOP), (at, TOP + HEIGHT), Ink::Grid, 1.0, "");
        svg.text(
            (at, TOP + HEIGHT + 15.0),
            11.0,
            Ink::Muted,
            Anchor::Middle,
            "",
            &unit.tick(*tick),
        );
    }
    let middle = f64::midpoint(PLOT.0, PLOT.1);
    let text = format!("{what}, {}", unit.name);
    svg.text(
        (middle, TOP + HEIGHT + 33.0),
        12.0,
        Ink::Text,
        Anchor::Middle,
        "",
        &text,
    );
}

fn curves(view: &View<'_>, quantity: Quantity) -> Vec<Curve> {
    let fastest = view.summary.best_alone_completion_s.as_ref();
    let best = match quantity {
        Quantity::Completion => fastest.map(|(link, _)| link.as_str()),
        Quantity::Delay => None,
        Quantity::Goodput => view.summary.best_link(),
    };
    let mut curves = Vec::new();
    for system in &view.summary.systems {
        let name = &system.system;
        let runs = measured(view, name);
        let style = view.palette.style(name);
        // Of the links alone, the best one is the reference that the others must not fall behind.
        let link = (name == ALONE).then_some(best).flatten();
        let (label, values) = match quantity {
            Quantity::Completion => {
                let objects = runs.iter().flat_map(|run| &run.completions);
                let own = objects.filter(|o| link.is_none() || o.link.as_deref() == link);
                (link, sorted(own.map(|object| object.duration_s)))
            }
            Quantity::Delay => {
                let delays = runs.iter().flat_map(|run| &run.message_delays_ms);
                (None, sorted(delays.map(|ms| ms / 1e3)))
            }
            Quantity::Goodput => {
                let of_link = |run: &&Measurement| -> Vec<Series> {
                    let flows = run.flows.iter();
                    flows
                        .filter(|flow| link.is_some() && flow.link.as_deref() == link)
                        .map(|flow| flow.goodput.clone())
                        .collect()
                };
                let series = runs.iter().flat_map(|run| match link {
                    Some(_) => of_link(run),
                    None => vec![run.goodput.clone()],
                });
                let measured = |series: Series| {
                    let skip = (view.results.warmup_s - series.start_s) / series.interval_s;
                    let skip = if skip.is_finite() { skip.max(0.0) } else { 0.0 };
                    series.bps.into_iter().skip(skip.round() as usize)
                };
                (link, sorted(series.flat_map(measured)))
            }
        };
        if !values.is_empty() {
            curves.push(Curve {
                system: name.clone(),
                name: match label {
                    Some(link) => format!("{link} alone, the best"),
                    None if name == ALONE => format!("{name}, every link"),
                    None => name.clone(),
                },
                style,
                values,
            });
        }
    }
    curves
}

/// The empirical distribution as steps; for very many values, quantiles.
fn steps(curve: &Curve, x: &Axis, y: &Axis) -> Vec<(f64, f64)> {
    let mut points = vec![(x.up_to(curve.values[0]), y.at(0.0))];
    for (value, part) in quantiles(&curve.values) {
        let last = points[points.len() - 1];
        points.push((x.up_to(value), last.1));
        points.push((x.up_to(value), y.at(part)));
    }
    points
}

/// Values, each with the share of all values that do not exceed it.
fn quantiles(values: &[f64]) -> impl Iterator<Item = (f64, f64)> {
    let count = values.len().min(POINTS);
    (1..=count).map(move |n| {
        // The rank is rounded up: the last is the largest value.
        let rank = (n * values.len()).div_ceil(count);
        (values[rank - 1], rank as f64 / values.len() as f64)
    })
}

fn caption(quantity: Quantity, logarithmic: bool) -> String {
    let mut text = match quantity {
        Quantity::Completion => {
            "Share of the objects that took at most this time; further left is better."
        }
        Quantity::Delay => {
            "Share of the messages that took at most this time; further left is better."
        }
        Quantity::Goodput => {
            "Share of the intervals with at most this goodput, over all seeds; further right is \
             better, and a steeper curve is steadier."
        }
    }
    .to_owned();
    if logarithmic {
        text.push_str(
            " The time axis is logarithmic: each grid line is ten times the previous one.",
        );
    }
    text.push_str(" The legend lists the medians.");
    text
}

fn csv(curves: &[Curve], quantity: Quantity) -> String {
    let (head, digits) = match quantity {
        Quantity::Completion => ("completion_s", 6),
        Quantity::Delay => ("delay_s", 6),
        Quantity::Goodput => ("goodput_bps", 0),
    };
    let mut csv = format!("system,{head},part\n");
    for curve in curves {
        for (value, part) in quantiles(&curve.values) {
            let _ = writeln!(
                csv,
                "{},{value:.digits$},{}",
                super::field(&curve.name),
                short(part)
            );
        }
    }
    csv
}
