//! The result pages of the matrix: README.md with all tables, summary.md with the excerpt for a
//! front page.

use std::fmt::Write;
use std::path::Path;

use serde_json::json;

use super::line::{Line, Verdict};
use super::matrix::{Group, Row};
use super::records::Records;
use super::side_by_side::SideBySide;
use super::summary::summary;
use super::tables::{bar, mark, mixture, section};
use super::{BenchOptions, Lines, chart, plan};
use crate::error::LabError;
use crate::report::words::{self, Simulated};
use crate::run::{write_json, write_text};
use sumlink_plot::Palette;

/// Input of the pages.
pub(super) struct Page<'a> {
    pub(super) groups: &'a [Group],
    /// Lines of each group, each with whether this call asked for it.
    pub(super) lines: &'a Lines,
    /// All runs that the lines are based on.
    pub(super) records: &'a Records,
    pub(super) options: &'a BenchOptions,
}

impl Page<'_> {
    /// Whether a line has a figure of the system.
    fn has_figure(&self, system: &str) -> bool {
        self.lines.iter().flatten().any(|(line, _)| {
            let mut others = line.judged.iter().flat_map(|judged| &judged.others);
            line.system == system && line.seeds > 0
                || others.any(|(name, value)| name == system && value.is_some())
        })
    }

    /// Writes tables, charts and JSON.
    pub(super) fn write(&self, directory: &Path) -> Result<(), LabError> {
        let systems = self.groups.iter().flat_map(|group| {
            let of_row = |row: &Row| {
                let own = std::iter::once(row.judged.clone());
                own.chain(plan::alternatives(row, self.options))
            };
            group.rows.iter().flat_map(of_row).collect::<Vec<_>>()
        });
        // Rows that have not been run would change the colors of the others.
        let systems: Vec<String> = systems.filter(|system| self.has_figure(system)).collect();
        let palette = Palette::new(systems.iter().map(String::as_str));
        let mut text = self.head();
        let all = SideBySide::new(self.lines);
        if !all.is_empty() {
            text.push_str(&all.table("side-by-side.svg"));
            write_text(&directory.join("side-by-side.svg"), &all.picture(&palette))?;
        }
        for (group, lines) in self.groups.iter().zip(self.lines) {
            let lines: Vec<&Line> = lines.iter().map(|(line, _)| line).collect();
            let pictures = chart::draw(group, &lines, &palette);
            for (name, svg) in &pictures {
                write_text(&directory.join(name), svg)?;
            }
            let names: Vec<&str> = pictures.iter().map(|(name, _)| name.as_str()).collect();
            section(&mut text, group, &lines, &names);
        }
        text.push_str(METHOD);
        write_text(&directory.join("README.md"), &text)?;
        write_text(&directory.join("summary.md"), &self.summary())?;
        write_json(&directory.join("results.json"), &self.json())?;
        write_text(&directory.join("runs.jsonl"), &self.records.lines())
    }

    fn summary(&self) -> String {
        summary(self.lines, self.records.runs(), self.options)
    }

    /// The page's title, which says when its runs were simulated.
    fn title(&self) -> &'static str {
        let runs = self.records.runs();
        match words::simulated(runs.map(|run| &run.environment)) {
            Simulated::None => "Results",
            Simulated::Some => "Results, partly simulated",
            Simulated::All => "Results, simulated",
        }
    }

    fn head(&self) -> String {
        let mut text = format!("# {}\n\n", self.title());
        text.push_str(&self.summary());
        let _ = write!(
            text,
            "\nMade by `sumlink-lab {}`; the runs behind it are in [runs.jsonl](runs.jsonl) (one a \
             line, without time series), the figures of the tables in \
             [results.json](results.json).\n\n\
             | group | lines | pass | fall short | refused | not run |\n\
             | --- | --- | --- | --- | --- | --- |\n",
            command(std::env::args().skip(1))
        );
        for (group, lines) in self.groups.iter().zip(self.lines) {
            let of = |verdict| {
                lines
                    .iter()
                    .filter(|(line, _)| line.verdict() == verdict)
                    .count()
            };
            let _ = writeln!(
                text,
                "| {6}[{0}](#{0}) | {1} | {2} | {3} | {4} | {5} |",
                group.name,
                lines.len(),
                of(Verdict::Pass),
                of(Verdict::Short),
                of(Verdict::Refused),
                of(Verdict::NotRun),
                mark(of(Verdict::Short) > 0)
            );
        }
        text
    }

    /// The content of all tables as JSON.
    pub(super) fn json(&self) -> serde_json::Value {
        let groups = self.groups.iter().zip(self.lines).map(|(group, lines)| {
            let lines = lines.iter().map(|(line, _)| {
                let bars = line.judged.iter().map(|judged| {
                    let others = judged.others.iter().filter(|(_, value)| value.is_some());
                    json!({
                        "quantity": judged.bar.quantity.name(),
                        "object_bytes": judged.size,
                        "bar": judged.bar.to_string(),
                        "measured": judged.spread,
                        "beside_others": judged.beside_others,
                        "verdict": judged.verdict,
                        "reason": judged.reason,
                        "others": others.cloned().collect::<std::collections::BTreeMap<_, _>>(),
                    })
                });
                json!({
                    "row": line.row,
                    "system": line.system,
                    "variant": line.variant,
                    "verdict": line.verdict(),
                    "cause": line.cause,
                    "seeds": line.seeds,
                    "programs": line.programs,
                    "goodput_bps": line.goodput_bps,
                    "links_alone_bps": line.alone.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
                    "bars": bars.collect::<Vec<_>>(),
                })
            });
            json!({
                "group": group.name,
                "system": group.judged,
                "lines": lines.collect::<Vec<_>>(),
            })
        });
        json!({ "groups": groups.collect::<Vec<_>>() })
    }
}

