//! A cell: an access point and its clients over many beacon intervals.
//!
//! As in section 3.3.2, clients are uniformly distributed in a disc and always have data to send.
//! They share the data time equally once they have a trained sector. The section leaves some values
//! open, which are chosen here: heights, power, three panels for the access point in the middle
//! (one array covers 120 degrees), and that a client faces the access point within 60 degrees.

mod ap;
mod client;
mod outcome;
mod run;

use std::sync::Arc;

use sumlink_link::Random;

use crate::budget::{Device, Receiver, Sweeps};
use crate::channel::inh::Office;
use crate::channel::{Channel, Pose};
use crate::codebook::Codebook;
use crate::error::{MmwaveError, positive, share, within};
use crate::geometry::{Orientation, Point};
use crate::jpoc::control::Target;
use crate::jpoc::power::EDGE_DB;
use crate::mac::air::Hearing;
use crate::mac::interval::Interval;
use crate::mac::slotted::Slotted;
use crate::mobility::{Dice, Ground, Walk};
use crate::pattern::Pattern;

pub use outcome::{IntervalOutcome, Outcome, Service, StationOutcome, jain};
pub use run::{Runner, run};

/// Causes of blockages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Blockage {
    /// Blocks each client in each beacon interval with that probability: it loses its data of the
    /// interval and must train again (the thesis' parameter).
    Probability(f64),
    /// Blockers of 38.901 model A that move by this distance in a beacon interval; a client that
    /// falls below the slowest data rate must train again.
    ModelA {
        /// Distance in meters.
        meters: f64,
    },
}

/// Access scheme for beam training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Access {
    /// Slots, at full power.
    Slotted(Slotted),
    /// Mini-slots.
    Jpoc(Jpoc),
}

/// Settings of JPOC.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jpoc {
    /// Target SNR of the best sector in dB; `None` disables power control.
    pub gamma_db: Option<f64>,
    /// Margin added to the power of eq. 3.5, in dB.
    pub margin_db: f64,
    /// Power that a client adds after each failed attempt until it is heard, in dB; 0 in the
    /// thesis. Eq. 3.5 assumes a beam with the full array gain: a client without such a beam
    /// towards the access point arrives below gamma, and may have no good-beam at all.
    pub ramp_db: f64,
    /// Target for the number of mini-slots.
    pub target: Target,
}

impl Jpoc {
    /// gamma = 4 dB, failures in 10 % of attempts; the beam edge correction reduces only the
    /// client's gain.
    pub const THESIS: Self = Self {
        gamma_db: Some(4.0),
        margin_db: EDGE_DB,
        ramp_db: 0.0,
        target: Target::THESIS,
    };

    /// The same with our two additions, with which it meets its target: K is learned, and clients
    /// add 3 dB after each failed attempt.
    pub const LEARNED: Self = Self {
        ramp_db: 3.0,
        target: Target::LEARNED,
        ..Self::THESIS
    };
}

/// Names of the schemes in scenario files.
pub const SCHEMES: [&str; 5] = ["80211ad", "80211ay", "80211-thesis", "jpoc-thesis", "jpoc"];

impl Access {
    /// A scheme by its name, one of [`SCHEMES`].
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "80211ad" => Self::Slotted(Slotted::AD),
            "80211ay" => Self::Slotted(Slotted::AY),
            "80211-thesis" => Self::Slotted(Slotted::THESIS),
            "jpoc-thesis" => Self::Jpoc(Jpoc::THESIS),
            "jpoc" => Self::Jpoc(Jpoc::LEARNED),
            _ => return None,
        })
    }
}

