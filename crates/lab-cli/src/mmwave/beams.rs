//! Figure 3.5(a): the number of a client's sectors that the access point receives; and the contents
//! of a file of measured patterns.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use sumlink_mmwave::Pattern;
use sumlink_mmwave::experiment::rounded;
use sumlink_mmwave::figures::office::{brackets, good_beams_picture};
use sumlink_mmwave::mac::air::Hearing;

use super::heatmap::OfficeArgs;
use super::keep;
use crate::error::of_mmwave;
use sumlink::config::{ConfigError, Problem};
use sumlink::error::CliError;
use sumlink::output::{print, print_json};

/// `sumlink-lab mmwave beams`
#[derive(Debug, Args)]
pub(crate) struct BeamsArgs {
    #[command(flatten)]
    office: OfficeArgs,
    /// Describe this file of measured patterns instead: its beams, directions and largest gain, and
    /// with --gamma the number of beams received in each direction.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sectors", "room", "draws", "seed"])]
    patterns: Option<PathBuf>,
    /// Write beams.json and the chart beams.svg to this directory.
    #[arg(long, value_name = "DIR", conflicts_with = "patterns")]
    out: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub(super) json: bool,
}

/// Runs the verb.
pub(super) fn run(args: &BeamsArgs) -> Result<(), CliError> {
    if let Some(file) = &args.patterns {
        return patterns(file, args.office.office().gamma_db, args.json);
    }
    let office = args.office.office();
    let all = office.good_beams().map_err(of_mmwave)?;
    let (none, shares) = brackets(&all, office.sectors);
    let object = json!({
        "gamma_db": office.gamma_db, "sectors": office.sectors, "clients": all.len(),
        "none": rounded(none), "shares": shares.map(rounded),
    });
    if let Some(dir) = &args.out {
        let line = (args.office.describe(), all.clone());
        let files = [
            ("beams.json", format!("{object:#}\n")),
            ("beams.svg", good_beams_picture(&[line])),
        ];
        keep(dir, files.map(|(name, text)| (name.to_owned(), text)))?;
    }
    if args.json {
        return print_json(&object);
    }
    print(&table(
        &format!("{} clients", all.len()),
        &all,
        office.sectors,
    ))
}

/// Shares by number of good-beams, as text.
fn table(of: &str, all: &[usize], sectors: usize) -> String {
    let (none, shares) = brackets(all, sectors);
    let width = sectors.div_ceil(6);
    let mut text = format!("good-beams of {of}\n   none {:5.1} %\n", none * 100.0);
    for (index, share) in shares.iter().enumerate() {
        let (from, to) = (index * width + 1, ((index + 1) * width).min(sectors));
        if from <= to {
            text += &format!("{:>7} {:5.1} %\n", format!("{from}-{to}"), share * 100.0);
        }
    }
    text
}

fn patterns(file: &Path, gamma: Option<f64>, json: bool) -> Result<(), CliError> {
    let text = std::fs::read_to_string(file).map_err(|reason| ConfigError::Unreadable {
        file: file.to_owned(),
        reason,
    })?;
    let pattern: Pattern = text.parse().map_err(|error: sumlink_mmwave::MmwaveError| {
        let line = match &error {
            sumlink_mmwave::MmwaveError::PatternLine { line, .. } => *line,
            _ => 1,
        };
        ConfigError::Wrong {
            file: file.to_owned(),
            problems: vec![Problem::new(line, error)],
        }
    })?;
    let (beams, directions) = (pattern.beams(), pattern.directions().count());
    let gain = pattern.gain_db();
    let least = Hearing::THESIS.min_snr_db;
    let good = gamma.map(|gamma| pattern.good_beams(gamma, least));
    let good = good.transpose().map_err(of_mmwave)?;
    let mean = |all: &Vec<usize>| all.iter().sum::<usize>() as f64 / all.len().max(1) as f64;
    if json {
        let mut object =
            json!({ "beams": beams, "directions": directions, "gain_db": rounded(gain) });
        if let Some(all) = &good {
            let (none, shares) = brackets(all, beams);
            object["good_beams"] = json!({
                "gamma_db": gamma, "mean": rounded(mean(all)), "none": rounded(none), "shares": shares.map(rounded),
            });
        }
        return print_json(&object);
    }
    let mut text =
        format!("{beams} beams, each in {directions} directions, {gain:.1} dB at most\n");
    if let Some(all) = &good {
        let of = format!("{directions} directions, {:.1} on average", mean(all));
        text += &table(&of, all, beams);
    }
    print(&text)
}
