//! What a run of a cell gives.

use crate::mac::Transmission;
use crate::mac::interval::Parts;

/// A client at the end of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StationOutcome {
    /// Data time it was given, in seconds: x_c of the thesis' fairness.
    pub allocated_s: f64,
    /// Data time in which it was not blocked, in seconds.
    pub used_s: f64,
    /// Megabits that the rate of its sectors carries in that time.
    pub megabits: f64,
    /// A-BFTs in which it took part or sat out.
    pub attempts: u32,
    /// Those after which it still had no trained sector.
    pub failures: u32,
    /// The beacon interval in which it was first trained.
    pub first: Option<usize>,
    /// Beacon intervals without data.
    pub gone: usize,
    /// Most beacon intervals in a row without data.
    pub longest_gap: usize,
}

/// What a client got in a beacon interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Service {
    /// It has no trained sector.
    #[default]
    Untrained,
    /// It had one and was blocked: its data is lost, and so is the sector.
    Blocked,
    /// Data time.
    Data {
        /// SNR of its data in dB.
        snr_db: f64,
        /// Its part of the data time, in seconds.
        part_s: f64,
    },
}

/// A beacon interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IntervalOutcome {
    /// Who contended, by the index of the station.
    pub contenders: Vec<usize>,
    /// Who of them was trained.
    pub trained: Vec<usize>,
    /// Mini-slots of the A-BFT.
    pub mini_slots: u32,
    /// What JPOC's access point took the number of contenders to be.
    pub estimate: Option<f64>,
    /// Stations that were given data time.
    pub sharing: usize,
    /// How the interval was divided.
    pub parts: Parts,
    /// Who sent what; contenders are indices of stations.
    pub sent: Vec<Transmission>,
}

/// A run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The clients that want data.
    pub stations: Vec<StationOutcome>,
    /// All beacon intervals.
    pub intervals: Vec<IntervalOutcome>,
}

impl Outcome {
    /// Jain's index of the data times that clients were given (section 3.3.2).
    pub fn jain(&self) -> f64 {
        let times: Vec<f64> = self.stations.iter().map(|one| one.allocated_s).collect();
        jain(&times)
    }

    /// Share of attempts after which a client still had no trained sector; 0 without attempts.
    pub fn failure_rate(&self) -> f64 {
        let sum = |of: fn(&StationOutcome) -> u32| -> u32 { self.stations.iter().map(of).sum() };
        let attempts = sum(|one| one.attempts);
        if attempts == 0 {
            return 0.0;
        }
        f64::from(sum(|one| one.failures)) / f64::from(attempts)
    }

    /// Mean number of mini-slots of an A-BFT.
    pub fn mean_mini_slots(&self) -> f64 {
        let sum: f64 = self
            .intervals
            .iter()
            .map(|one| f64::from(one.mini_slots))
            .sum();
        sum / self.intervals.len().max(1) as f64
    }

    /// Mbit/s of all clients together, over so many seconds of a beacon interval.
    pub fn goodput_mbps(&self, interval_s: f64) -> f64 {
        let sum: f64 = self.stations.iter().map(|one| one.megabits).sum();
        sum / (interval_s * self.intervals.len().max(1) as f64)
    }
}

/// Jain's fairness index, (sum x)^2 / (n sum x^2): 1 where all have the same, also where all have nothing, and 1/n where
/// one has it all.
pub fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = shares
        .iter()
        .fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    if squares == 0.0 {
        return 1.0;
    }
    sum * sum / (shares.len() as f64 * squares)
}