/// A cell and the parameters of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct CellConfig {
    /// Clients that want data.
    pub stations: usize,
    /// Clients that only listen, and train every 10 s.
    pub chatty: usize,
    /// Radius of the disc in meters.
    pub radius: f64,
    /// Horizontal distance of the first client from the access point in meters. The others, and the
    /// first if this is `None`, are anywhere in the disc.
    pub first_distance: Option<f64>,
    /// Heights of access point and clients in meters.
    pub heights: (f64, f64),
    /// Type of office.
    pub office: Office,
    /// Receivers at both ends.
    pub receiver: Receiver,
    /// Power of access point and clients in dBm, without antenna gains.
    pub power_dbm: (f64, f64),
    /// Sectors of the clients, 36 or 64, assigned in turn: several values make a mixed cell.
    pub sectors: Vec<usize>,
    /// Measured beams of all clients, in place of computed ones.
    pub pattern: Option<Arc<Pattern>>,
    /// Arrays of the access point.
    pub panels: usize,
    /// Maximum angle between a client's direction and the access point, in degrees.
    pub facing_deg: f64,
    /// Repositions clients until the access point can decode one of their sectors at full power;
    /// others are not part of its cell.
    pub reachable: bool,
    /// Conditions of reception.
    pub hearing: Hearing,
    /// Causes of blockages.
    pub blockage: Blockage,
    /// Movement of clients with data; `None` lets them stand.
    pub walk: Option<Walk>,
    /// Sides in meters of a rectangle on which walking clients drive instead of walking from
    /// waypoint to waypoint (section 3.1).
    pub rectangle: Option<(f64, f64)>,
    /// Whether clients skip A-BFTs that their beacons show to be useless.
    pub skip_useless: bool,
    /// Beacon intervals.
    pub interval: Interval,
    /// Number of beacon intervals.
    pub intervals: usize,
}

impl Default for CellConfig {
    /// The cell of section 3.3.2, with 16 clients, 10 s and a blockage probability of 20 %.
    fn default() -> Self {
        Self {
            stations: 16,
            chatty: 0,
            radius: 25.0,
            first_distance: None,
            heights: (3.0, 1.0),
            office: Office::Mixed,
            receiver: Receiver::THESIS,
            power_dbm: (20.0, 20.0),
            sectors: vec![36],
            pattern: None,
            panels: 3,
            facing_deg: 60.0,
            reachable: true,
            hearing: Hearing::THESIS,
            blockage: Blockage::Probability(0.2),
            walk: None,
            rectangle: None,
            skip_useless: false,
            interval: Interval {
                ap_sectors: 108,
                ..Interval::THESIS
            },
            intervals: 100,
        }
    }
}

impl CellConfig {
    /// The area of the clients.
    fn ground(&self) -> Ground {
        Ground {
            ap: Point::new(0.0, 0.0, self.heights.0),
            radius: self.radius,
            facing: self.facing_deg.to_radians(),
            office: self.office,
        }
    }

    /// Checks that the configuration is valid.
    pub(crate) fn check(&self) -> Result<(), MmwaveError> {
        let count = "from 1 to 1024";
        within(
            "clients of the cell",
            self.stations.saturating_add(self.chatty) as f64,
            (1.0, 1024.0),
            count,
        )?;
        positive("radius of the cell in meters", self.radius)?;
        if let Some(walk) = self.walk {
            walk.checked()?;
        }
        for side in self.rectangle.iter().flat_map(|(a, b)| [*a, *b]) {
            let range = "from 0.1 to 100";
            within("side of a rectangle in meters", side, (0.1, 100.0), range)?;
        }
        if let Some(distance) = self.first_distance {
            let range = "from 0 to the radius of the cell";
            within("distance in meters", distance, (0.0, self.radius), range)?;
        }
        within(
            "beacon intervals",
            self.intervals as f64,
            (1.0, 1e6),
            "from 1 to a million",
        )?;
        within(
            "panels of the access point",
            self.panels as f64,
            (1.0, 8.0),
            "from 1 to 8",
        )?;
        within(
            "facing in degrees",
            self.facing_deg,
            (0.0, 180.0),
            "from 0 to 180",
        )?;
        for power in [self.power_dbm.0, self.power_dbm.1] {
            within("power in dBm", power, (-100.0, 60.0), "from -100 to 60")?;
        }
        for height in [self.heights.0, self.heights.1] {
            within("height in meters", height, (0.0, 100.0), "from 0 to 100")?;
        }
        match self.blockage {
            Blockage::Probability(p) => share("blockage probability", p)?,
            Blockage::ModelA { meters } => {
                within("meters of a blocker", meters, (0.0, 1e6), "0 or more")?
            }
        };
        let known = |sectors: &usize| [36, 64].contains(sectors);
        match self.sectors.iter().find(|sectors| !known(sectors)) {
            Some(other) => within(
                "sectors of a client",
                *other as f64,
                (f64::NAN, f64::NAN),
                "36 or 64",
            ),
            None => within(
                "kinds of clients",
                self.sectors.len() as f64,
                (1.0, 64.0),
                "from 1 to 64",
            ),
        }?;
        Ok(())
    }
}

