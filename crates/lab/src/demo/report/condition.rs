//! The results of one condition: the links alone and sumlink's share of their sum.

use serde::Serialize;

use crate::demo::outcome::{Fetched, Outcome};
use crate::demo::systems::System;

/// sumlink must reach this share of the sum of the links alone.
const REQUIRED_OF_SUM: f64 = 0.95;

/// If other programs use more than this share of the processors, they may be the cause of a
/// shortfall.
const BUSY: f64 = 0.1;

/// All measurements under one condition.
pub(crate) struct Condition {
    name: String,
    systems: Vec<System>,
    /// For each system, one outcome per round.
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

/// One table.
#[derive(Debug, Serialize)]
pub(crate) struct ConditionReport {
    pub(crate) name: String,
    /// Sum of the links alone in Mbit/s; `None` if not measured.
    pub(crate) sum_alone: Option<f64>,
    /// The best link alone in Mbit/s; `None` if not measured.
    pub(crate) best_alone: Option<f64>,
    pub(crate) rows: Vec<Row>,
}

/// One line of a table; figures are medians over the rounds.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) system: String,
    #[serde(skip)]
    pub(crate) kind: System,
    pub(super) seconds: Option<f64>,
    /// Goodput in Mbit/s.
    pub(crate) megabits: Option<f64>,
    /// Ratio to the sum of the links alone.
    pub(crate) of_sum: Option<f64>,
    /// Ratio to the best link alone.
    pub(super) of_best: Option<f64>,
    cut: bool,
    pub(super) note: String,
    pub(super) rounds: Vec<Fetched>,
}

impl ConditionReport {
    pub(super) fn new(condition: &Condition) -> Self {
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

    /// Checks goals 2 and 3: never slower than the best link, and the sum of the links.
    pub(super) fn shortfall(&self) -> Option<String> {
        let row = self.rows.iter().find(|row| row.kind == System::Sumlink)?;
        let megabits = row.megabits?;
        let (sum, best) = (self.sum_alone?, self.best_alone?);
        let fault = if megabits < REQUIRED_OF_SUM * sum {
            format!(
                "are {:.3} of the sum of the links alone ({sum:.1}), and must be {REQUIRED_OF_SUM}",
                megabits / sum
            )
        } else if megabits <= best {
            format!("do not exceed the best link alone ({best:.1})")
        } else {
            return None;
        };
        let name = &self.name;
        let busy = busy(row.rounds.iter().map(|round| round.others_share));
        Some(format!(
            "with {name}, sumlink's {megabits:.1} Mbit/s {fault}{busy}"
        ))
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
            notes.push("stopped after 15 s".to_owned());
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

/// The remark that other programs were busy, if they were in any round.
fn busy(shares: impl Iterator<Item = f64>) -> String {
    match shares.fold(0.0, f64::max) {
        share if share > BUSY => format!(
            "; other programs used {:.0} % of the processors meanwhile, so repeat it on a quiet \
             machine",
            100.0 * share
        ),
        _ => String::new(),
    }
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
mod tests {
    use super::*;

    #[test]
    fn busy_programs_are_named_as_a_possible_cause() {
        assert_eq!(busy([0.02, 0.1].into_iter()), "");
        let remark = busy([0.02, 0.634].into_iter());
        assert!(remark.starts_with("; other programs used 63 % of the processors"));
    }

    #[test]
    fn the_median_of_an_even_number_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), Some(2.5));
        assert_eq!(median(std::iter::empty()), None);
    }
}
