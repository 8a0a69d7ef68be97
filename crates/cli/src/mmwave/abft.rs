//! One A-BFT, frame by frame.

use clap::Args;
use serde_json::json;
use sumlink_mmwave::cell::{Access, Cell, CellConfig, Jpoc, SCHEMES, run as run_cell};

use super::parse_scheme;
use crate::exit::CliError;
use crate::output::{print, print_json};
use crate::table::Table;

/// `sumlink mmwave abft`
#[derive(Debug, Args)]
pub(crate) struct AbftArgs {
    /// The access scheme: 80211ad, 80211ay, 80211-thesis or jpoc; without it all, one after the other.
    #[arg(long, value_name = "NAME", value_parser = parse_scheme)]
    scheme: Option<&'static str>,
    /// Stations that have no trained sector yet.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    stations: u16,
    /// Places and contention are drawn with this seed.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Print JSON: one object a scheme, with every frame.
    #[arg(long)]
    pub(super) json: bool,
}

/// Runs the verb.
pub(super) fn run(args: &AbftArgs) -> Result<(), CliError> {
    let config = CellConfig {
        stations: usize::from(args.stations),
        intervals: 1,
        ..CellConfig::default()
    };
    let cell = Cell::draw(&config, args.seed)?;
    let schemes = args.scheme.map_or(SCHEMES.to_vec(), |scheme| vec![scheme]);
    for scheme in schemes {
        let access = Access::named(scheme).unwrap_or(Access::Jpoc(Jpoc::THESIS));
        let outcome = run_cell(&cell, &access, args.seed)?;
        let first = &outcome.intervals[0];
        let of = |index: usize| {
            first
                .sent
                .iter()
                .filter(move |frame| frame.contender == index)
        };
        if args.json {
            let frames = first.sent.iter().map(|frame| {
                json!({
                    "station": frame.contender, "slot": frame.slot, "mini_slot": frame.mini_slot,
                    "sector": frame.sector, "heard": frame.heard,
                })
            });
            print_json(&json!({
                "scheme": scheme, "seed": args.seed, "mini_slots": first.mini_slots,
                "abft_us": first.parts.abft_us, "trained": first.trained,
                "distances_m": cell.stations.iter().map(|station| station.distance).collect::<Vec<_>>(),
                "frames": frames.collect::<Vec<_>>(),
            }))?;
            continue;
        }
        let mut table = Table::new(&[
            ">STATION", ">METRES", ">FRAMES", ">HEARD", "TRAINED", "WHERE",
        ]);
        for (index, station) in cell.stations.iter().enumerate() {
            table.row([
                index.to_string(),
                format!("{:.1}", station.distance),
                of(index).count().to_string(),
                of(index).filter(|frame| frame.heard).count().to_string(),
                if first.trained.contains(&index) {
                    "yes"
                } else {
                    "no"
                }
                .to_owned(),
                places(of(index).map(|frame| (frame.slot, frame.heard))),
            ]);
        }
        print(&format!(
            "{scheme}: A-BFT of {:.2} ms, {} mini-slots\n{}\n",
            first.parts.abft_us * 1e-3,
            first.mini_slots,
            table.render()
        ))?;
    }
    Ok(())
}

/// In which slots frames were sent, and how many of them were heard: `slot 3: 12 of 16`.
fn places(frames: impl Iterator<Item = (u32, bool)>) -> String {
    let mut slots: Vec<(u32, u32, u32)> = Vec::new();
    for (slot, heard) in frames {
        match slots.iter_mut().find(|known| known.0 == slot) {
            Some(known) => (known.1, known.2) = (known.1 + u32::from(heard), known.2 + 1),
            None => slots.push((slot, u32::from(heard), 1)),
        }
    }
    slots.sort_unstable();
    let told = slots
        .iter()
        .map(|(slot, heard, all)| format!("slot {slot}: {heard} of {all}"));
    told.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_told_in_their_order() {
        let frames = [(3, true), (1, false), (3, false)];
        assert_eq!(places(frames.into_iter()), "slot 1: 0 of 1, slot 3: 1 of 2");
    }
}
