//! Figure 3.7(b): the fewest mini-slots of an A-BFT with which at most a given share of attempts
//! fails.

use super::access::{Seeds, cells, failure, outcomes_in};
use crate::cell::{Access, Cell, CellConfig, Jpoc, Outcome};
use crate::error::{MmwaveError, share};
use crate::jpoc::control::Target;
use crate::mac::slotted::Slotted;

/// Largest number of slots that [`min_slots`] tries.
pub const MAX_SLOTS: u32 = 1024;

/// Time besides a very long A-BFT in a beacon interval, in microseconds.
const HEADER_US: f64 = 20_000.0;

/// Values of K that [`most_beams`] tries: this many steps per good-beam, up to this many beams.
const STEPS_PER_BEAM: u32 = 8;
const MOST_BEAMS: u32 = 8;

/// Mini-slots of a scheme, with their success.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overhead {
    /// Mini-slots of an A-BFT, mean over the runs.
    pub mini_slots: f64,
    /// Share of failed attempts.
    pub failure: f64,
    /// K of JPOC if it is fixed.
    pub good_beams: Option<f64>,
}

/// The fewest mini-slots with which at most that share of attempts fails: with the fewest slots,
/// with the largest fixed K of JPOC, or with the K that JPOC learns, for which nothing is searched
/// and which may miss the target. `None` if no number of slots and no K meets it.
///
/// # Errors
///
/// Those of [`outcomes`](super::access::outcomes); an invalid target.
pub fn fewest(
    config: &CellConfig,
    access: &Access,
    target: f64,
    seeds: Seeds,
) -> Result<Option<Overhead>, MmwaveError> {
    match access {
        Access::Slotted(rules) => {
            let Some(slots) = min_slots(config, *rules, target, seeds.clone())? else {
                return Ok(None);
            };
            let mut cells = cells(config, seeds)?;
            let all = slotted(&mut cells, rules.with_slots(slots))?;
            Ok(Some(Overhead {
                mini_slots: f64::from(slots * rules.frames_per_slot),
                failure: failure(&all),
                good_beams: None,
            }))
        }
        Access::Jpoc(jpoc) => {
            let target = Target {
                failure: target,
                ..jpoc.target
            };
            let jpoc = Jpoc { target, ..*jpoc };
            let cells = cells(config, seeds)?;
            if target.learning > 0.0 {
                return Ok(Some(overhead(&cells, jpoc)?));
            }
            most_beams(&cells, jpoc)
        }
    }
}

fn overhead(cells: &[(u64, Cell)], jpoc: Jpoc) -> Result<Overhead, MmwaveError> {
    let all = outcomes_in(cells, &Access::Jpoc(jpoc))?;
    let sum: f64 = all.iter().map(Outcome::mean_mini_slots).sum();
    let fixed = jpoc.target.learning == 0.0;
    Ok(Overhead {
        mini_slots: sum / all.len().max(1) as f64,
        failure: failure(&all),
        good_beams: fixed.then_some(jpoc.target.good_beams),
    })
}

/// The largest fixed K that meets the target, which has the fewest mini-slots. The search bisects,
/// as that of [`min_slots`].
fn most_beams(cells: &[(u64, Cell)], jpoc: Jpoc) -> Result<Option<Overhead>, MmwaveError> {
    let meets = |steps: u32| -> Result<Option<Overhead>, MmwaveError> {
        let target = Target {
            good_beams: f64::from(steps) / f64::from(STEPS_PER_BEAM),
            ..jpoc.target
        };
        let found = overhead(cells, Jpoc { target, ..jpoc })?;
        Ok((found.failure <= target.failure).then_some(found))
    };
    let (mut few, mut many) = (0, STEPS_PER_BEAM * MOST_BEAMS + 1);
    let mut best = None;
    while many - few > 1 {
        let middle = few + (many - few) / 2;
        match meets(middle)? {
            Some(found) => (few, best) = (middle, Some(found)),
            None => many = middle,
        }
    }
    Ok(best)
}

/// Very many slots do not fit the interval, which is extended as needed.
fn slotted(cells: &mut [(u64, Cell)], rules: Slotted) -> Result<Vec<Outcome>, MmwaveError> {
    for (_, cell) in &mut *cells {
        let length = &mut cell.config.interval.length_us;
        *length = length.max(rules.duration_us() + HEADER_US);
    }
    outcomes_in(cells, &Access::Slotted(rules))
}

/// The smallest number of slots with which at most that share of attempts fails; `None` if
/// [`MAX_SLOTS`] are too few.
///
/// The search bisects, assuming that more slots never fail more often; with few seeds they
/// sometimes do by chance.
///
/// # Errors
///
/// Those of [`outcomes`](super::access::outcomes); an invalid target.
pub fn min_slots(
    config: &CellConfig,
    rules: Slotted,
    target: f64,
    seeds: Seeds,
) -> Result<Option<u32>, MmwaveError> {
    let target = share("targeted failure probability", target)?;
    let drawn = cells(config, seeds)?;
    let fits = |slots: u32| -> Result<bool, MmwaveError> {
        let mut cells = drawn.clone();
        Ok(failure(&slotted(&mut cells, rules.with_slots(slots))?) <= target)
    };
    let mut enough = 1;
    while !fits(enough)? {
        enough *= 2;
        if enough > MAX_SLOTS {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::access::outcomes;

    fn short(stations: usize) -> CellConfig {
        CellConfig {
            stations,
            intervals: 30,
            ..CellConfig::default()
        }
    }

    #[test]
    fn the_least_slots_meet_the_target() {
        let config = short(6);
        let slots = min_slots(&config, Slotted::THESIS, 0.1, 1..=2)
            .unwrap()
            .unwrap();
        let access = Access::Slotted(Slotted::THESIS.with_slots(slots));
        let rate = failure(&outcomes(&config, &access, 1..=2).unwrap());
        assert!(slots > 1 && rate <= 0.1, "{slots}");
    }

    #[test]
    fn a_fixed_k_is_the_largest_that_meets_the_target() {
        let (config, target) = (short(10), 0.15);
        let jpoc = Jpoc {
            ramp_db: 3.0,
            ..Jpoc::THESIS
        };
        let found = fewest(&config, &Access::Jpoc(jpoc), target, 1..=2)
            .unwrap()
            .unwrap();
        let k = found.good_beams.unwrap();
        assert!(found.failure <= target && k < 8.0, "{found:?}");
        let at = |good_beams| {
            let target = Target {
                good_beams,
                failure: target,
                ..Target::THESIS
            };
            let access = Access::Jpoc(Jpoc { target, ..jpoc });
            failure(&outcomes(&config, &access, 1..=2).unwrap())
        };
        assert_eq!(at(k), found.failure);
        assert!(at(k + 1.0 / f64::from(STEPS_PER_BEAM)) > target);
    }

    #[test]
    fn a_learned_k_is_measured_as_it_is() {
        let learned = Access::Jpoc(Jpoc::LEARNED);
        let found = fewest(&short(4), &learned, 0.1, 1..=1).unwrap().unwrap();
        assert_eq!(found.good_beams, None);
        assert!(found.mini_slots >= 36.0);
        assert!(fewest(&short(4), &learned, 1.5, 1..=1).is_err());
    }
}
