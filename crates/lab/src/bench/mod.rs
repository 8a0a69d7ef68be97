//! `sumlink-lab bench`: sumlink's goals as a matrix of scenarios, measured and judged.
//!
//! Each row of the matrix is a scenario with bars ([`bar::Bar`]) for the system under test, run in
//! every direction and with every congestion control that its group names. The links alone and the
//! system under test run with every seed, the alternatives with fewer seeds.

mod alone;
mod bar;
mod cause;
mod chart;
mod cost;
mod datagrams;
mod document;
mod growth;
mod judge;
mod line;
mod matrix;
mod percentile;
mod plan;
mod quantities;
mod records;
mod side_by_side;
mod sources;
mod summary;
mod tables;
#[cfg(test)]
mod tests;
mod vary;

use std::path::{Path, PathBuf};

use crate::error::LabError;
use crate::programs;
use crate::prose::{note, print};
use crate::run::{self, Store};
use crate::systems;

use document::Page;
use line::{Line, Verdict};
pub(crate) use matrix::Group;
use plan::Plan;
use quantities::Measured;
use records::Records;
use sources::Sources;

/// Options of `sumlink-lab bench`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "It ends with 0 when every bar of the chosen rows is reached, with 10 when one is \
                  not, or has no figure.\n\n\
                  Examples:\n  sumlink-lab bench --list\n  sumlink-lab bench --quick\n  \
                  sumlink-lab bench --rows 'unequal/*' --seeds 3 --systems mptcp --out unequal"
)]
pub struct BenchOptions {
    /// Only these rows, as GROUP/ROW; * stands for anything
    #[arg(long, value_name = "GLOB", value_delimiter = ',')]
    pub rows: Vec<String>,
    /// Seeds of the links alone and of the system under test
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub seeds: u64,
    /// The same for all lines of a row but its first (the others are upwards, or with another
    /// congestion control) [default: that of --seeds]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100))]
    pub other_seeds: Option<u64>,
    /// Seeds of the alternatives
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub alternative_seeds: u64,
    /// Only these alternatives; `alone` is not one
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub systems: Vec<String>,
    /// Maximum number of concurrent runs [default: as many as the machine can carry]; runs at high
    /// rates, and those that measure times or CPU, always run alone
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub jobs: Option<u16>,
    /// A few rows downwards with CUBIC, one seed, no alternatives unless named
    #[arg(long)]
    pub quick: bool,
    /// Where tables, charts and JSON are written [default: docs/results, with --quick
    /// lab-out/bench-quick]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Where the runs are kept; existing results are kept
    #[arg(long, value_name = "DIR", default_value = "lab-out/bench")]
    pub runs: PathBuf,
    /// The matrix: a file for each group of rows
    #[arg(long, value_name = "DIR", default_value = "scenarios/matrix")]
    pub matrix: PathBuf,
    /// The program whose client and server are measured, instead of this one: another build of
    /// `sumlink-lab`, or of `sumlink`, which has no edge node and no research schedulers
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// Print the figures as one JSON object, the same as results.json
    #[arg(long, conflicts_with = "list")]
    pub json: bool,
    /// List the rows with their bars, and how long they would take; run nothing
    #[arg(long, conflicts_with = "judge_only")]
    pub list: bool,
    /// Judge the runs that are there, and write the tables; run nothing
    #[arg(long)]
    pub judge_only: bool,
}

/// The group of the matrix in this file, if it is one without a mistake.
pub(crate) fn group(file: &Path) -> Option<Group> {
    let text = std::fs::read_to_string(file).ok()?;
    matrix::read(file, &text).ok()
}

/// Reads the matrix and checks the options, before anything is written.
pub(crate) fn check(options: &BenchOptions) -> Result<Vec<Group>, LabError> {
    for name in &options.systems {
        systems::parse(name).map_err(|error| LabError::Usage(format!("--systems: {error}")))?;
    }
    let groups = matrix::load(&options.matrix)?;
    if !plan::chosen(&groups, options).any(|_| true) {
        return Err(LabError::Usage(format!(
            "--rows: no row matches {}: sumlink-lab bench --list shows the names",
            options.rows.join(", ")
        )));
    }
    Ok(groups)
}

