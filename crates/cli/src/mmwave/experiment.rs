//! Runs an experiment on all cores, and tells its points.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Args;
use serde_json::{Value, json};
use sumlink_mmwave::MmwaveError;
use sumlink_mmwave::cell::{Access, CellConfig, Jpoc};
use sumlink_mmwave::figures::access;
use sumlink_mmwave::jpoc::control::Target;

use super::file::{self, Experiment, Kind};
use crate::config::ConfigError;
use crate::exit::CliError;
use crate::output::{print, print_json};
use crate::table::Table;

/// `sumlink mmwave run`
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The experiment's file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Seeds, instead of those of the file.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: Option<u64>,
    /// Points at once; without it one for each core.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Write NAME.json and NAME.csv into this directory.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print JSON: one object with all points.
    #[arg(long)]
    pub(super) json: bool,
}

/// Runs the verb.
pub(super) fn run(args: &RunArgs) -> Result<(), CliError> {
    let mut experiment = file::read(&args.file)?;
    experiment.seeds = args.seeds.unwrap_or(experiment.seeds);
    let tasks = experiment.tasks();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.map_or(cores, usize::from);
    let points = on_all_cores(&tasks, jobs, |task| experiment.point(task));
    let points = points.map_err(|error| ConfigError::NotHere {
        file: args.file.clone(),
        reason: error.to_string(),
    })?;
    let whole = json!({
        "name": experiment.name, "kind": experiment.kind.name(), "seeds": experiment.seeds, "points": points,
    });
    if let Some(dir) = &args.out {
        write(dir, &experiment.name, &whole, &points)?;
    }
    match args.json {
        true => print_json(&whole),
        false => print(&render(&points)),
    }
}

/// One scheme at one value of what is varied.
#[derive(Clone, Copy, Debug)]
enum Task {
    Jain(&'static str, f64),
    Overhead(&'static str, usize),
}

impl Kind {
    fn name(&self) -> &'static str {
        match self {
            Self::Jain(_) => "jain",
            Self::Overhead { .. } => "overhead",
        }
    }
}

impl Experiment {
    fn tasks(&self) -> Vec<Task> {
        let each = |scheme: &'static str| -> Vec<Task> {
            match &self.kind {
                Kind::Jain(all) => all.iter().map(|p| Task::Jain(scheme, *p)).collect(),
                Kind::Overhead { stations, .. } => stations
                    .iter()
                    .map(|n| Task::Overhead(scheme, *n))
                    .collect(),
            }
        };
        self.schemes
            .iter()
            .flat_map(|scheme| each(scheme))
            .collect()
    }

    fn point(&self, task: &Task) -> Result<Value, MmwaveError> {
        match *task {
            Task::Jain(scheme, blockage) => {
                let access = Access::named(scheme).unwrap_or(Access::Jpoc(Jpoc::THESIS));
                let points = access::jain(&self.cell, &access, &[blockage], self.seeds)?;
                let point = points[0];
                Ok(json!({
                    "scheme": scheme, "blockage": blockage, "jain": point.jain.mean, "jain_10": point.jain.low,
                    "jain_90": point.jain.high, "failure": point.failure, "goodput_mbps": point.goodput_mbps,
                }))
            }
            Task::Overhead(scheme, stations) => {
                let failure = match self.kind {
                    Kind::Overhead { failure, .. } => failure,
                    Kind::Jain(_) => Target::THESIS.failure,
                };
                let cell = CellConfig {
                    stations,
                    ..self.cell.clone()
                };
                let (mini_slots, failed) = match Access::named(scheme) {
                    Some(Access::Slotted(rules)) => {
                        let slots = access::least_slots(&cell, rules, failure, self.seeds)?;
                        let failed = slots
                            .map(|slots| {
                                let access = Access::Slotted(rules.with_slots(slots));
                                access::outcomes(&cell, &access, self.seeds)
                            })
                            .transpose()?;
                        let mini = slots.map(|slots| f64::from(slots * rules.frames_per_slot));
                        (mini, failed.map(|all| access::failure(&all)))
                    }
                    _ => {
                        let target = Target {
                            failure,
                            ..Target::THESIS
                        };
                        let jpoc = Jpoc {
                            target,
                            ..Jpoc::THESIS
                        };
                        let all = access::outcomes(&cell, &Access::Jpoc(jpoc), self.seeds)?;
                        let sum: f64 = all.iter().map(|one| one.mean_mini_slots()).sum();
                        (Some(sum / self.seeds as f64), Some(access::failure(&all)))
                    }
                };
                Ok(json!({
                    "scheme": scheme, "stations": stations, "mini_slots": mini_slots, "failure": failed,
                }))
            }
        }
    }
}

/// Does `work` for all, several at once; the results in the order of the tasks, or the first error.
fn on_all_cores<T: Sync, R: Send>(
    tasks: &[T],
    jobs: usize,
    work: impl Fn(&T) -> Result<R, MmwaveError> + Sync,
) -> Result<Vec<R>, MmwaveError> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Result<R, MmwaveError>)>> = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(tasks.len()) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(task) = tasks.get(index) else { return };
                    let result = work(task);
                    let mut done = done.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    done.push((index, result));
                }
            });
        }
    });
    let mut done = done
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    done.sort_by_key(|(index, _)| *index);
    let results = done.into_iter().map(|(_, result)| result);
    results.collect()
}

/// Names of the values of a point, in their order.
fn columns(points: &[Value]) -> Vec<String> {
    let first = points.first().and_then(Value::as_object);
    let mut keys: Vec<String> = first
        .into_iter()
        .flat_map(|map| map.keys().cloned())
        .collect();
    // The scheme and what is varied first.
    keys.sort_by_key(|key| match key.as_str() {
        "scheme" => 0,
        "blockage" | "stations" => 1,
        _ => 2,
    });
    keys
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        number => match number.as_f64() {
            Some(n) if n.fract() == 0.0 => format!("{n:.0}"),
            Some(n) if n.abs() < 10.0 => format!("{n:.3}"),
            Some(n) => format!("{n:.1}"),
            None => number.to_string(),
        },
    }
}

fn render(points: &[Value]) -> String {
    let keys = columns(points);
    let titles: Vec<String> = keys
        .iter()
        .enumerate()
        .map(|(index, key)| {
            let side = if index == 0 { "" } else { ">" };
            format!("{side}{}", key.replace('_', " ").to_uppercase())
        })
        .collect();
    let mut table = Table::new(&titles.iter().map(String::as_str).collect::<Vec<_>>());
    for point in points {
        table.row(keys.iter().map(|key| text(&point[key.as_str()])));
    }
    table.render()
}

fn write(dir: &Path, name: &str, whole: &Value, points: &[Value]) -> Result<(), CliError> {
    let failed = |path: &Path, reason| CliError::Write {
        path: path.to_owned(),
        reason,
    };
    std::fs::create_dir_all(dir).map_err(|reason| failed(dir, reason))?;
    let keys = columns(points);
    let mut csv = keys.join(",") + "\n";
    for point in points {
        let cells = keys.iter().map(|key| match &point[key.as_str()] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            number => number.to_string(),
        });
        csv += &(cells.collect::<Vec<_>>().join(",") + "\n");
    }
    for (end, contents) in [("json", format!("{whole:#}\n")), ("csv", csv)] {
        let path = dir.join(format!("{name}.{end}"));
        std::fs::write(&path, contents).map_err(|reason| failed(&path, reason))?;
    }
    Ok(())
}
