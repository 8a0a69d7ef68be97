//! The tables of the matrix, for people: README.md with everything, summary.md with what a front page quotes.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde_json::json;

use super::bar::Quantity;
use super::judge::{Judged, Line, Verdict};
use super::matrix::{Group, Row};
use super::{BenchOptions, Lines, chart, plan, records};
use crate::error::LabError;
use crate::plot::Palette;
use crate::report::words;
use crate::results::{Environment, Run, Spread, figures};
use crate::run::{OTHERS_NOTE, write_json, write_text};

/// What the tables are made of.
pub(super) struct Page<'a> {
    pub(super) groups: &'a [Group],
    /// Of each group, with whether this call asked for it.
    pub(super) lines: &'a Lines,
    /// All runs behind them.
    pub(super) runs: &'a [Run],
    pub(super) options: &'a BenchOptions,
}

impl Page<'_> {
    /// Writes the tables, the pictures and the JSON.
    pub(super) fn write(&self, directory: &Path) -> Result<(), LabError> {
        let systems = self.groups.iter().flat_map(|group| {
            let of_row = |row: &Row| {
                let own = std::iter::once(row.judged.clone());
                own.chain(plan::alternatives(row, self.options))
            };
            group.rows.iter().flat_map(of_row).collect::<Vec<_>>()
        });
        let systems: Vec<String> = systems.collect();
        let palette = Palette::new(systems.iter().map(String::as_str));
        let mut text = self.head();
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
        let records = self
            .runs
            .iter()
            .map(|run| format!("{}\n", records::record(run)));
        write_text(&directory.join("runs.jsonl"), &records.collect::<String>())
    }

    fn head(&self) -> String {
        let mut text = "# Results\n\n".to_owned();
        text.push_str(&self.summary());
        let command: Vec<String> = std::env::args().skip(1).collect();
        let _ = write!(
            text,
            "\nMade by `sumlink {}`; the runs behind it are in [runs.jsonl](runs.jsonl) (one a line, without time \
             series), the figures of the tables in [results.json](results.json).\n\n\
             | group | lines | pass | fall short | refused | not run |\n| --- | --- | --- | --- | --- | --- |\n",
            command.join(" ")
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
                "| [{0}](#{0}) | {1} | {2} | {3} | {4} | {5} |",
                group.name,
                lines.len(),
                of(Verdict::Pass),
                of(Verdict::Short),
                of(Verdict::Refused),
                of(Verdict::NotRun)
            );
        }
        text
    }

    /// Three sentences for a front page.
    fn summary(&self) -> String {
        let all = || self.lines.iter().flatten().map(|(line, _)| line);
        let of = |verdict| all().filter(|line| line.verdict() == verdict).count();
        let measured = all()
            .filter(|line| line.judged.iter().any(|j| j.spread.is_some()))
            .count();
        let mut text = format!(
            "{} of {measured} measured lines of the matrix reach every bar, {} fall short",
            of(Verdict::Pass),
            of(Verdict::Short)
        );
        let rest = of(Verdict::Refused) + of(Verdict::NotRun);
        if rest > 0 {
            let _ = write!(text, " ({rest} of all {} have no figure)", all().count());
        }
        text.push_str(".\n");
        text.push_str(&rival(self.lines));
        let newest = self.runs.iter().max_by_key(|run| run.started_unix_s);
        if let Some(run) = newest {
            let of = &run.environment;
            let _ = writeln!(
                text,
                "Measured until {} with sumlink {} on {}; kernel {}, socket buffers up to {}.",
                words::day(run.started_unix_s),
                of.sumlink,
                machine(of),
                of.kernel,
                words::buffer_limit(of)
            );
            let disturbed = self.runs.iter().filter(|run| is_disturbed(run)).count();
            if disturbed > 0 {
                let _ = writeln!(
                    text,
                    "In {disturbed} of {} runs other programs used more than a tenth of the machine.",
                    self.runs.len()
                );
            }
            let options = self.options;
            let seeds = if options.quick { 1 } else { options.seeds };
            let _ = writeln!(
                text,
                "Medians of {}, of the alternatives of {}; down and up are directions, cubic and bbr the congestion \
                 control of everyone.",
                words::count(seeds as usize, "seed"),
                words::count(
                    if options.quick {
                        1
                    } else {
                        options.alternative_seeds as usize
                    },
                    "seed"
                ),
            );
        }
        text
    }

    /// Everything in the tables.
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

