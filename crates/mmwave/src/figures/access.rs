//! Many clients in a cell: figure 3.7(a), and topics that they omit: the error of the
//! estimate, whether the target is met, and the time until a client has its first sector.

use core::ops::RangeInclusive;

use super::Spread;
use crate::cell::{Access, Blockage, Cell, CellConfig, Outcome, StationOutcome, run};
use crate::error::{MmwaveError, share};
use crate::mobility::Walk;

/// The seeds of a figure.
pub type Seeds = RangeInclusive<u64>;

/// Runs one scheme over several seeds.
///
/// # Errors
///
/// Those of [`Cell::draw`] and [`run`].
pub fn outcomes(
    config: &CellConfig,
    access: &Access,
    seeds: Seeds,
) -> Result<Vec<Outcome>, MmwaveError> {
    outcomes_in(&cells(config, seeds)?, access)
}

/// Cells, each with its seed.
pub(super) fn cells(config: &CellConfig, seeds: Seeds) -> Result<Vec<(u64, Cell)>, MmwaveError> {
    let draw = |seed| Ok((seed, Cell::draw(config, seed)?));
    seeds.map(draw).collect()
}

pub(super) fn outcomes_in(
    cells: &[(u64, Cell)],
    access: &Access,
) -> Result<Vec<Outcome>, MmwaveError> {
    let runs = cells.iter().map(|(seed, cell)| run(cell, access, *seed));
    runs.collect()
}

/// A point of figure 3.7(a).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JainPoint {
    /// Blockage probability.
    pub blockage: f64,
    /// Jain's index over seeds.
    pub jain: Spread,
    /// Share of failed attempts, over all seeds.
    pub failure: f64,
    /// Mbit/s of all clients together, mean over seeds.
    pub goodput_mbps: f64,
}

/// A point of figure 3.7(a): fairness at a blockage probability.
///
/// # Errors
///
/// Those of [`outcomes`]; an invalid probability.
pub fn jain(
    config: &CellConfig,
    access: &Access,
    blockage: f64,
    seeds: Seeds,
) -> Result<JainPoint, MmwaveError> {
    let blockage = share("blockage probability", blockage)?;
    let config = CellConfig {
        blockage: Blockage::Probability(blockage),
        ..config.clone()
    };
    let all = outcomes(&config, access, seeds)?;
    let seconds = config.interval.length_us * 1e-6;
    let goodput = all.iter().map(|one| one.goodput_mbps(seconds));
    Ok(JainPoint {
        blockage,
        jain: Spread::of(all.iter().map(Outcome::jain).collect()),
        failure: failure(&all),
        goodput_mbps: Spread::of(goodput.collect()).mean,
    })
}

/// Results of walking clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MobilityPoint {
    /// Jain's index of data time over seeds.
    pub jain: Spread,
    /// A-BFTs of a client per minute.
    pub attempts_per_minute: f64,
    /// Share of them that failed.
    pub failure: f64,
    /// Share of beacon intervals in which a client had no data.
    pub gone: f64,
    /// Longest time without data of each client, in seconds.
    pub longest_gap_s: Spread,
    /// Mbit/s of a client on average, over the whole time.
    pub mbps: f64,
}

/// Clients that walk from waypoint to waypoint at that speed in m/s, with the pauses of the cell
/// (none if it has no walk); at 0 they stand.
///
/// # Errors
///
/// Those of [`outcomes`]; an invalid speed.
pub fn mobility(
    config: &CellConfig,
    access: &Access,
    speed: f64,
    seeds: Seeds,
) -> Result<MobilityPoint, MmwaveError> {
    let walk = Walk {
        speed,
        ..config.walk.unwrap_or(Walk {
            pause: 0.0,
            ..Walk::PEDESTRIAN
        })
    };
    let config = CellConfig {
        walk: Some(walk),
        ..config.clone()
    };
    let all = outcomes(&config, access, seeds)?;
    let stations: Vec<_> = all.iter().flat_map(|one| &one.stations).collect();
    let interval_s = config.interval.length_us * 1e-6;
    let client_s = interval_s * (config.intervals * stations.len()).max(1) as f64;
    let sum = |of: fn(&StationOutcome) -> f64| stations.iter().map(|one| of(one)).sum::<f64>();
    let gaps = stations
        .iter()
        .map(|one| one.longest_gap as f64 * interval_s);
    Ok(MobilityPoint {
        jain: Spread::of(all.iter().map(Outcome::jain).collect()),
        attempts_per_minute: sum(|one| f64::from(one.attempts)) * 60.0 / client_s,
        failure: failure(&all),
        gone: sum(|one| one.gone as f64) * interval_s / client_s,
        longest_gap_s: Spread::of(gaps.collect()),
        mbps: sum(|one| one.megabits) / client_s,
    })
}

