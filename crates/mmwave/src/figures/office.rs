//! Two clients in an office: figures 3.1(b), 3.1(c), 3.3, 3.5 and 3.6.
//!
//! The access point is in a corner. Cells are sqrt 2 m wide, so that the center of cell (1,1) is 1
//! m away from it and the center of cell (3,3) 5 m, the two distances of section 3.1. The section
//! gives no number of cells: 6 by 4 here.

use sumlink_link::Random;

use super::Spread;
use crate::budget::{Device, Receiver, Sweeps, good_beams};
use crate::channel::{Channel, Pose, inh, tgad};
use crate::codebook::Codebook;
use crate::error::{MmwaveError, within};
use crate::geometry::Point;
use crate::jpoc::power::{Announcement, EDGE_DB};
use crate::mac::air::Hearing;
use crate::units::CENTRE_GHZ;
use sumlink_plot::figures::{Labels, Series, lines, maps};

/// Columns and rows of cells.
pub const CELLS: (usize, usize) = (6, 4);

/// Meters from cell to cell.
const PITCH: f64 = core::f64::consts::SQRT_2;

/// Meters above the floor: routers and laptops on tables.
const HEIGHT: f64 = 1.0;

/// Channel model of the office.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// 38.901 indoor, mixed office.
    Inh,
    /// The conference room of 802.11ad, with the line-of-sight probability of the mixed office.
    Tgad,
}

/// A measurement in the office.
#[derive(Clone, Debug, PartialEq)]
pub struct Office {
    /// The channel.
    pub room: Room,
    /// Sectors of the clients: 36 or 64.
    pub sectors: usize,
    /// Target SNR of power control for the best sector in dB; `None` means full power.
    pub gamma_db: Option<f64>,
    /// Power of clients and access point in dBm.
    pub power_dbm: f64,
    /// Conditions of reception.
    pub hearing: Hearing,
    /// Positions and orientations drawn in each cell.
    pub draws: usize,
    /// Seed of all random numbers.
    pub seed: u64,
}

impl Office {
    /// 38.901, 36 sectors, no power control, 50 draws. The power of 0 dBm is our choice: without
    /// power control, clients then spread over all numbers of good-beams, as in figure 3.5(a); at
    /// 10 dBm two fifths have 31 to 36.
    pub const THESIS: Self = Self {
        room: Room::Inh,
        sectors: 36,
        gamma_db: None,
        power_dbm: 0.0,
        hearing: Hearing::THESIS,
        draws: 50,
        seed: 1,
    };

    /// Center of a cell; columns and rows count from 1.
    ///
    /// # Errors
    ///
    /// A cell outside of the office.
    pub fn middle((column, row): (usize, usize)) -> Result<Point, MmwaveError> {
        within(
            "column of the office",
            column as f64,
            (1.0, CELLS.0 as f64),
            "from 1 to 6",
        )?;
        within(
            "row of the office",
            row as f64,
            (1.0, CELLS.1 as f64),
            "from 1 to 4",
        )?;
        let at = |cell: usize| (cell as f64 - 0.5) * PITCH;
        Ok(Point::new(at(column), at(row), HEIGHT))
    }

    fn ap(&self) -> Device {
        let corner = Point::new(0.0, 0.0, HEIGHT);
        let middle = Point::new(1.0, 1.0, HEIGHT);
        Device {
            pose: Pose::looking(corner, middle, 0.0),
            codebook: Codebook::thesis(),
            panels: 1,
            power_dbm: self.power_dbm,
        }
    }

    /// SNRs in dB of a client's sectors at the access point. `los` forces or prevents a line of
    /// sight; `None` draws it.
    ///
    /// # Errors
    ///
    /// An invalid cell, number of sectors or gamma.
    pub fn snr(
        &self,
        cell: (usize, usize),
        draw: usize,
        los: Option<bool>,
    ) -> Result<Vec<f64>, MmwaveError> {
        let place = (cell.1 * CELLS.0 + cell.0) as u64;
        let mut random = Random::new(self.seed).split(place).split(draw as u64);
        let middle = Self::middle(cell)?;
        let ap = self.ap();
        // Anywhere in the middle half of the cell, facing the access point within 60 degrees.
        let mut near = |at: f64| at + PITCH * 0.5 * (random.next_f64() - 0.5);
        let point = Point::new(near(middle.x), near(middle.y), HEIGHT);
        let away = (2.0 * random.next_f64() - 1.0) * 60f64.to_radians();
        let codebook = match self.sectors {
            36 => Codebook::thesis(),
            64 => Codebook::sixty_four(),
            other => {
                within(
                    "sectors of a client",
                    other as f64,
                    (f64::NAN, f64::NAN),
                    "36 or 64",
                )?;
                return Ok(Vec::new());
            }
        };
        let client = Device {
            pose: Pose::looking(point, ap.pose.point, away),
            codebook,
            panels: 1,
            power_dbm: self.power_dbm,
        };
        let channel = self.channel(&ap, &client, los, &mut random)?;
        let sweeps = Sweeps::new(&channel, &ap, &client);
        let noise = Receiver::THESIS.noise_dbm()?;
        let power = match self.gamma_db {
            None => self.power_dbm,
            Some(gamma) => {
                let announced =
                    Announcement::new(gamma, noise, ap.power_dbm, ap.codebook.gain_db())?;
                let heard = sweeps.best_ap().1 + ap.power_dbm;
                announced.client_dbm(heard, client.codebook.gain_db(), EDGE_DB, client.power_dbm)
            }
        };
        Ok(sweeps.client_snr(power, noise))
    }

