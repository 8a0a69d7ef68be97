//! The matrix: one file for each group of rows, and the scenarios made from each row.
//!
//! ```toml
//! name = "unequal"
//! about = "Links that differ in everything"
//! bars = ["sum >= 0.95", "best >= 1"]
//! directions = ["down", "up"]     # every row in each direction,
//! congestion = ["cubic", "bbr"]   # with each congestion control
//!
//! [scenario]                      # overrides keys in the scenarios of all rows
//! duration = "10s"
//!
//! [[row]]
//! name = "queue"
//! base = "../unequal-queue.toml"  # a scenario file; all other keys here override its keys
//! warmup = "4s"
//! ```

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Table;

use crate::error::LabError;
use crate::results::ALONE;
use crate::scenario::{Document, Problem, Section, Traffic, parse, parse_congestion, parse_name};
use crate::systems;

use super::bar::Bar;
use super::cause::Causes;
use super::vary::{self, Ingredients, Variant};

/// The system that must meet the bars unless the group names one.
const JUDGED: &str = "sumlink:fbdt";

/// A group of related rows.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) about: String,
    /// Position of the group in the tables.
    order: u64,
    /// The system that must meet the bars unless the row names one.
    pub(crate) judged: String,
    pub(crate) rows: Vec<Row>,
}

/// A row of the matrix.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// The system that must meet the bars.
    pub(crate) judged: String,
    pub(crate) bars: Vec<Bar>,
    /// Known causes of missed bars.
    pub(crate) causes: Causes,
    /// Whether `--quick` includes the row.
    pub(crate) quick: bool,
    /// The row in every direction and with every congestion control.
    pub(crate) variants: Vec<Variant>,
}

/// Reads all groups in a directory, in table order; the error lists the problems of all files.
pub(crate) fn load(directory: &Path) -> Result<Vec<Group>, LabError> {
    let entries = fs::read_dir(directory).map_err(LabError::scenario_file(directory))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .collect();
    files.sort();
    if files.is_empty() {
        return Err(LabError::Usage(format!(
            "no group of the matrix in {}: name a directory with --matrix",
            directory.display()
        )));
    }
    let mut groups: Vec<Group> = Vec::new();
    let mut problems = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).map_err(LabError::scenario_file(file))?;
        match read(file, &text) {
            Ok(group) => {
                if groups.iter().any(|other| other.name == group.name) {
                    let reason = format!("another file also has a group '{}'", group.name);
                    let file = file.clone();
                    problems.push(Problem {
                        file,
                        line: 1,
                        reason,
                    });
                }
                groups.push(group);
            }
            Err(found) => problems.extend(found),
        }
    }
    if !problems.is_empty() {
        return Err(LabError::Scenario(problems));
    }
    groups.sort_by_key(|group| group.order);
    Ok(groups)
}

/// Reads a group; the error lists all of its problems.
pub(crate) fn read(file: &Path, text: &str) -> Result<Group, Vec<Problem>> {
    parse(file, text, "the group", |document, root| {
        let table = text.parse().ok()?;
        read_root(document, root, file, &table)
    })
}

