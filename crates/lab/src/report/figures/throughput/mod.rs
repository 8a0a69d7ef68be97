//! Small multiples: goodput and the rate of each link over time, a row for each system.

mod columns;

use std::fmt::Write;

use super::{Figure, footer};
use crate::report::View;
use crate::results::ALONE;
use sumlink_plot::{Anchor, Axis, Ink, Svg, Unit, short, shortened};

use columns::{Column, columns, csv, links};

const WIDTH: f64 = 860.0;
const HEAD: f64 = 30.0;
/// Columns side by side; further ones are placed below, in another band.
const COLUMNS: usize = 5;
/// Height of a row's heading.
const ROW_HEAD: f64 = 34.0;
/// Space below a band for the numbers of the time axis.
const BAND_FOOT: f64 = 22.0;
/// Space for the numbers to the left of a panel.
const NUMBERS: f64 = 42.0;

pub(super) fn draw(view: &View<'_>) -> Option<Figure> {
    let systems: Vec<&str> = view
        .summary
        .systems
        .iter()
        .filter(|system| system.runs > 0)
        .map(|system| system.system.as_str())
        .collect();
    let columns = columns(view, &systems);
    let choice = view.shown(systems.iter().copied());
    // The systems of the chart, with their index in the columns.
    let shown: Vec<(usize, &str)> = (systems.iter().copied().enumerate())
        .filter(|(_, system)| choice.has(system))
        .collect();
    let points = || {
        columns.iter().flat_map(|column| {
            let rows = shown.iter().map(|(row, _)| &column.rows[*row]);
            rows.flatten()
        })
    };
    points().next()?;
    let end = points().map(|sample| sample.time_s).fold(0.0, f64::max);
    let bands = columns.len().div_ceil(COLUMNS);
    // Columns are distributed evenly over the bands: a last band with a single column wastes space.
    let in_a_band = columns.len().div_ceil(bands);
    let panel = if bands == 1 { 78.0 } else { 52.0 };
    let band = HEAD + (panel + ROW_HEAD) * shown.len() as f64 + BAND_FOOT;
    let height = band * bands as f64 + 22.0;
    let title = format!("{}: goodput and link rates over time", view.title());
    let mut svg = Svg::new(WIDTH, height, &title);
    let step = WIDTH / in_a_band as f64;
    for (index, column) in columns.iter().enumerate() {
        let left = step * (index % in_a_band) as f64;
        let panels = Panels {
            view,
            column,
            names: index % in_a_band == 0,
            left: left + NUMBERS,
            right: left + step - 10.0,
            top: band * (index / in_a_band) as f64,
            height: panel,
            end,
        };
        panels.draw(&mut svg, &shown);
    }
    footer(&mut svg, view, &choice, (WIDTH, height - 8.0));
    Some(Figure {
        id: "throughput",
        title: "Throughput over time".to_owned(),
        caption: caption(view, &columns),
        svg: svg.finish(),
        csv: csv(&columns, &systems),
    })
}

/// One column: a panel for each system.
struct Panels<'a> {
    view: &'a View<'a>,
    column: &'a Column,
    /// Whether this column shows the systems' names, for all columns of the band.
    names: bool,
    left: f64,
    right: f64,
    top: f64,
    /// Height of a panel.
    height: f64,
    /// The last time, in seconds.
    end: f64,
}

impl Panels<'_> {
    /// Draws the column from top to bottom with one scale.
    fn draw(&self, svg: &mut Svg, systems: &[(usize, &str)]) {
        let column = self.column;
        let bounds = &self.view.summary.bounds;
        let references = match column.link {
            None => [(bounds.sum_alone_bps, ""), (bounds.best_alone_bps, "5 4")],
            Some(_) => [(None, ""), (None, "")],
        };
        let rows = systems.iter().map(|(row, _)| &column.rows[*row]);
        let largest = rows.flatten().map(|sample| sample.max);
        let largest = references
            .iter()
            .filter_map(|(bps, _)| *bps)
            .chain(largest)
            .fold(0.0, f64::max);
        let unit = Unit::of_rate(largest);
        let name = shortened(&column.name, 18);
        let head = format!("{name}, {}", unit.name);
        svg.text(
            (self.left - 34.0, self.top + 16.0),
            12.0,
            Ink::Text,
            Anchor::Start,
            "font-weight=\"600\"",
            &head,
        );
        for (row, (index, system)) in systems.iter().enumerate() {
            let top = self.top + HEAD + (self.height + ROW_HEAD) * row as f64;
            let ticks = (self.height / 19.0).floor();
            let y = Axis::from_zero(largest, (top + 20.0 + self.height, top + 20.0), ticks);
            let x = Axis::exact(self.end, (self.left, self.right), 5.0);
            self.ground(svg, &x, &y, unit, row + 1 == systems.len());
            for (bps, dash) in &references {
                if let Some(bps) = bps {
                    let at = y.at(*bps);
                    svg.line((self.left, at), (self.right, at), Ink::Muted, 1.0, dash);
                }
            }
            let style = self.view.palette.style(system);
            let ink = Ink::Color(style.color);
            if self.names {
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
            let samples = &column.rows[*index];
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

    /// Draws the panel, grid, numbers, the warm-up, and events.
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

fn caption(view: &View<'_>, columns: &[Column]) -> String {
    let mut text = "First column: goodput of the system; the solid gray line is the sum of the \
                    links alone, the dashed one the best link alone. Other columns: rate of each \
                    link, headers and repetitions included. Lines are medians over the seeds, \
                    shaded areas reach from minimum to maximum. All panels of a column have the \
                    same scale."
        .to_owned();
    let (all, shown) = (links(view).len(), columns.len() - 1);
    if shown < all {
        let _ = write!(
            text,
            " Of the {all} links, the {shown} with the most traffic are shown."
        );
    }
    let has = |name: &str| {
        view.summary
            .systems
            .iter()
            .any(|s| s.system == name && s.runs > 0)
    };
    if has(ALONE) {
        text.push_str(
            " For `alone`, the links were measured one at a time, and the goodput is their sum.",
        );
    }
    if view.results.warmup_s > 0.0 {
        let _ = write!(
            text,
            " The first {} s (shaded) are not measured.",
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
