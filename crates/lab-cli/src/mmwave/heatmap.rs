//! Figures 3.1(c), 3.5 and 3.6: where a client near the access point drowns other clients.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::json;
use sumlink_mmwave::experiment::rounded;
use sumlink_mmwave::figures::office::{CELLS, Office, Room, heat_map_picture};

use super::keep;
use crate::error::of_mmwave;
use sumlink::error::CliError;
use sumlink::output::{print, print_json};

/// The office to simulate.
#[derive(Debug, Args)]
pub(super) struct OfficeArgs {
    /// Set the power so that the best sector has this SNR, in dB. Default: full power.
    #[arg(long, value_name = "DB", allow_hyphen_values = true)]
    gamma: Option<f64>,
    /// Set the number of sectors per client: 36 or 64.
    #[arg(long, value_name = "N", default_value_t = 36)]
    pub(super) sectors: usize,
    /// Choose the channel: the indoor office of 3GPP, or the conference room of 802.11ad.
    #[arg(long, value_enum, default_value_t = RoomName::Inh)]
    room: RoomName,
    /// Draw this number of positions and orientations in each part of the office.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    draws: u32,
    /// Set the seed of all random numbers.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
}

/// The channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RoomName {
    Inh,
    Tgad,
}

impl OfficeArgs {
    /// A short description of the options.
    pub(super) fn describe(&self) -> String {
        let power = self.gamma.map_or("no power control".to_owned(), |gamma| {
            format!("gamma {gamma} dB")
        });
        format!("{} sectors, {power}", self.sectors)
    }

    /// The office of the options.
    pub(super) fn office(&self) -> Office {
        Office {
            room: match self.room {
                RoomName::Inh => Room::Inh,
                RoomName::Tgad => Room::Tgad,
            },
            sectors: self.sectors,
            gamma_db: self.gamma,
            draws: self.draws as usize,
            seed: self.seed,
            ..Office::THESIS
        }
    }
}

/// `sumlink-lab mmwave heatmap`
#[derive(Debug, Args)]
pub(crate) struct HeatmapArgs {
    #[command(flatten)]
    office: OfficeArgs,
    /// Write heatmap.json and the chart heatmap.svg to this directory.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON object with the rows, nearest first.
    #[arg(long)]
    pub(super) json: bool,
}

/// Runs the verb.
pub(super) fn run(args: &HeatmapArgs) -> Result<(), CliError> {
    let office = args.office.office();
    let rows = office.heat_map().map_err(of_mmwave)?;
    let round_row = |row: &Vec<f64>| row.iter().copied().map(rounded).collect::<Vec<_>>();
    let object = json!({
        "gamma_db": office.gamma_db, "sectors": office.sectors, "seed": office.seed,
        "index": rows.iter().map(round_row).collect::<Vec<_>>(),
    });
    if let Some(dir) = &args.out {
        let panel = (args.office.describe(), rows.clone());
        let files = [
            ("heatmap.json", format!("{object:#}\n")),
            ("heatmap.svg", heat_map_picture(&[panel])),
        ];
        keep(dir, files.map(|(name, text)| (name.to_owned(), text)))?;
    }
    if args.json {
        return print_json(&object);
    }
    let mut text = format!(
        "competition index against a client 1 m from the access point in the upper left corner\n\
         (1: each is stronger by 3 dB in equally many sectors; 0: it is in none), \
         {} by {} parts of 1.4 m\n",
        CELLS.0, CELLS.1
    );
    for row in &rows {
        let cells = row.iter().map(|index| format!("{index:6.2}"));
        text += &(cells.collect::<String>() + "\n");
    }
    print(&text)
}
