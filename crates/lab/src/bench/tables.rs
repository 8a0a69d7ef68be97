//! The tables of a group.

use std::fmt::Write;

use super::growth;
use super::line::{Judged, Line, Verdict};
use super::matrix::Group;
use crate::report::words;
use crate::results::Spread;

/// Appends the section of one group.
pub(super) fn section(text: &mut String, group: &Group, lines: &[&Line], pictures: &[&str]) {
    let _ = write!(text, "\n## {}\n\n", group.name);
    if !group.about.is_empty() {
        let about: Vec<&str> = group.about.split_whitespace().collect();
        let _ = write!(text, "{}\n\n", about.join(" "));
    }
    for picture in pictures {
        let _ = write!(text, "![{}]({picture})\n\n", group.name);
    }
    let shown: Vec<&Line> = lines
        .iter()
        .copied()
        .filter(|line| !line.is_empty())
        .collect();
    if !shown.is_empty() {
        let short = shown.iter().filter(|line| line.verdict() == Verdict::Short);
        let _ = write!(
            text,
            "{}\n\n| row | direction, CC | n | links alone, Mbit/s | {}, Mbit/s | bars: median (least – \
             most), bound | verdict |\n\
             | --- | --- | --- | --- | --- | --- | --- |\n",
            count(short.count(), shown.len()),
            under_test(lines)
        );
    }
    for line in shown {
        let alone: Vec<String> = line.alone.iter().map(|(_, bps)| megabits(*bps)).collect();
        let bars: Vec<String> = line.judged.iter().map(bar).collect();
        let _ = writeln!(
            text,
            "| {}{} | {} | {} | {} | {} | {} | {}{} |",
            mark(line.verdict() == Verdict::Short),
            named(line, lines),
            line.variant,
            line.seeds,
            if alone.is_empty() {
                "–".to_owned()
            } else {
                alone.join(" + ")
            },
            line.goodput_bps.map_or_else(|| "–".to_owned(), megabits),
            bars.join("<br>"),
            line.verdict().word(),
            mixture(line)
        );
    }
    text.push_str(&growth::table(lines));
    text.push_str(&not_run(lines));
    shortfalls(text, group, lines);
    others(text, lines);
}

/// The mark of a line that falls short, before its name.
pub(super) fn mark(is_short: bool) -> &'static str {
    match is_short {
        true => "**✗** ",
        false => "",
    }
}

/// The number of lines in a table that fall short.
fn count(short: usize, all: usize) -> String {
    let lines = words::count(all, "line");
    match short {
        0 => format!("None of {lines} falls short."),
        1 => format!("**1 of {lines} falls short**, marked with **✗**."),
        _ => format!("**{short} of {lines} fall short**, marked with **✗**."),
    }
}

/// A note for verdicts based on runs of different program builds.
pub(super) fn mixture(line: &Line) -> String {
    match line.programs.is_empty() {
        true => String::new(),
        false => format!(" (its runs are of {})", line.programs.join(", ")),
    }
}

/// Appends the missed bars and their known causes: one cause for all lines of a row, or one for
/// each line.
fn shortfalls(text: &mut String, group: &Group, lines: &[&Line]) {
    let short: Vec<&&Line> = lines
        .iter()
        .filter(|line| line.verdict() == Verdict::Short)
        .collect();
    if short.is_empty() {
        return;
    }
    text.push_str("\nMissed bars:\n\n");
    for row in &group.rows {
        let of_row = short.iter().filter(|line| line.row == row.name);
        let mut causes: Vec<(&str, Vec<&Line>)> = Vec::new();
        for &&line in of_row {
            let cause = line
                .cause
                .as_deref()
                .unwrap_or("the cause is not known yet");
            match causes.iter_mut().find(|(known, _)| *known == cause) {
                Some((_, lines)) => lines.push(line),
                None => causes.push((cause, vec![line])),
            }
        }
        let is_one = causes.len() == 1;
        for (cause, lines) in causes {
            let variants: Vec<&str> = lines.iter().map(|line| &*line.variant).collect();
            let of = match is_one {
                true => String::new(),
                false => format!(" ({})", variants.join("; ")),
            };
            let _ = writeln!(text, "- {}{of}: {cause}{}", row.name, load(&lines));
        }
    }
}

/// Above this CPU utilization no processor is free at times, and processes are scheduled late.
const BUSY: f64 = 0.8;

/// The CPU utilization during the runs, where it may have been the bottleneck.
fn load(lines: &[&Line]) -> String {
    let busy = || lines.iter().filter_map(|line| line.busy);
    let percent = |share: f64| (share * 100.0).round();
    let least = percent(busy().fold(f64::INFINITY, f64::min));
    let most = busy().fold(0.0, f64::max);
    if most < BUSY {
        return String::new();
    }
    let most = percent(most);
    let range = match least == most {
        true => format!("{most}"),
        false => format!("{least} to {most}"),
    };
    format!(" (the processors were {range} % busy)")
}

