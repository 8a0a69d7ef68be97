//! Small multiples: goodput and the rate of each link over time, a row for each system.

use std::fmt::Write;

use super::{Figure, footer, measured};
use crate::plot::{Anchor, Axis, Ink, Svg, Unit, short, shortened};
use crate::report::View;
use crate::results::{ALONE, Measurement, Series, quantile, sorted};

const WIDTH: f64 = 860.0;
const PANEL: f64 = 78.0;
const ROW: f64 = PANEL + 34.0;
const HEAD: f64 = 30.0;
/// Room for the numbers at the left of a panel.
const NUMBERS: f64 = 42.0;
/// Links with a column of their own; of more, those that carry most.
const LINK_COLUMNS: usize = 4;
/// Points of a curve: more than pixels say nothing.
const POINTS: usize = 250;

/// What all seeds did in an interval.
#[derive(Clone, Copy)]
struct Sample {
    time_s: f64,
    median: f64,
    min: f64,
    max: f64,
}

struct Column {
    name: String,
    /// `None` for the goodput of the system.
    link: Option<String>,
    /// Samples of each system.
    rows: Vec<Vec<Sample>>,
}

pub(super) fn draw(view: &View<'_>) -> Option<Figure> {
    let systems: Vec<&str> = view
        .summary
        .systems
        .iter()
        .filter(|system| system.runs > 0)
        .map(|system| system.system.as_str())
        .collect();
    let columns = columns(view, &systems);
    let points = || {
        columns
            .iter()
            .flat_map(|column| column.rows.iter().flatten())
    };
    points().next()?;
    let end = points().map(|sample| sample.time_s).fold(0.0, f64::max);
    let height = HEAD + ROW * systems.len() as f64 + 44.0;
    let title = format!(
        "{}: goodput and link rates over time",
        view.summary.scenario
    );
    let mut svg = Svg::new(WIDTH, height, &title);
    let step = WIDTH / columns.len() as f64;
    for (index, column) in columns.iter().enumerate() {
        let left = step * index as f64;
        let panel = Panel {
            view,
            column,
            left: left + NUMBERS,
            right: left + step - 10.0,
            end,
        };
        panel.draw(&mut svg, &systems);
    }
    footer(&mut svg, view, (WIDTH, height - 8.0));
    Some(Figure {
        id: "throughput",
        title: "Throughput over time".to_owned(),
        caption: caption(view),
        svg: svg.finish(),
        csv: csv(&columns, &systems),
    })
}

struct Panel<'a> {
    view: &'a View<'a>,
    column: &'a Column,
    left: f64,
    right: f64,
    end: f64,
}

