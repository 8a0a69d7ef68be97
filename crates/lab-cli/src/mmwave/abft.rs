//! One A-BFT, frame by frame.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value as Json, json};
use sumlink_mmwave::cell::{Access, Cell, CellConfig, Jpoc, SCHEMES};
use sumlink_mmwave::experiment::rounded;
use sumlink_mmwave::figures::timeline::{self, Sweeping};

use super::{keep, parse_scheme};
use crate::error::of_mmwave;
use sumlink::error::CliError;
use sumlink::output::{print, print_json};
use sumlink::table::Table;

/// `sumlink-lab mmwave abft`
#[derive(Debug, Args)]
pub(crate) struct AbftArgs {
    /// Show only this access scheme: 80211ad, 80211ay, 80211-thesis, jpoc-thesis or jpoc. Default:
    /// all of them.
    #[arg(long, value_name = "NAME", value_parser = parse_scheme)]
    scheme: Option<&'static str>,
    /// Set the number of stations without a trained sector.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1024))]
    stations: u16,
    /// Draw positions and contention with this seed.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Write abft.json and the chart abft.svg to this directory.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON object per scheme, with every frame.
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
    let cell = Cell::draw(&config, args.seed).map_err(of_mmwave)?;
    let schemes = args.scheme.map_or(SCHEMES.to_vec(), |scheme| vec![scheme]);
    let first = |scheme| {
        let access = Access::named(scheme).unwrap_or(Access::Jpoc(Jpoc::THESIS));
        Sweeping::first(&cell, scheme, &access, args.seed)
    };
    let all: Vec<Sweeping> = schemes
        .into_iter()
        .map(first)
        .collect::<Result<_, _>>()
        .map_err(of_mmwave)?;
    let objects = all.iter().map(|one| as_json(&cell, args.seed, one));
    let objects: Vec<Json> = objects.collect();
    if let Some(dir) = &args.out {
        let files = [
            ("abft.json", format!("{:#}\n", Json::from(objects.clone()))),
            ("abft.svg", timeline::picture(&cell, &all)),
        ];
        keep(dir, files.map(|(name, text)| (name.to_owned(), text)))?;
    }
    match args.json {
        true => objects.iter().try_for_each(print_json),
        false => all.iter().try_for_each(|one| print(&as_table(&cell, one))),
    }
}

/// One scheme as JSON.
fn as_json(cell: &Cell, seed: u64, one: &Sweeping) -> Json {
    let frames = one.interval.sent.iter().map(|frame| {
        json!({
            "station": frame.contender, "slot": frame.slot, "channel": frame.channel,
            "mini_slot": frame.mini_slot, "sector": frame.sector, "heard": frame.heard,
        })
    });
    let distances = cell.stations.iter().map(|one| rounded(one.distance));
    json!({
        "scheme": one.scheme, "seed": seed, "mini_slots": one.interval.mini_slots,
        "abft_us": rounded(one.interval.parts.abft_us), "trained": one.interval.trained,
        "distances_m": distances.collect::<Vec<_>>(), "frames": frames.collect::<Vec<_>>(),
    })
}

/// One scheme as a table.
fn as_table(cell: &Cell, one: &Sweeping) -> String {
    let first = &one.interval;
    let mut table = Table::new(&[
        ">STATION", ">METERS", ">FRAMES", ">HEARD", "TRAINED", "WHERE",
    ]);
    for (index, station) in cell.stations.iter().enumerate() {
        let own = first.sent.iter().filter(|frame| frame.contender == index);
        let own: Vec<_> = own.collect();
        let trained = first.trained.contains(&index);
        table.row([
            index.to_string(),
            format!("{:.1}", station.distance),
            own.len().to_string(),
            own.iter().filter(|frame| frame.heard).count().to_string(),
            if trained { "yes" } else { "no" }.to_owned(),
            slots_of(own.iter().map(|frame| (frame.slot, frame.heard))),
        ]);
    }
    format!(
        "{}: A-BFT of {:.2} ms, {} mini-slots\n{}\n",
        one.scheme,
        first.parts.abft_us * 1e-3,
        first.mini_slots,
        table.render()
    )
}

/// The slots in which frames were sent, and the number received in each: `slot 3: 12 of 16`.
fn slots_of(frames: impl Iterator<Item = (u32, bool)>) -> String {
    let mut slots: Vec<(u32, u32, u32)> = Vec::new();
    for (slot, heard) in frames {
        match slots.iter_mut().find(|known| known.0 == slot) {
            Some(known) => (known.1, known.2) = (known.1 + u32::from(heard), known.2 + 1),
            None => slots.push((slot, u32::from(heard), 1)),
        }
    }
    slots.sort_unstable();
    let texts = slots
        .iter()
        .map(|(slot, heard, all)| format!("slot {slot}: {heard} of {all}"));
    texts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_listed_in_order() {
        let frames = [(3, true), (1, false), (3, false)];
        assert_eq!(
            slots_of(frames.into_iter()),
            "slot 1: 0 of 1, slot 3: 1 of 2"
        );
    }
}