/// Legend of the tables.
const METHOD: &str = "\n## How to read this\n\n\
    A line is a scenario in one direction with one congestion control. *Alone* is the goodput \
    of one TCP connection over each link alone, measured with the same seed. Every ratio is \
    computed for each seed; the table shows the median, the minimum and the maximum over the n \
    seeds of the line. A line passes if the median of every bar does; **✗** marks lines that \
    fall short, and groups with such lines. A chart has at most six systems: `sumlink:fbdt`, the \
    system under test, and the best of the others by their median. *Refused*: the emulator \
    did not keep up, or the reference of the figure stalled. The scenarios are in \
    `scenarios/matrix`; docs/measuring.md explains the bars.\n";

/// The command line without directories of the local machine, ready to be typed again.
fn command(arguments: impl Iterator<Item = String>) -> String {
    let mut kept: Vec<String> = Vec::new();
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        match argument.split('=').next() {
            Some("--runs" | "--out") if argument.contains('=') => {}
            Some("--runs" | "--out") => drop(arguments.next()),
            _ if argument.contains('*') => kept.push(format!("'{argument}'")),
            _ => kept.push(argument),
        }
    }
    kept.join(" ")
}

/// The lines that this call asked for, formatted for a terminal.
pub(super) fn terminal(groups: &[Group], lines: &Lines, options: &BenchOptions) -> String {
    let mut text = String::new();
    for (group, lines) in groups.iter().zip(lines) {
        for (line, _) in lines.iter().filter(|(_, chosen)| *chosen) {
            let name = format!("{}/{} ({})", group.name, line.row, line.variant);
            let seeds = match line.seeds {
                0 => String::new(),
                seeds => format!(", n = {seeds}"),
            };
            let note = mixture(line);
            let _ = writeln!(text, "{:<11} {name}{seeds}{note}", line.verdict().word());
            // Bars of lines without a run are left out.
            let bars = line.judged.iter();
            for judged in bars.filter(|judged| judged.verdict != Verdict::NotRun) {
                // Passed bars are listed only in quick mode, where few lines are printed.
                if judged.verdict != Verdict::Pass || options.quick {
                    let _ = writeln!(text, "              {}", bar(judged).replace("**", ""));
                }
            }
        }
    }
    let chosen = || lines.iter().flatten().filter(|(_, chosen)| *chosen);
    let passed = chosen()
        .filter(|(line, _)| line.verdict() == Verdict::Pass)
        .count();
    let _ = write!(text, "{passed} of {} lines pass", chosen().count());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_of_a_page_names_no_directories_and_can_be_typed() {
        let called = "lab bench --runs /tmp/here --rows * --out=there --seeds 5";
        assert_eq!(
            command(called.split(' ').map(str::to_owned)),
            "lab bench --rows '*' --seeds 5"
        );
    }
}
