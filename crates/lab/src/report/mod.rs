//! The report: a directory of results as one page, with every figure as SVG and CSV in separate
//! files.
//!
//! ```text
//! DIR/report.html                          the page: no scripts, no external resources
//! DIR/figures/SCENARIO-throughput.svg      goodput and link rates over time
//! DIR/figures/SCENARIO-distribution.svg    completion times, message delays or goodput of intervals, as CDFs
//! DIR/figures/SCENARIO-lag.svg             in-order delivery and its lag behind each link alone, over time
//! DIR/figures/SCENARIO-plane.svg           one link's goodput against the others'
//! DIR/figures/SCENARIO-*.csv               the data of the figures; SCENARIO-table.csv is the table
//! DIR/SCENARIO/summary.json                the table for programs
//! ```

mod figures;
mod page;
#[cfg(test)]
pub(crate) mod sample;
mod table;
pub(crate) mod words;

#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::LabError;
use crate::results::{self, ScenarioResults, Summary};
use figures::Figure;
use sumlink_plot::{Palette, Shown};

/// One scenario, prepared for the report.
struct View<'a> {
    /// Base name of its files.
    slug: String,
    results: &'a ScenarioResults,
    summary: Summary,
    palette: &'a Palette,
}

/// Writes the report of a directory of results into that directory and returns the paths of the
/// files, the page first.
///
/// Fails if there are no results or if a file cannot be written; unreadable results are listed on
/// the page.
pub fn write(directory: &Path) -> Result<Vec<PathBuf>, LabError> {
    let all = results::load(directory)?;
    let summaries: Vec<Summary> = all
        .iter()
        .map(|results| Summary::from_runs(&results.header, &results.runs))
        .collect();
    let names = summaries
        .iter()
        .flat_map(|summary| summary.systems.iter().map(|system| system.system.as_str()));
    let palette = Palette::new(names);
    let mut files = vec![directory.join("report.html")];
    let mut sections = Vec::new();
    for (results, summary) in all.iter().zip(&summaries) {
        let path = results.directory.join("summary.json");
        let json = serde_json::to_string_pretty(summary)
            .map_err(|error| LabError::system("writing JSON", error))?;
        put(&path, &json)?;
        files.push(path);
        let view = View::new(results, summary.clone(), &palette);
        let figures = figures::all(&view);
        for (name, text) in beside(&view, &figures) {
            let path = directory.join("figures").join(name);
            put(&path, &text)?;
            files.push(path);
        }
        sections.push((view, figures));
    }
    put(&files[0], &page::page(&sections, &palette))?;
    Ok(files)
}

/// The files that accompany the page, by name.
fn beside(view: &View<'_>, figures: &[Figure]) -> Vec<(String, String)> {
    let mut files = vec![(format!("{}-table.csv", view.slug), table::csv(view))];
    for figure in figures {
        let name = format!("{}-{}", view.slug, figure.id);
        files.push((format!("{name}.svg"), figure.svg.clone()));
        files.push((format!("{name}.csv"), figure.csv.clone()));
    }
    files
}

fn put(path: &Path, text: &str) -> Result<(), LabError> {
    let parent = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(LabError::file(parent))?;
    fs::write(path, text).map_err(LabError::file(path))
}

impl<'a> View<'a> {
    fn new(results: &'a ScenarioResults, summary: Summary, palette: &'a Palette) -> Self {
        // Directory names are unique; scenario names may not be.
        let name = results.directory.file_name();
        let name = name.map_or_else(|| "results".into(), |name| name.to_string_lossy());
        let safe = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let mut slug: String = name.chars().map(safe).take(80).collect();
        if slug != name {
            // Different names may have the same slug.
            let digest = ring::digest::digest(&ring::digest::SHA256, name.as_bytes());
            for byte in &digest.as_ref()[..4] {
                slug.push_str(&format!("{byte:02x}"));
            }
        }
        Self {
            slug,
            results,
            summary,
            palette,
        }
    }

    /// The systems that a chart with these systems shows: the best by their median goodput, or by
    /// their median time for files and messages.
    fn shown<'b>(&self, systems: impl Iterator<Item = &'b str>) -> Shown<'b> {
        let merit = |name: &str| {
            let system = self.summary.system(name)?;
            match self.summary.workload.as_str() {
                "files" => system.completion_s.as_ref().map(|tail| -tail.p50),
                "cbr" | "requests" => system.message_delay_ms.as_ref().map(|tail| -tail.p50),
                _ => system.goodput_bps.as_ref().map(|goodput| goodput.median),
            }
        };
        let candidates: Vec<_> = systems.map(|name| (name, merit(name))).collect();
        Shown::of(&candidates)
    }

    /// The scenario's name as a title, which says when its runs were simulated.
    fn title(&self) -> String {
        match self.summary.environment.is_simulated() {
            true => format!("{}, simulated", self.summary.scenario),
            false => self.summary.scenario.clone(),
        }
    }
}
