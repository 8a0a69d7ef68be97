//! `sumlink-lab faults`: links fail and return under load, a hundred times for each kind of fault
//! and direction; the effect on the delivery is measured and judged.

mod chart;
mod chunk;
mod judge;
mod kind;
mod measure;
mod page;
mod records;
mod task;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use sumlink_transport::links::name_matches;

use crate::config::Direction;
use crate::error::LabError;
use crate::programs;
use crate::prose::{note, print};
use chunk::measure;
use judge::Line;
use kind::{KINDS, Kind, Load};
use page::Measured;
use records::{Chunk, Records, of};
use task::Task;

/// Faults in one laboratory; an interruption loses at most this number.
const AT_ONCE: u64 = 25;
/// Attempts for a laboratory with a late emulator.
const ATTEMPTS: usize = 3;

/// Options of `sumlink-lab faults`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "It ends with 0 when every bar of the chosen lines is reached, with 10 when one \
                  is not, or has no figure.\n\n\
                  Examples:\n  sumlink-lab faults --list\n  sumlink-lab faults --faults 5 --only \
                  'blackhole-*' --out blackhole"
)]
pub struct FaultsOptions {
    /// Faults of each kind in each direction
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub faults: u64,
    /// Only these lines, as KIND-DIRECTION; * stands for anything
    #[arg(long, value_name = "GLOB", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Laboratories at once
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub jobs: u16,
    /// The flow begins on a LAN host, and the client is `sumlink up`; its measurements are kept
    /// apart from the others
    #[arg(long)]
    pub lan: bool,
    /// Where the page is written [default: docs/results/failover, with --lan lab-out/faults-lan]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Where faults and arrivals are kept; existing ones are kept
    #[arg(long, value_name = "DIR", default_value = "lab-out/faults")]
    pub runs: PathBuf,
    /// The program whose client and server are measured, instead of this one: another build of
    /// `sumlink-lab`, or of `sumlink`, which has no edge node and no research schedulers
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// Print the figures as one JSON object, the same as results.json
    #[arg(long, conflicts_with = "list")]
    pub json: bool,
    /// List the lines; measure nothing
    #[arg(long, conflicts_with = "judge_only")]
    pub list: bool,
    /// Judge the stored runs, and write the page; measure nothing
    #[arg(long)]
    pub judge_only: bool,
}

impl FaultsOptions {
    /// Where the page is written.
    fn out(&self) -> PathBuf {
        let without = match self.lan {
            true => "lab-out/faults-lan",
            false => "docs/results/failover",
        };
        self.out.clone().unwrap_or_else(|| PathBuf::from(without))
    }

    /// Where the measurements are kept.
    fn runs(&self) -> PathBuf {
        match self.lan {
            true => self.runs.join("lan"),
            false => self.runs.clone(),
        }
    }
}

/// A line of the table: a kind of fault in a direction.
type Chosen = (&'static Kind, Direction);

/// Checks the options, before anything is written.
pub(crate) fn check(options: &FaultsOptions) -> Result<Vec<Chosen>, LabError> {
    let is_chosen = |(kind, direction): &Chosen| {
        let name = of(kind.name, *direction);
        options.only.is_empty() || options.only.iter().any(|glob| name_matches(glob, &name))
    };
    let lines: Vec<Chosen> = all_lines().filter(is_chosen).collect();
    if lines.is_empty() {
        return Err(LabError::Usage(format!(
            "--only: no line matches {}: sumlink-lab faults --list shows the names",
            options.only.join(", ")
        )));
    }
    Ok(lines)
}

fn all_lines() -> impl Iterator<Item = Chosen> {
    let both = |kind| [Direction::Down, Direction::Up].map(|direction| (kind, direction));
    KINDS.iter().flat_map(both)
}

/// Lists the lines, or does the missing measurements and judges them.
pub(crate) fn run(options: &FaultsOptions, lines: &[Chosen]) -> Result<(), LabError> {
    if options.list {
        let name = |(kind, direction): &Chosen| {
            format!("{:<28} {}\n", of(kind.name, *direction), kind.about)
        };
        return print(&lines.iter().map(name).collect::<String>());
    }
    let program = match &options.program {
        Some(program) => program.clone(),
        None => programs::own()?,
    };
    let records = Records::new(&options.runs());
    let measured = match options.judge_only {
        true => Ok(()),
        false => carry_out(options, lines, &program, &records),
    };
    // Also after Ctrl-C, with the measurements that exist.
    if matches!(measured, Err(ref error) if !matches!(error, LabError::Interrupted)) {
        return measured;
    }
    let all: Vec<Measured> = all_lines()
        .map(|(kind, direction)| {
            let chunks = records.all(kind.name, direction);
            Measured {
                line: Line::new(kind, direction, &chunks),
                chunks,
            }
        })
        .filter(|m| !m.chunks.is_empty() || is_among(lines, &m.line))
        .collect();
    page::write(&options.out(), &all)?;
    let chosen: Vec<Line> = all
        .iter()
        .map(|measured| measured.line.clone())
        .filter(|line| is_among(lines, line))
        .collect();
    if options.json {
        print(&format!("{}\n", page::json(&all)))?;
    } else {
        let page = options.out().join("README.md");
        print(&format!(
            "{}tables: {}\n",
            page::terminal(&chosen),
            page.display()
        ))?;
    }
    measured?;
    let short = judge::verdicts(&chosen).get(&false).copied().unwrap_or(0);
    match short {
        0 => Ok(()),
        short => Err(LabError::FellShort(format!(
            "{short} of {} lines miss their bars",
            chosen.len()
        ))),
    }
}

fn is_among(lines: &[Chosen], line: &Line) -> bool {
    let is_it = |(kind, direction): &Chosen| {
        kind.name == line.kind && kind::way(*direction) == line.direction
    };
    lines.iter().any(is_it)
}

/// All requested measurements, one for each laboratory.
fn tasks<'a>(options: &FaultsOptions, lines: &[Chosen], program: &'a Path) -> Vec<Task<'a>> {
    let mut tasks = Vec::new();
    for &(kind, direction) in lines {
        // A flapping link needs a single laboratory.
        let most = match kind.load {
            Load::Flapping => options.faults,
            Load::Bulk | Load::Interactive => AT_ONCE,
        };
        for number in 0..options.faults.div_ceil(most) {
            tasks.push(Task {
                kind,
                direction,
                number,
                faults: most.min(options.faults - number * most),
                program,
                lan: options.lan,
            });
        }
    }
    tasks
}