/// What a connection of somebody else is left, which no bar decides; empty when nobody has measured it.
fn rival(lines: &Lines) -> String {
    let mut shares = Vec::new();
    for (line, _) in lines.iter().flatten() {
        let of_rival = |judged: &&Judged| judged.bar.quantity == Quantity::Rival;
        for judged in line.judged.iter().filter(of_rival) {
            if let Some(spread) = &judged.spread {
                shares.push(format!("{:.2} ({})", spread.median, line.variant));
            }
        }
    }
    if shares.is_empty() {
        return shares.concat();
    }
    format!(
        "A CUBIC connection of somebody else that shares a link with sumlink gets so much of an equal share (1 is equal): \
         {}.\n",
        shares.join(", ")
    )
}

/// How to read the tables.
const METHOD: &str = "\n## How to read this\n\n\
    A line is a scenario in one direction with one congestion control. *Alone* is what one TCP connection gets over each \
    link by itself, measured with the same seed; every ratio is taken seed by seed, and the table has the median, the least \
    and the largest. A line passes when the median of every bar does. *Refused*: the emulator did not keep up, so that \
    there is no figure. The scenarios are in `scenarios/matrix`; docs/laboratory.md says what the bars mean.\n";

/// One group.
fn section(text: &mut String, group: &Group, lines: &[&Line], pictures: &[&str]) {
    let _ = write!(text, "\n## {}\n\n", group.name);
    if !group.about.is_empty() {
        let about: Vec<&str> = group.about.split_whitespace().collect();
        let _ = write!(text, "{}\n\n", about.join(" "));
    }
    for picture in pictures {
        let _ = write!(text, "![{}]({picture})\n\n", group.name);
    }
    let _ = write!(
        text,
        "| row | direction, CC | links alone, Mbit/s | {}, Mbit/s | bars: median (least – most), bound | verdict |\n\
         | --- | --- | --- | --- | --- | --- |\n",
        under_test(lines)
    );
    for line in lines {
        let alone: Vec<String> = line.alone.iter().map(|(_, bps)| megabits(*bps)).collect();
        let bars: Vec<String> = line.judged.iter().map(bar).collect();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} |",
            named(line, lines),
            line.variant,
            if alone.is_empty() {
                "–".to_owned()
            } else {
                alone.join(" + ")
            },
            line.goodput_bps.map_or_else(|| "–".to_owned(), megabits),
            bars.join("<br>"),
            line.verdict().word()
        );
    }
    shortfalls(text, group, lines);
    others(text, lines);
}

/// What falls short, and why, where that is known.
fn shortfalls(text: &mut String, group: &Group, lines: &[&Line]) {
    let mut told: Vec<&str> = Vec::new();
    for line in lines.iter().filter(|line| line.verdict() == Verdict::Short) {
        if told.contains(&line.row.as_str()) {
            continue;
        }
        if told.is_empty() {
            text.push_str("\nWhat falls short:\n\n");
        }
        told.push(&line.row);
        let row = group.rows.iter().find(|row| row.name == line.row);
        let cause = row.and_then(|row| row.cause.as_deref());
        let _ = writeln!(
            text,
            "- {}: {}",
            line.row,
            cause.unwrap_or("the cause is not known yet")
        );
    }
}

/// The first bar's figure for everybody.
fn others(text: &mut String, lines: &[&Line]) {
    let mut names: Vec<&str> = Vec::new();
    for (name, value) in lines
        .iter()
        .flat_map(|line| &line.judged)
        .flat_map(|j| &j.others)
    {
        if value.is_some() && !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    if names.is_empty() {
        return;
    }
    let _ = write!(
        text,
        "\nThe alternatives:\n\n| row | direction, CC | figure | {} | {} |\n| --- | --- | ---{} |\n",
        under_test(lines),
        names.join(" | "),
        " | ---".repeat(names.len() + 1)
    );
    for line in lines {
        let known = |judged: &&Judged| judged.others.iter().any(|(_, value)| value.is_some());
        for judged in line.first().filter(known) {
            let quantity = judged.bar.quantity;
            let cell =
                |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |v| quantity.format(v));
            let own = judged.spread.as_ref().map(|spread| spread.median);
            let cells = names.iter().map(|name| {
                let other = judged.others.iter().find(|(other, _)| other == name);
                cell(other.and_then(|(_, value)| *value))
            });
            let size = judged
                .size
                .map_or_else(String::new, |bytes| format!("{}: ", size(bytes)));
            let _ = writeln!(
                text,
                "| {} | {} | {size}{} | {} | {} |",
                named(line, lines),
                line.variant,
                quantity.name(),
                cell(own),
                cells.collect::<Vec<_>>().join(" | ")
            );
        }
    }
}

/// The system under test of a group, where it has only one.
pub(super) fn under_test<'a>(lines: &[&'a Line]) -> &'a str {
    let mut systems = lines.iter().map(|line| line.system.as_str());
    let first = systems.next().unwrap_or_default();
    match systems.all(|system| system == first) {
        true => first,
        false => "under test",
    }
}

