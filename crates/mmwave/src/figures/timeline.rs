//! Sweeps and receptions in the first beacon interval of a cell without trained sectors.

use crate::cell::{Access, Cell, IntervalOutcome, run};
use crate::error::MmwaveError;
use crate::mac::mini;
use crate::phy::SBIFS_US;
use sumlink_plot::figures::{Chart, Mark, Row, frames};

/// The first beacon interval under a scheme.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweeping {
    /// The scheme's name.
    pub scheme: &'static str,
    /// Its results.
    pub interval: IntervalOutcome,
    /// Time between the starts of two slots in microseconds; 0 if there are only mini-slots.
    slot_us: f64,
    /// Duration of a sweep frame in microseconds.
    frame_us: f64,
}

impl Sweeping {
    /// Runs the first interval.
    ///
    /// # Errors
    ///
    /// Those of [`run`].
    pub fn first(
        cell: &Cell,
        scheme: &'static str,
        access: &Access,
        seed: u64,
    ) -> Result<Self, MmwaveError> {
        let mut once = cell.clone();
        once.config.intervals = 1;
        let interval = run(&once, access, seed)?.intervals.swap_remove(0);
        let (slot_us, frame_us) = match access {
            Access::Slotted(rules) => (rules.slot_us(), rules.frame_us()),
            Access::Jpoc(_) => (0.0, mini::frame_us()),
        };
        Ok(Self {
            scheme,
            interval,
            slot_us,
            frame_us,
        })
    }

    /// A row for the whole interval, in milliseconds.
    fn whole(&self) -> Row {
        let parts = &self.interval.parts;
        let mut spans = Vec::new();
        let mut at = 0.0;
        for (us, mark) in [
            (parts.bti_us, Mark::Bti),
            (parts.abft_us, Mark::Abft),
            (parts.ati_us, Mark::Ati),
            (parts.data_us, Mark::Dti),
        ] {
            spans.push((at, us * 1e-3, mark));
            at += us * 1e-3;
        }
        let name = self.scheme.to_owned();
        Row { name, spans }
    }

    /// A row for each client, the nearest first, in milliseconds from the start of the A-BFT.
    fn clients(&self, cell: &Cell) -> Vec<Row> {
        let mini_slot_us = self.frame_us + SBIFS_US;
        let mut rows: Vec<(f64, Row)> = Vec::new();
        for (index, station) in cell.stations.iter().enumerate() {
            let trained = self.interval.trained.contains(&index);
            let in_words = if trained { ", trained" } else { "" };
            let own = self.interval.sent.iter();
            let spans = own.filter(|frame| frame.contender == index).map(|frame| {
                let (slot, mini) = (f64::from(frame.slot), f64::from(frame.mini_slot));
                let start = (slot * self.slot_us + mini * mini_slot_us) * 1e-3;
                let mark = if frame.heard { Mark::Heard } else { Mark::Lost };
                (start, self.frame_us * 1e-3, mark)
            });
            let row = Row {
                name: format!("{:.1} m{in_words}", station.distance),
                spans: spans.collect(),
            };
            rows.push((station.distance, row));
        }
        rows.sort_by(|one, other| one.0.total_cmp(&other.0));
        rows.into_iter().map(|(_, row)| row).collect()
    }
}

/// Beacon intervals of one cell under several schemes: the whole interval, and the frames of its
/// A-BFT.
pub fn picture(cell: &Cell, all: &[Sweeping]) -> String {
    let interval_ms = cell.config.interval.length_us * 1e-3;
    let abft_ms = |one: &Sweeping| one.interval.parts.abft_us * 1e-3;
    let whole = Chart {
        x: "milliseconds since the beacon interval began".to_owned(),
        end: interval_ms,
        panels: vec![(
            "The beacon interval".to_owned(),
            all.iter().map(Sweeping::whole).collect(),
        )],
    };
    let panel = |one: &Sweeping| {
        let name = format!(
            "{}: A-BFT of {:.2} ms, {} mini-slots; {} of {} clients have a trained sector after it",
            one.scheme,
            abft_ms(one),
            one.interval.mini_slots,
            one.interval.trained.len(),
            cell.stations.len()
        );
        (name, one.clients(cell))
    };
    let contests = Chart {
        x: "milliseconds since the A-BFT began; clients by their distance".to_owned(),
        end: all.iter().map(abft_ms).fold(0.001, f64::max),
        panels: all.iter().map(panel).collect(),
    };
    let title = format!(
        "Sweeps and receptions of {} clients without a sector",
        cell.stations.len()
    );
    frames(&title, &[whole, contests])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{CellConfig, SCHEMES};

    #[test]
    fn every_frame_is_drawn_within_its_a_bft() {
        let config = CellConfig {
            stations: 5,
            ..CellConfig::default()
        };
        let cell = Cell::draw(&config, 1).unwrap();
        let all: Vec<Sweeping> = SCHEMES
            .iter()
            .map(|scheme| {
                let access = Access::named(scheme).unwrap();
                Sweeping::first(&cell, scheme, &access, 1).unwrap()
            })
            .collect();
        for one in &all {
            let rows = one.clients(&cell);
            let spans: Vec<_> = rows.iter().flat_map(|row| &row.spans).collect();
            assert_eq!(spans.len(), one.interval.sent.len(), "{}", one.scheme);
            let end = one.interval.parts.abft_us * 1e-3;
            for (start, length, _) in spans {
                assert!(start + length <= end + 1e-9, "{} {start} {end}", one.scheme);
            }
            let parts: f64 = one.whole().spans.iter().map(|span| span.1).sum();
            assert!((99.9..=100.0).contains(&parts), "{parts}");
        }
        let svg = picture(&cell, &all);
        assert!(
            svg.contains("jpoc: A-BFT of 1.") && svg.contains("DTI: data"),
            "{svg}"
        );
    }
}
