//! `sumlink-lab video`: live video upstream over emulated hotspots.
//!
//! Every system runs every scenario twice: with the video of its workload, which is monitored at
//! the receiver, and with bulk traffic, which shows the rate that a video could have had. After
//! Maheshwari, Lundrigan, Kasera, "Scheduling Virtual WiFi Interfaces for High Bandwidth Video
//! Upstreaming Using Multipath TCP", figures 5 to 10.

mod chart;
mod judge;
mod mpegts;
mod page;
pub(crate) mod receive;
pub(crate) mod send;

use std::fs;
use std::path::{Path, PathBuf};

use sumlink_settings::units::parse_percentage;

use crate::error::LabError;
use crate::programs;
use crate::prose::{print, say};
use crate::results::Run;
use crate::run::{
    Capacity, Job, Store, carry_out, load_all, refusal, refused_error, run_json, write_json,
    write_text,
};
use crate::scenario::{Scenario, Traffic, Workload};
use crate::systems;

use judge::{Judged, judge};

/// Options of `sumlink-lab video`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example:\n  sumlink-lab video scenarios/video/balanced.toml --seeds 1")]
pub struct VideoOptions {
    /// Scenario files with a workload of video; without any, all of scenarios/video
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Where each run's figures and pictures' times are kept; existing results are kept
    #[arg(long, value_name = "DIR", default_value = "lab-out/video")]
    pub out: PathBuf,
    /// Where the page, its charts and its figures are written
    #[arg(long, value_name = "DIR", default_value = "docs/results/video")]
    pub page: PathBuf,
    /// Run seeds 1 to N instead of the scenarios' own number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub seeds: Option<u64>,
    /// Only these systems, also ones that the scenarios do not name; `alone` is always run, for the
    /// bars
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub systems: Vec<String>,
    /// Refuse runs during which other programs used more than this share of the processors; the
    /// same command repeats them
    #[arg(long, value_name = "SHARE", default_value = "10%", value_parser = parse_percentage)]
    pub max_others: f64,
    /// Write the page of the runs that are there, and run nothing
    #[arg(long)]
    pub judge_only: bool,
    /// Print one JSON object a line for each run
    #[arg(long)]
    pub json: bool,
    /// The program whose client and server are measured, instead of this one: another build of
    /// `sumlink-lab`, or of `sumlink`, which has no edge node and no research schedulers
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
}

/// Options of ffmpeg for an MPEG transport stream that keeps its time stamps and waits for nothing.
const TRANSPORT_STREAM: [&str; 8] = [
    "-mpegts_copyts",
    "1",
    "-muxdelay",
    "0",
    "-muxpreload",
    "0",
    "-f",
    "mpegts",
];

/// Default directory of the scenarios.
const SCENARIOS: &str = "scenarios/video";
/// The reference for all other systems.
const ALONE: &str = crate::results::ALONE;

/// Checks the options, before anything is written.
pub(crate) fn check(options: &VideoOptions) -> Result<Vec<Scenario>, LabError> {
    if !options.judge_only {
        programs::find("ffmpeg")?;
    }
    for name in &options.systems {
        systems::parse(name).map_err(|error| LabError::Usage(format!("--systems: {error}")))?;
    }
    let files = match options.files.is_empty() {
        true => files_in(Path::new(SCENARIOS))?,
        false => options.files.clone(),
    };
    let scenarios = load_all(&files)?;
    for scenario in &scenarios {
        let is_video = matches!(scenario.workload, Workload::Video(_));
        if !is_video || scenario.traffic != Traffic::Up {
            return Err(LabError::Usage(format!(
                "{}: lab video needs scenarios with direction = \"up\" and a [workload] of \
                 kind = \"video\"",
                scenario.file.display()
            )));
        }
    }
    Ok(scenarios)
}

fn files_in(directory: &Path) -> Result<Vec<PathBuf>, LabError> {
    let entries = fs::read_dir(directory).map_err(LabError::scenario_file(directory))?;
    let paths = entries.flatten().map(|entry| entry.path());
    let is_scenario = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "toml");
    let mut files: Vec<_> = paths.filter(is_scenario).collect();
    files.sort();
    Ok(files)
}