/// A client with its position and channel.
#[derive(Clone, Debug)]
pub struct Station {
    /// Its end of the link.
    pub device: Device,
    /// Horizontal distance to the access point in meters.
    pub distance: f64,
    /// The channel between them.
    pub channel: Channel,
    /// The random numbers of the channel.
    pub(crate) dice: Dice,
    /// The sweeps of both ends.
    pub sweeps: Sweeps,
}

/// A cell with its clients in place.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The configuration.
    pub config: CellConfig,
    /// The access point.
    pub ap: Device,
    /// Clients with data, then those that only listen.
    pub stations: Vec<Station>,
    /// Noise of the receivers in dBm.
    pub noise_dbm: f64,
}

/// Purposes of random streams.
mod purpose {
    pub(super) const PLACES: u64 = 1;
    pub(super) const CHANNELS: u64 = 2;
    pub(super) const BLOCKAGE: u64 = 3;
    pub(super) const ACCESS: u64 = 4;
    pub(super) const TRIGGERS: u64 = 5;
    pub(super) const WALKS: u64 = 6;
}

impl Cell {
    /// Places the clients. The same seed gives the same positions for every access scheme; an
    /// additional client does not move the others.
    ///
    /// # Errors
    ///
    /// An invalid configuration.
    pub fn draw(config: &CellConfig, seed: u64) -> Result<Self, MmwaveError> {
        config.check()?;
        let noise_dbm = config.receiver.noise_dbm()?;
        let center = config.ground().ap;
        let ap = Device {
            pose: Pose {
                point: center,
                orientation: Orientation::default(),
            },
            codebook: Codebook::thesis(),
            panels: config.panels,
            power_dbm: config.power_dbm.0,
        };
        let (places, channels) = (
            Random::new(seed).split(purpose::PLACES),
            Random::new(seed).split(purpose::CHANNELS),
        );
        let mut stations = Vec::with_capacity(config.stations + config.chatty);
        for index in 0..config.stations + config.chatty {
            let mut random = (places.split(index as u64), channels.split(index as u64));
            let sectors = config.sectors[index % config.sectors.len()];
            let distance = config.first_distance.filter(|_| index == 0);
            let mut station = Station::draw(config, &ap, (sectors, distance), &mut random)?;
            let mut tries = 1;
            while config.reachable && !station.reaches(config.hearing.min_snr_db, noise_dbm) {
                within(
                    "tries to put a client within reach",
                    f64::from(tries),
                    (0.0, MAX_TRIES),
                    "fewer: the cell is too large",
                )?;
                tries += 1;
                station = Station::draw(config, &ap, (sectors, distance), &mut random)?;
            }
            stations.push(station);
        }
        Ok(Self {
            config: config.clone(),
            ap,
            stations,
            noise_dbm,
        })
    }
}

/// Attempts to place a client before the cell is rejected as too large.
const MAX_TRIES: f64 = 200.0;

impl Station {
    /// Places a client uniformly in the disc, or at that distance.
    fn draw(
        config: &CellConfig,
        ap: &Device,
        (sectors, distance): (usize, Option<f64>),
        (place, channel): &mut (Random, Random),
    ) -> Result<Self, MmwaveError> {
        let center = ap.pose.point;
        let anywhere = config.radius * place.next_f64().sqrt();
        let distance = distance.unwrap_or(anywhere);
        let around = core::f64::consts::TAU * place.next_f64();
        let (x, y) = (distance * around.cos(), distance * around.sin());
        let point = Point::new(x, y, config.heights.1);
        let away = (2.0 * place.next_f64() - 1.0) * config.facing_deg.to_radians();
        let codebook = match (&config.pattern, sectors) {
            (Some(pattern), _) => Codebook::Measured(pattern.clone()),
            (None, 64) => Codebook::sixty_four(),
            (None, _) => Codebook::thesis(),
        };
        let device = Device {
            pose: Pose::looking(point, center, away),
            codebook,
            panels: 1,
            power_dbm: config.power_dbm.1,
        };
        let dice = Dice::throw(channel);
        let (found, after) = dice.channel(config.office, center, point)?;
        *channel = after;
        let channel = found;
        let sweeps = Sweeps::new(&channel, ap, &device);
        Ok(Self {
            device,
            distance,
            channel,
            dice,
            sweeps,
        })
    }

    /// Whether the access point decodes its best sector at full power without other transmissions.
    pub fn reaches(&self, min_snr_db: f64, noise_dbm: f64) -> bool {
        self.device.power_dbm + self.sweeps.best_client().1 - noise_dbm >= min_snr_db
    }
}

#[cfg(test)]
mod tests;