impl Panel<'_> {
    /// The column from top to bottom; all of it has one scale.
    fn draw(&self, svg: &mut Svg, systems: &[&str]) {
        let column = self.column;
        let bounds = &self.view.summary.bounds;
        let references = match column.link {
            None => [(bounds.sum_alone_bps, ""), (bounds.best_alone_bps, "5 4")],
            Some(_) => [(None, ""), (None, "")],
        };
        let largest = column.rows.iter().flatten().map(|sample| sample.max);
        let largest = references
            .iter()
            .filter_map(|(bps, _)| *bps)
            .chain(largest)
            .fold(0.0, f64::max);
        let unit = Unit::of_rate(largest);
        let name = shortened(&column.name, 18);
        let head = format!("{name}, {}", unit.name);
        svg.text(
            (self.left - 34.0, 16.0),
            12.0,
            Ink::Text,
            Anchor::Start,
            "font-weight=\"600\"",
            &head,
        );
        for (row, system) in systems.iter().enumerate() {
            let top = HEAD + ROW * row as f64;
            let y = Axis::from_zero(largest, (top + 20.0 + PANEL, top + 20.0), 4.0);
            let x = Axis::exact(self.end, (self.left, self.right), 5.0);
            self.ground(svg, &x, &y, unit, row + 1 == systems.len());
            for (bps, dash) in &references {
                if let Some(bps) = bps {
                    let at = y.at(*bps);
                    svg.line((self.left, at), (self.right, at), Ink::Muted, 1.0, dash);
                }
            }
            let style = self.view.palette.style(system);
            let ink = Ink::Colour(style.colour);
            // The goodput's column names the row for all of them.
            if column.link.is_none() {
                let name = shortened(system, 26);
                svg.text(
                    (self.left, top + 14.0),
                    12.0,
                    ink,
                    Anchor::Start,
                    "font-weight=\"600\"",
                    &name,
                );
            }
            let samples = &column.rows[row];
            let upper = samples.iter().map(|s| (x.at(s.time_s), y.at(s.max)));
            let lower = samples.iter().rev().map(|s| (x.at(s.time_s), y.at(s.min)));
            svg.area(&upper.chain(lower).collect::<Vec<_>>(), ink);
            let median: Vec<_> = samples
                .iter()
                .map(|s| (x.at(s.time_s), y.at(s.median)))
                .collect();
            svg.polyline(&median, ink, 1.6, style.dash());
        }
    }

    /// Panel, grid, numbers, the time that is not measured, and events.
    fn ground(&self, svg: &mut Svg, x: &Axis, y: &Axis, unit: Unit, last: bool) {
        let (bottom, top) = y.place;
        let results = self.view.results;
        if results.warmup_s > 0.0 {
            let width = x.at(results.warmup_s) - self.left;
            svg.rect((self.left, top), (width, bottom - top), Ink::Panel);
        }
        for tick in &y.ticks {
            let at = y.at(*tick);
            svg.line((self.left, at), (self.right, at), Ink::Grid, 1.0, "");
            svg.text(
                (self.left - 5.0, at + 3.5),
                10.0,
                Ink::Muted,
                Anchor::End,
                "",
                &unit.tick(*tick),
            );
        }
        for event in &results.events {
            let concerns = self
                .column
                .link
                .as_ref()
                .is_none_or(|link| *link == event.link);
            if concerns && event.at_s <= self.end {
                let at = x.at(event.at_s);
                svg.line((at, top), (at, bottom), Ink::Text, 1.0, "2 3");
            }
        }
        if last {
            for (index, tick) in x.ticks.iter().enumerate() {
                let unit = if index + 1 == x.ticks.len() { " s" } else { "" };
                let text = format!("{}{unit}", short(*tick));
                svg.text(
                    (x.at(*tick), bottom + 14.0),
                    10.0,
                    Ink::Muted,
                    Anchor::Middle,
                    "",
                    &text,
                );
            }
        }
    }
}

fn columns(view: &View<'_>, systems: &[&str]) -> Vec<Column> {
    let wanted = |direction: &str| match view.summary.direction.as_str() {
        "down" | "up" => direction == view.summary.direction,
        _ => true,
    };
    let rows = |of: &dyn Fn(&Measurement) -> Vec<Series>| -> Vec<Vec<Sample>> {
        let seeds = |system: &&str| -> Vec<Series> {
            let runs = measured(view, system);
            runs.iter().filter_map(|run| summed(&of(run))).collect()
        };
        systems
            .iter()
            .map(|system| across_seeds(&seeds(system)))
            .collect()
    };
    let mut columns = vec![Column {
        name: "goodput".to_owned(),
        link: None,
        rows: rows(&|run| vec![run.goodput.clone()]),
    }];
    let mut links: Vec<(String, f64)> = Vec::new();
    for part in view.summary.systems.iter().flat_map(|system| &system.links) {
        match links.iter_mut().find(|(link, _)| *link == part.link) {
            Some((_, most)) => *most = most.max(part.goodput_bps.median),
            None => links.push((part.link.clone(), part.goodput_bps.median)),
        }
    }
    if links.len() > LINK_COLUMNS {
        let mut ranked: Vec<f64> = links.iter().map(|(_, bps)| *bps).collect();
        ranked.sort_by(|a, b| b.total_cmp(a));
        let least = ranked[LINK_COLUMNS - 1];
        links.retain(|(_, bps)| *bps >= least);
        links.truncate(LINK_COLUMNS);
    }
    for (link, _) in links {
        let of_link = |run: &Measurement| -> Vec<Series> {
            let series = run.links.iter();
            series
                .filter(|series| series.link == link && wanted(&series.direction))
                .map(|series| series.rate.clone())
                .collect()
        };
        columns.push(Column {
            name: link.clone(),
            rows: rows(&of_link),
            link: Some(link),
        });
    }
    columns
}

