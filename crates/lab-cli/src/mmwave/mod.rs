//! `sumlink-lab mmwave`: contention for beam training in 60 GHz Wi-Fi, in the simulator of
//! `sumlink-mmwave`.

mod abft;
mod beams;
mod bond;
mod experiment;
mod figures;
mod heatmap;

use std::fs;
use std::path::Path;

use clap::Subcommand;
use sumlink_mmwave::cell::SCHEMES;

use sumlink::error::CliError;

/// The verbs of `sumlink-lab mmwave`.
#[derive(Debug, Subcommand)]
pub(crate) enum MmwaveCommand {
    /// Run an experiment: fairness against blockage, mini-slots against the number of stations, or
    /// the goodput of a bond.
    #[command(
        after_help = "Examples:\n  sumlink-lab mmwave run scenarios/mmwave/jain.toml\n  \
                            sumlink-lab mmwave run scenarios/mmwave/overhead.toml --seeds 3 --json\n  \
                            sumlink-lab mmwave run scenarios/mmwave/bond.toml --out DIR"
    )]
    Run(experiment::RunArgs),
    /// Show one A-BFT: the slots of each station, and the frames that were received.
    Abft(abft::AbftArgs),
    /// Show the competition index of a client in each part of an office against a client near the
    /// access point.
    Heatmap(heatmap::HeatmapArgs),
    /// Show the number of a client's sectors that are received (good-beams) in an office, or the
    /// beams of a pattern file.
    Beams(beams::BeamsArgs),
    /// Make the figures of the thesis' chapter 3 that are no experiments, as CSV and SVG.
    #[command(after_help = "Examples:\n  sumlink-lab mmwave figures --out DIR\n  \
                            sumlink-lab mmwave figures participation target --seeds 3 --out DIR")]
    Figures(figures::FiguresArgs),
}

impl MmwaveCommand {
    /// Whether `--json` was given.
    pub(crate) fn json(&self) -> bool {
        match self {
            Self::Run(args) => args.json,
            Self::Abft(args) => args.json,
            Self::Heatmap(args) => args.json,
            Self::Beams(args) => args.json,
            Self::Figures(_) => false,
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
        MmwaveCommand::Figures(args) => figures::run(args),
    }
}

/// Writes files to a directory, which is created if necessary.
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

/// Finds a scheme by its name.
fn parse_scheme(name: &str) -> Result<&'static str, String> {
    let found = SCHEMES.into_iter().find(|scheme| *scheme == name);
    found.ok_or_else(|| {
        format!(
            "`{name}` is not an access scheme: choose one of {}",
            SCHEMES.join(", ")
        )
    })
}
