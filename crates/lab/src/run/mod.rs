//! `sumlink-lab run`: runs every system of every scenario with every seed; interrupted series can
//! be resumed.

mod descriptors;
mod environment;
mod job;
pub(crate) mod machine;
mod measure;
mod once;
mod progress;
mod store;
mod table;
mod together;
mod workload;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use sumlink_settings::units::parse_percentage;

use crate::config::Direction;
use crate::error::LabError;
use crate::programs;
use crate::prose::{note, print, say};
use crate::results::{Outcome, Run};
use crate::scenario::{Scenario, Workload};
use crate::systems;

use progress::Progress;
use together::Update;

pub(crate) use job::Job;
pub(crate) use measure::{OTHERS_NOTE, join};
pub(crate) use once::planned;
pub(crate) use progress::duration_in_words;
pub use store::Store;
pub(crate) use store::{write_json, write_text};
pub use table::of as table;
pub(crate) use together::Capacity;

/// Options of `sumlink-lab run`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Systems: alone, simultaneous, mptcp[@SELECTOR], \n         \
                  sumlink:SCHEDULER[:CLASS=SCHEDULER]...[:SETTING=VALUE]...\n             [@SELECTOR][+CONGESTION[+CARRIERS]][+early],\n         library:SCHEDULER[:CLASS=SCHEDULER]...[:SETTING=VALUE]..., mptcp+tls,\n         lwip, lwa and lwip+visible, with [:STEERING][@PARAMETER=VALUE]...,\n         wireguard, aggligator and noq (after make peers);\n         a SETTING is a key of [session] in a configuration file, such as coupling,\n         or datagrams=POLICY, udp=off, blocked=all or blocked=LINK\n\n\
                  Example:\n  sumlink-lab run scenarios/unequal-*.toml --seeds 1 \
                  --systems alone,sumlink:fbdt\n  sumlink-lab report lab-out"
)]
pub struct RunOptions {
    /// Scenario files; `sumlink-lab list` shows those of the project
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Where the results are written; existing results are kept
    #[arg(long, value_name = "DIR", default_value = "lab-out")]
    pub out: PathBuf,
    /// Print one JSON object a line for each run
    #[arg(long)]
    pub json: bool,
    /// Run seeds 1 to N instead of the scenarios' own number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub seeds: Option<u64>,
    /// Only these systems, also ones that the scenarios do not name
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub systems: Vec<String>,
    /// Maximum number of concurrent runs. Only bulk traffic at low rates runs beside others
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub jobs: u16,
    /// Refuse runs during which other programs used more than this share of the processors, as in
    /// 10%; the same command repeats them
    #[arg(long, value_name = "SHARE", value_parser = parse_percentage)]
    pub max_others: Option<f64>,
    /// Write what an edge node and the senders through it, or MPTCP's subflows, do over time into
    /// this directory; for an edge node also a picture
    #[arg(long, value_name = "DIR")]
    pub trace: Option<PathBuf>,
    /// The program whose client and server are measured, instead of this one: another build of
    /// `sumlink-lab`, or of `sumlink`, which has no edge node and no research schedulers
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
}

/// Reads all files; the error lists the problems of all of them.
pub fn load_all(files: &[PathBuf]) -> Result<Vec<Scenario>, LabError> {
    let mut scenarios: Vec<Scenario> = Vec::new();
    let mut problems = Vec::new();
    for file in files {
        match Scenario::load(file).map_err(LabError::from) {
            Ok(scenario) => scenarios.push(scenario),
            Err(LabError::Scenario(found)) => problems.extend(found),
            Err(error) => return Err(error),
        }
    }
    if !problems.is_empty() {
        return Err(LabError::Scenario(problems));
    }
    for (index, scenario) in scenarios.iter().enumerate() {
        if let Some(other) = scenarios[..index].iter().find(|o| o.name == scenario.name) {
            return Err(LabError::Usage(format!(
                "{} and {} are both called '{}', so their results would mix: rename one",
                other.file.display(),
                scenario.file.display(),
                scenario.name
            )));
        }
    }
    Ok(scenarios)
}

