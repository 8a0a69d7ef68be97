//! Figure 3.2(a): how often a client takes part in the A-BFT, alone with the access point of the
//! office for ten minutes.

use core::time::Duration;

use super::office::Office;
use crate::cell::{Access, Blockage, Cell, CellConfig, run};
use crate::error::MmwaveError;
use crate::mac::slotted::Slotted;
use crate::mobility::Walk;

/// Meters to the access point, as the far client of section 3.1.
const DISTANCE: f64 = 5.0;

/// Sides of the robot's rectangle in meters: 6 by 2 feet (section 3.1).
pub const RECTANGLE: (f64, f64) = (6.0 * 0.3048, 2.0 * 0.3048);

/// The robot's speed in m/s: our choice, a round takes 16 s. The thesis gives none.
const SPEED: f64 = 0.3;

/// Meters that people walk in a beacon interval, 1 m/s.
const PEOPLE: f64 = 0.1;

/// A client's circumstances.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    /// A name for tables.
    pub name: &'static str,
    /// Whether it has a line of sight where it starts.
    pub los: bool,
    /// Its movement.
    pub movement: Movement,
    /// Whether people walk about (38.901, blockage model A).
    pub people: bool,
    /// Whether it is connected.
    pub connected: bool,
}

/// A client's movement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Movement {
    /// It stands.
    None,
    /// It turns by 37 degrees per second.
    Rotation,
    /// It drives around a rectangle.
    Rectangle,
}

/// The circumstances of figure 3.2(a), with and without people.
pub const CASES: [Case; 9] = {
    let stands = Case {
        name: "stands, LoS",
        los: true,
        movement: Movement::None,
        people: false,
        connected: true,
    };
    [
        stands,
        Case {
            name: "stands, LoS, people",
            people: true,
            ..stands
        },
        Case {
            name: "stands, no LoS",
            los: false,
            ..stands
        },
        Case {
            name: "stands, no LoS, people",
            los: false,
            people: true,
            ..stands
        },
        Case {
            name: "turns, LoS",
            movement: Movement::Rotation,
            ..stands
        },
        Case {
            name: "rectangle, LoS",
            movement: Movement::Rectangle,
            ..stands
        },
        Case {
            name: "rectangle, no LoS",
            movement: Movement::Rectangle,
            los: false,
            ..stands
        },
        Case {
            name: "rectangle, no LoS, people",
            movement: Movement::Rectangle,
            los: false,
            people: true,
            ..stands
        },
        Case {
            name: "not connected",
            connected: false,
            ..stands
        },
    ]
};

/// Times at which the client takes part. `skip_useless` is that of [`CellConfig`].
///
/// # Errors
///
/// None for valid cases.
pub fn times(case: &Case, skip_useless: bool, seed: u64) -> Result<Vec<Duration>, MmwaveError> {
    let walk = |speed, turning| Walk {
        speed,
        pause: 0.0,
        turning,
    };
    let power = Office::THESIS.power_dbm;
    let config = CellConfig {
        stations: usize::from(case.connected),
        chatty: usize::from(!case.connected),
        first_distance: Some(DISTANCE),
        heights: (1.0, 1.0),
        power_dbm: (power, power),
        blockage: match case.people {
            true => Blockage::ModelA { meters: PEOPLE },
            false => Blockage::Probability(0.0),
        },
        walk: match case.movement {
            Movement::None => None,
            Movement::Rotation => Some(walk(0.0, 37.0)),
            Movement::Rectangle => Some(walk(SPEED, 0.0)),
        },
        rectangle: (case.movement == Movement::Rectangle).then_some(RECTANGLE),
        skip_useless,
        intervals: 6000,
        ..CellConfig::default()
    };
    // Places are drawn until one has the line of sight of the case; each does with 45 %.
    let mut place = seed << 32;
    let cell = loop {
        let cell = Cell::draw(&config, place)?;
        if cell.stations.iter().all(|one| one.channel.los == case.los) {
            break cell;
        }
        place += 1;
    };
    let outcome = run(&cell, &Access::Slotted(Slotted::THESIS), seed)?;
    let interval = Duration::from_secs_f64(config.interval.length_us * 1e-6);
    let all = (0u32..).zip(&outcome.intervals);
    let taken = all.filter(|(_, one)| !one.contenders.is_empty());
    Ok(taken.map(|(number, _)| interval * number).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(name: &str, skip: bool) -> usize {
        let case = CASES.iter().find(|case| case.name == name).unwrap();
        times(case, skip, 1).unwrap().len()
    }

    #[test]
    fn a_standing_client_trains_by_its_line_of_sight() {
        // Every minute, and when it starts.
        assert!((10..=11).contains(&count("stands, LoS", false)));
        assert_eq!(count("stands, no LoS", false), 1);
        assert_eq!(count("not connected", false), 60);
    }

    #[test]
    fn movement_triggers_trainings_and_wise_clients_skip_them() {
        let drives = count("rectangle, no LoS", false);
        assert!(drives > 20, "{drives}");
        assert_eq!(count("stands, LoS", true), 1);
        assert_eq!(count("not connected", true), 0);
    }
}
