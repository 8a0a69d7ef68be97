//! `sumlink-lab mmwave`: 60 GHz Wi-Fi's contention for beam training, in the simulator of `sumlink-mmwave`.

mod abft;
mod beams;
mod bond;
mod experiment;
mod heatmap;

use std::fs;
use std::path::Path;

use clap::Subcommand;
use sumlink_mmwave::cell::SCHEMES;

use sumlink::exit::CliError;

/// The verbs below `sumlink-lab mmwave`.
#[derive(Debug, Subcommand)]
pub(crate) enum MmwaveCommand {
    /// Run an experiment's file: fairness against blockage, mini-slots against the number of stations, or a bond's goodput.
    #[command(
        after_help = "Examples:\n  sumlink-lab mmwave run scenarios/mmwave/jain.toml\n  \
                            sumlink-lab mmwave run scenarios/mmwave/overhead.toml --seeds 3 --json\n  \
                            sumlink-lab mmwave run scenarios/mmwave/bond.toml --out DIR"
    )]
    Run(experiment::RunArgs),
    /// Show one A-BFT: who swept where, and who was heard.
    Abft(abft::AbftArgs),
    /// Show the competition index of a client in every part of an office against one near the access point.
    Heatmap(heatmap::HeatmapArgs),
    /// Show how many sectors of a client are heard (good-beams), in an office, or how many beams a pattern file has.
    Beams(beams::BeamsArgs),
}

impl MmwaveCommand {
    /// Whether JSON was asked for.
    pub(crate) fn json(&self) -> bool {
        match self {
            Self::Run(args) => args.json,
            Self::Abft(args) => args.json,
            Self::Heatmap(args) => args.json,
            Self::Beams(args) => args.json,
        }
    }
}

/// Runs the verb.
pub(crate) fn run(command: &MmwaveCommand) -> Result<(), CliError> {
    match command {
        MmwaveCommand::Run(args) => experiment::run(args),
        MmwaveCommand::Abft(args) => abft::run(args),
        MmwaveCommand::Heatmap(args) => heatmap::run(args),
        MmwaveCommand::Beams(args) => beams::run(args),
    }
}

/// Writes files, by their names, into a directory that is made if it is not there.
fn keep(dir: &Path, files: impl IntoIterator<Item = (String, String)>) -> Result<(), CliError> {
    let failed = |path: &Path, reason| CliError::Write {
        path: path.to_owned(),
        reason,
    };
    fs::create_dir_all(dir).map_err(|reason| failed(dir, reason))?;
    for (name, contents) in files {
        let path = dir.join(name);
        fs::write(&path, contents).map_err(|reason| failed(&path, reason))?;
    }
    Ok(())
}

/// A scheme by its name.
fn parse_scheme(name: &str) -> Result<&'static str, String> {
    let found = SCHEMES.into_iter().find(|scheme| *scheme == name);
    found.ok_or_else(|| {
        format!(
            "`{name}` is not an access scheme: choose one of {}",
            SCHEMES.join(", ")
        )
    })
}