fn read_root(
    document: &mut Document<'_>,
    root: &mut Section<'_, '_>,
    file: &Path,
    table: &Table,
) -> Option<Group> {
    let name = root.parsed(document, "name", parse_name);
    if !root.has("name") {
        root.missing(document, "name", "name = \"unequal\"");
    }
    let about = root.text(document, "about").map(|about| about.value);
    let order = root.integer(document, "order", 0..1000);
    let judged = root.parsed(document, "judged", parse_system);
    let bars = read_bars(document, root).unwrap_or_default();
    let mut list = |key: &'static str, without: &str, parse: fn(&str) -> Result<String, String>| {
        let listed = root.texts(document, key);
        let listed = listed.map(|all| {
            let mut parsed = Vec::new();
            for at in all {
                match parse(&at.value) {
                    Ok(value) => parsed.push(value),
                    Err(error) => document.problem(&at.span, format!("{key}: {error}")),
                }
            }
            parsed
        });
        listed.unwrap_or_else(|| vec![without.to_owned()])
    };
    let directions = list("directions", "down", |text| {
        Traffic::parse(text).map(|traffic| traffic.name().to_owned())
    });
    let congestion = list("congestion", "cubic", parse_congestion);
    let lines = directions.iter().flat_map(|direction| {
        let of_direction = congestion.iter();
        of_direction.map(move |congestion| format!("{direction}, {congestion}"))
    });
    let lines: Vec<String> = lines.collect();
    let of_group = Causes::of_group(document, root, &lines);
    // The keys of this table are checked later, when the rows become scenarios.
    root.has("scenario");
    let judged = judged.map_or_else(|| JUDGED.to_owned(), |at| at.value);
    let name = name?.value;
    let blocks = root.blocks(document, "row");
    if blocks.is_empty() {
        root.missing(document, "row", "[[row]] with name, and base or link");
    }
    let tables = table.get("row").and_then(toml::Value::as_array);
    let mut rows: Vec<Row> = Vec::new();
    for (mut block, own) in blocks.into_iter().zip(tables.into_iter().flatten()) {
        let span = block.span();
        let row_name = block.parsed(document, "name", parse_name);
        if !block.has("name") {
            block.missing(document, "name", "name = \"queue\"");
        }
        let base = block
            .text(document, "base")
            .map(|at| document.path(&at.value));
        let own_bars = read_bars(document, &mut block);
        let own_judged = block.parsed(document, "judged", parse_system);
        let quick = block.boolean(document, "quick").unwrap_or(false);
        let causes = Causes::read(document, &mut block, &lines, &of_group);
        let (Some(row_name), Some(own)) = (row_name, own.as_table()) else {
            continue;
        };
        if rows.iter().any(|row| row.name == row_name.value) {
            document.problem(
                &row_name.span,
                format!("two rows have the name '{}'", row_name.value),
            );
        }
        let bars = own_bars.unwrap_or_else(|| bars.clone());
        // Invalid bars have been reported already.
        if bars.is_empty() && !block.has("bars") && !root.has("bars") {
            document.problem(
                &span,
                "no bars for the row: set them in the row or its group, bars = [\"sum >= 0.95\"]",
            );
        }
        let row_judged = own_judged.map_or_else(|| judged.clone(), |at| at.value);
        let ingredients = Ingredients {
            file,
            base: base.as_deref(),
            group: table.get("scenario").and_then(toml::Value::as_table),
            row: own,
            systems: vec![ALONE.to_owned(), row_judged.clone()],
        };
        let mut variants = Vec::new();
        for direction in &directions {
            for congestion in &congestion {
                let full = format!("{name}-{}-{direction}-{congestion}", row_name.value);
                match vary::variant(&ingredients, &full, direction, congestion) {
                    Ok(variant) => variants.push(variant),
                    Err(problems) => report_problems(document, &span, &row_name.value, problems),
                }
            }
        }
        rows.push(Row {
            name: row_name.value,
            judged: row_judged,
            bars,
            causes,
            quick,
            variants,
        });
    }
    Some(Group {
        name,
        about: about.unwrap_or_default(),
        order: order.map_or(1000, |at| at.value),
        judged,
        rows,
    })
}

/// Reports a problem of a row's scenario at the row: the line numbers of the generated scenario
/// match no file.
fn report_problems(
    document: &mut Document<'_>,
    span: &Range<usize>,
    row: &str,
    problems: Vec<vary::RowProblem>,
) {
    for problem in problems {
        match problem {
            vary::RowProblem::Elsewhere(problem) => document.problem_elsewhere(problem),
            vary::RowProblem::Here(reason) => {
                document.problem(span, format!("row '{row}': {reason}"))
            }
        }
    }
}

fn parse_system(text: &str) -> Result<String, String> {
    systems::parse(text).map(|_| text.to_owned())
}

