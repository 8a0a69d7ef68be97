//! Many clients in a cell: figures 3.2(a) and 3.7, and what they leave out: how good the estimate is, whether the target
//! is met, and how long a client waits for its first sector.

use core::time::Duration;

use sumlink_link::Random;

use super::Spread;
use crate::cell::{Access, Blockage, Cell, CellConfig, Jpoc, Outcome, run};
use crate::error::{MmwaveError, share};
use crate::mac::slotted::Slotted;
use crate::mac::trigger::{Behaviour, Trigger};

/// Runs of one scheme over seeds 1, 2, ... `seeds`.
///
/// # Errors
///
/// What [`Cell::draw`] and [`run`] refuse.
pub fn outcomes(
    config: &CellConfig,
    access: &Access,
    seeds: u64,
) -> Result<Vec<Outcome>, MmwaveError> {
    outcomes_in(&cells(config, seeds)?, access)
}

/// Cells of seeds 1, 2, ... `seeds`.
fn cells(config: &CellConfig, seeds: u64) -> Result<Vec<Cell>, MmwaveError> {
    (1..=seeds).map(|seed| Cell::draw(config, seed)).collect()
}

fn outcomes_in(cells: &[Cell], access: &Access) -> Result<Vec<Outcome>, MmwaveError> {
    let seeds = 1..;
    cells
        .iter()
        .zip(seeds)
        .map(|(cell, seed)| run(cell, access, seed))
        .collect()
}

/// A point of figure 3.7(a).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JainPoint {
    /// Blockage probability.
    pub blockage: f64,
    /// Jain's index over seeds.
    pub jain: Spread,
    /// Share of attempts that failed, over all seeds.
    pub failure: f64,
    /// Mbit/s of all clients together, mean over seeds.
    pub goodput_mbps: f64,
}

/// Figure 3.7(a): fairness against blockage probability.
///
/// # Errors
///
/// As [`outcomes`]; a probability that is none.
pub fn jain(
    config: &CellConfig,
    access: &Access,
    blockages: &[f64],
    seeds: u64,
) -> Result<Vec<JainPoint>, MmwaveError> {
    let mut cells = cells(config, seeds)?;
    let point = |blockage: &f64| {
        for cell in &mut cells {
            cell.config.blockage = Blockage::Probability(share("blockage probability", *blockage)?);
        }
        let all = outcomes_in(&cells, access)?;
        let seconds = config.interval.length_us * 1e-6;
        Ok(JainPoint {
            blockage: *blockage,
            jain: Spread::of(all.iter().map(Outcome::jain).collect()),
            failure: failure(&all),
            goodput_mbps: Spread::of(all.iter().map(|one| one.goodput_mbps(seconds)).collect())
                .mean,
        })
    };
    blockages.iter().map(point).collect()
}

/// Share of attempts that failed, over several runs.
pub fn failure(all: &[Outcome]) -> f64 {
    let sum = |of: fn(&crate::cell::StationOutcome) -> u32| -> u64 {
        let stations = all.iter().flat_map(|one| &one.stations);
        stations.map(|station| u64::from(of(station))).sum()
    };
    let attempts = sum(|one| one.attempts);
    sum(|one| one.failures) as f64 / attempts.max(1) as f64
}

/// Most slots that [`least_slots`] tries.
pub const MOST_SLOTS: u32 = 1024;

/// What a beacon interval has beside a very long A-BFT, in microseconds.
const HEADER_US: f64 = 20_000.0;

/// The least number of slots with which at most that share of attempts fails; none if [`MOST_SLOTS`] are too few.
///
/// It is found by halving, as if more slots never failed more often: with few seeds they sometimes do, by chance.
///
/// # Errors
///
/// As [`outcomes`]; a target that is no probability.
pub fn least_slots(
    config: &CellConfig,
    rules: Slotted,
    target: f64,
    seeds: u64,
) -> Result<Option<u32>, MmwaveError> {
    let target = share("targeted failure probability", target)?;
    let mut cells = cells(config, seeds)?;
    let mut fits = |slots: u32| -> Result<bool, MmwaveError> {
        // Very many slots do not fit the interval, which is made as long as they need.
        let rules = rules.with_slots(slots);
        let length = config.interval.length_us;
        for cell in &mut cells {
            cell.config.interval.length_us = length.max(rules.duration_us() + HEADER_US);
        }
        let all = outcomes_in(&cells, &Access::Slotted(rules))?;
        Ok(failure(&all) <= target)
    };
    let mut enough = 1;
    while !fits(enough)? {
        enough *= 2;
        if enough > MOST_SLOTS {
            return Ok(None);
        }
    }
    let mut few = enough / 2;
    while enough - few > 1 {
        let middle = few + (enough - few) / 2;
        if fits(middle)? {
            enough = middle;
        } else {
            few = middle;
        }
    }
    Ok(Some(enough))
}

/// A point of figure 3.7(b).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverheadPoint {
    /// Clients.
    pub stations: usize,
    /// Mini-slots of the slotted scheme; none if no number of slots meets the target.
    pub slotted: Option<u32>,
    /// Mean number of mini-slots of JPOC.
    pub jpoc: f64,
    /// Share of attempts that failed with JPOC.
    pub jpoc_failure: f64,
}

impl OverheadPoint {
    /// Mini-slots of the slotted scheme over those of JPOC.
    pub fn ratio(&self) -> Option<f64> {
        self.slotted.map(|slotted| f64::from(slotted) / self.jpoc)
    }
}

