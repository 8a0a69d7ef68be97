//! Runs an experiment on all cores and prints its points.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use clap::Args;
use serde_json::{Map, Value as Json, json};
use sumlink_mmwave::experiment::{Point, Value, csv, rounded};
use sumlink_scenario::experiment::File;

use super::{bond, keep};
use crate::error::of_lab;
use sumlink::config::ConfigError;
use sumlink::error::CliError;
use sumlink::output::{print, print_json};
use sumlink::table::Table;

/// `sumlink-lab mmwave run`
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Experiment file.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Run this number of seeds instead of the file's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: Option<u64>,
    /// Run this number of points in parallel. Default: one per core.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Write NAME.json, NAME.csv and NAME.svg to this directory.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON object with all points.
    #[arg(long)]
    pub(super) json: bool,
}

/// Results of an experiment.
struct Found {
    name: String,
    kind: &'static str,
    seeds: u64,
    points: Vec<Point>,
    /// Charts with the suffixes of their file names.
    pictures: Vec<(&'static str, String)>,
}

/// Runs the verb.
pub(super) fn run(args: &RunArgs) -> Result<(), CliError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.map_or(cores, usize::from);
    let found = find(&args.file, args.seeds, jobs)?;
    let points: Vec<Json> = found.points.iter().map(to_json).collect();
    let whole = json!({
        "name": found.name, "kind": found.kind, "seeds": found.seeds, "points": points,
    });
    if let Some(dir) = &args.out {
        write(dir, &found, &whole)?;
    }
    match args.json {
        true => print_json(&whole),
        false => print(&render(&found.points)),
    }
}

/// Reads the file and runs the experiment.
fn find(file: &Path, seeds: Option<u64>, jobs: usize) -> Result<Found, CliError> {
    let wrong = |reason: String| ConfigError::NotHere {
        file: file.to_owned(),
        reason,
    };
    match File::load(file).map_err(|error| of_lab(error.into()))? {
        File::Cells(mut experiment) => {
            if let Some(seeds) = seeds {
                experiment.seeds = 1..=seeds;
            }
            let tasks = experiment.tasks();
            let points = on_all_cores(&tasks, jobs, |task| experiment.point(task));
            let points = points.map_err(|error| wrong(error.to_string()))?;
            let pictures = experiment.pictures(&points);
            Ok(Found {
                kind: experiment.kind.name(),
                seeds: *experiment.seeds.end(),
                name: experiment.name,
                points,
                pictures,
            })
        }
        File::Bond(mut experiment) => {
            experiment.seeds = seeds.unwrap_or(experiment.seeds);
            let tasks = bond::tasks(&experiment);
            let runs = on_all_cores(&tasks, jobs, |task| bond::measure(&experiment, task));
            let points = bond::points(&experiment, &tasks, &runs.map_err(wrong)?);
            Ok(Found {
                kind: "bond",
                seeds: experiment.seeds,
                pictures: bond::pictures(&points),
                name: experiment.name,
                points,
            })
        }
    }
}

/// Runs `work` on all tasks, several in parallel; returns the results in the order of the tasks, or
/// the first error.
fn on_all_cores<T: Sync, R: Send, E: Send>(
    tasks: &[T],
    jobs: usize,
    work: impl Fn(&T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Result<R, E>)>> = Mutex::new(Vec::new());
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

fn to_json(point: &Point) -> Json {
    let values = point.values().iter().map(|(name, value)| {
        let value = match value {
            Value::Nothing => Json::Null,
            Value::Count(count) => json!(count),
            Value::Number(number) => json!(rounded(*number)),
            Value::Text(text) => json!(text),
        };
        ((*name).to_owned(), value)
    });
    Json::Object(values.collect::<Map<_, _>>())
}

fn text(value: &Value) -> String {
    match value {
        Value::Nothing => "none".to_owned(),
        Value::Text(text) => text.clone(),
        Value::Count(count) => count.to_string(),
        Value::Number(n) if n.fract() == 0.0 => format!("{n:.0}"),
        Value::Number(n) if n.abs() < 10.0 => format!("{n:.3}"),
        Value::Number(n) => format!("{n:.1}"),
    }
}

fn render(points: &[Point]) -> String {
    let names = points.first().map_or(&[][..], Point::values).iter();
    let titles: Vec<String> = names
        .enumerate()
        .map(|(index, (name, _))| {
            let side = if index == 0 { "" } else { ">" };
            format!("{side}{}", name.replace('_', " ").to_uppercase())
        })
        .collect();
    let mut table = Table::new(&titles.iter().map(String::as_str).collect::<Vec<_>>());
    for point in points {
        table.row(point.values().iter().map(|(_, value)| text(value)));
    }
    table.render()
}

fn write(dir: &Path, found: &Found, whole: &Json) -> Result<(), CliError> {
    let tables = [
        (".json", format!("{whole:#}\n")),
        (".csv", csv(&found.points)),
    ];
    let tables = tables.map(|(end, text)| (format!("{}{end}", found.name), text));
    let pictures = found.pictures.iter();
    let pictures = pictures.map(|(end, svg)| (format!("{}{end}.svg", found.name), svg.clone()));
    keep(dir, tables.into_iter().chain(pictures))
}
