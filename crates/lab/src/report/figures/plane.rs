//! One link's goodput against the others', with lines of equal sum (WhiteHaul dissertation, figure
//! 4.4).

use std::fmt::Write;

use super::{Figure, footer, measured};
use crate::report::{View, words};
use crate::results::{ALONE, link_goodput, quantile, sorted};
use sumlink_plot::{Anchor, Axis, Ink, Style, Svg, Unit, shortened, tick_step};

const WIDTH: f64 = 640.0;
const PLOT_X: (f64, f64) = (62.0, 420.0);
const PLOT_Y: (f64, f64) = (372.0, 14.0);
const LEGEND: f64 = 484.0;
const LEGEND_LINE: f64 = 34.0;

struct Points {
    name: String,
    style: Style,
    /// One point for each seed: first link, other links.
    seeds: Vec<(f64, f64)>,
    median: (f64, f64),
}

pub(super) fn draw(view: &View<'_>) -> Option<Figure> {
    let links = link_names(view);
    if links.len() < 2 {
        return None;
    }
    let every = points(view, &links);
    let shown = view.shown(every.iter().map(|group| group.name.as_str()));
    let groups: Vec<&Points> = every
        .iter()
        .filter(|group| shown.has(&group.name))
        .collect();
    let all = || groups.iter().flat_map(|group| &group.seeds);
    let largest_x = all().map(|point| point.0).fold(0.0, f64::max);
    let largest_y = all().map(|point| point.1).fold(0.0, f64::max);
    let largest = largest_x.max(largest_y);
    if largest <= 0.0 {
        return None;
    }
    // With equal scales the lines have a slope of 45 degrees; links that differ too much get one
    // scale each.
    let equal = largest_x.min(largest_y) > largest / 2.5;
    let reach = |own: f64| if equal { largest } else { own };
    let room = |of: fn(&(f64, f64)) -> f64, own: f64| {
        let values = all().map(of);
        values.chain([reach(own) * 1.03]).collect::<Vec<_>>()
    };
    let x = Axis::covering(room(|point| point.0, largest_x), PLOT_X, 6.0);
    let y = Axis::covering(room(|point| point.1, largest_y), PLOT_Y, 6.0);
    let unit = Unit::of_rate(largest);
    let others = if links.len() == 2 {
        links[1].clone()
    } else {
        format!("the other {} links", links.len() - 1)
    };
    let height = (PLOT_Y.0 + 64.0).max(46.0 + LEGEND_LINE * groups.len() as f64);
    let title = format!("{}: {} against {others}", view.title(), links[0]);
    let mut svg = Svg::new(WIDTH, height, &title);
    ground(&mut svg, &x, &y, unit);
    let step = equal_sums(&mut svg, &x, &y, unit);
    let middle = f64::midpoint(PLOT_X.0, PLOT_X.1);
    let label = format!("goodput over {}, {}", shortened(&links[0], 20), unit.name);
    svg.text(
        (middle, PLOT_Y.0 + 36.0),
        12.0,
        Ink::Text,
        Anchor::Middle,
        "",
        &label,
    );
    let center = f64::midpoint(PLOT_Y.0, PLOT_Y.1);
    let label = format!("goodput over {}, {}", shortened(&others, 20), unit.name);
    let turned = format!("transform=\"rotate(-90 14 {center:.1})\"");
    svg.text(
        (14.0, center),
        12.0,
        Ink::Text,
        Anchor::Middle,
        &turned,
        &label,
    );
    for group in &groups {
        for seed in &group.seeds {
            svg.marker((x.at(seed.0), y.at(seed.1)), 3.0, group.style, false);
        }
    }
    // Systems that match the links alone overlap them, and neither may hide the other.
    let (alone, rest): (Vec<&Points>, Vec<&Points>) = groups
        .iter()
        .copied()
        .partition(|group| group.name == ALONE);
    for (group, radius) in alone
        .iter()
        .map(|g| (g, 8.0))
        .chain(rest.iter().map(|g| (g, 5.5)))
    {
        let at = (x.at(group.median.0), y.at(group.median.1));
        svg.marker(at, radius, group.style, true);
    }
    for (index, group) in groups.iter().enumerate() {
        let line = 26.0 + LEGEND_LINE * index as f64;
        svg.marker((LEGEND, line - 4.0), 5.5, group.style, true);
        let name = shortened(&group.name, 19);
        svg.text(
            (LEGEND + 12.0, line),
            12.0,
            Ink::Text,
            Anchor::Start,
            "",
            &name,
        );
        let sum = words::rate(group.median.0 + group.median.1);
        svg.text(
            (LEGEND + 12.0, line + 13.0),
            11.0,
            Ink::Muted,
            Anchor::Start,
            "",
            &sum,
        );
    }
    footer(&mut svg, view, &shown, (WIDTH, height - 6.0));
    Some(Figure {
        id: "plane",
        title: format!("{} against {others}", links[0]),
        caption: caption(view, &words::rate(step), &links[0], &others),
        svg: svg.finish(),
        csv: csv(&every),
    })
}