/// Figure 3.7(b): mini-slots of a slotted scheme that meets a target, and of JPOC that aims at it.
///
/// # Errors
///
/// As [`outcomes`].
pub fn overhead(
    config: &CellConfig,
    rules: Slotted,
    jpoc: Jpoc,
    stations: &[usize],
    seeds: u64,
) -> Result<Vec<OverheadPoint>, MmwaveError> {
    let point = |stations: &usize| {
        let config = CellConfig {
            stations: *stations,
            ..config.clone()
        };
        let all = outcomes(&config, &Access::Jpoc(jpoc), seeds)?;
        let slots = least_slots(&config, rules, jpoc.target.failure, seeds)?;
        Ok(OverheadPoint {
            stations: *stations,
            slotted: slots.map(|slots| slots * rules.frames_per_slot),
            jpoc: all.iter().map(Outcome::mean_mini_slots).sum::<f64>() / seeds.max(1) as f64,
            jpoc_failure: failure(&all),
        })
    };
    stations.iter().map(point).collect()
}

/// How far JPOC's estimate is from the number of contenders: the estimate minus the truth, for each number of contenders.
pub fn estimates(all: &[Outcome]) -> Vec<(usize, Spread)> {
    let mut by_number: std::collections::BTreeMap<usize, Vec<f64>> = Default::default();
    for interval in all.iter().flat_map(|one| &one.intervals) {
        if let Some(estimate) = interval.estimate {
            let contenders = interval.contenders.len();
            by_number
                .entry(contenders)
                .or_default()
                .push(estimate - contenders as f64);
        }
    }
    by_number
        .into_iter()
        .map(|(number, all)| (number, Spread::of(all)))
        .collect()
}

/// Beacon intervals until clients are first trained, ascending; those that never are count as all intervals.
pub fn first_association(all: &[Outcome]) -> Vec<usize> {
    let firsts = all.iter().flat_map(|one| {
        one.stations
            .iter()
            .map(|station| station.first.map_or(one.intervals.len(), |first| first + 1))
    });
    let mut firsts: Vec<usize> = firsts.collect();
    firsts.sort_unstable();
    firsts
}

/// Figure 3.2(a), as far as it is a matter of timers: A-BFTs within ten minutes in which a client takes part that is always
/// heard. `poor` is the probability that its link is below the threshold in a beacon interval.
///
/// # Errors
///
/// A probability that is none.
pub fn participation(
    behaviour: Behaviour,
    poor: f64,
    seed: u64,
) -> Result<Vec<Duration>, MmwaveError> {
    let poor = share("probability of a poor link", poor)?;
    let mut random = Random::new(seed);
    let mut trigger = Trigger::new(behaviour, &random.split(1));
    let mut times = Vec::new();
    for interval in 0..6000 {
        let now = Duration::from_millis(100 * interval);
        if trigger.wants(now, random.next_f64() < poor) {
            trigger.done(now);
            times.push(now);
        }
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(stations: usize) -> CellConfig {
        CellConfig {
            stations,
            intervals: 30,
            ..CellConfig::default()
        }
    }

    #[test]
    fn the_thesis_baseline_loses_fairness_by_blockage() {
        let thesis = Access::Slotted(Slotted::THESIS);
        let points = jain(&short(16), &thesis, &[0.05, 0.5], 6).unwrap();
        assert!(points[0].jain.mean > points[1].jain.mean);
        assert!(points[0].failure < points[1].failure);
        assert!(points[0].goodput_mbps > 0.0);
        assert!(jain(&short(2), &thesis, &[1.5], 1).is_err());
    }

    #[test]
    fn the_least_slots_meet_the_target() {
        let config = short(6);
        let slots = least_slots(&config, Slotted::THESIS, 0.1, 2)
            .unwrap()
            .unwrap();
        let rate = |slots| {
            failure(
                &outcomes(
                    &config,
                    &Access::Slotted(Slotted::THESIS.with_slots(slots)),
                    2,
                )
                .unwrap(),
            )
        };
        assert!(slots > 1 && rate(slots) <= 0.1, "{slots}");
        // Nothing that is not heard at all can be helped by slots.
        let deaf = CellConfig {
            stations: 2,
            power_dbm: (20.0, -100.0),
            reachable: false,
            intervals: 2,
            ..CellConfig::default()
        };
        assert_eq!(least_slots(&deaf, Slotted::THESIS, 0.1, 1).unwrap(), None);
    }

    #[test]
    fn jpoc_needs_fewer_mini_slots() {
        let point = overhead(&short(12), Slotted::THESIS, Jpoc::THESIS, &[12], 2).unwrap()[0];
        assert!(point.ratio().is_some_and(|ratio| ratio > 1.0), "{point:?}");
        assert!(point.jpoc >= 36.0);
    }

    #[test]
    fn estimates_and_first_associations_come_from_the_runs() {
        let all = outcomes(&short(8), &Access::Jpoc(Jpoc::THESIS), 3).unwrap();
        let estimates = estimates(&all);
        assert!(estimates.iter().any(|(number, _)| *number == 8));
        let firsts = first_association(&all);
        assert_eq!(firsts.len(), 24);
        assert!(firsts.is_sorted() && firsts[0] == 1);
    }

    #[test]
    fn who_moves_or_listens_comes_more_often() {
        let count = |behaviour, poor| participation(behaviour, poor, 1).unwrap().len();
        assert_eq!(count(Behaviour::Stationary, 0.0), 10);
        assert_eq!(count(Behaviour::Disconnected, 0.0), 60);
        assert!(count(Behaviour::Stationary, 0.01) > 40);
        assert!(participation(Behaviour::Stationary, -0.1, 1).is_err());
    }
}
