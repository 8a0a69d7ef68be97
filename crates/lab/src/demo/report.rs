//! The demonstration's figures: table, JSON, verdict.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::error::LabError;
use crate::health::Health;

use super::systems::System;
use super::{CONGESTION, DemoOptions, Stage, chart};

/// sumlink must reach this share of the sum of the links alone.
const REQUIRED_OF_SUM: f64 = 0.95;

/// A fetch that took place.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Fetched {
    /// Bytes that arrived.
    pub(crate) bytes: u64,
    /// Seconds from the start of curl's transfer to its end.
    pub(crate) seconds: f64,
    /// Whether it was cut before its end.
    pub(crate) cut: bool,
    /// What else is to be known.
    pub(crate) note: String,
    /// How the emulator did meanwhile.
    pub(crate) emulator: Health,
}

impl Fetched {
    fn megabits(&self) -> f64 {
        if self.seconds > 0.0 {
            self.bytes as f64 * 8e-6 / self.seconds
        } else {
            0.0
        }
    }
}

/// What came of an attempt to fetch.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// A figure.
    Fetched(Fetched),
    /// No figure, and why.
    Unavailable(String),
}

/// Everything measured under one condition.
pub(crate) struct Condition {
    name: String,
    systems: Vec<System>,
    /// For each system, one outcome of each round.
    pub(crate) outcomes: Vec<Vec<Outcome>>,
}

impl Condition {
    pub(crate) fn new(name: &str, systems: &[System]) -> Self {
        Self {
            name: name.to_owned(),
            systems: systems.to_vec(),
            outcomes: vec![Vec::new(); systems.len()],
        }
    }
}

/// The whole report, as it is written to `demo.json`.
#[derive(Debug, Serialize)]
pub(crate) struct DemoReport {
    pub(crate) title: String,
    /// The links as given.
    links: Vec<String>,
    congestion: String,
    rounds: u32,
    file_bytes: u64,
    kernel: String,
    sumlink: String,
    /// Socket-buffer limits and the like, by the kernel's names.
    limits: BTreeMap<String, String>,
    pub(crate) conditions: Vec<ConditionReport>,
}

/// One table.
#[derive(Debug, Serialize)]
pub(crate) struct ConditionReport {
    pub(crate) name: String,
    /// Sum of the links alone, Mbit/s; absent when they were not measured.
    pub(crate) sum_alone: Option<f64>,
    /// The best link alone, Mbit/s; absent when they were not measured.
    pub(crate) best_alone: Option<f64>,
    pub(crate) rows: Vec<Row>,
}

/// One line of a table; figures are medians over the rounds.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) system: String,
    #[serde(skip)]
    pub(crate) kind: System,
    seconds: Option<f64>,
    /// Goodput in Mbit/s.
    pub(crate) megabits: Option<f64>,
    /// Ratio to the sum of the links alone.
    pub(crate) of_sum: Option<f64>,
    /// Ratio to the best link alone.
    of_best: Option<f64>,
    cut: bool,
    note: String,
    rounds: Vec<Fetched>,
}

impl DemoReport {
    pub(crate) fn new(
        stage: &Stage,
        options: &DemoOptions,
        conditions: &[Condition],
    ) -> Result<Self, LabError> {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Ok(Self {
            title: format!(
                "One {} MB file over {}",
                options.size / 1_000_000,
                stage
                    .lab
                    .links()
                    .iter()
                    .map(title_of)
                    .collect::<Vec<_>>()
                    .join(" + ")
            ),
            links: stage.lab.links().iter().map(ToString::to_string).collect(),
            congestion: CONGESTION.to_owned(),
            rounds: options.rounds,
            file_bytes: options.size,
            kernel: kernel.trim().to_owned(),
            sumlink: env!("CARGO_PKG_VERSION").to_owned(),
            limits: stage.lab.socket_limits()?,
            conditions: conditions.iter().map(ConditionReport::new).collect(),
        })
    }

