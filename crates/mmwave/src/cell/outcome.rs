//! Results of a run of a cell.

use crate::mac::Transmission;
use crate::mac::interval::Parts;

/// A client's result of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StationOutcome {
    /// Allocated data time in seconds: x_c of the thesis' fairness.
    pub allocated_s: f64,
    /// Data time without blockage, in seconds.
    pub used_s: f64,
    /// Megabits carried at the rate of its sectors in that time.
    pub megabits: f64,
    /// A-BFTs in which it contended or sat out.
    pub attempts: u32,
    /// Attempts after which it still had no trained sector.
    pub failures: u32,
    /// A-BFTs that it skipped as useless.
    pub skipped: u32,
    /// The beacon interval in which it was first trained.
    pub first: Option<usize>,
    /// Beacon intervals without data.
    pub gone: usize,
    /// Largest number of consecutive beacon intervals without data.
    pub longest_gap: usize,
}

/// A client's service in a beacon interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Service {
    /// No trained sector.
    #[default]
    Untrained,
    /// It was blocked: it lost its data and its sector.
    Blocked,
    /// It had data time.
    Data {
        /// SNR of its data in dB.
        snr_db: f64,
        /// The client's share of the data time, in seconds.
        part_s: f64,
    },
}

/// Results of a beacon interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IntervalOutcome {
    /// Contending stations, by index.
    pub contenders: Vec<usize>,
    /// Stations among them that were trained.
    pub trained: Vec<usize>,
    /// Mini-slots of the A-BFT.
    pub mini_slots: u32,
    /// JPOC's estimate of the number of contenders.
    pub estimate: Option<f64>,
    /// Number of stations with data time.
    pub sharing: usize,
    /// Division of the interval.
    pub parts: Parts,
    /// Transmissions; contenders are indices of stations.
    pub sent: Vec<Transmission>,
}

/// Results of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The clients with data.
    pub stations: Vec<StationOutcome>,
    /// All beacon intervals.
    pub intervals: Vec<IntervalOutcome>,
}

impl Outcome {
    /// Jain's index of the allocated data times (section 3.3.2).
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

    /// Mbit/s of all clients together, with `interval_s` seconds per beacon interval.
    pub fn goodput_mbps(&self, interval_s: f64) -> f64 {
        let sum: f64 = self.stations.iter().map(|one| one.megabits).sum();
        sum / (interval_s * self.intervals.len().max(1) as f64)
    }
}

/// Jain's fairness index, (sum x)^2 / (n sum x^2): 1 if all are equal, including all zero, and 1/n
/// if one has everything.
pub fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = shares
        .iter()
        .fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    if squares == 0.0 {
        return 1.0;
    }
    sum * sum / (shares.len() as f64 * squares)
}