/// A line's row, with its system under test where the group has several.
fn named(line: &Line, lines: &[&Line]) -> String {
    match under_test(lines) == line.system {
        true => line.row.clone(),
        false => format!("{} ({})", line.row, line.system),
    }
}

/// A bar with what was measured.
fn bar(judged: &Judged) -> String {
    let quantity = judged.bar.quantity;
    let size = judged
        .size
        .map_or_else(String::new, |bytes| format!("{}: ", size(bytes)));
    let mut text = format!("{size}{} ", quantity.name());
    match &judged.spread {
        Some(spread) => text.push_str(&values(judged, spread)),
        None => text.push('–'),
    }
    let _ = write!(text, " {}", judged.bar);
    // What was not run is not run as a whole, and the line says so.
    if matches!(judged.verdict, Verdict::Short | Verdict::Refused) {
        let _ = write!(text, " **{}**", judged.verdict.word());
    }
    if !judged.reason.is_empty() {
        let _ = write!(text, " ({})", judged.reason.replace('|', "/"));
    }
    text
}

fn values(judged: &Judged, spread: &Spread) -> String {
    let format = |value| judged.bar.quantity.format(value);
    let median = format(spread.median);
    if spread.count == 1 {
        return median;
    }
    format!("{median} ({} – {})", format(spread.min), format(spread.max))
}

fn megabits(bps: f64) -> String {
    match bps / 1e6 {
        mbps if mbps >= 99.95 => format!("{mbps:.0}"),
        mbps => format!("{mbps:.1}"),
    }
}

/// The size of an object.
pub(super) fn size(bytes: u64) -> String {
    words::bytes(bytes as f64)
}

/// Whether other programs took more of the machine than they should have, by the note of the run.
fn is_disturbed(run: &Run) -> bool {
    figures(run).is_ok_and(|figures| figures.note.contains(OTHERS_NOTE))
}

/// The processors, by name where the kernel tells it.
fn machine(of: &Environment) -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    });
    let processors = words::count(of.processors, "processor");
    model.map_or_else(
        || processors.clone(),
        |model| format!("{processors} ({model})"),
    )
}

/// The lines that this call asked for, for a terminal.
pub(super) fn terminal(groups: &[Group], lines: &Lines, options: &BenchOptions) -> String {
    let mut text = String::new();
    for (group, lines) in groups.iter().zip(lines) {
        for (line, _) in lines.iter().filter(|(_, chosen)| *chosen) {
            let name = format!("{}/{} ({})", group.name, line.row, line.variant);
            let _ = writeln!(text, "{:<11} {name}", line.verdict().word());
            // Bars of what was not run say nothing.
            let told = line.judged.iter();
            for judged in told.filter(|judged| judged.verdict != Verdict::NotRun) {
                // What passes is only worth a line where there are few.
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
    use crate::bench::matrix;
    use crate::bench::quantities::Measured;
    use crate::bench::quantities::tests::{alone, own, run, scenario};

    #[test]
    fn the_tables_of_two_lines() {
        let text = "name = \"g\"\nabout = \"A group\"\nbars = [\"sum >= 0.97\", \"duplicates <= 3%\"]\n\
                    [[row]]\nname = \"good\"\nduration = \"3s\"\n[[row.link]]\nname = \"a\"\nrate = \"1mbit\"\n\
                    [[row]]\nname = \"bad\"\ncause = \"half of it is missing\"\nduration = \"3s\"\n\
                    [[row.link]]\nname = \"a\"\nrate = \"1mbit\"\n";
        let group = matrix::read(Path::new("m.toml"), text).unwrap();
        let scenario = scenario("");
        let line = |row: usize, mbps: f64| {
            let mut runs = vec![run("mptcp", 1, own([60.0; 3]))];
            for seed in 1..=3 {
                runs.push(run("alone", seed, alone()));
                runs.push(run("sumlink:fbdt", seed, own([mbps + seed as f64; 3])));
            }
            let measured = Measured {
                scenario: &scenario,
                runs: &runs,
            };
            crate::bench::judge::judge(&group.rows[row], measured, &["mptcp".to_owned()])
        };
        let lines = [line(0, 96.0), line(1, 46.0)];
        let mut table = String::new();
        section(
            &mut table,
            &group,
            &lines.iter().collect::<Vec<_>>(),
            &["g.svg"],
        );
        insta::assert_snapshot!("tables", table);
        let palette = Palette::new(["mptcp", "sumlink:fbdt"]);
        let pictures = chart::draw(&group, &lines.iter().collect::<Vec<_>>(), &palette);
        let [(name, svg)] = pictures.as_slice() else {
            panic!("{pictures:?}");
        };
        assert_eq!(name, "g.svg");
        insta::assert_snapshot!("chart", svg);
        roxmltree::Document::parse(svg).unwrap();
    }
}