    /// The tables as text.
    pub(crate) fn table(&self) -> String {
        let mut text = format!(
            "{:<18} {:<13} {:>8} {:>8} {:>7} {:>8}  note\n",
            "", "", "seconds", "Mbit/s", "of sum", "of best"
        );
        let number = |value: Option<f64>, digits| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        };
        for condition in &self.conditions {
            for (index, row) in condition.rows.iter().enumerate() {
                let name = if index == 0 {
                    condition.name.as_str()
                } else {
                    ""
                };
                let _ = writeln!(
                    text,
                    "{name:<18} {:<13} {:>8} {:>8} {:>7} {:>8}  {}",
                    row.system,
                    number(row.seconds, 1),
                    number(row.megabits, 1),
                    number(row.of_sum, 2),
                    number(row.of_best, 2),
                    row.note
                );
            }
        }
        let _ = writeln!(
            text,
            "of sum, of best: ratio to the links alone, added up and the better one; congestion control {}",
            self.congestion
        );
        let worst = self
            .conditions
            .iter()
            .flat_map(|c| &c.rows)
            .flat_map(|r| &r.rounds);
        if let Some(worst) = worst.max_by(|a, b| {
            a.emulator
                .lateness_p99_us
                .total_cmp(&b.emulator.lateness_p99_us)
        }) {
            let _ = writeln!(text, "emulator, in the worst fetch: {}", worst.emulator);
        }
        text
    }

    /// Writes `demo.json` and `demo.svg`.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), LabError> {
        let json =
            serde_json::to_string_pretty(self).map_err(|e| LabError::system("writing JSON", e))?;
        for (name, text) in [("demo.json", json), ("demo.svg", chart::draw(self))] {
            let path = directory.join(name);
            fs::write(&path, text).map_err(LabError::file(path))?;
        }
        Ok(())
    }

    /// An error that names every condition in which sumlink fell short.
    pub(crate) fn verdict(&self) -> Result<(), LabError> {
        let short: Vec<_> = self
            .conditions
            .iter()
            .filter_map(ConditionReport::shortfall)
            .collect();
        if short.is_empty() {
            Ok(())
        } else {
            Err(LabError::FellShort(short.join("; ")))
        }
    }
}

impl ConditionReport {
    fn new(condition: &Condition) -> Self {
        let mut rows: Vec<Row> = condition
            .systems
            .iter()
            .zip(&condition.outcomes)
            .map(|(system, outcomes)| Row::new(system, outcomes))
            .collect();
        let alone: Vec<f64> = rows
            .iter()
            .filter(|row| matches!(row.kind, System::Alone(_)))
            .filter_map(|row| row.megabits)
            .collect();
        let sum_alone = (!alone.is_empty()).then(|| alone.iter().sum::<f64>());
        let best_alone = alone.into_iter().reduce(f64::max);
        for row in &mut rows {
            let ratio = |to: Option<f64>| Some(row.megabits? / to.filter(|to| *to > 0.0)?);
            (row.of_sum, row.of_best) = (ratio(sum_alone), ratio(best_alone));
        }
        Self {
            name: condition.name.clone(),
            sum_alone,
            best_alone,
            rows,
        }
    }

    /// Promises 2 and 3: never slower than the best link, the sum of the links.
    fn shortfall(&self) -> Option<String> {
        let row = self.rows.iter().find(|row| row.kind == System::Sumlink)?;
        let megabits = row.megabits?;
        let (sum, best) = (self.sum_alone?, self.best_alone?);
        if megabits < REQUIRED_OF_SUM * sum {
            return Some(format!(
                "with {}, sumlink's {megabits:.1} Mbit/s are {:.3} of the sum of the links alone \
                 ({sum:.1}), and must be {REQUIRED_OF_SUM}",
                self.name,
                megabits / sum
            ));
        }
        (megabits <= best).then(|| {
            format!(
                "with {}, sumlink's {megabits:.1} Mbit/s are not above the better link alone ({best:.1})",
                self.name
            )
        })
    }
}