/// Does the missing runs, and writes the page.
pub(crate) fn run(options: &VideoOptions, scenarios: &[Scenario]) -> Result<(), LabError> {
    let store = Store::open(&options.out)?.with_most_others(Some(options.max_others));
    let program = match &options.program {
        Some(program) => program.clone(),
        None => programs::own()?,
    };
    let bulk: Vec<Scenario> = scenarios.iter().map(Scenario::under_bulk).collect();
    let pairs: Vec<_> = scenarios.iter().zip(&bulk).collect();
    let plan = plan(options, &pairs, &program);
    if !options.judge_only {
        for scenario in scenarios.iter().chain(&bulk) {
            store.write_scenario(scenario)?;
        }
        carry_out(
            &plan,
            Capacity::of_this_machine(Some(1)),
            &store,
            &mut |run, path| {
                if options.json {
                    say!("{}", run_json(run, Some(path)));
                }
            },
        )?;
    }
    let runs_of = |scenario: &Scenario| -> Vec<Run> {
        let jobs = plan.iter().filter(|job| job.scenario.name == scenario.name);
        jobs.filter_map(|job| store.read(scenario, job.seed, &job.system))
            .collect()
    };
    let mut all = Vec::new();
    let mut lines = String::new();
    for (video, bulk) in &pairs {
        let judged = judge(video, runs_of(video), runs_of(bulk));
        for run in judged.runs() {
            lines.push_str(&page::record(run)?);
        }
        all.push(judged);
    }
    write_page(options, &all, &lines)?;
    finish(options, &all)
}

fn write_page(options: &VideoOptions, all: &[Judged<'_>], lines: &str) -> Result<(), LabError> {
    write_text(&options.page.join("README.md"), &page::of(all))?;
    write_text(&options.page.join("runs.jsonl"), lines)?;
    let rows: Vec<_> = all.iter().flat_map(|judged| &judged.rows).collect();
    write_json(&options.page.join("results.json"), &rows)?;
    for judged in all {
        if let Some(picture) = chart::draw(judged) {
            let name = format!("{}.svg", judged.scenario.name);
            write_text(&options.page.join(name), &picture)?;
        }
    }
    Ok(())
}

/// All runs: for each scenario and seed all systems in sequence, first with video, then with bulk
/// traffic.
fn plan<'a>(
    options: &VideoOptions,
    pairs: &[(&'a Scenario, &'a Scenario)],
    program: &'a Path,
) -> Vec<Job<'a>> {
    let mut jobs = Vec::new();
    for (video, bulk) in pairs {
        let named = match options.systems.is_empty() {
            true => &video.systems,
            false => &options.systems,
        };
        let mut systems: Vec<&str> = named.iter().map(String::as_str).collect();
        if !systems.contains(&ALONE) {
            systems.insert(0, ALONE);
        }
        for seed in 1..=options.seeds.unwrap_or(video.seeds) {
            for scenario in [*video, *bulk] {
                jobs.extend(systems.iter().map(|system| Job {
                    scenario,
                    seed,
                    system: (*system).to_owned(),
                    program,
                    rate: None,
                    trace: None,
                }));
            }
        }
    }
    jobs
}

/// Prints the results, and fails if a system misses its bar.
fn finish(options: &VideoOptions, all: &[Judged<'_>]) -> Result<(), LabError> {
    let page = options.page.join("README.md");
    if !options.json {
        print(&all.iter().map(page::terminal).collect::<String>())?;
        print(&format!(
            "page: {} (runs: {})\n",
            page.display(),
            options.out.display()
        ))?;
    }
    let runs = || all.iter().flat_map(Judged::runs);
    let refused: Vec<String> = runs().filter_map(refusal).collect();
    if let Some(error) = refused_error(&refused, runs().count()) {
        return Err(error);
    }
    let short: Vec<String> = all.iter().flat_map(Judged::short).collect();
    if short.is_empty() {
        return Ok(());
    }
    Err(LabError::FellShort(format!(
        "{} miss their bars: {}",
        short.len(),
        short.join(", ")
    )))
}