    fn channel(
        &self,
        ap: &Device,
        client: &Device,
        los: Option<bool>,
        random: &mut Random,
    ) -> Result<Channel, MmwaveError> {
        let (from, to) = (ap.pose.point, client.pose.point);
        let chance = inh::los_probability(inh::Office::Mixed, from.distance_2d(to))?;
        let by_chance = random.next_f64() < chance;
        let los = los.unwrap_or(by_chance);
        match self.room {
            Room::Inh => inh::draw_with(los, from, to, CENTRE_GHZ, random),
            Room::Tgad => tgad::draw(los, from, to, CENTRE_GHZ, random),
        }
    }

    /// Figures 3.1(c), 3.5(b), (c), 3.6: the competition index of a client in every cell against
    /// one in cell (1,1) with a line of sight, row by row; the median of all draws.
    ///
    /// # Errors
    ///
    /// Those of [`snr`](Self::snr).
    pub fn heat_map(&self) -> Result<Vec<Vec<f64>>, MmwaveError> {
        let mut rows = Vec::with_capacity(CELLS.1);
        for row in 1..=CELLS.1 {
            let mut cells = Vec::with_capacity(CELLS.0);
            for column in 1..=CELLS.0 {
                let mut all = Vec::with_capacity(self.draws);
                for draw in 0..self.draws {
                    let near = self.snr((1, 1), draw, Some(true))?;
                    // In the near client's own cell, another client, also with a line of sight.
                    let (other, los) = if (column, row) == (1, 1) {
                        (draw + self.draws, Some(true))
                    } else {
                        (draw, None)
                    };
                    let other = self.snr((column, row), other, los)?;
                    all.push(competition(&other, &near, self.hearing.capture_db));
                }
                cells.push(Spread::of(all).median);
            }
            rows.push(cells);
        }
        Ok(rows)
    }

    /// Figures 3.1(b) and 3.3: SNRs in dB of the sectors of the near client, in cell (1,1) with
    /// line of sight, and of the far one, in cell (3,3) without.
    ///
    /// # Errors
    ///
    /// Those of [`snr`](Self::snr).
    pub fn two_clients(&self) -> Result<[Vec<f64>; 2], MmwaveError> {
        Ok([
            self.snr((1, 1), 0, Some(true))?,
            self.snr((3, 3), 0, Some(false))?,
        ])
    }

    /// Figure 3.5(a): numbers of good-beams of clients in all cells.
    ///
    /// # Errors
    ///
    /// Those of [`snr`](Self::snr).
    pub fn good_beams(&self) -> Result<Vec<usize>, MmwaveError> {
        let mut all = Vec::new();
        for row in 1..=CELLS.1 {
            for column in 1..=CELLS.0 {
                for draw in 0..self.draws {
                    let snr = self.snr((column, row), draw, None)?;
                    all.push(good_beams(&snr, self.hearing.min_snr_db));
                }
            }
        }
        Ok(all)
    }
}

/// The competition index of section 3.1: the number of sectors in which the other client is at
/// least `capture_db` stronger than the near one, over the number in which the near one is stronger
/// by as much. Sectors are compared by number. Only the difference counts, as in the thesis, even
/// if the access point could decode neither.
///
/// If the near client is stronger in none, it counts as one; if neither is stronger, the index is
/// 1.
pub fn competition(other: &[f64], near: &[f64], capture_db: f64) -> f64 {
    let stronger = |all: &[f64], rest: &[f64]| {
        let pairs = all.iter().zip(rest);
        pairs
            .filter(|(one, rest)| *one - *rest >= capture_db)
            .count()
    };
    match (stronger(other, near), stronger(near, other)) {
        (0, 0) => 1.0,
        (others, nears) => others as f64 / nears.max(1) as f64,
    }
}

/// Shares of clients by their number of good-beams, in the six brackets of figure 3.5(a) (1-6,
/// 7-12, ... 31-36 of 36), after the share of those with none.
pub fn brackets(good_beams: &[usize], sectors: usize) -> (f64, [f64; 6]) {
    let width = sectors.div_ceil(6).max(1);
    let count = good_beams.len().max(1) as f64;
    let mut shares = [0.0; 6];
    let mut none = 0.0;
    for k in good_beams {
        match k.checked_sub(1) {
            None => none += 1.0 / count,
            Some(k) => shares[(k / width).min(5)] += 1.0 / count,
        }
    }
    (none, shares)
}

/// Named heat maps as a picture.
pub fn heat_map_picture(panels: &[(String, Vec<Vec<f64>>)]) -> String {
    maps(
        "Competition index against a client near the access point",
        [
            "0: stronger in no sector",
            "1: stronger in as many sectors as that one",
        ],
        panels,
        &[
            "Each part of the office is 1.4 m wide; its number is the median over places and \
             orientations of a client there.",
            "Grey square: the access point. The near client is in the part beside it, 1 m away.",
        ],
    )
}

/// Shares of clients by their good-beams as a picture, with a named curve for each power control.
pub fn good_beams_picture(all: &[(String, Vec<usize>)]) -> String {
    let series = all.iter().map(|(name, beams)| {
        let values = beams.iter().map(|k| *k as f64);
        Series::cumulative(name.as_str(), values.collect())
    });
    let labels = Labels {
        title: "Good-beams of clients, by power control",
        x: "good-beams: sectors of a client that the access point hears",
        y: "share of clients with at most this number",
    };
    lines(&labels, &series.collect::<Vec<_>>(), (0.0, 1.0))
}

#[cfg(test)]
mod tests;