/// Lists the rows, or does the missing runs and judges them.
pub(crate) fn run(options: &BenchOptions, groups: &[Group]) -> Result<(), LabError> {
    let program = match &options.program {
        Some(program) => program.clone(),
        None => programs::own()?,
    };
    let sources = Sources::new(groups);
    let plan = Plan::new(groups, &sources, options, &program);
    if options.list {
        return print(&plan.list(groups, options));
    }
    let store = Store::open(&options.runs)?;
    let ran = if options.judge_only {
        Ok(())
    } else {
        carry_out(&plan, &store)
    };
    // Also after Ctrl-C, with the runs that exist.
    if matches!(ran, Err(ref error) if !matches!(error, LabError::Interrupted)) {
        return ran;
    }
    let (lines, records) = judged(groups, &sources, options, &store);
    warn_of_stale_causes(groups, &lines);
    let directory = out(options);
    let page = Page {
        groups,
        lines: &lines,
        records: &records,
        options,
    };
    page.write(&directory)?;
    if options.json {
        print(&format!("{}\n", page.json()))?;
    } else {
        let tables = directory.join("README.md");
        let message = document::terminal(groups, &lines, options);
        print(&format!("{message}\ntables: {}\n", tables.display()))?;
    }
    ran?;
    verdict(&lines)
}

fn carry_out(plan: &Plan<'_>, store: &Store) -> Result<(), LabError> {
    for scenario in plan.scenarios() {
        store.write_scenario(scenario)?;
    }
    note!("{}", plan.estimate(store));
    run::carry_out(&plan.jobs, plan.capacity, store, &mut |_, _| {})
}

/// Output directory.
fn out(options: &BenchOptions) -> PathBuf {
    let without = if options.quick {
        "lab-out/bench-quick"
    } else {
        "docs/results"
    };
    let given = options.out.as_deref();
    given.unwrap_or(Path::new(without)).to_path_buf()
}

/// Lines of each group, each with whether this call asked for it.
type Lines = Vec<Vec<(Line, bool)>>;

/// Judges all runs in the store, including those of rows that this call did not ask for; also
/// returns these runs.
fn judged(
    groups: &[Group],
    sources: &Sources<'_>,
    options: &BenchOptions,
    store: &Store,
) -> (Lines, Records) {
    let mut records = Records::default();
    let mut lines = Vec::new();
    for group in groups {
        let mut of_group = Vec::new();
        for row in &group.rows {
            let others = plan::alternatives(row, options);
            for (number, variant) in row.variants.iter().enumerate() {
                let mut runs = Vec::new();
                let shown = plan::shown(row, variant, options);
                let own = shown.iter().filter(|(_, system)| *system == row.judged);
                let seeds = own.count();
                for (seed, system) in shown {
                    let Some(parts) = sources.read(store, variant, seed, &system) else {
                        continue;
                    };
                    runs.extend(sources::assembled(variant, &parts));
                    records.extend(variant, parts);
                }
                let measured = Measured {
                    scenario: &variant.scenario,
                    runs: &runs,
                };
                let line = judge::judge(row, measured, seeds, &others);
                of_group.push((line, plan::is_chosen(group, row, number, options)));
            }
        }
        lines.push(of_group);
    }
    (lines, records)
}

/// Warns about causes given for rows that pass.
fn warn_of_stale_causes(groups: &[Group], lines: &Lines) {
    for (group, lines) in groups.iter().zip(lines) {
        for row in &group.rows {
            let of_row = lines.iter().filter(|(line, _)| line.row == row.name);
            let of_row: Vec<_> = of_row.map(|(line, _)| line).collect();
            for cause in row.causes.stale(&of_row) {
                let name = format!("{}/{}", group.name, row.name);
                tracing::warn!("{name} passes; remove its outdated cause: {cause}");
            }
        }
    }
}

/// Fails unless every bar that this call asked for is met.
fn verdict(lines: &Lines) -> Result<(), LabError> {
    let chosen = || lines.iter().flatten().filter(|(_, chosen)| *chosen);
    let of = |verdict: Verdict| {
        chosen()
            .filter(|(line, _)| line.verdict() == verdict)
            .count()
    };
    let (short, refused, not_run) = (
        of(Verdict::Short),
        of(Verdict::Refused),
        of(Verdict::NotRun),
    );
    let total = chosen().count();
    if short + refused + not_run == 0 {
        return Ok(());
    }
    let mut message = format!("{short} of {total} lines of the matrix miss a bar");
    if refused + not_run > 0 {
        message.push_str(&format!(
            "; {refused} were refused and {not_run} not run (repeat the command to run only those)"
        ));
    }
    Err(LabError::FellShort(message))
}
