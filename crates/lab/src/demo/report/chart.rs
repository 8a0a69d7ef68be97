//! The chart of the demo: horizontal bars in two groups, as SVG.

use super::DemoReport;
use super::condition::{ConditionReport, Row};
use crate::demo::systems::System;
use sumlink_plot::{Anchor, Ink, Svg, tick_step};

const WIDTH: f64 = 940.0;
/// Left and right end of the plot; labels are to the left, figures to the right.
const PLOT: (f64, f64) = (140.0, 680.0);
/// Height of the title and the legend.
const HEAD: f64 = 92.0;
const GROUP_TITLE: f64 = 30.0;
const BAR: f64 = 24.0;
const BAR_STEP: f64 = 32.0;
const GROUP_GAP: f64 = 22.0;
/// Height of the axis with its numbers and title.
const AXIS: f64 = 56.0;

/// Dash pattern of the line for the best link.
const DASH: &str = "5 4";
const BOLD: &str = "font-weight=\"600\"";

/// Draws the report.
pub(crate) fn draw(report: &DemoReport) -> String {
    let group_height = |condition: &ConditionReport| {
        GROUP_TITLE + BAR_STEP * condition.rows.len() as f64 + GROUP_GAP
    };
    let bottom = HEAD + report.conditions.iter().map(group_height).sum::<f64>();
    let height = bottom + AXIS;
    let largest = report
        .conditions
        .iter()
        .flat_map(|c| c.rows.iter().filter_map(|r| r.megabits).chain(c.sum_alone))
        .fold(1.0, f64::max);
    let step = tick_step(largest, 8.0);
    let end = (largest / step).ceil() * step;
    let x = |megabits: f64| PLOT.0 + (PLOT.1 - PLOT.0) * megabits / end;

    let mut svg = Svg::new(WIDTH, height, &report.title);
    svg.text(
        (24.0, 34.0),
        19.0,
        Ink::Text,
        Anchor::Start,
        BOLD,
        &report.title,
    );
    legend(&mut svg);
    let ticks = (end / step).round() as u32;
    for tick in 0..=ticks {
        let megabits = step * f64::from(tick);
        let at = x(megabits);
        svg.line((at, HEAD), (at, bottom), Ink::Grid, 1.0, "");
        let label = format!("{megabits}");
        svg.text(
            (at, bottom + 20.0),
            13.0,
            Ink::Muted,
            Anchor::Middle,
            "",
            &label,
        );
    }
    let middle = f64::midpoint(PLOT.0, PLOT.1);
    svg.text(
        (middle, bottom + 44.0),
        14.0,
        Ink::Text,
        Anchor::Middle,
        "",
        "goodput, Mbit/s",
    );
    let mut top = HEAD;
    for condition in &report.conditions {
        group(&mut svg, condition, top, &x);
        top += group_height(condition);
    }
    svg.finish()
}

/// Title, bars and the two reference lines of one condition.
fn group(svg: &mut Svg, condition: &ConditionReport, top: f64, x: &impl Fn(f64) -> f64) {
    let label = |svg: &mut Svg, at, size, anchor, more: &str, text: &str| {
        svg.text(at, size, Ink::Text, anchor, more, text);
    };
    label(
        svg,
        (24.0, top + 20.0),
        15.0,
        Anchor::Start,
        BOLD,
        &condition.name,
    );
    let bars = top + GROUP_TITLE;
    for (index, row) in condition.rows.iter().enumerate() {
        let y = bars + BAR_STEP * index as f64;
        let baseline = y + BAR * 0.7;
        let name = (PLOT.0 - 10.0, baseline);
        label(svg, name, 14.0, Anchor::End, "", &row.system);
        if let Some(megabits) = row.megabits {
            let size = (x(megabits) - PLOT.0, BAR);
            svg.rect((PLOT.0, y), size, color(&row.kind));
        }
        let text = figure(row);
        let place = (PLOT.1 + 16.0, baseline);
        label(svg, place, 14.0, Anchor::Start, "", &text);
    }
    let bottom = bars + BAR_STEP * condition.rows.len() as f64 - 3.0;
    for (megabits, dash) in [(condition.best_alone, DASH), (condition.sum_alone, "")] {
        if let Some(megabits) = megabits {
            let at = x(megabits);
            svg.line((at, bars - 5.0), (at, bottom), Ink::Text, 1.6, dash);
        }
    }
}

fn figure(row: &Row) -> String {
    match (row.megabits, row.of_sum) {
        (Some(megabits), Some(ratio)) => format!("{megabits:.1} Mbit/s, {ratio:.2} of sum"),
        (Some(megabits), None) => format!("{megabits:.1} Mbit/s"),
        (None, _) => "not available".to_owned(),
    }
}

fn legend(svg: &mut Svg) {
    let y = 66.0;
    let samples = [
        ("one link alone", System::Alone(String::new())),
        ("kernel MPTCP", System::Mptcp),
        ("sumlink", System::Sumlink),
    ];
    let mut left = 24.0;
    for (label, system) in samples {
        svg.rect((left, y - 12.0), (14.0, 14.0), color(&system));
        let place = (left + 22.0, y);
        svg.text(place, 13.0, Ink::Text, Anchor::Start, "", label);
        left += 140.0;
    }
    for (label, dash) in [("best link alone", DASH), ("sum of the links alone", "")] {
        let at = left + 6.0;
        svg.line((at, y - 14.0), (at, y + 4.0), Ink::Text, 1.6, dash);
        svg.text((left + 18.0, y), 13.0, Ink::Text, Anchor::Start, "", label);
        left += 150.0;
    }
}

/// The same colors as in the report of scenarios.
fn color(system: &System) -> Ink {
    Ink::Color(match system {
        System::Alone(_) => 0,
        System::Mptcp => 2,
        System::Sumlink => 3,
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    #[test]
    fn every_system_of_every_condition_is_drawn() {
        let svg = draw(&report([225.0, 65.0]));
        for label in ["wifi alone", "wigig alone"] {
            assert_eq!(svg.matches(&format!(">{label}<")).count(), 2, "{label}");
        }
        // Once in each of the two groups, once in the legend.
        assert_eq!(svg.matches(">sumlink<").count(), 3);
        assert_eq!(svg.matches(">not available<").count(), 2);
        // Three in each condition (one is not available), three in the legend, one background.
        assert_eq!(svg.matches("<rect").count(), 2 * 3 + 3 + 1);
        assert_eq!(svg.matches("stroke-dasharray").count(), 3);
    }

    #[test]
    fn text_is_escaped() {
        let mut report = report([225.0, 65.0]);
        report.title = "a < b & c".to_owned();
        assert!(draw(&report).contains("a &lt; b &amp; c"));
    }
}
