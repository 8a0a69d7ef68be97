//! The figures of a scenario.

mod distribution;
mod lag;
mod plane;
mod throughput;

use super::{View, words};
use crate::results::{Measurement, figures};
use sumlink_plot::{Anchor, Ink, Shown, Svg, shortened};

/// A chart, its data as CSV, and its caption.
pub(super) struct Figure {
    /// Short name for files and links.
    pub(super) id: &'static str,
    pub(super) title: String,
    /// Explanation of the chart; plain text.
    pub(super) caption: String,
    pub(super) svg: String,
    pub(super) csv: String,
}

/// All figures that have data.
pub(super) fn all(view: &View<'_>) -> Vec<Figure> {
    [
        throughput::draw(view),
        distribution::draw(view),
        lag::draw(view),
        plane::draw(view),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A system's valid measurements, one for each seed.
fn measured<'a>(view: &'a View<'_>, system: &str) -> Vec<&'a Measurement> {
    let runs = view.results.runs.iter();
    runs.filter(|run| run.system == system)
        .filter_map(|run| figures(run).ok())
        .collect()
}

/// Draws the footer: how many systems the chart shows, and the measurement environment.
fn footer(svg: &mut Svg, view: &View<'_>, shown: &Shown<'_>, (width, y): (f64, f64)) {
    let runs = view.summary.systems.iter().map(|system| system.runs).max();
    let text = format!(
        "{}{}; {}",
        words::systems_shown(shown).map_or_else(String::new, |note| format!("{note}; ")),
        words::count(runs.unwrap_or(0), "seed"),
        words::environment(&view.summary.environment)
    );
    let text = shortened(&text, (width / 5.2) as usize);
    svg.text((6.0, y), 10.0, Ink::Muted, Anchor::Start, "", &text);
}

/// A field of a CSV file (RFC 4180).
pub(super) fn field(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
