//! Estimates the duration of the matrix before it runs.

use std::fmt::Write;

use crate::prose::wrapped;
use crate::run::{Job, Store, duration_in_words, planned};

use super::BenchOptions;
use super::matrix::{Group, Row};
use super::plan::{Plan, Purpose, chosen};

/// Setup and teardown of a laboratory, in seconds.
const SETUP_S: f64 = 0.35;

/// A number of runs and their duration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cost {
    pub(super) runs: usize,
    /// Total in seconds; a run that shares the machine counts with its share.
    seconds: f64,
    /// The longest single run in seconds: a few runs may not fill all slots.
    longest: f64,
}

impl Cost {
    /// Estimated duration in seconds.
    fn time(self) -> f64 {
        self.seconds.max(self.longest)
    }
}

/// The cost of the judged runs and of the alternatives.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Costs {
    pub(super) judged: Cost,
    pub(super) others: Cost,
}

impl Plan<'_> {
    /// Estimated duration of the runs that the store lacks.
    pub(super) fn estimate(&self, store: &Store) -> String {
        let missing = |job: &Job<'_>| store.done(job.scenario, job.seed, &job.system).is_none();
        let costs = self.costs(|job, _| missing(job));
        format!(
            "{} runs to do, about {}: {} for the bars, {} of the alternatives",
            costs.judged.runs + costs.others.runs,
            duration_in_words(costs.judged.time() + costs.others.time()),
            duration_in_words(costs.judged.time()),
            duration_in_words(costs.others.time())
        )
    }

    /// Total cost of the runs that `of` selects.
    pub(super) fn costs(&self, of: impl Fn(&Job<'_>, &Purpose<'_>) -> bool) -> Costs {
        let mut costs = Costs::default();
        for (job, purpose) in self.jobs.iter().zip(&self.purposes) {
            if of(job, purpose) {
                let cost = match purpose.is_judged {
                    true => &mut costs.judged,
                    false => &mut costs.others,
                };
                let seconds = seconds(job);
                cost.runs += 1;
                cost.seconds += seconds / self.capacity.width(job) as f64;
                cost.longest = cost.longest.max(seconds);
            }
        }
        costs
    }

    /// The chosen rows with cost and bars; a run shared by several lines counts for the first.
    pub(super) fn list(&self, groups: &[Group], options: &BenchOptions) -> String {
        let mut text = format!(
            "{:<34} {:>5} {:>8} {:>8}  bars\n",
            "row", "lines", "judged", "others"
        );
        for group in groups {
            let lines = |row: &Row| {
                let of_row = |other: &&Row| std::ptr::eq(*other, row);
                chosen(groups, options).map(|c| c.1).filter(of_row).count()
            };
            let rows = group.rows.iter().map(|row| (row, lines(row)));
            let rows: Vec<_> = rows.filter(|(_, lines)| *lines > 0).collect();
            for (row, lines) in &rows {
                let of_row = |p: &Purpose<'_>| p.group == group.name && p.row == row.name;
                let name = format!("{}/{}", group.name, row.name);
                let costs = self.costs(|_, purpose| of_row(purpose));
                push_line(&mut text, &name, *lines, costs, &bars(row));
            }
            if rows.len() > 1 {
                let all = rows.iter().map(|(_, lines)| lines).sum();
                let costs = self.costs(|_, purpose| purpose.group == group.name);
                push_line(&mut text, &format!("{} total", group.name), all, costs, "");
            }
        }
        let costs = self.costs(|_, _| true);
        let words = |cost: Cost, of: &str| {
            let time = duration_in_words(cost.time());
            format!("{} runs {of}, about {time}", cost.runs)
        };
        let total = format!(
            "{} lines: {}; {}; about {} in total. A run shared by several lines counts once.",
            chosen(groups, options).count(),
            words(costs.judged, "for the bars"),
            words(costs.others, "of the alternatives"),
            duration_in_words(costs.judged.time() + costs.others.time())
        );
        let _ = writeln!(text, "{}", wrapped(&total, 120, 0));
        text
    }
}

/// Duration of a run in seconds, including setup and teardown of its laboratory.
fn seconds(job: &Job<'_>) -> f64 {
    let (traffic, laboratories) = planned(job);
    traffic + SETUP_S * laboratories as f64
}

fn push_line(text: &mut String, name: &str, lines: usize, costs: Costs, bars: &str) {
    let [judged, others] = [costs.judged, costs.others].map(|cost| duration_in_words(cost.time()));
    let line = format!("{name:<34} {lines:>5} {judged:>8} {others:>8}  {bars}");
    let _ = writeln!(text, "{}", line.trim_end());
}

fn bars(row: &Row) -> String {
    let bars = row.bars.iter();
    let bars: Vec<_> = bars
        .map(|bar| format!("{} {bar}", bar.quantity.name()))
        .collect();
    bars.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_runs_take_as_long_as_the_longest() {
        let cost = |seconds, longest| Cost {
            runs: 2,
            seconds,
            longest,
        };
        assert_eq!(cost(1.5, 6.0).time(), 6.0);
        assert_eq!(cost(12.0, 6.0).time(), 12.0);
        assert_eq!(Cost::default().time(), 0.0);
    }
}
