//! The data of the panels: samples over the seeds, and the same as CSV.

use std::fmt::Write;

use super::super::{field, measured};
use crate::report::View;
use crate::results::{Measurement, Series, quantile, sorted};

/// Maximum number of columns for links; the links with the most traffic are shown.
const LINK_COLUMNS: usize = 16;
/// Points of a curve: more than the pixels can show.
const POINTS: usize = 250;

/// The values of all seeds in an interval.
#[derive(Clone, Copy)]
pub(super) struct Sample {
    pub(super) time_s: f64,
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

/// A column of panels: the goodput, or one link, of each system.
pub(super) struct Column {
    pub(super) name: String,
    /// `None` for the goodput of the system.
    pub(super) link: Option<String>,
    /// Samples of each system.
    pub(super) rows: Vec<Vec<Sample>>,
}

/// The goodput, then the links.
pub(super) fn columns(view: &View<'_>, systems: &[&str]) -> Vec<Column> {
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
    let mut links = links(view);
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

/// Every link, and the most that any system delivered over it.
pub(super) fn links(view: &View<'_>) -> Vec<(String, f64)> {
    let mut links: Vec<(String, f64)> = Vec::new();
    for part in view.summary.systems.iter().flat_map(|system| &system.links) {
        match links.iter_mut().find(|(link, _)| *link == part.link) {
            Some((_, most)) => *most = most.max(part.goodput_bps.median),
            None => links.push((part.link.clone(), part.goodput_bps.median)),
        }
    }
    links
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

/// Median, minimum and maximum over all seeds, with at most [`POINTS`] points.
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

/// All samples of all columns.
pub(super) fn csv(columns: &[Column], systems: &[&str]) -> String {
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
                    field(system),
                    field(&series),
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