fn read_bars(document: &mut Document<'_>, section: &mut Section<'_, '_>) -> Option<Vec<Bar>> {
    let listed = section.texts(document, "bars")?;
    let mut bars = Vec::new();
    for at in listed {
        match Bar::parse(&at.value) {
            Ok(bar) => bars.push(bar),
            Err(error) => document.problem(&at.span, format!("bars: {error}")),
        }
    }
    Some(bars)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
name = "g"
bars = ["sum >= 0.95"]
directions = ["down", "up"]
congestion = ["cubic", "bbr"]

[scenario]
duration = "5s"
warmup = "1s"

[[row]]
name = "a"
duration = "6s"
[[row.link]]
name = "x"
rate = "10mbit"
delay = { down = "10ms", up = "1ms" }

[[row]]
name = "b"
bars = ["best >= 1"]
quick = true
[[row.link]]
name = "x"
rate = "10mbit"
"#;

    fn problems(text: &str) -> Vec<String> {
        let problems = read(Path::new("m.toml"), text).map(drop).unwrap_err();
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_row_has_all_variants() {
        let group = read(Path::new("m.toml"), GOOD).unwrap();
        assert_eq!(group.judged, JUDGED);
        let [a, b] = group.rows.as_slice() else {
            panic!("{group:?}");
        };
        let names: Vec<_> = a
            .variants
            .iter()
            .map(|v| v.scenario.name.as_str())
            .collect();
        assert_eq!(
            names,
            [
                "g-a-down-cubic",
                "g-a-down-bbr",
                "g-a-up-cubic",
                "g-a-up-bbr"
            ]
        );
        assert_eq!(a.variants[0].scenario.duration.as_secs(), 6);
        assert_eq!(b.variants[0].scenario.duration.as_secs(), 5);
        assert_eq!(b.bars, [Bar::parse("best >= 1").unwrap()]);
        assert!(b.quick && !a.quick);
        assert_eq!(a.variants[1].scenario.congestion, "bbr");
        // For uploads the links are mirrored: the data crosses the same link in either direction.
        let delay = |variant: usize| {
            let links = &a.variants[variant].scenario;
            let link = links.links().next().unwrap().clone();
            link.shapes.map(|shape| shape.delay.as_millis())
        };
        assert_eq!((delay(0), delay(2)), ([1, 10], [10, 1]));
    }

    #[test]
    fn every_mistake_has_its_line() {
        let message = |from: &str, to: &str| {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD);
            problems(&text).join("\n")
        };
        let cases = [
            (
                "sum >= 0.95",
                "sum > 0.95",
                "m.toml:3: bars: 'sum > 0.95' is not a bar",
            ),
            ("\"up\"", "\"sideways\"", "m.toml:4: directions: 'sideways'"),
            ("\"bbr\"", "\"b r\"", "m.toml:5: congestion: 'b r'"),
            (
                "name = \"b\"",
                "name = \"a\"",
                "m.toml:20: two rows have the name 'a'",
            ),
            (
                "name = \"b\"",
                "nom = \"b\"",
                "m.toml:19: [[row]] has no name",
            ),
            (
                "duration = \"6s\"",
                "speed = 3",
                "m.toml:11: row 'a': the scenario has no key 'speed'",
            ),
            (
                "duration = \"6s\"",
                "base = \"no.toml\"",
                "m.toml:11: row 'a': no.toml: No such file",
            ),
            (
                "rate = \"10mbit\"",
                "rate = \"10\"",
                "m.toml:11: row 'a': rate: ",
            ),
            (
                "[scenario]",
                "[senario]",
                "m.toml:7: the group has no key 'senario'",
            ),
            ("name = \"g\"", "name = \"g", "m.toml:2: "),
        ];
        for (from, to, expected) in cases {
            let message = message(from, to);
            assert!(message.contains(expected), "{expected}\n{message}");
        }
    }
}