/// Does the missing measurements, several laboratories at once.
fn carry_out(
    options: &FaultsOptions,
    lines: &[Chosen],
    program: &Path,
    records: &Records,
) -> Result<(), LabError> {
    let tasks = tasks(options, lines, program);
    let total = tasks.len();
    let missing: VecDeque<Task<'_>> = tasks
        .into_iter()
        .filter(|task| records.read(task).is_none())
        .collect();
    let mut done = total - missing.len();
    if done > 0 {
        note!(
            "{done} of {total} laboratories are already in {}",
            options.runs().display()
        );
    }
    let queue = Mutex::new(missing);
    let next = || {
        let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.pop_front()
    };
    let (sender, results) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..options.jobs {
            let sender = sender.clone();
            scope.spawn(move || {
                while let Some(task) = next() {
                    let result = one(&task, records);
                    let failed = result.is_err();
                    if sender.send((task, result)).is_err() || failed {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut first = Ok(());
        for (task, result) in results {
            match result {
                Ok(chunk) => {
                    done += 1;
                    note!("{done} of {total}: {}", describe(&task, &chunk));
                }
                Err(error) => {
                    // The other threads stop after their current laboratory.
                    queue.lock().unwrap_or_else(PoisonError::into_inner).clear();
                    first = first.and(Err(error));
                }
            }
        }
        first
    })
}

/// Measures in one laboratory, repeatedly while its emulator is late; the last attempt is kept in
/// any case.
fn one(task: &Task<'_>, records: &Records) -> Result<Chunk, LabError> {
    let mut seen = measure(task)?;
    for _ in 1..ATTEMPTS {
        if seen.chunk.objection.is_none() {
            break;
        }
        seen = measure(task)?;
    }
    records.write(task, &seen)?;
    Ok(seen.chunk)
}

fn describe(task: &Task<'_>, chunk: &Chunk) -> String {
    let line = Line::new(task.kind, task.direction, std::slice::from_ref(chunk));
    page::terminal(&[line]).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        options: FaultsOptions,
    }

    fn options(arguments: &[&str]) -> FaultsOptions {
        Arguments::parse_from([&["x"], arguments].concat()).options
    }

    #[test]
    fn lines_are_chosen_by_name_and_cut_into_laboratories() {
        let options = options(&["--faults", "60", "--only", "blackhole-*,flapping-*-up"]);
        let lines = check(&options).unwrap();
        let names: Vec<_> = lines
            .iter()
            .map(|(kind, way)| of(kind.name, *way))
            .collect();
        assert_eq!(
            names,
            [
                "blackhole-down",
                "blackhole-up",
                "flapping-blackhole-up",
                "flapping-link-down-up"
            ]
        );
        let tasks = tasks(&options, &lines, Path::new("x"));
        let faults: Vec<_> = tasks.iter().map(|task| task.faults).collect();
        assert_eq!(faults, [25, 25, 10, 25, 25, 10, 60, 60]);
        let nothing = super::check(&self::options(&["--only", "nothing"]));
        assert!(matches!(nothing, Err(LabError::Usage(_))));
    }
}
