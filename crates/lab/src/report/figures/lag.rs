//! In-order delivery over time, and its lag behind each link alone.

use std::fmt::Write;

use super::{Figure, field, footer};
use crate::report::{View, words};
use crate::results::lag::ARRIVAL_INTERVAL;
use crate::results::{ALONE, Delivery, Lag, Measurement, figures};
use sumlink_plot::{Anchor, Axis, Ink, Svg, draw_panel, short, shortened, thinned};

const WIDTH: f64 = 860.0;
const PLOT: (f64, f64) = (62.0, 846.0);
const HEAD: f64 = 30.0;
const PANEL: f64 = 150.0;
/// Space between panels, for the heading of the lower one.
const BETWEEN: f64 = 34.0;
const LEGEND_LINE: f64 = 18.0;
const LEGEND_COLUMNS: usize = 3;

/// One run with the links alone of its seed.
struct Compared {
    system: String,
    seed: u64,
    deliveries: Vec<Delivery>,
    lag: Lag,
}

pub(super) fn draw(view: &View<'_>) -> Option<Figure> {
    let all = compared(view);
    let mut systems: Vec<&str> = all.iter().map(|run| run.system.as_str()).collect();
    systems.dedup();
    let shown = view.shown(systems.into_iter());
    let reference = ["sumlink:fbdt"].into_iter().find(|name| shown.has(name));
    let reference = reference.or(shown.names.first().copied())?;
    // The chart has one seed, because the links alone differ from seed to seed.
    let worst = all
        .iter()
        .filter(|run| run.system == reference)
        .max_by(|a, b| a.lag.greatest_s.total_cmp(&b.lag.greatest_s))?;
    let runs: Vec<&Compared> = all
        .iter()
        .filter(|run| run.seed == worst.seed && shown.has(&run.system))
        .collect();
    let rows = runs.len().div_ceil(LEGEND_COLUMNS) as f64;
    let panels = 2.0 * worst.deliveries.len() as f64;
    let height = (HEAD + PANEL + BETWEEN) * panels + LEGEND_LINE * (rows + 1.0) + 24.0;
    let title = format!("{}: in-order delivery and its lag over time", view.title());
    let mut svg = Svg::new(WIDTH, height, &title);
    let mut top = HEAD;
    for at in 0..worst.deliveries.len() {
        draw_direction(&mut svg, view, &runs, at, top);
        top += 2.0 * (HEAD + PANEL + BETWEEN);
    }
    legend(&mut svg, view, &runs, top - HEAD);
    footer(&mut svg, view, &shown, (WIDTH, height - 8.0));
    Some(Figure {
        id: "lag",
        title: "Lag behind each link alone".to_owned(),
        caption: caption(worst),
        svg: svg.finish(),
        csv: csv(&all),
    })
}

/// The runs that have a lag, by system and seed.
fn compared(view: &View<'_>) -> Vec<Compared> {
    let runs = &view.results.runs;
    let of_seed = |seed: u64| -> Option<&Measurement> {
        let mut alone = runs
            .iter()
            .filter(|run| run.seed == seed && run.system == ALONE);
        alone.find_map(|run| figures(run).ok())
    };
    let systems = view.summary.systems.iter();
    let of_systems = systems
        .filter(|system| system.system != ALONE)
        .flat_map(|system| runs.iter().filter(|run| run.system == system.system));
    of_systems
        .filter_map(|run| {
            let own = figures(run).ok()?;
            // Flows that are bound to links deliver in no common order.
            if own.flows.iter().any(|flow| flow.link.is_some()) {
                return None;
            }
            let alone = of_seed(run.seed)?;
            Some(Compared {
                system: run.system.clone(),
                seed: run.seed,
                deliveries: Delivery::of(own, alone),
                lag: Lag::of(own, alone)?,
            })
        })
        .collect()
}

