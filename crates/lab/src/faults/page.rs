//! The result page: tables and charts for readers, JSON for programs.

use std::fmt::Write;
use std::path::Path;

use serde_json::json;

use super::chart::{self, Row};
use super::judge::{Line, Spread, verdicts};
use super::kind::{Kind, LINKS};
use super::records::{Chunk, Fault, lines as raw_lines};
use crate::error::LabError;
use crate::run::{write_json, write_text};

/// A line and the measurements that it summarizes.
pub(super) struct Measured {
    pub(super) line: Line,
    pub(super) chunks: Vec<Chunk>,
}

/// Writes README.md, the charts, results.json and faults.jsonl.
pub(super) fn write(directory: &Path, all: &[Measured]) -> Result<(), LabError> {
    write_text(&directory.join("README.md"), &text(all))?;
    let draw = |name: &str, title: &str, value: fn(&Fault) -> Option<f64>| {
        let rows = all.iter().filter_map(|m| row(m, name == "gap.svg", value));
        let rows: Vec<Row> = rows.collect();
        write_text(&directory.join(name), &chart::draw(title, &rows))
    };
    draw("gap.svg", "longest time without an arrival", |fault| {
        Some(fault.gap_ms)
    })?;
    draw(
        "return.svg",
        "time until the link carries its rate again",
        |fault| fault.back_ms,
    )?;
    write_json(&directory.join("results.json"), &json(all))?;
    let raw: String = all.iter().map(|m| raw_lines(&m.chunks)).collect();
    write_text(&directory.join("faults.jsonl"), &raw)
}

fn row(measured: &Measured, gap: bool, value: fn(&Fault) -> Option<f64>) -> Option<Row> {
    let Line {
        kind, direction, ..
    } = measured.line;
    let known = Kind::by_name(kind)?;
    let bars = match gap {
        true => measured.line.gap.as_ref().and_then(|gap| gap.bars),
        // Loads without a bar for it do not fill the link, or the link fails again soon.
        false => Some(known.back?),
    };
    let faults = measured.chunks.iter().flat_map(|chunk| &chunk.faults);
    Some(Row {
        label: format!("{kind}, {direction}"),
        values: faults.filter_map(value).collect(),
        bars,
    })
}

/// The content of all tables as JSON.
pub(super) fn json(all: &[Measured]) -> serde_json::Value {
    let lines = all.iter().map(|measured| {
        let mut line = json!(measured.line);
        line["shortcomings"] = json!(measured.line.shortcomings());
        line
    });
    json!({ "links": LINKS, "lines": lines.collect::<Vec<_>>() })
}

fn text(all: &[Measured]) -> String {
    let lines: Vec<Line> = all.iter().map(|measured| measured.line.clone()).collect();
    let counts = verdicts(&lines);
    let passed = counts.get(&true).copied().unwrap_or(0);
    let mut text = format!(
        "# Failover and return\n\n{passed} of {} lines meet their bars.\n\n",
        lines.len()
    );
    text.push_str(METHOD);
    let _ = write!(
        text,
        "\nThe links: `{}` and `{}`. Every fault is a line of [faults.jsonl](faults.jsonl); the \
         figures of the table are in [results.json](results.json).\n\n",
        LINKS[0], LINKS[1]
    );
    text.push_str("![longest times without an arrival](gap.svg)\n\n");
    text.push_str("![times until the link carries again](return.svg)\n\n");
    text.push_str(&table(&lines));
    text.push_str("\n## The faults\n\n");
    let mut described: Vec<&str> = Vec::new();
    for line in &lines {
        if let Some(kind) = Kind::by_name(line.kind).filter(|kind| !described.contains(&kind.name))
        {
            described.push(kind.name);
            let _ = writeln!(text, "- {}: {}", kind.name, kind.about);
        }
    }
    text
}

/// Description of the method.
const METHOD: &str = "Made by `sumlink-lab faults`. Two equal links with a round trip of 20 ms and \
                      queues of another 20 ms carry one flow at full rate. One of them fails at a \
                      random time; lasting faults take 0.5 to 3.5 s. The next fault follows when \
                      the link carries its rate again. *Gap*: the longest time between the fault \
                      and the next one in which the receiving program got no data; *before*: the \
                      same in the 0.6 to 1.2 s before the fault. *Return*: from the end of the \
                      fault (for a momentary fault: from the fault) until the end of the first 100 \
                      ms in which the link carried 90 % of its rate, as counted by the emulator. A \
                      flapping link changes its state every 2 s, and its bar is the goodput \
                      relative to plain TCP over the other link alone. Every byte is compared with \
                      the expected one. *Twice*: duplicate bytes sent by both ends, relative to \
                      delivered bytes.\n";