/// Results by number of clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StationsPoint {
    /// Jain's index of data time over seeds.
    pub jain: Spread,
    /// Share of failed attempts.
    pub failure: f64,
    /// Mini-slots of an A-BFT, mean.
    pub mini_slots: f64,
    /// Seconds until a client first has a trained sector, with a common start; a client that never
    /// has one counts with the whole run.
    pub first_s: Spread,
    /// Share of beacon intervals in which a client had no data.
    pub gone: f64,
    /// Mbit/s of all clients together, mean over seeds.
    pub goodput_mbps: f64,
}

/// Runs the cell with this number of clients.
///
/// # Errors
///
/// Those of [`outcomes`].
pub fn stations(
    config: &CellConfig,
    access: &Access,
    stations: usize,
    seeds: Seeds,
) -> Result<StationsPoint, MmwaveError> {
    let config = CellConfig {
        stations,
        ..config.clone()
    };
    let all = outcomes(&config, access, seeds)?;
    let interval_s = config.interval.length_us * 1e-6;
    let firsts = first_association(&all);
    let firsts = firsts
        .iter()
        .map(|intervals| *intervals as f64 * interval_s);
    let mean = |of: &dyn Fn(&Outcome) -> f64| Spread::of(all.iter().map(of).collect()).mean;
    let gone = |one: &Outcome| one.stations.iter().map(|one| one.gone).sum::<usize>() as f64;
    Ok(StationsPoint {
        jain: Spread::of(all.iter().map(Outcome::jain).collect()),
        failure: failure(&all),
        mini_slots: mean(&Outcome::mean_mini_slots),
        first_s: Spread::of(firsts.collect()),
        gone: mean(&gone) / (stations * config.intervals) as f64,
        goodput_mbps: mean(&|one| one.goodput_mbps(interval_s)),
    })
}

/// Share of failed attempts, over several runs.
pub fn failure(all: &[Outcome]) -> f64 {
    let sum = |of: fn(&StationOutcome) -> u32| -> u64 {
        let stations = all.iter().flat_map(|one| &one.stations);
        stations.map(|station| u64::from(of(station))).sum()
    };
    let attempts = sum(|one| one.attempts);
    sum(|one| one.failures) as f64 / attempts.max(1) as f64
}

/// Error of JPOC's estimate of the number of contenders: the estimate minus the true number, for
/// each number of contenders.
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

/// Beacon intervals until clients are first trained, ascending; clients that never are count as all
/// intervals.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Jpoc;
    use crate::mac::slotted::Slotted;

    fn short(stations: usize) -> CellConfig {
        CellConfig {
            stations,
            intervals: 30,
            ..CellConfig::default()
        }
    }

    #[test]
    fn blockage_costs_the_thesis_baseline_fairness() {
        let thesis = Access::Slotted(Slotted::THESIS);
        let points = [0.05, 0.5].map(|p| jain(&short(16), &thesis, p, 1..=6).unwrap());
        assert!(points[0].jain.mean > points[1].jain.mean);
        assert!(points[0].failure < points[1].failure);
        assert!(points[0].goodput_mbps > 0.0);
        assert!(jain(&short(2), &thesis, 1.5, 1..=1).is_err());
    }

    #[test]
    fn more_clients_have_less_each_and_fail_more_often() {
        let thesis = Access::Slotted(Slotted::THESIS);
        let [few, many] = [2, 24].map(|n| stations(&short(16), &thesis, n, 1..=3).unwrap());
        assert!(few.failure < many.failure && few.gone < many.gone);
        assert!(few.first_s.high <= many.first_s.high && few.first_s.median > 0.099);
        assert_eq!((few.mini_slots, many.mini_slots), (288.0, 288.0));
        assert!(stations(&short(2), &thesis, 0, 1..=1).is_err());
    }

    #[test]
    fn estimates_and_first_associations_come_from_the_runs() {
        let all = outcomes(&short(8), &Access::Jpoc(Jpoc::THESIS), 1..=3).unwrap();
        let estimates = estimates(&all);
        assert!(estimates.iter().any(|(number, _)| *number == 8));
        let firsts = first_association(&all);
        assert_eq!(firsts.len(), 24);
        assert!(firsts.is_sorted() && firsts[0] == 1);
    }
}
