//! `sumlink-lab sim`: runs scenarios in the simulator.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter};
use std::num::NonZeroUsize;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use clap::{Args, Subcommand};
use sumlink_engine::SelectorConfig;
use sumlink_lab::results::Run;
use sumlink_lab::scenario::Scenario;
use sumlink_lab::system::System;
use sumlink_lab::{LabError, Store, edge_timeline, load_all, print, run_json, table, timeline};

use crate::error::of_lab;
use sumlink::error::CliError;

/// The program of the Python package.
const PACKAGE: &str = "sumlink-sim";

/// The verbs of `sumlink-lab sim`.
#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    /// Run scenarios in virtual time: the engine over modeled TCP and the laboratory's links
    Run(SimRunArgs),
    /// Sweep a grid of a scenario's parameters with `sumlink-sim sweep` of the Python package
    #[command(disable_help_flag = true)]
    Sweep {
        /// Arguments of `sumlink-sim sweep`, such as `--help`.
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "ARGUMENT"
        )]
        arguments: Vec<OsString>,
    },
}

impl SimCommand {
    pub(crate) fn json(&self) -> bool {
        match self {
            Self::Run(args) => args.json,
            Self::Sweep { .. } => false,
        }
    }
}

/// `sumlink-lab sim run`
#[derive(Debug, Args)]
#[command(
    after_help = "Systems: alone, simultaneous, mptcp, lwip, lwa, lwip+visible,\n         \
                  sumlink:SCHEDULER[:CLASS=SCHEDULER]...[:SETTING=VALUE]...\n             \
                  [@SELECTOR][+CONGESTION[+CARRIERS]],\n         \
                  a SETTING is a key of [session] in a configuration file, such as coupling;\n         \
                  others are skipped.\n\n\
                  Example:\n  sumlink-lab sim run scenarios/unequal-*.toml --seeds 10 --systems alone,sumlink:fbdt"
)]
pub(crate) struct SimRunArgs {
    /// Scenario files; `sumlink-lab list` shows those of the project.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write the results to this directory, as `sumlink-lab run` does; existing runs are replaced.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON object per run, one per line.
    #[arg(long)]
    json: bool,
    /// Run the seeds 1 to N instead of the scenarios' own number.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    seeds: Option<u64>,
    /// Run only these systems, including ones that the scenarios do not name.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    systems: Vec<String>,
    /// Add this selector to sumlink's systems without one: `sumlink:fbdt` becomes
    /// `sumlink:fbdt@NAME`.
    #[arg(long, value_name = "NAME[:KEY=VALUE]...", value_parser = sumlink::config::parse_selector)]
    selector: Option<SelectorConfig>,
    /// Write the decisions of sumlink's sessions for each run: as JSON lines to
    /// DIR/SCENARIO-seed-N-SYSTEM.jsonl, and as a chart of the bytes that each path carried to the
    /// same name with .svg.
    #[arg(long, value_name = "DIR")]
    trace: Option<PathBuf>,
    /// Run this number of simulations in parallel. Default: the number of processors.
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
}

/// A run to simulate.
struct Job<'a> {
    scenario: &'a Scenario,
    seed: u64,
    system: &'a str,
}

/// Runs the verb.
pub(crate) fn run(command: &SimCommand) -> Result<(), CliError> {
    match command {
        SimCommand::Run(args) => run_all(args),
        SimCommand::Sweep { arguments } => Err(hand_over(arguments)),
    }
}

/// Replaces this process with the Python package's program; returns only if that fails.
fn hand_over(arguments: &[OsString]) -> CliError {
    let error = Command::new(PACKAGE).arg("sweep").args(arguments).exec();
    let what = match error.kind() {
        io::ErrorKind::NotFound => {
            "is not in the PATH: install it with `pip install ./python` in a clone of sumlink"
                .to_owned()
        }
        _ => format!("cannot be run: {error}"),
    };
    CliError::Usage(format!(
        "sweeps need the Python package: its program {PACKAGE} {what}"
    ))
}

fn run_all(args: &SimRunArgs) -> Result<(), CliError> {
    for (number, name) in args.systems.iter().enumerate() {
        if args.systems[..number].contains(name) {
            return Err(CliError::Usage(format!("--systems: '{name}' occurs twice")));
        }
        sumlink_sim::check_system(name)
            .map_err(|error| CliError::Usage(format!("--systems: {error}")))?;
    }
    let scenarios = load_all(&args.files).map_err(of_lab)?;
    let systems: Vec<Vec<String>> = scenarios.iter().map(|of| systems(args, of)).collect();
    let jobs = plan(args, &scenarios, &systems);
    let store = args
        .out
        .as_deref()
        .map(Store::open)
        .transpose()
        .map_err(of_lab)?;
    if let Some(store) = &store {
        refuse_measured(store, &jobs).map_err(of_lab)?;
        for scenario in &scenarios {
            store.write_scenario(scenario).map_err(of_lab)?;
        }
    }
    let mut runs: Vec<Run> = Vec::new();
    if let Some(directory) = &args.trace {
        fs::create_dir_all(directory).map_err(failed(directory))?;
    }
    let one = |job: &Job<'_>| run_one(job, args.trace.as_deref());
    let ended = carry_out(&jobs, workers(args), &one, &mut |job, run| {
        let path = match &store {
            Some(store) => Some(store.write_run(job.scenario, &run).map_err(of_lab)?),
            None => None,
        };
        if args.json {
            print(&format!("{}\n", run_json(&run, path.as_deref()))).map_err(of_lab)?;
        } else {
            // Kept for the tables at the end; JSON lines need no memory.
            runs.push(run);
        }
        Ok(())
    });
    // Finished runs are kept and shown after a failure, too.
    for scenario in &scenarios {
        if let Some(store) = &store {
            store.write_summary(scenario).map_err(of_lab)?;
        }
        let of_scenario = runs.iter().filter(|run| run.scenario == scenario.name);
        let done: Vec<Run> = of_scenario.cloned().collect();
        if !args.json && (ended.is_ok() || !done.is_empty()) {
            print(&table(scenario, &done)).map_err(of_lab)?;
        }
    }
    ended
}