/// The sum of series with equal intervals.
fn summed(all: &[Series]) -> Option<Series> {
    let mut sum = all.first()?.clone();
    for other in &all[1..] {
        for (total, value) in sum.bps.iter_mut().zip(&other.bps) {
            *total += value;
        }
    }
    let usable = sum.interval_s.is_finite() && sum.interval_s > 0.0 && sum.start_s.is_finite();
    usable.then_some(sum)
}

/// Median, least and largest of all seeds, with at most [`POINTS`] points.
fn across_seeds(seeds: &[Series]) -> Vec<Sample> {
    let Some(first) = seeds.first() else {
        return Vec::new();
    };
    let same =
        |series: &&Series| series.interval_s == first.interval_s && series.start_s == first.start_s;
    let seeds: Vec<&Series> = seeds.iter().filter(same).collect();
    let longest = seeds
        .iter()
        .map(|series| series.bps.len())
        .max()
        .unwrap_or(0);
    let bin = longest.div_ceil(POINTS).max(1);
    let mut samples = Vec::new();
    for start in (0..longest).step_by(bin) {
        let means = seeds.iter().filter_map(|series| {
            let end = (start + bin).min(series.bps.len());
            let part = series.bps.get(start..end)?;
            (!part.is_empty()).then(|| part.iter().sum::<f64>() / part.len() as f64)
        });
        let values = sorted(means);
        let of = |part| quantile(&values, part);
        let time_s = first.start_s + first.interval_s * (start as f64 + bin as f64 / 2.0);
        if let (Some(median), Some(min), Some(max)) = (of(0.5), of(0.0), of(1.0))
            && time_s.is_finite()
        {
            samples.push(Sample {
                time_s,
                median,
                min,
                max,
            });
        }
    }
    samples
}

fn caption(view: &View<'_>) -> String {
    let mut text = "Left: goodput of the system; the solid grey line is the sum of the links alone, the dashed one \
                    the best link alone. Right: what each link carried, headers and repetitions included. Lines are \
                    medians over the seeds, the shade behind them reaches from the least to the largest. A column has \
                    one scale."
        .to_owned();
    let has = |name: &str| {
        view.summary
            .systems
            .iter()
            .any(|s| s.system == name && s.runs > 0)
    };
    if has(ALONE) {
        text.push_str(
            " For alone, every link was measured by itself and the goodput is their sum.",
        );
    }
    if view.results.warmup_s > 0.0 {
        let _ = write!(
            text,
            " The first {} s (shaded ground) are not measured.",
            short(view.results.warmup_s)
        );
    }
    if !view.results.events.is_empty() {
        text.push_str(" Dotted lines are events:");
        for (index, event) in view.results.events.iter().enumerate().take(12) {
            let comma = if index > 0 { ";" } else { "" };
            let _ = write!(
                text,
                "{comma} at {} s {} {}",
                short(event.at_s),
                event.link,
                event.what
            );
        }
        if view.results.events.len() > 12 {
            text.push_str("; and more");
        }
        text.push('.');
    }
    text
}

fn csv(columns: &[Column], systems: &[&str]) -> String {
    let mut csv = "system,series,time_s,median_bps,min_bps,max_bps\n".to_owned();
    for column in columns {
        for (system, samples) in systems.iter().zip(&column.rows) {
            let series = match &column.link {
                None => "goodput".to_owned(),
                Some(link) => format!("link {link}"),
            };
            for sample in samples {
                let _ = writeln!(
                    csv,
                    "{},{},{:.3},{:.0},{:.0},{:.0}",
                    super::field(system),
                    super::field(&series),
                    sample.time_s,
                    sample.median,
                    sample.min,
                    sample.max
                );
            }
        }
    }
    csv
}