/// Checks the options, before anything is written.
pub(crate) fn check(options: &RunOptions) -> Result<Vec<Scenario>, LabError> {
    for name in &options.systems {
        systems::parse(name).map_err(|error| LabError::Usage(format!("--systems: {error}")))?;
    }
    load_all(&options.files)
}

/// Does the missing runs.
pub(crate) fn run(options: &RunOptions, scenarios: &[Scenario]) -> Result<(), LabError> {
    let store = Store::open(&options.out)?.with_most_others(options.max_others);
    let program = match &options.program {
        Some(program) => program.clone(),
        None => programs::own()?,
    };
    if let Some(directory) = &options.trace {
        fs::create_dir_all(directory).map_err(LabError::output(directory))?;
    }
    let plan = plan(options, scenarios, &program);
    for scenario in scenarios {
        store.write_scenario(scenario)?;
    }
    let capacity = Capacity::of_this_machine(Some(options.jobs.into()));
    carry_out(&plan, capacity, &store, &mut |run, path| {
        if options.json {
            say!("{}", run_json(run, Some(path)));
        }
    })?;
    finish(options, scenarios, &store, &plan)
}

/// Does the missing runs and reports on each.
pub(crate) fn carry_out(
    plan: &[Job<'_>],
    capacity: Capacity,
    store: &Store,
    on_run: &mut dyn FnMut(&Run, &Path),
) -> Result<(), LabError> {
    refuse_simulated(store, plan)?;
    let missing: Vec<_> = plan
        .iter()
        .filter(|job| store.done(job.scenario, job.seed, &job.system).is_none())
        .collect();
    if missing.len() < plan.len() {
        note!(
            "{} of {} runs are already in {}",
            plan.len() - missing.len(),
            plan.len(),
            store.directory().display()
        );
    }
    let costs = missing
        .iter()
        .map(|job| (planned(job).0, capacity.width(job)));
    let costs: Vec<_> = costs.collect();
    let mut progress = Progress::new(plan.len(), &costs);
    let mut news = |news: Update| {
        match news {
            Update::Begun(index) => {
                let job = missing[index];
                let label = format!("{}, seed {}, {}", job.scenario.name, job.seed, job.system);
                let duration = job.scenario.duration.as_secs_f64();
                progress.begin(index, label, duration, costs[index]);
            }
            Update::Comes(index, phase, elapsed) => progress.show(index, phase, elapsed),
            Update::Done(index, run) => {
                let path = store.write_run(missing[index].scenario, &run)?;
                progress.finish(index, &run);
                on_run(&run, &path);
            }
        }
        Ok(())
    };
    let result = together::run(&missing, capacity, &mut news);
    progress.end();
    result.inspect_err(|error| tell_what_is_kept(error, store, progress.done(), plan.len()))
}

/// Refuses a directory with simulated results, which must not be taken for measurements.
fn refuse_simulated(store: &Store, plan: &[Job<'_>]) -> Result<(), LabError> {
    let there = plan.iter().find(|job| {
        let run = store.read(job.scenario, job.seed, &job.system);
        run.is_some_and(|run| run.environment.is_simulated())
    });
    there.map_or(Ok(()), |job| {
        Err(LabError::Usage(format!(
            "{} holds results of `sumlink-lab sim run` of {}: choose another --out",
            store.directory().display(),
            job.scenario.name
        )))
    })
}

/// After the last run: writes the summaries, prints the table, and fails if figures are missing.
fn finish(
    options: &RunOptions,
    scenarios: &[Scenario],
    store: &Store,
    plan: &[Job<'_>],
) -> Result<(), LabError> {
    let mut refused: Vec<String> = Vec::new();
    for scenario in scenarios {
        let runs: Vec<Run> = plan
            .iter()
            .filter(|job| job.scenario.name == scenario.name)
            .filter_map(|job| store.read(scenario, job.seed, &job.system))
            .collect();
        refused.extend(runs.iter().filter_map(refusal));
        store.write_summary(scenario)?;
        if !options.json {
            print(&table(scenario, &runs))?;
        }
    }
    if !options.json {
        let directory = store.directory().display();
        print(&format!(
            "results: {directory} (to make a report: sumlink-lab report {directory})\n"
        ))?;
    }
    refused_error(&refused, plan.len()).map_or(Ok(()), Err)
}

/// Which run was refused, and why.
pub(crate) fn refusal(run: &Run) -> Option<String> {
    let Outcome::Refused { reason } = &run.outcome else {
        return None;
    };
    Some(format!(
        "{}, seed {}, {}: {reason}",
        run.scenario, run.seed, run.system
    ))
}

/// The error of a command with refused runs, on one line with the first reason.
pub(crate) fn refused_error(refused: &[String], all: usize) -> Option<LabError> {
    let first = refused.first()?;
    Some(LabError::Refused(format!(
        "{} of {all} runs have none ({first}); the same command repeats only these",
        refused.len()
    )))
}

/// All runs in order. All systems of a seed run in sequence, so that changes of the machine affect
/// them equally.
fn plan<'a>(options: &'a RunOptions, scenarios: &'a [Scenario], program: &'a Path) -> Vec<Job<'a>> {
    let mut jobs = Vec::new();
    for scenario in scenarios {
        let systems = if options.systems.is_empty() {
            &scenario.systems
        } else {
            &options.systems
        };
        for seed in 1..=options.seeds.unwrap_or(scenario.seeds) {
            jobs.extend(systems.iter().map(|system| Job {
                scenario,
                seed,
                system: system.clone(),
                program,
                rate: rate_beside_others(scenario),
                trace: options.trace.as_deref(),
            }));
        }
    }
    jobs
}

/// The scenario's rate if it may run alongside others: its figures must not depend on milliseconds.
fn rate_beside_others(scenario: &Scenario) -> Option<u64> {
    matches!(scenario.workload, Workload::Bulk)
        .then(|| link_rates(scenario))
        .flatten()
}

/// The sum of the rates of a scenario's links in bit/s, for the direction where it is larger;
/// `None` if nothing shapes the links.
pub(crate) fn link_rates(scenario: &Scenario) -> Option<u64> {
    let ways = [Direction::Up, Direction::Down].map(|way| scenario.rates_bps(way, 1));
    (!scenario.unshaped).then_some(ways[0].max(ways[1]) as u64)
}

fn tell_what_is_kept(error: &LabError, store: &Store, finished: usize, total: usize) {
    let directory = store.directory().display();
    match error {
        LabError::Interrupted if finished == 0 => {
            note!("no run was finished");
        }
        _ if finished > 0 => {
            note!(
                "{finished} of {total} runs are kept in {directory}; the same command resumes there"
            )
        }
        _ => {}
    }
}

/// The line of `--json` about a run and its result file.
pub fn run_json(run: &Run, path: Option<&Path>) -> serde_json::Value {
    let (kind, reason, goodput) = match &run.outcome {
        Outcome::Measured(figures) => ("measured", None, Some(figures.goodput_bps)),
        Outcome::Skipped { reason } => ("skipped", Some(reason), None),
        Outcome::Refused { reason } => ("refused", Some(reason), None),
        Outcome::Failed { reason } => ("failed", Some(reason), None),
    };
    let mut line = json!({
        "scenario": run.scenario,
        "seed": run.seed,
        "system": run.system,
        "outcome": kind,
        "reason": reason,
        "goodput_bps": goodput,
        "file": path,
    });
    // Only simulations have one.
    if let Outcome::Measured(figures) = &run.outcome
        && let Some(digest) = &figures.event_log
    {
        line["event_log"] = json!(digest);
    }
    line
}
