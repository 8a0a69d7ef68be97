//! The report of the demo: table, JSON and verdict.

mod chart;
mod condition;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::error::LabError;

use super::{CONGESTION, DemoOptions, Stage};

pub(crate) use condition::{Condition, ConditionReport};

/// The report as written to `demo.json`.
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
    /// Kernel settings such as socket buffer limits, by their sysctl names.
    limits: BTreeMap<String, String>,
    pub(crate) conditions: Vec<ConditionReport>,
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
            "of sum, of best: ratio to the sum of the links alone and to the best of them; \
             congestion control {}",
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
            let _ = writeln!(text, "emulator during the worst fetch: {}", worst.emulator);
        }
        text
    }

    /// Writes `demo.json` and `demo.svg`.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), LabError> {
        let json =
            serde_json::to_string_pretty(self).map_err(|e| LabError::system("writing JSON", e))?;
        for (name, text) in [("demo.json", json), ("demo.svg", chart::draw(self))] {
            let path = directory.join(name);
            fs::write(&path, text).map_err(LabError::output(path))?;
        }
        Ok(())
    }

    /// Fails with an error that names every condition in which sumlink fell short.
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

fn title_of(link: &crate::config::LinkSpec) -> String {
    let shape = &link.shapes[1];
    format!(
        "{} ({} Mbit/s, {} ms)",
        link.name,
        shape.rate as f64 / 1e6,
        shape.delay.as_secs_f64() * 1e3
    )
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::demo::outcome::{Fetched, Outcome};
    use crate::demo::systems::System;
    use crate::health::Health;

    fn fetched(megabits: f64) -> Outcome {
        Outcome::Fetched(Fetched {
            bytes: (megabits * 125_000.0 * 10.0) as u64,
            seconds: 10.0,
            cut: false,
            note: String::new(),
            emulator: Health::default(),
            others_share: 0.0,
        })
    }

    /// A report with realistic figures.
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
    fn the_table_gives_the_reason_of_a_missing_figure() {
        let table = report([225.0, 65.0]).table();
        assert!(
            table.contains("not available: this kernel has no MPTCP"),
            "{table}"
        );
        assert!(table.contains("0.98"), "{table}");
    }
}