/// Simulates one run, with a trace if there is a directory for it.
fn run_one(job: &Job<'_>, traces: Option<&Path>) -> Result<Run, CliError> {
    let Some(directory) = traces else {
        return sumlink_sim::run(job.scenario, job.system, job.seed).map_err(CliError::Usage);
    };
    let system = job.system.replace(':', "-");
    let name = format!("{}-seed-{}-{system}.jsonl", job.scenario.name, job.seed);
    let path = directory.join(name);
    let file = File::create(&path).map_err(failed(&path))?;
    let out = Box::new(BufWriter::new(file));
    let run = sumlink_sim::run_traced(job.scenario, job.system, job.seed, out)
        .map_err(|error| failed(&path)(io::Error::other(error)))?;
    draw(job, &path)?;
    Ok(run)
}

/// Draws the chart of a trace; systems without a trace have neither.
fn draw(job: &Job<'_>, trace: &Path) -> Result<(), CliError> {
    let links: Vec<String> = job.scenario.links().map(|link| link.name.clone()).collect();
    let title = format!("{}, {}, seed {}", job.scenario.name, job.system, job.seed);
    let open = || File::open(trace).map(BufReader::new).map_err(failed(trace));
    let read = |error| failed(trace)(io::Error::other(error));
    let bond = timeline(open()?, &links, &title).map_err(read)?;
    let picture = match bond {
        None => edge_timeline(open()?, &links, &title).map_err(read)?,
        bond => bond,
    };
    match picture {
        None => match fs::metadata(trace).map_err(failed(trace))?.len() {
            0 => fs::remove_file(trace).map_err(failed(trace)),
            _ => Ok(()),
        },
        Some(svg) => {
            let path = trace.with_extension("svg");
            fs::write(&path, svg).map_err(failed(&path))
        }
    }
}

/// The error of a trace or chart that could not be written.
fn failed(path: &Path) -> impl FnOnce(io::Error) -> CliError {
    let path = path.to_path_buf();
    move |reason| CliError::Write { path, reason }
}

/// The systems to compare under a scenario.
fn systems(args: &SimRunArgs, scenario: &Scenario) -> Vec<String> {
    let names = match args.systems.is_empty() {
        true => &scenario.systems,
        false => &args.systems,
    };
    let selected = |name: &String| match &args.selector {
        Some(selector) => System::name_with_selector(name, selector),
        None => name.clone(),
    };
    names.iter().map(selected).collect()
}

/// Every run: all systems of a seed one after the other.
fn plan<'a>(
    args: &SimRunArgs,
    scenarios: &'a [Scenario],
    systems: &'a [Vec<String>],
) -> Vec<Job<'a>> {
    let mut jobs = Vec::new();
    for (scenario, systems) in scenarios.iter().zip(systems) {
        for seed in 1..=args.seeds.unwrap_or(scenario.seeds) {
            jobs.extend(systems.iter().map(|system| Job {
                scenario,
                seed,
                system,
            }));
        }
    }
    jobs
}

/// Refuses to replace measured results with simulated ones.
fn refuse_measured(store: &Store, jobs: &[Job<'_>]) -> Result<(), LabError> {
    let measured = jobs.iter().find(|job| {
        let there = store.read(job.scenario, job.seed, job.system);
        there.is_some_and(|run| !run.environment.is_simulated())
    });
    match measured {
        None => Ok(()),
        Some(job) => Err(LabError::Usage(format!(
            "{} holds results of `sumlink-lab run` of {}: choose another --out",
            store.directory().display(),
            job.scenario.name
        ))),
    }
}

fn workers(args: &SimRunArgs) -> usize {
    let jobs = args.jobs.or_else(|| thread::available_parallelism().ok());
    jobs.map_or(1, NonZeroUsize::get)
}

/// Runs all jobs, several in parallel, and reports each in the order of the plan. After a failure
/// no job is started; finished and running ones are still reported.
fn carry_out(
    jobs: &[Job<'_>],
    workers: usize,
    one: &(dyn Fn(&Job<'_>) -> Result<Run, CliError> + Sync),
    report: &mut dyn FnMut(&Job<'_>, Run) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let (done, finished) = mpsc::channel();
        for _ in 0..workers.min(jobs.len()) {
            let (done, next) = (done.clone(), &next);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(index) else {
                        return;
                    };
                    let run = one(job);
                    if run.is_err() {
                        next.store(jobs.len(), Ordering::Relaxed);
                    }
                    // The receiver is gone after a result could not be reported.
                    if done.send((index, run)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(done);
        let mut waiting: Vec<Option<Run>> = jobs.iter().map(|_| None).collect();
        let (mut reported, mut failure) = (0, None);
        for (index, run) in finished {
            match run {
                Ok(run) => waiting[index] = Some(run),
                Err(error) => {
                    failure.get_or_insert(error);
                }
            }
            while let Some(run) = waiting.get_mut(reported).and_then(Option::take) {
                report(&jobs[reported], run)?;
                reported += 1;
            }
        }
        for (job, run) in jobs.iter().zip(waiting) {
            run.map_or(Ok(()), |run| report(job, run))?;
        }
        failure.map_or(Ok(()), Err)
    })
}
