//! The demonstration's chart: horizontal bars in two groups, as SVG.

use std::fmt::Write;

use super::report::{ConditionReport, DemoReport, Row};
use super::systems::System;

const WIDTH: f64 = 940.0;
/// Left and right end of the plot; labels stand to the left, figures to the right.
const PLOT: (f64, f64) = (140.0, 680.0);
/// Height of the title and the legend.
const HEAD: f64 = 92.0;
const GROUP_TITLE: f64 = 30.0;
const BAR: f64 = 24.0;
const BAR_STEP: f64 = 32.0;
const GROUP_GAP: f64 = 22.0;
/// Height of the axis with its numbers and title.
const AXIS: f64 = 56.0;

const INK: &str = "#1f2933";
const FAINT: &str = "#d9dee3";
const MUTED: &str = "#52606d";

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
    let step = tick_step(largest);
    let end = (largest / step).ceil() * step;
    let x = |megabits: f64| PLOT.0 + (PLOT.1 - PLOT.0) * megabits / end;

    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         font-family=\"system-ui, 'Segoe UI', Helvetica, Arial, sans-serif\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    text(
        &mut svg,
        (24.0, 34.0),
        19,
        INK,
        "start",
        "font-weight=\"600\"",
        &report.title,
    );
    legend(&mut svg);
    let ticks = (end / step).round() as u32;
    for tick in 0..=ticks {
        let megabits = step * f64::from(tick);
        line(&mut svg, x(megabits), (HEAD, bottom), FAINT, "1", "");
        let label = format!("{megabits}");
        text(
            &mut svg,
            (x(megabits), bottom + 20.0),
            13,
            MUTED,
            "middle",
            "",
            &label,
        );
    }
    let middle = f64::midpoint(PLOT.0, PLOT.1);
    text(
        &mut svg,
        (middle, bottom + 44.0),
        14,
        INK,
        "middle",
        "",
        "goodput, Mbit/s",
    );
    let mut top = HEAD;
    for condition in &report.conditions {
        group(&mut svg, condition, top, &x);
        top += group_height(condition);
    }
    svg.push_str("</svg>\n");
    svg
}

/// Title, bars and the two reference lines of one condition.
fn group(svg: &mut String, condition: &ConditionReport, top: f64, x: &impl Fn(f64) -> f64) {
    text(
        svg,
        (24.0, top + 20.0),
        15,
        INK,
        "start",
        "font-weight=\"600\"",
        &condition.name,
    );
    let bars = top + GROUP_TITLE;
    for (index, row) in condition.rows.iter().enumerate() {
        let y = bars + BAR_STEP * index as f64;
        let baseline = y + BAR * 0.7;
        text(
            svg,
            (PLOT.0 - 10.0, baseline),
            14,
            INK,
            "end",
            "",
            &row.system,
        );
        if let Some(megabits) = row.megabits {
            let width = x(megabits) - PLOT.0;
            let _ = writeln!(
                svg,
                "<rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\" rx=\"2\" fill=\"{}\"/>",
                PLOT.0,
                colour(&row.kind)
            );
        }
        text(
            svg,
            (PLOT.1 + 16.0, baseline),
            14,
            INK,
            "start",
            "",
            &figure(row),
        );
    }
    let span = (
        bars - 5.0,
        bars + BAR_STEP * condition.rows.len() as f64 - 3.0,
    );
    if let Some(best) = condition.best_alone {
        line(svg, x(best), span, INK, "1.6", "stroke-dasharray=\"5 4\"");
    }
    if let Some(sum) = condition.sum_alone {
        line(svg, x(sum), span, INK, "1.6", "");
    }
}

fn figure(row: &Row) -> String {
    match (row.megabits, row.of_sum) {
        (Some(megabits), Some(ratio)) => format!("{megabits:.1} Mbit/s, {ratio:.2} of sum"),
        (Some(megabits), None) => format!("{megabits:.1} Mbit/s"),
        (None, _) => "not available".to_owned(),
    }
}

fn legend(svg: &mut String) {
    let y = 66.0;
    let samples = [
        ("one link alone", System::Alone(String::new())),
        ("kernel MPTCP", System::Mptcp),
        ("sumlink", System::Sumlink),
    ];
    let mut left = 24.0;
    for (label, system) in samples {
        let _ = writeln!(
            svg,
            "<rect x=\"{left}\" y=\"{}\" width=\"14\" height=\"14\" rx=\"2\" fill=\"{}\"/>",
            y - 12.0,
            colour(&system)
        );
        text(svg, (left + 22.0, y), 13, INK, "start", "", label);
        left += 140.0;
    }
    for (label, dash) in [
        ("best link alone", "stroke-dasharray=\"5 4\""),
        ("sum of the links alone", ""),
    ] {
        line(svg, left + 6.0, (y - 14.0, y + 4.0), INK, "1.6", dash);
        text(svg, (left + 18.0, y), 13, INK, "start", "", label);
        left += 150.0;
    }
}

fn colour(system: &System) -> &'static str {
    match system {
        System::Alone(_) => "#9aa5b1",
        System::Mptcp => "#4a7fb5",
        System::Sumlink => "#e07b39",
    }
}

/// A step of 1, 2 or 5 times a power of ten that gives four to ten ticks.
fn tick_step(largest: f64) -> f64 {
    let magnitude = 10f64.powf((largest / 5.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * magnitude)
        .find(|step| largest / step <= 8.0)
        .unwrap_or(10.0 * magnitude)
}

fn line(svg: &mut String, x: f64, (top, bottom): (f64, f64), ink: &str, width: &str, more: &str) {
    let _ = writeln!(
        svg,
        "<line x1=\"{x:.1}\" y1=\"{top:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\" stroke=\"{ink}\" \
         stroke-width=\"{width}\" {more}/>"
    );
}

fn text(
    svg: &mut String,
    (x, y): (f64, f64),
    size: u32,
    ink: &str,
    anchor: &str,
    more: &str,
    content: &str,
) {
    let escaped = content
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" fill=\"{ink}\" \
         text-anchor=\"{anchor}\" {more}>{escaped}</text>"
    );
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    #[test]
    fn every_system_of_every_condition_is_drawn() {
        let svg = draw(&report([225.0, 65.0]));
        for label in ["wifi alone", "wigig alone"] {
            assert_eq!(svg.matches(&format!(">{label}<")).count(), 2, "{label}");
        }
        // Twice each as a row, once in the legend.
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

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(tick_step(229.0), 50.0);
        assert_eq!(tick_step(1.0), 0.2);
        assert_eq!(tick_step(2_400.0), 500.0);
    }
}