impl Row {
    fn new(system: &System, outcomes: &[Outcome]) -> Self {
        let mut rounds = Vec::new();
        let mut reason = None;
        for outcome in outcomes {
            match outcome {
                Outcome::Fetched(fetched) => rounds.push(fetched.clone()),
                Outcome::Unavailable(why) => reason = Some(why.clone()),
            }
        }
        let cut = rounds.iter().any(|round| round.cut);
        let mut notes: Vec<String> = Vec::new();
        if cut {
            notes.push("cut after 15 s".to_owned());
        }
        notes.extend(
            rounds
                .last()
                .map(|round| round.note.clone())
                .filter(|note| !note.is_empty()),
        );
        notes.extend(reason.map(|reason| format!("not available: {reason}")));
        Self {
            system: system.label(),
            kind: system.clone(),
            seconds: median(rounds.iter().map(|round| round.seconds)),
            megabits: median(rounds.iter().map(Fetched::megabits)),
            of_sum: None,
            of_best: None,
            cut,
            note: notes.join("; "),
            rounds,
        }
    }
}

fn title_of(link: &crate::config::LinkSpec) -> String {
    let shape = &link.shapes[1];
    format!(
        "{} ({} Mbit/s, {} ms)",
        link.name,
        shape.rate as f64 / 1e6,
        shape.delay.as_secs_f64() * 1e3
    )
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        len if len % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn fetched(megabits: f64) -> Outcome {
        Outcome::Fetched(Fetched {
            bytes: (megabits * 125_000.0 * 10.0) as u64,
            seconds: 10.0,
            cut: false,
            note: String::new(),
            emulator: Health::default(),
        })
    }

    /// A report with figures like those of the real thing.
    pub(crate) fn report(sumlink: [f64; 2]) -> DemoReport {
        let systems = [
            System::Alone("wifi".to_owned()),
            System::Alone("wigig".to_owned()),
            System::Mptcp,
            System::Sumlink,
        ];
        let condition = |name: &str, alone: [f64; 2], sumlink: f64| {
            let mut condition = Condition::new(name, &systems);
            condition.outcomes = vec![
                vec![fetched(alone[0])],
                vec![fetched(alone[1])],
                vec![Outcome::Unavailable("this kernel has no MPTCP".to_owned())],
                vec![fetched(sumlink)],
            ];
            ConditionReport::new(&condition)
        };
        DemoReport {
            title: "One 200 MB file over wifi (60 Mbit/s, 10 ms) + wigig (180 Mbit/s, 4 ms)"
                .to_owned(),
            links: Vec::new(),
            congestion: "cubic".to_owned(),
            rounds: 1,
            file_bytes: 200_000_000,
            kernel: String::new(),
            sumlink: String::new(),
            limits: BTreeMap::new(),
            conditions: vec![
                condition("no loss", [57.0, 172.0], sumlink[0]),
                condition("5 % loss on wigig", [57.0, 9.0], sumlink[1]),
            ],
        }
    }

    #[test]
    fn the_verdict_is_by_sum_and_by_best() {
        assert!(report([225.0, 65.0]).verdict().is_ok());
        let error = report([200.0, 50.0]).verdict().unwrap_err();
        assert_eq!(error.exit_code(), 7);
        let text = error.to_string();
        assert!(
            text.contains("with no loss, sumlink's 200.0 Mbit/s are 0.873 of the sum"),
            "{text}"
        );
        assert!(text.contains("with 5 % loss on wigig"), "{text}");
    }

    #[test]
    fn the_table_says_why_a_figure_is_missing() {
        let table = report([225.0, 65.0]).table();
        assert!(
            table.contains("not available: this kernel has no MPTCP"),
            "{table}"
        );
        assert!(table.contains("0.98"), "{table}");
    }

    #[test]
    fn the_median_of_an_even_number_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), Some(2.5));
        assert_eq!(median(std::iter::empty()), None);
    }
}
