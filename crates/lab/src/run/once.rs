//! One run: a scenario, a seed, a system.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use tempfile::TempDir;

use crate::config::Direction;
use crate::edge_timeline::edge_timeline;
use crate::error::LabError;
use crate::laboratory::Lab;
use crate::results::{Measurement, Outcome, Run, SCHEMA};
use crate::scenario::{Scenario, Workload};
use crate::signals;
use crate::systems::{self, Stage, System, limit_receive_buffers, set_hosts};
use crate::topology::Side;

use super::job::Job;
use super::measure::{self, Phase};
use super::{descriptors, environment, workload};

/// Attempts for a run that the emulator was too slow for.
const ATTEMPTS: usize = 3;
/// Concurrent runs that together use more of the machine than this are repeated alone.
const OURS_LIMIT: f64 = 0.65;
/// The port of the workload's server, unless the workload names one.
const PORT: u16 = 5001;

/// Whether other runs share the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Concurrency {
    /// The run is alone: it is repeated if refused.
    Alone,
    /// Other runs share the machine: a run with too little CPU time is repeated later.
    Others,
}

/// Receives the number of completed phases and the seconds of the current one.
pub(crate) type Tick<'a> = &'a mut dyn FnMut(usize, f64);

/// Does the run. Failures of the system are outcomes; errors come from the laboratory or a signal.
pub(super) fn run(
    job: &Job<'_>,
    concurrency: Concurrency,
    tick: Tick<'_>,
) -> Result<Run, LabError> {
    let system = systems::of(job.scenario, &job.system).map_err(LabError::Usage)?;
    let started = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let outcome = match systems::missing_system(&*system, job.scenario) {
        Some(reason) => Outcome::Skipped { reason },
        None => match measure_all(job, system.as_ref(), concurrency, tick) {
            Ok(outcome) => outcome,
            Err(error @ LabError::Failed { .. }) => {
                // Ctrl-C in a terminal also ends the programs, which is not their failure.
                signals::check()?;
                Outcome::Failed {
                    reason: error.to_string(),
                }
            }
            // A repetition would have the same result: the scenario or the link has to change.
            Err(LabError::Refused(reason)) => Outcome::Refused { reason },
            Err(error) => return Err(error),
        },
    };
    Ok(Run {
        schema: SCHEMA,
        scenario: job.scenario.name.clone(),
        scenario_sha256: job.scenario.sha256.clone(),
        seed: job.seed,
        system: job.system.clone(),
        started_unix_s: started,
        environment: environment::of(job, system.as_ref()),
        outcome,
    })
}

/// Measures every phase of the system, with repetitions.
fn measure_all(
    job: &Job<'_>,
    system: &dyn System,
    concurrency: Concurrency,
    tick: Tick<'_>,
) -> Result<Outcome, LabError> {
    let attempts = match concurrency {
        Concurrency::Alone => ATTEMPTS,
        Concurrency::Others => 1,
    };
    // One for each phase.
    let mut phases: Vec<(&Part<'_>, Measurement)> = Vec::new();
    let parts = parts(job.scenario, system);
    for (number, part) in parts.iter().enumerate() {
        let mut last = String::new();
        let mut found = None;
        for _ in 0..attempts {
            let phase = measure_phase(job, system, part, &mut |elapsed| {
                tick(number, elapsed);
            })?;
            // Alongside other runs the ends may have waited for a processor, which the emulator
            // does not notice.
            let ours = phase.machine.map_or(0.0, |machine| machine.runs_share);
            let crowded = (concurrency == Concurrency::Others && ours > OURS_LIMIT)
                .then(|| format!("concurrent runs used {:.0} % of the machine", ours * 100.0));
            match phase.emulator.objection().or(crowded) {
                None => {
                    found = Some(phase);
                    break;
                }
                Some(objection) => last = objection,
            }
        }
        let Some(found) = found else {
            let link = part.link.as_ref();
            let during = link.map_or_else(String::new, |link| format!("{link}: "));
            return Ok(Outcome::Refused {
                reason: format!("{during}{last} ({attempts} attempts); is the machine busy?"),
            });
        };
        match phases.last_mut() {
            Some((before, measurement)) if before.link == part.link => {
                *measurement = measure::in_series(std::mem::take(measurement), found);
            }
            _ => phases.push((part, found)),
        }
    }
    let phases = phases.into_iter().map(|(_, measurement)| measurement);
    let whole = phases.reduce(measure::join).unwrap_or_default();
    Ok(Outcome::Measured(Box::new(whole)))
}

/// A measurement in a separate laboratory.
struct Part<'a> {
    /// The link, if it is measured alone.
    link: Option<String>,
    /// The scenario, possibly reduced to a single object of its workload.
    scenario: Cow<'a, Scenario>,
}

