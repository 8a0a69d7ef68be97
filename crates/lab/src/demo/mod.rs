//! `sumlink-lab demo`: fetches a file over two emulated links: over each link alone, with kernel
//! MPTCP and with sumlink.

mod fetch;
mod outcome;
mod process;
mod report;
mod systems;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256};
use ring::rand::{SecureRandom, SystemRandom};
use tempfile::TempDir;

use crate::config::{LinkChange, LinkSpec, Setting};
use crate::error::LabError;
use crate::laboratory::{Lab, LabConfig};
use crate::programs;
use crate::prose::{print, say};
use crate::run::machine::Machine;
use sumlink_link::Loss;
use sumlink_settings::units::parse_size;

use fetch::Progress;
use outcome::Outcome;
use report::{Condition, DemoReport};
use systems::System;

const LINKS: [&str; 2] = [
    "wifi:rate=60mbit,delay=10ms,queue=50ms",
    "wigig:rate=180mbit,delay=4ms,queue=50ms",
];
/// Conditions of the two tables: name and loss on the second link.
const CONDITIONS: [(&str, f64); 2] = [("no loss", 0.0), ("5 % loss on wigig", 0.05)];
const CONGESTION: &str = "cubic";
/// Attempts for a fetch whose emulator was the bottleneck, for example because the machine was
/// busy.
const ATTEMPTS: usize = 3;

/// Options of `sumlink-lab demo`.
#[derive(Clone, Debug, clap::Args)]
pub struct DemoOptions {
    /// Repeat every measurement N times and report medians
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Where the chart and the figures are written
    #[arg(long, value_name = "DIR", default_value = "demo-out")]
    pub out: PathBuf,
    /// Size of the file
    #[arg(long, value_name = "SIZE", default_value = "200MB", value_parser = parse_size)]
    pub size: u64,
    /// What is measured
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "alone,mptcp,sumlink"
    )]
    pub systems: Vec<DemoSystem>,
    /// The program whose client and server are measured, instead of this one: another build of
    /// `sumlink-lab`, or of `sumlink`, which has no edge node and no research schedulers
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
}

/// A system that the demo can measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum DemoSystem {
    /// Each link alone.
    Alone,
    /// Kernel MPTCP over all links.
    Mptcp,
    /// sumlink over all links.
    Sumlink,
}

/// Shared state of the demo.
pub(crate) struct Stage {
    pub(crate) lab: Lab,
    /// Configuration, keys, logs and the file; removed at the end.
    pub(crate) directory: TempDir,
    /// The sumlink program.
    pub(crate) program: PathBuf,
    /// SHA-256 of the file.
    pub(crate) digest: Vec<u8>,
    pub(crate) size: u64,
}

/// Reports missing prerequisites before anything is created.
pub(crate) fn check(options: &DemoOptions) -> Result<(), LabError> {
    programs::find("nginx")?;
    programs::find("curl")?;
    if options.size == 0 || options.size > 100_000_000_000 {
        return Err(LabError::Usage(
            "--size must be between 1B and 100GB".to_owned(),
        ));
    }
    Ok(())
}

/// Measures, prints the table, writes the chart, and fails if sumlink fell short.
pub(crate) fn run(options: &DemoOptions) -> Result<(), LabError> {
    // Before the measurements, so that an unwritable directory is reported at once.
    fs::create_dir_all(&options.out).map_err(LabError::output(&options.out))?;
    let links = LINKS
        .iter()
        .map(|link| link.parse())
        .collect::<Result<Vec<LinkSpec>, _>>()?;
    let mut config = LabConfig::new(links);
    config.congestion = CONGESTION.to_owned();
    let lab = Lab::start(config)?;
    say!("laboratory {}:", lab.id());
    for line in lab.description()? {
        say!("  {line}");
    }
    let directory = TempDir::with_prefix("sumlink-demo-")
        .map_err(|error| LabError::system("making a temporary directory", error))?;
    say!(
        "creating a file of {} MB with random content",
        options.size / 1_000_000
    );
    let digest = make_file(&directory.path().join("file.bin"), options.size)?;
    let program = match &options.program {
        Some(program) => program.clone(),
        None => programs::own()?,
    };
    let stage = Stage {
        lab,
        directory,
        program,
        digest,
        size: options.size,
    };

    let _nginx = process::start_nginx(&stage, process::HTTP_PORT, false)?;
    let systems = systems::chosen(&options.systems, stage.lab.links());
    let mut conditions: Vec<Condition> = CONDITIONS
        .iter()
        .map(|(name, _)| Condition::new(name, &systems))
        .collect();
    for round in 1..=options.rounds {
        if options.rounds > 1 {
            say!("round {round} of {}", options.rounds);
        }
        for (condition, (name, loss)) in conditions.iter_mut().zip(CONDITIONS) {
            let change = LinkChange {
                direction: None,
                setting: Setting::Loss(Loss::Independent(loss)),
            };
            stage.lab.set(&stage.lab.links()[1].name, &[change])?;
            for (system, outcomes) in systems.iter().zip(&mut condition.outcomes) {
                outcomes.push(measure(&stage, system, name)?);
            }
        }
    }
    let report = DemoReport::new(&stage, options, &conditions)?;
    say!("");
    print(&report.table())?;
    report.write(&options.out)?;
    say!("\nchart: {}", options.out.join("demo.svg").display());
    say!("figures: {}", options.out.join("demo.json").display());
    report.verdict()
}

/// Fetches the file, and repeats the fetch when the emulator was too slow.
fn measure(stage: &Stage, system: &System, condition: &str) -> Result<Outcome, LabError> {
    let mut objection = String::new();
    for _ in 0..ATTEMPTS {
        let mut progress = Progress::new(condition, &system.label());
        stage.lab.reset_health()?;
        let before = stage.lab.health()?.overruns;
        let machine = Machine::now();
        let mut outcome = system.fetch(stage, &mut progress)?;
        let others_share = machine.others_since(Machine::now());
        let mut health = stage.lab.health()?;
        health.overruns -= before;
        progress.finish(&outcome);
        match health.objection() {
            None => {
                if let Outcome::Fetched(fetched) = &mut outcome {
                    (fetched.emulator, fetched.others_share) = (health, others_share);
                }
                return Ok(outcome);
            }
            Some(reason) => {
                say!("    repeating: {reason}");
                objection = reason;
            }
        }
    }
    Err(LabError::Refused(format!(
        "{objection} ({ATTEMPTS} attempts); is the machine busy?"
    )))
}

/// Writes a file of random bytes and returns its SHA-256.
fn make_file(path: &Path, size: u64) -> Result<Vec<u8>, LabError> {
    let mut file = fs::File::create(path).map_err(LabError::file(path))?;
    let random = SystemRandom::new();
    let mut digest = Context::new(&SHA256);
    let mut chunk = vec![0; 1 << 20];
    let mut left = size;
    while left > 0 {
        crate::signals::check()?;
        let part = &mut chunk[..usize::try_from(left).unwrap_or(usize::MAX).min(1 << 20)];
        random
            .fill(part)
            .map_err(|_| LabError::system("making random bytes", "the kernel provides none"))?;
        digest.update(part);
        file.write_all(part).map_err(LabError::file(path))?;
        left -= part.len() as u64;
    }
    Ok(digest.finish().as_ref().to_vec())
}
