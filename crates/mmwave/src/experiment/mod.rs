//! Experiments: one parameter varied over cells and access schemes, point by point, with tables and
//! pictures.
//!
//! Points are independent: a caller may compute them in any order, and in parallel
//! ([`Experiment::tasks`], [`Experiment::point`]).

mod pictures;
mod table;

use std::collections::BTreeMap;

use crate::cell::{Access, CellConfig, Jpoc};
use crate::error::MmwaveError;
use crate::figures::access::{self, Seeds};
use crate::figures::overhead;
use crate::jpoc::control::Target;

pub use pictures::series;
pub use table::{Point, Value, csv, rounded};

/// One parameter varied over cells and access schemes.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// Its name.
    pub name: String,
    /// The varied parameter and its values.
    pub kind: Kind,
    /// Access schemes, of [`SCHEMES`](crate::cell::SCHEMES).
    pub schemes: Vec<&'static str>,
    /// Settings of schemes that differ from the defaults of their names.
    pub rules: BTreeMap<&'static str, Access>,
    /// The seeds.
    pub seeds: Seeds,
    /// The cell, except for the varied parameter.
    pub cell: CellConfig,
}

/// The varied parameter and its values.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Fairness of data time against these blockage probabilities (figure 3.7a).
    Jain(Vec<f64>),
    /// Number of mini-slots with which at most that share of attempts fails, against these numbers
    /// of stations (figure 3.7b).
    Overhead {
        /// Numbers of stations.
        stations: Vec<usize>,
        /// The share.
        failure: f64,
    },
    /// Fairness, failures and goodput for these numbers of stations.
    Stations(Vec<usize>),
    /// The same for clients that walk at these speeds in m/s; 0 stands.
    Mobility(Vec<f64>),
    /// Failures and mini-slots of JPOC with these fixed numbers of good-beams (K).
    GoodBeams(Vec<f64>),
    /// The same with these targets of power control in dB (gamma).
    Gamma(Vec<f64>),
}

/// One scheme at one value of the varied parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Task {
    /// The scheme.
    pub scheme: &'static str,
    /// The value.
    pub value: f64,
}

impl Kind {
    /// Its name in files.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Jain(_) => "jain",
            Self::Overhead { .. } => "overhead",
            Self::Stations(_) => "stations",
            Self::Mobility(_) => "mobility",
            Self::GoodBeams(_) => "good-beams",
            Self::Gamma(_) => "gamma",
        }
    }

    /// The name of the varied parameter in points.
    fn varied(&self) -> &'static str {
        match self {
            Self::Jain(_) => "blockage",
            Self::Overhead { .. } | Self::Stations(_) => "stations",
            Self::Mobility(_) => "speed_mps",
            Self::GoodBeams(_) => "good_beams",
            Self::Gamma(_) => "gamma_db",
        }
    }

    /// All values of the varied parameter.
    fn values(&self) -> Vec<f64> {
        match self {
            Self::Jain(all) | Self::Mobility(all) | Self::GoodBeams(all) | Self::Gamma(all) => {
                all.clone()
            }
            Self::Overhead { stations, .. } | Self::Stations(stations) => {
                stations.iter().map(|n| *n as f64).collect()
            }
        }
    }
}

impl Experiment {
    /// All points: all values of a scheme, then those of the next one.
    pub fn tasks(&self) -> Vec<Task> {
        let values = self.kind.values();
        let of = |scheme: &&'static str| {
            let scheme = *scheme;
            let task = move |value: &f64| Task {
                scheme,
                value: *value,
            };
            values.iter().map(task).collect::<Vec<_>>()
        };
        self.schemes.iter().flat_map(of).collect()
    }

    /// The settings of a scheme.
    fn access(&self, scheme: &str) -> Access {
        let own = self.rules.get(scheme).copied();
        let named = own.or_else(|| Access::named(scheme));
        named.unwrap_or(Access::Jpoc(Jpoc::THESIS))
    }

    /// Computes one point, over all seeds.
    ///
    /// # Errors
    ///
    /// An invalid cell or value.
    pub fn point(&self, task: &Task) -> Result<Point, MmwaveError> {
        let access = self.access(task.scheme);
        let mut point = Point::new();
        point.text("scheme", task.scheme);
        match &self.kind {
            Kind::Jain(_) => {
                let seeds = self.seeds.clone();
                let found = access::jain(&self.cell, &access, task.value, seeds)?;
                point.number(self.kind.varied(), task.value);
                point.number("jain", found.jain.mean);
                point.number("jain_10", found.jain.low);
                point.number("jain_90", found.jain.high);
                point.number("failure", found.failure);
                point.number("goodput_mbps", found.goodput_mbps);
            }
            Kind::Overhead { failure, .. } => {
                let cell = CellConfig {
                    stations: task.value as usize,
                    ..self.cell.clone()
                };
                let found = overhead::fewest(&cell, &access, *failure, self.seeds.clone())?;
                point.count(self.kind.varied(), cell.stations as u64);
                point.maybe("mini_slots", found.map(|one| one.mini_slots));
                point.maybe("failure", found.map(|one| one.failure));
                point.maybe("good_beams", found.and_then(|one| one.good_beams));
            }
            Kind::GoodBeams(_) | Kind::Gamma(_) => {
                let (seeds, stations) = (self.seeds.clone(), self.cell.stations);
                let access = self.swept(task.scheme, task.value);
                let found = access::stations(&self.cell, &access, stations, seeds)?;
                point.number(self.kind.varied(), task.value);
                point.number("jain", found.jain.mean);
                point.number("failure", found.failure);
                point.number("mini_slots", found.mini_slots);
                point.number("goodput_mbps", found.goodput_mbps);
            }
            Kind::Stations(_) => {
                let (seeds, stations) = (self.seeds.clone(), task.value as usize);
                let found = access::stations(&self.cell, &access, stations, seeds)?;
                point.count(self.kind.varied(), stations as u64);
                point.number("jain", found.jain.mean);
                point.number("failure", found.failure);
                point.number("mini_slots", found.mini_slots);
                point.number("first_s", found.first_s.median);
                point.number("first_90_s", found.first_s.high);
                point.number("gone", found.gone);
                point.number("goodput_mbps", found.goodput_mbps);
            }
            Kind::Mobility(_) => {
                let (seeds, speed) = (self.seeds.clone(), task.value);
                let found = access::mobility(&self.cell, &access, speed, seeds)?;
                point.number(self.kind.varied(), speed);
                point.number("jain", found.jain.mean);
                point.number("attempts_per_minute", found.attempts_per_minute);
                point.number("failure", found.failure);
                point.number("gone", found.gone);
                point.number("longest_gap_s", found.longest_gap_s.median);
                point.number("longest_gap_90_s", found.longest_gap_s.high);
                point.number("mbps", found.mbps);
            }
        }
        Ok(point)
    }

    /// JPOC with another fixed K or another gamma, in a sweep over one of them. Slotted schemes
    /// have neither and stay as they are, for comparison.
    fn swept(&self, scheme: &str, value: f64) -> Access {
        match (&self.kind, self.access(scheme)) {
            (Kind::GoodBeams(_), Access::Jpoc(jpoc)) => {
                let target = Target {
                    good_beams: value,
                    learning: 0.0,
                    ..jpoc.target
                };
                Access::Jpoc(Jpoc { target, ..jpoc })
            }
            (Kind::Gamma(_), Access::Jpoc(jpoc)) => Access::Jpoc(Jpoc {
                gamma_db: Some(value),
                ..jpoc
            }),
            (_, other) => other,
        }
    }
}

#[cfg(test)]
mod tests;