/// The phases of the system; for cold objects one part per object.
fn parts<'a>(scenario: &'a Scenario, system: &dyn System) -> Vec<Part<'a>> {
    let links: Vec<_> = scenario.links().map(|l| l.name.clone()).collect();
    let scenarios = match scenario.single_objects() {
        Some(singles) => singles.into_iter().map(Cow::Owned).collect(),
        None => vec![Cow::Borrowed(scenario)],
    };
    let phases = system.phases(&links);
    let of_phase = |link: Option<String>| {
        let of_scenario = move |scenario: &Cow<'a, Scenario>| Part {
            link: link.clone(),
            scenario: scenario.clone(),
        };
        scenarios.iter().map(of_scenario).collect::<Vec<_>>()
    };
    phases.into_iter().flat_map(of_phase).collect()
}

/// The maximum seconds of traffic, and the number of laboratories; 0 for runs that are not possible
/// here.
pub(crate) fn planned(job: &Job<'_>) -> (f64, usize) {
    match systems::parse(&job.system) {
        Ok(system) if systems::missing_system(&*system, job.scenario).is_none() => {
            let parts = parts(job.scenario, &*system);
            let traffic = parts
                .iter()
                .map(|part| {
                    part.scenario
                        .longest_run(part.link.as_deref())
                        .as_secs_f64()
                })
                .sum();
            (traffic, parts.len())
        }
        _ => (0.0, 0),
    }
}

/// Measures one phase in a separate laboratory: fresh namespaces, empty queues, no metrics of
/// earlier connections.
fn measure_phase(
    job: &Job<'_>,
    system: &dyn System,
    part: &Part<'_>,
    tick: &mut dyn FnMut(f64),
) -> Result<Measurement, LabError> {
    let scenario = part.scenario.as_ref();
    let mut config = scenario.lab_config(job.seed);
    let far = system.far(&config);
    config.shorten(far);
    if let Some(link) = &part.link {
        // Events of the other links would bring them up again.
        config.timeline.retain(|planned| planned.link == *link);
    }
    if let Workload::Open { count } = scenario.workload {
        descriptors::allow(count)?;
    }
    let lab = Lab::start(config)?;
    if let Some(link) = &part.link {
        lab.leave_only(link)?;
    }
    set_hosts(&lab, system.hosts().unwrap_or(scenario.hosts))?;
    if let Some(bytes) = scenario.receive_buffer {
        limit_receive_buffers(&lab, bytes)?;
    }
    let directory = TempDir::with_prefix("sumlink-lab-run-")
        .map_err(|error| LabError::system("making a temporary directory", error))?;
    let [near, serving] = lab.ends();
    let on_gateway = lab.has_lan() && system.starts_on_gateway();
    let stage = Stage {
        lab: &lab,
        near: if on_gateway { Side::Client } else { near },
        serving,
        directory: directory.path(),
        program: job.program,
        congestion: &scenario.congestion,
        port: workload::port(&scenario.workload).unwrap_or(PORT),
        trace: job.trace.map(|directory| trace_file(job, directory)),
        directions: directions(scenario),
        link: part.link.as_deref(),
        classes: scenario.classes,
        needs_udp: scenario.workload.needs_udp(),
        connections: match scenario.workload {
            Workload::Open { count } => count,
            _ => 0,
        },
        has_own_programs: workload::has_own_programs(&scenario.workload),
        far,
    };
    let server = workload::start_server(scenario, &stage, system)?;
    let running = system.start(&stage)?;
    let phase = Phase {
        scenario,
        stage: &stage,
        system,
        server,
        running,
        epoch_ns: 0,
    };
    let measured = phase.measure(tick)?;
    if let Some(trace) = stage.trace.as_ref().filter(|trace| trace.exists()) {
        draw(job, trace)?;
    }
    Ok(measured)
}

/// The directions of the workload's data: both for calls and games.
fn directions(scenario: &Scenario) -> &[Direction] {
    match &scenario.workload {
        Workload::Datagrams(datagrams) if datagrams.kind.is_both_ways() => &Direction::BOTH,
        _ => scenario.traffic.directions(),
    }
}

/// Path of a run's trace, named like those of `sumlink-lab sim run --trace`.
fn trace_file(job: &Job<'_>, directory: &Path) -> PathBuf {
    let system = job.system.replace(':', "-");
    directory.join(format!(
        "{}-seed-{}-{system}.jsonl",
        job.scenario.name, job.seed
    ))
}

/// Draws the chart of a trace.
fn draw(job: &Job<'_>, trace: &Path) -> Result<(), LabError> {
    let links: Vec<String> = job.scenario.links().map(|link| link.name.clone()).collect();
    let title = format!("{}, {}, seed {}", job.scenario.name, job.system, job.seed);
    let file = BufReader::new(File::open(trace).map_err(LabError::file(trace))?);
    let read = |error| LabError::file(trace)(io::Error::other(error));
    if let Some(svg) = edge_timeline(file, &links, &title).map_err(read)? {
        let path = trace.with_extension("svg");
        fs::write(&path, svg).map_err(LabError::file(&path))?;
    }
    Ok(())
}