fn table(lines: &[Line]) -> String {
    let mut text = "| fault | way | n | gap p50 / p99 / most, ms | bars | before, p50 / p99 | \
                    return p50 / p99 / most, ms | bars | not back | goodput | twice | |\n\
                    | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- \
                    |\n"
    .to_owned();
    let all = |spread: &Option<Spread>| {
        spread.as_ref().map_or_else(String::new, |s| {
            format!("{:.0} / {:.0} / {:.0}", s.p50, s.p99, s.most)
        })
    };
    let bars = |spread: &Option<Spread>| {
        let bars = spread.as_ref().and_then(|spread| spread.bars);
        bars.map_or_else(String::new, |[half, most]| format!("{half:.0} / {most:.0}"))
    };
    for line in lines {
        let short = line.shortcomings();
        let verdict = match short.is_empty() {
            true => "pass".to_owned(),
            false => format!("**{}**", short.join("; ")),
        };
        let before = line.steady_gap.as_ref();
        let before = before.map_or_else(String::new, |s| format!("{:.0} / {:.0}", s.p50, s.p99));
        let is_judged = line.back.as_ref().is_some_and(|back| back.bars.is_some());
        let (back, never) = match is_judged {
            true => (all(&line.back), line.never_back.to_string()),
            false => (String::new(), String::new()),
        };
        let goodput = line.goodput.map_or_else(String::new, |[share, bar]| {
            format!("{share:.3} (bar {bar})")
        });
        let twice = line
            .duplicates
            .map_or_else(String::new, |share| format!("{:.2} %", share * 100.0));
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {before} | {back} | {} | {never} | {goodput} | {twice} | \
             {verdict} |",
            line.kind,
            line.direction,
            line.faults,
            all(&line.gap),
            bars(&line.gap),
            bars(&line.back),
        );
    }
    text
}

/// The lines for a terminal.
pub(super) fn terminal(lines: &[Line]) -> String {
    let mut text = String::new();
    for line in lines {
        let short = line.shortcomings();
        let verdict = if short.is_empty() { "pass" } else { "short" };
        let _ = write!(
            text,
            "{verdict:<6} {:<22} {:<5} n={:<4}",
            line.kind, line.direction, line.faults
        );
        if let Some(gap) = &line.gap {
            let _ = write!(text, " gap {:.0}/{:.0} ms", gap.p50, gap.p99);
        }
        if let Some(back) = line.back.as_ref().filter(|back| back.bars.is_some()) {
            let _ = write!(text, ", back {:.0}/{:.0} ms", back.p50, back.p99);
        }
        if let Some([share, _]) = line.goodput {
            let _ = write!(text, ", goodput {share:.3}");
        }
        if let Some(share) = line.duplicates {
            let _ = write!(text, ", twice {:.2} %", share * 100.0);
        }
        if !short.is_empty() {
            let _ = write!(text, " ({})", short.join("; "));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::judge::tests::chunk;
    use super::*;
    use crate::config::Direction;

    fn measured(name: &str, figures: &[(f64, Option<f64>)]) -> Measured {
        let kind = Kind::by_name(name).unwrap();
        let chunks = vec![chunk(kind, figures)];
        Measured {
            line: Line::new(kind, Direction::Down, &chunks),
            chunks,
        }
    }

    #[test]
    fn the_page_lists_missed_bars() {
        let all = [
            measured("blackhole", &[(150.0, Some(400.0)), (120.0, Some(300.0))]),
            measured("link-down", &[(80.0, Some(400.0))]),
            measured("interactive-blackhole", &[(90.0, None)]),
            measured("flapping-link-down", &[(90.0, None)]),
        ];
        let text = text(&all);
        assert!(text.contains("3 of 4 lines meet their bars"), "{text}");
        let row = "| blackhole | down | 2 | 120 / 150 / 150 | 200 / 500 | 20 / 20 | 300 / 400 / \
                   400 | 1000 / 3000 | 0 |  | 0.50 % | pass |";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("**gap p50 80 ms (bar: 50)**"), "{text}");
        assert!(text.contains("0.990 (bar 0.95)"), "{text}");
        let lines: Vec<Line> = all.iter().map(|measured| measured.line.clone()).collect();
        let message = terminal(&lines);
        let message: Vec<&str> = message.lines().collect();
        assert_eq!(
            message,
            [
                "pass   blackhole              down  n=2    gap 120/150 ms, back 300/400 ms, twice \
                 0.50 %",
                "short  link-down              down  n=1    gap 80/80 ms, back 400/400 ms, twice \
                 0.50 % (gap p50 80 ms (bar: 50))",
                "pass   interactive-blackhole  down  n=1    gap 90/90 ms, twice 0.50 %",
                "pass   flapping-link-down     down  n=1    gap 90/90 ms, goodput 0.990, twice \
                 0.50 %",
            ]
        );
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), &all).unwrap();
        let raw = std::fs::read_to_string(directory.path().join("faults.jsonl")).unwrap();
        assert_eq!(raw.lines().count(), 5);
        let back = std::fs::read_to_string(directory.path().join("return.svg")).unwrap();
        assert!(
            !back.contains("interactive"),
            "interactive lines have no such figure"
        );
    }
}
