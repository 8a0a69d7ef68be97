//! The sectors of a device.

use std::sync::Arc;

use crate::array::{Array, Beams, element_gain};
use crate::error::{MmwaveError, within};
use crate::geometry::Direction;
use crate::pattern::Pattern;

/// Half of the 120 degrees that a codebook covers in azimuth and in elevation (thesis, section
/// 3.3.2).
pub const HALF_COVERAGE_DEG: f64 = 60.0;

/// Range of the number of sectors.
const MAX: (f64, f64) = (1.0, Beams::MAX as f64);

/// All sectors of a device, and its quasi-omni pattern. Directions are relative to the device.
#[derive(Clone, Debug, PartialEq)]
pub enum Codebook {
    /// Beams of an array.
    Array {
        /// The array.
        array: Array,
        /// Its sectors.
        beams: Beams,
    },
    /// Measured beams.
    Measured(Arc<Pattern>),
}

impl Codebook {
    /// A grid of beams over 120 by 120 degrees: `across` in azimuth, `up` in elevation, each in the
    /// center of its part.
    ///
    /// # Errors
    ///
    /// No beam, or more than 256.
    pub fn grid(array: Array, across: usize, up: usize) -> Result<Self, MmwaveError> {
        let count = across.saturating_mul(up) as f64;
        within("number of sectors", count, MAX, "from 1 to 256")?;
        let middle = |index: usize, of: usize| {
            HALF_COVERAGE_DEG * ((2 * index + 1) as f64 / of as f64 - 1.0)
        };
        let beam = |index: usize| {
            let azimuth = middle(index % across, across);
            let elevation = middle(index / across, up);
            array.steer(Direction::from_degrees(azimuth, elevation))
        };
        let beams: Vec<_> = (0..across * up).map(beam).collect();
        let beams = Beams::new(&beams);
        Ok(Self::Array { array, beams })
    }

    /// The thesis' 36 sectors of an 8 by 4 array: 9 in azimuth, where its beams are 13 degrees
    /// wide, by 4 in elevation, where they are 26 degrees wide.
    pub fn thesis() -> Self {
        Self::of(36)
    }

    /// The 64 sectors of the thesis' telephone (figure 3.6) on the same array: 16 by 4.
    pub fn sixty_four() -> Self {
        Self::of(64)
    }

    fn of(sectors: usize) -> Self {
        Self::grid(Array::THESIS, sectors / 4, 4).expect("a grid of 36 or 64 sectors exists")
    }

    /// Number of sectors.
    pub fn sectors(&self) -> usize {
        match self {
            Self::Array { beams, .. } => beams.count(),
            Self::Measured(pattern) => pattern.beams(),
        }
    }

    /// Gain of the best sector over the quasi-omni pattern in dB: G_T(i) - G_R of eq. 3.5.
    pub fn gain_db(&self) -> f64 {
        match self {
            Self::Array { array, .. } => array.gain_db(),
            Self::Measured(pattern) => pattern.gain_db(),
        }
    }

    /// Gain of every sector in a direction over an isotropic antenna, as ratios.
    pub fn gains(&self, direction: Direction) -> Vec<f64> {
        let mut gains = vec![0.0; self.sectors()];
        self.add_gains(direction, 1.0, &mut gains);
        gains
    }

    /// Adds `factor` times the gain of every sector in a direction to its sum; `sums` has one entry
    /// for each sector.
    pub fn add_gains(&self, direction: Direction, factor: f64, sums: &mut [f64]) {
        match self {
            Self::Array { array, beams } => array.add_gains(beams, direction, factor, sums),
            Self::Measured(pattern) => {
                for (beam, sum) in sums.iter_mut().enumerate() {
                    *sum += factor * pattern.gain(beam, direction);
                }
            }
        }
    }

    /// Gain of one sector; `sector` must be below [`sectors`](Self::sectors).
    pub fn gain(&self, sector: usize, direction: Direction) -> f64 {
        match self {
            Self::Array { array, beams } => array.gain_of(beams, sector, direction),
            Self::Measured(pattern) => pattern.gain(sector, direction),
        }
    }

    /// Gain of the quasi-omni pattern, as a ratio: one element of an array. Measured beams have
    /// none, and use an isotropic pattern.
    pub fn quasi_omni(&self, direction: Direction) -> f64 {
        match self {
            Self::Array { .. } => element_gain(direction),
            Self::Measured(_) => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::decibels;

    #[test]
    fn every_direction_has_a_sector_with_gain() {
        // Between the beams of a grid the best one is weaker than in its center: by at most 4 dB in
        // each plane (3.9 dB half a beam away), plus the loss by phase shifters of two bits.
        for codebook in [Codebook::thesis(), Codebook::sixty_four()] {
            for azimuth in -12..=12 {
                for elevation in -12..=12 {
                    let direction = Direction::from_degrees(
                        f64::from(azimuth) * 5.0,
                        f64::from(elevation) * 5.0,
                    );
                    let best = codebook.gains(direction).into_iter().fold(0.0, f64::max);
                    let gain = decibels(best / codebook.quasi_omni(direction));
                    assert!((4.5..15.1).contains(&gain), "{azimuth} {elevation}: {gain}");
                }
            }
        }
    }

    #[test]
    fn the_gain_of_one_sector_equals_its_entry_among_all() {
        let codebook = Codebook::thesis();
        assert_eq!(codebook.sectors(), 36);
        assert_eq!(Codebook::sixty_four().sectors(), 64);
        let direction = Direction::from_degrees(17.0, -5.0);
        let all = codebook.gains(direction);
        for (sector, gain) in all.iter().enumerate() {
            assert!((codebook.gain(sector, direction) - gain).abs() < 1e-12);
        }
    }

    #[test]
    fn a_grid_without_beams_is_rejected() {
        assert!(Codebook::grid(Array::THESIS, 0, 4).is_err());
        assert!(Codebook::grid(Array::THESIS, 100, 100).is_err());
        assert!(Codebook::grid(Array::THESIS, usize::MAX, 2).is_err());
    }
}