/// One sentence about the lines that were not run; rows with the same missing lines share one
/// entry. Empty if all lines were run.
fn not_run(lines: &[&Line]) -> String {
    let all = |row: &str, is_wanted: &dyn Fn(&Line) -> bool| -> Vec<&str> {
        let of_row = lines.iter().filter(|line| line.row == row);
        let wanted = of_row.filter(|line| is_wanted(line));
        wanted.map(|line| line.variant.as_str()).collect()
    };
    let mut rows: Vec<&str> = lines.iter().map(|line| line.row.as_str()).collect();
    rows.dedup();
    let count = rows.len();
    // Grouped by missing lines; an empty list stands for all lines of the row.
    let mut lacks: Vec<(Vec<&str>, Vec<&str>)> = Vec::new();
    for row in rows {
        let mut missing = all(row, &Line::is_empty);
        if missing.is_empty() {
            continue;
        }
        if missing == all(row, &|_| true) {
            missing.clear();
        }
        match lacks.iter_mut().find(|(known, _)| *known == missing) {
            Some((_, rows)) => rows.push(row),
            None => lacks.push((missing, vec![row])),
        }
    }
    let parts = lacks.iter().map(|(missing, rows)| {
        let rows = match rows.len() == count {
            true => "every row".to_owned(),
            false => rows.join(", "),
        };
        match missing.is_empty() {
            true => rows,
            false => format!("{rows} ({})", missing.join("; ")),
        }
    });
    let parts: Vec<String> = parts.collect();
    match parts.is_empty() {
        true => String::new(),
        false => format!("\nNot run: {}.\n", parts.join("; ")),
    }
}

/// Appends the first bar's figure for all systems.
fn others(text: &mut String, lines: &[&Line]) {
    // In the order in which they were requested, including those without a figure in the first row.
    let mut names: Vec<&str> = Vec::new();
    let judged = || lines.iter().flat_map(|line| &line.judged);
    for (name, _) in judged().flat_map(|judged| &judged.others) {
        let known = |(other, value): &(String, Option<f64>)| other == name && value.is_some();
        if !names.contains(&name.as_str()) && judged().any(|j| j.others.iter().any(known)) {
            names.push(name);
        }
    }
    if names.is_empty() {
        return;
    }
    let _ = write!(
        text,
        "\nThe alternatives, over the seeds that all of them have:\n\n\
         | row | direction, CC | figure | {} | {} |\n| --- | --- | ---{} |\n",
        under_test(lines),
        names.join(" | "),
        " | ---".repeat(names.len() + 1)
    );
    let mut lacks = false;
    for line in lines {
        let known = |judged: &&Judged| judged.others.iter().any(|(_, value)| value.is_some());
        for judged in line.first().filter(known) {
            let quantity = judged.bar.quantity;
            let cell =
                |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |v| quantity.format(v));
            let own = judged.beside_others;
            let cells = names.iter().map(|name| {
                let other = judged.others.iter().find(|(other, _)| other == name);
                let value = other.and_then(|(_, value)| *value);
                lacks |= value.is_none();
                cell(value)
            });
            let cells = cells.collect::<Vec<_>>().join(" | ");
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
                cells
            );
        }
    }
    if lacks {
        text.push_str(
            "\n– marks a run that was not requested, not supported or refused: runs.jsonl has the \
             reason.\n",
        );
    }
}

/// The system under test of a group, if it is the same for all lines.
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