/// Two panels for one direction: delivered bytes, and the lag.
fn draw_direction(svg: &mut Svg, view: &View<'_>, runs: &[&Compared], at: usize, top: f64) {
    let deliveries: Vec<(&Compared, &Delivery)> = runs
        .iter()
        .filter_map(|run| Some((*run, run.deliveries.get(at)?)))
        .collect();
    let Some((first, links)) = deliveries.first() else {
        return;
    };
    let word = if links.direction == "up" {
        "upwards"
    } else {
        "downwards"
    };
    let time = Axis::exact(seconds(links.own.len()), PLOT, 10.0);
    let heading = |svg: &mut Svg, top: f64, text: &str| {
        let place = (PLOT.0, top - 8.0);
        svg.text(
            place,
            12.0,
            Ink::Text,
            Anchor::Start,
            "font-weight=\"600\"",
            text,
        );
    };

    let curves = deliveries.iter().map(|(_, delivery)| &delivery.own);
    let alone = links.alone.iter().map(|(_, bytes)| bytes);
    let largest = curves.clone().chain(alone.clone());
    let largest = largest.filter_map(|bytes| bytes.last()).copied();
    let bottom = top + PANEL;
    let values = Axis::from_zero(largest.fold(0.0, f64::max) / 1e6, (bottom, top), 5.0);
    draw_panel(svg, &time, &values, (top, bottom), "MB");
    heading(svg, top, &format!("Delivered in order, {word}"));
    for bytes in alone {
        svg.polyline(&line(bytes, 1e-6, &time, &values), Ink::Muted, 1.2, "5 4");
    }
    for (run, delivery) in &deliveries {
        let style = view.palette.style(&run.system);
        let points = line(&delivery.own, 1e-6, &time, &values);
        svg.polyline(&points, Ink::Color(style.color), 1.6, style.dash());
    }

    let top = bottom + BETWEEN;
    let bottom = top + PANEL;
    let lags: Vec<(&str, Vec<f64>)> = deliveries
        .iter()
        .map(|(run, delivery)| {
            let lag = delivery.lag().into_iter().map(|(seconds, _)| seconds);
            (run.system.as_str(), lag.collect())
        })
        .collect();
    let limit_ms = first.lag.limit_s * 1e3;
    let largest = lags
        .iter()
        .flat_map(|(_, lag)| lag)
        .copied()
        .fold(0.0, f64::max);
    let values = Axis::from_zero((largest * 1e3).max(limit_ms * 1.2), (bottom, top), 5.0);
    draw_panel(svg, &time, &values, (top, bottom), "ms");
    heading(svg, top, "Lag behind the link alone that is furthest ahead");
    let y = values.at(limit_ms);
    svg.line((PLOT.0, y), (PLOT.1, y), Ink::Text, 1.0, "2 3");
    for (system, lag) in &lags {
        let style = view.palette.style(system);
        let points = line(lag, 1e3, &time, &values);
        svg.polyline(&points, Ink::Color(style.color), 1.6, style.dash());
    }
    for (index, tick) in time.ticks.iter().enumerate() {
        let unit = if index + 1 == time.ticks.len() {
            " s"
        } else {
            ""
        };
        let text = format!("{}{unit}", short(*tick));
        let place = (time.at(*tick), bottom + 14.0);
        svg.text(place, 10.0, Ink::Muted, Anchor::Middle, "", &text);
    }
}

/// The end of an interval, in seconds since the start.
fn seconds(intervals: usize) -> f64 {
    intervals as f64 * ARRIVAL_INTERVAL.as_secs_f64()
}

/// A line through the values at the end of each interval.
fn line(values: &[f64], scale: f64, time: &Axis, axis: &Axis) -> Vec<(f64, f64)> {
    let points = values.iter().enumerate();
    let points = points.map(|(index, value)| (seconds(index + 1), value * scale));
    thinned(&points.collect::<Vec<_>>(), time, axis)
}

fn legend(svg: &mut Svg, view: &View<'_>, runs: &[&Compared], top: f64) {
    let step = (PLOT.1 - PLOT.0) / LEGEND_COLUMNS as f64;
    let place = |index: usize| {
        let row = (index / LEGEND_COLUMNS) as f64;
        let left = PLOT.0 + step * (index % LEGEND_COLUMNS) as f64;
        (left, top + LEGEND_LINE * row)
    };
    let mut entry = |index, ink, dash: &str, text: &str| {
        let (left, y) = place(index);
        svg.line((left, y - 4.0), (left + 24.0, y - 4.0), ink, 2.0, dash);
        svg.text((left + 31.0, y), 12.0, Ink::Text, Anchor::Start, "", text);
    };
    for (index, run) in runs.iter().enumerate() {
        let style = view.palette.style(&run.system);
        let name = shortened(&run.system, 20);
        let text = format!("{name} ({})", words::time(run.lag.greatest_s));
        entry(index, Ink::Color(style.color), style.dash(), &text);
    }
    let next = runs.len().next_multiple_of(LEGEND_COLUMNS);
    entry(next, Ink::Muted, "5 4", "each link alone");
    entry(next + 1, Ink::Text, "2 3", "limit of the lag");
}

fn caption(worst: &Compared) -> String {
    format!(
        "Bytes that the program at the receiver has, and for how long a link alone has had as many. \
         One seed, {}: the one in which {} had its greatest lag. The numbers in brackets are \
         the greatest lags. The dotted line is the limit: two round trips of the fastest link and \
         20 ms, {} here.",
        worst.seed,
        worst.system,
        words::time(worst.lag.limit_s)
    )
}

/// A row for every interval of each run.
fn csv(all: &[Compared]) -> String {
    let mut text = "system,seed,direction,time_s,delivered_bytes,lag_ms,behind_link\n".to_owned();
    for run in all {
        for delivery in &run.deliveries {
            for (index, (lag, link)) in delivery.lag().into_iter().enumerate() {
                let _ = writeln!(
                    text,
                    "{},{},{},{:.2},{:.0},{:.1},{}",
                    field(&run.system),
                    run.seed,
                    delivery.direction,
                    seconds(index + 1),
                    delivery.own[index],
                    lag * 1e3,
                    field(link)
                );
            }
        }
    }
    text
}