/// The links: the fastest one alone comes first if there are several others; otherwise in the
/// scenario's order.
fn link_names(view: &View<'_>) -> Vec<String> {
    let systems = &view.summary.systems;
    let parts = systems.iter().map(|system| &system.links);
    let mut links: Vec<String> = parts
        .max_by_key(|parts| parts.len())
        .into_iter()
        .flatten()
        .map(|part| part.link.clone())
        .collect();
    if links.len() > 2
        && let Some(best) = view.summary.best_link()
        && let Some(index) = links.iter().position(|link| link == best)
    {
        let best = links.remove(index);
        links.insert(0, best);
    }
    links
}

fn points(view: &View<'_>, links: &[String]) -> Vec<Points> {
    let groups = view.summary.systems.iter().filter_map(|system| {
        let runs = measured(view, &system.system);
        let seeds: Vec<(f64, f64)> = runs
            .iter()
            .filter_map(|run| {
                let first = link_goodput(run, &links[0])?;
                let others = links[1..].iter().filter_map(|link| link_goodput(run, link));
                let point = (first, others.sum::<f64>());
                (point.0.is_finite() && point.1.is_finite()).then_some(point)
            })
            .collect();
        Some(Points {
            name: system.system.clone(),
            style: view.palette.style(&system.system),
            median: (
                quantile(&sorted(seeds.iter().map(|point| point.0)), 0.5)?,
                quantile(&sorted(seeds.iter().map(|point| point.1)), 0.5)?,
            ),
            seeds,
        })
    });
    groups.collect()
}

fn ground(svg: &mut Svg, x: &Axis, y: &Axis, unit: Unit) {
    for tick in &x.ticks {
        let at = x.at(*tick);
        svg.line((at, PLOT_Y.0), (at, PLOT_Y.0 + 5.0), Ink::Muted, 1.0, "");
        svg.text(
            (at, PLOT_Y.0 + 17.0),
            11.0,
            Ink::Muted,
            Anchor::Middle,
            "",
            &unit.tick(*tick),
        );
    }
    for tick in &y.ticks {
        let at = y.at(*tick);
        svg.line((PLOT_X.0 - 5.0, at), (PLOT_X.0, at), Ink::Muted, 1.0, "");
        svg.text(
            (PLOT_X.0 - 8.0, at + 4.0),
            11.0,
            Ink::Muted,
            Anchor::End,
            "",
            &unit.tick(*tick),
        );
    }
    svg.line(
        (PLOT_X.0, PLOT_Y.0),
        (PLOT_X.1, PLOT_Y.0),
        Ink::Muted,
        1.0,
        "",
    );
    svg.line(
        (PLOT_X.0, PLOT_Y.0),
        (PLOT_X.0, PLOT_Y.1),
        Ink::Muted,
        1.0,
        "",
    );
}

/// Draws slanted lines of equal sum, labeled at their lower right end; returns their distance.
fn equal_sums(svg: &mut Svg, x: &Axis, y: &Axis, unit: Unit) -> f64 {
    let (end_x, end_y) = (x.range.1, y.range.1);
    let step = tick_step(end_x + end_y, 9.0);
    let count = ((end_x + end_y) / step).floor().clamp(0.0, 20.0) as u32;
    let mut lowest = y.place.0 + 2.0;
    for n in 1..=count {
        let sum = step * f64::from(n);
        let upper = ((sum - end_y).max(0.0), sum.min(end_y));
        let lower = (sum.min(end_x), (sum - end_x).max(0.0));
        let (from, to) = (
            (x.at(upper.0), y.at(upper.1)),
            (x.at(lower.0), y.at(lower.1)),
        );
        // A line in the far corner would shrink to a point.
        if to.0 - from.0 < 12.0 {
            continue;
        }
        svg.line(from, to, Ink::Muted, 0.6, "");
        // Lines that end at the right border are labeled beside it, unless they are too close to
        // each other or to the corner; lines that end at the axis need no label.
        if sum >= end_x && to.1 < lowest - 12.0 {
            lowest = to.1;
            let label = format!("Σ {}", unit.tick(sum));
            svg.text(
                (to.0 + 5.0, to.1 + 4.0),
                10.0,
                Ink::Muted,
                Anchor::Start,
                "",
                &label,
            );
        }
    }
    step
}

fn caption(view: &View<'_>, step: &str, first: &str, others: &str) -> String {
    let mut text = format!(
        "Each small ring is a seed, each large marker a median. Points on the same slanted line \
         have the same sum; from one line (Σ) to the next it grows by {step}. Systems further to \
         the upper right are faster; systems further to the lower right use more of {first}, to \
         the upper left more of {others}."
    );
    if view
        .summary
        .system(ALONE)
        .is_some_and(|alone| alone.runs > 0)
    {
        text.push_str(" The marker of `alone` is the upper limit.");
    }
    text.push_str(
        " For flows that are not bound to links, goodput is divided in proportion to the links' \
         wire bytes.",
    );
    text
}

fn csv(groups: &[Points]) -> String {
    let mut csv = "system,first_link_bps,other_links_bps,kind\n".to_owned();
    for group in groups {
        let name = super::field(&group.name);
        for (x, y) in &group.seeds {
            let _ = writeln!(csv, "{name},{x:.0},{y:.0},seed");
        }
        let (x, y) = group.median;
        let _ = writeln!(csv, "{name},{x:.0},{y:.0},median");
    }
    csv
}