/// Formats a bar with its figure.
pub(super) fn bar(judged: &Judged) -> String {
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
    // A line that was not run says so once; only other missing figures need their reason here.
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

/// Formats the size of an object.
pub(super) fn size(bytes: u64) -> String {
    words::bytes(bytes as f64)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::bench::quantities::Measured;
    use crate::bench::quantities::fixture::{alone, own, run, scenario};
    use crate::bench::{chart, matrix};
    use sumlink_plot::Palette;

    #[test]
    fn lines_that_were_not_run_are_one_sentence() {
        let text = "name = \"g\"\nbars = [\"duplicates <= 3%\"]\ndirections = [\"down\", \"up\"]\n\
                    congestion = [\"cubic\", \"bbr\"]\n[scenario]\nduration = \"3s\"\n\
                    [[scenario.link]]\nname = \"a\"\nrate = \"1mbit\"\n\
                    [[row]]\nname = \"one\"\n[[row]]\nname = \"two\"\n[[row]]\nname = \"three\"\n";
        let group = matrix::read(Path::new("m.toml"), text).unwrap();
        let message = |ran: &[&str]| {
            let mut lines = Vec::new();
            for row in &group.rows {
                for variant in &row.variants {
                    let is_there = ran.contains(&variant.scenario.name.as_str());
                    let runs: Vec<_> = is_there
                        .then(|| run("sumlink:fbdt", 1, own([1.0; 3])))
                        .into_iter()
                        .collect();
                    let measured = Measured {
                        scenario: &variant.scenario,
                        runs: &runs,
                    };
                    lines.push(crate::bench::judge::judge(row, measured, 1, &[]));
                }
            }
            let mut table = String::new();
            section(&mut table, &group, &lines.iter().collect::<Vec<_>>(), &[]);
            let shown = table.lines().filter(|line| line.starts_with("| ")).count();
            let sentence = table.lines().find(|line| line.starts_with("Not run: "));
            (shown, sentence.unwrap_or_default().to_owned())
        };
        assert_eq!(message(&[]), (0, "Not run: every row.".to_owned()));
        let firsts = ["g-one-down-cubic", "g-two-down-cubic", "g-three-down-cubic"];
        let expected = "Not run: every row (down, bbr; up, cubic; up, bbr).";
        assert_eq!(message(&firsts), (5, expected.to_owned()));
        let expected = "Not run: one, three (down, bbr; up, cubic; up, bbr); two.";
        assert_eq!(
            message(&["g-one-down-cubic", "g-three-down-cubic"]),
            (4, expected.to_owned())
        );
    }

    #[test]
    fn a_busy_machine_is_mentioned_with_missed_bars() {
        let text = "name = \"g\"\nbars = [\"duplicates <= 3%\"]\n[[row]]\nname = \"r\"\n\
                    duration = \"3s\"\n[[row.link]]\nname = \"a\"\nrate = \"1mbit\"\n";
        let group = matrix::read(Path::new("m.toml"), text).unwrap();
        let row = &group.rows[0];
        let measured = Measured {
            scenario: &row.variants[0].scenario,
            runs: &[],
        };
        let line_of = |busy| {
            let mut line = crate::bench::judge::judge(row, measured, 1, &[]);
            line.busy = busy;
            line
        };
        let message = |shares: &[Option<f64>]| {
            let lines: Vec<Line> = shares.iter().map(|share| line_of(*share)).collect();
            load(&lines.iter().collect::<Vec<_>>())
        };
        assert_eq!(message(&[None]), "");
        assert_eq!(message(&[Some(0.2), Some(0.79)]), "");
        assert_eq!(message(&[Some(0.853)]), " (the processors were 85 % busy)");
        assert_eq!(
            message(&[Some(0.95), None, Some(0.783)]),
            " (the processors were 78 to 95 % busy)"
        );
    }

    #[test]
    fn a_chart_of_rates_has_a_unit_and_contains_all_values() {
        let text = "name = \"g\"\nbars = [\"goodput >= 5gbit\"]\n[[row]]\nname = \"r\"\n\
                    duration = \"3s\"\n[[row.link]]\nname = \"a\"\nrate = \"1mbit\"\n";
        let group = matrix::read(Path::new("m.toml"), text).unwrap();
        let scenario = scenario("");
        let runs = [
            run("sumlink:fbdt", 1, own([9e3; 3])),
            run("mptcp", 1, own([26e3; 3])),
        ];
        let measured = Measured {
            scenario: &scenario,
            runs: &runs,
        };
        let others = ["mptcp".to_owned()];
        let line = crate::bench::judge::judge(&group.rows[0], measured, 1, &others);
        let pictures = chart::draw(&group, &[&line], &Palette::new(["mptcp", "sumlink:fbdt"]));
        let (_, svg) = &pictures[0];
        assert!(svg.contains("goodput, Gbit/s (more is better)"), "{svg}");
        assert!(svg.contains(">30<") && !svg.contains("000000000<"), "{svg}");
    }

    #[test]
    fn the_tables_of_two_lines() {
        let text = "name = \"g\"\nabout = \"A group\"\n\
                    bars = [\"sum >= 0.97\", \"duplicates <= 3%\"]\n\
                    [[row]]\nname = \"good\"\nduration = \"3s\"\n[[row.link]]\nname = \"a\"\n\
                    rate = \"1mbit\"\n\
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
            crate::bench::judge::judge(&group.rows[row], measured, 1, &["mptcp".to_owned()])
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
        // The line that falls short has its mark in the first column; the other has none.
        assert!(
            table.contains("\n| **✗** bad |") && table.contains("\n| good |"),
            "{table}"
        );
        assert!(
            table.contains("\n**1 of 2 lines falls short**, "),
            "{table}"
        );
        assert_eq!(table.matches("| **✗**").count(), 1, "{table}");
        assert_eq!(count(0, 3), "None of 3 lines falls short.");
        assert!(count(2, 3).starts_with("**2 of 3 lines fall short**"));
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
