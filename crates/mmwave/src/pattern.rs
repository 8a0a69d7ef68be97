//! Measured antenna patterns, read from text.
//!
//! A line is `beam,azimuth,elevation,gain`: the beam's name, two angles in degrees, the gain in dB
//! over an isotropic antenna. Lines that are empty, or start with `#` or `beam`, are skipped. Every
//! beam has a gain in every direction of one grid. Between grid points the gain in dB is
//! interpolated; beyond the grid the nearest edge applies.

use std::str::FromStr;

use crate::error::{MmwaveError, within};
use crate::geometry::Direction;
use crate::units::linear;

/// Beams over a grid of directions.
#[derive(Clone, Debug, PartialEq)]
pub struct Pattern {
    /// Degrees, ascending.
    azimuths: Vec<f64>,
    /// Degrees, ascending.
    elevations: Vec<f64>,
    /// Gains in dB of each beam, by elevation, then azimuth.
    beams: Vec<Vec<f64>>,
}

/// One line.
struct Sample<'a> {
    beam: &'a str,
    azimuth: f64,
    elevation: f64,
    gain_db: f64,
}

impl Pattern {
    /// Number of beams; they are numbered in the order in which the file first names them.
    pub fn beams(&self) -> usize {
        self.beams.len()
    }

    /// Directions of the grid.
    pub fn directions(&self) -> impl Iterator<Item = Direction> + '_ {
        self.elevations.iter().flat_map(|elevation| {
            let at = |azimuth: &f64| Direction::from_degrees(*azimuth, *elevation);
            self.azimuths.iter().map(at)
        })
    }

    /// The largest gain of any beam over an isotropic antenna, in dB.
    pub fn gain_db(&self) -> f64 {
        let all = self.beams.iter().flatten();
        all.copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// Gain of a beam, as a ratio; `beam` must be below [`beams`](Self::beams).
    pub fn gain(&self, beam: usize, direction: Direction) -> f64 {
        linear(self.at(&self.beams[beam], direction))
    }

    /// Number of beams heard in each direction of the grid when power control gives the best one
    /// `gamma_db` and the threshold is `min_db`: those within the difference of the best. For
    /// comparison with figure 3.5(a), with one ray.
    ///
    /// # Errors
    ///
    /// A gamma outside of -20 to 60 dB.
    pub fn good_beams(&self, gamma_db: f64, min_db: f64) -> Result<Vec<usize>, MmwaveError> {
        let gamma_db = within("gamma in dB", gamma_db, (-20.0, 60.0), "from -20 to 60")?;
        let points = self.azimuths.len() * self.elevations.len();
        let margin = gamma_db - min_db;
        let heard = |point: usize| {
            let gains = || self.beams.iter().map(|beam| beam[point]);
            let best = gains().fold(f64::NEG_INFINITY, f64::max);
            gains().filter(|gain| *gain >= best - margin).count()
        };
        Ok((0..points).map(heard).collect())
    }

    fn at(&self, beam: &[f64], direction: Direction) -> f64 {
        let (left, x) = place(&self.azimuths, direction.azimuth.to_degrees());
        let (low, y) = place(&self.elevations, direction.elevation.to_degrees());
        let row = |elevation: usize| {
            let start = elevation * self.azimuths.len();
            let right = (left + 1).min(self.azimuths.len() - 1);
            beam[start + left] * (1.0 - x) + beam[start + right] * x
        };
        row(low) * (1.0 - y) + row((low + 1).min(self.elevations.len() - 1)) * y
    }
}

/// Position of a value in an ascending grid: the point below it, and the fraction of the step after
/// it.
fn place(grid: &[f64], value: f64) -> (usize, f64) {
    let above = grid.partition_point(|point| *point <= value);
    if above == 0 {
        return (0, 0.0);
    }
    match grid.get(above) {
        None => (grid.len() - 1, 0.0),
        Some(next) => (
            above - 1,
            (value - grid[above - 1]) / (next - grid[above - 1]),
        ),
    }
}

impl FromStr for Pattern {
    type Err = MmwaveError;

    fn from_str(text: &str) -> Result<Self, MmwaveError> {
        let mut samples = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') || line.starts_with("beam") {
                continue;
            }
            samples.push(sample(line).map_err(|reason| MmwaveError::PatternLine {
                line: index + 1,
                reason,
            })?);
        }
        let azimuths = grid(samples.iter().map(|sample| sample.azimuth));
        let elevations = grid(samples.iter().map(|sample| sample.elevation));
        if azimuths.len() < 2 {
            return Err(MmwaveError::PatternEmpty);
        }
        let mut names: Vec<&str> = Vec::new();
        let mut beams: Vec<Vec<f64>> = Vec::new();
        for sample in &samples {
            let known = names.iter().position(|name| *name == sample.beam);
            let beam = known.unwrap_or_else(|| {
                names.push(sample.beam);
                beams.push(vec![f64::NAN; azimuths.len() * elevations.len()]);
                names.len() - 1
            });
            let (azimuth, _) = place(&azimuths, sample.azimuth);
            let (elevation, _) = place(&elevations, sample.elevation);
            beams[beam][elevation * azimuths.len() + azimuth] = sample.gain_db;
        }
        for (beam, gains) in beams.iter().enumerate() {
            if let Some(hole) = gains.iter().position(|gain| gain.is_nan()) {
                return Err(MmwaveError::PatternHole {
                    beam,
                    azimuth_deg: azimuths[hole % azimuths.len()],
                    elevation_deg: elevations[hole / azimuths.len()],
                });
            }
        }
        Ok(Self {
            azimuths,
            elevations,
            beams,
        })
    }
}

fn sample(line: &str) -> Result<Sample<'_>, String> {
    let mut fields = line.split(',').map(str::trim);
    let mut next = |what: &str| {
        fields
            .next()
            .filter(|field| !field.is_empty())
            .ok_or(format!("{what} is missing"))
    };
    let beam = next("the beam")?;
    let number = |what: &str, field: &str, (least, most): (f64, f64)| {
        let value: f64 = field
            .parse()
            .map_err(|_| format!("{what} \"{field}\" is not a number"))?;
        if (least..=most).contains(&value) {
            Ok(value)
        } else {
            Err(format!("{what} {value} is not between {least} and {most}"))
        }
    };
    let azimuth = number("azimuth", next("the azimuth")?, (-180.0, 180.0))?;
    let elevation = number("elevation", next("the elevation")?, (-90.0, 90.0))?;
    let gain_db = number("gain", next("the gain")?, (-200.0, 100.0))?;
    match fields.next() {
        None => Ok(Sample {
            beam,
            azimuth,
            elevation,
            gain_db,
        }),
        Some(more) => Err(format!("\"{more}\" follows the gain")),
    }
}

/// The distinct values, ascending.
fn grid(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut all: Vec<f64> = values.collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::decibels;

    const TWO_BEAMS: &str =
        "# made up\nbeam,azimuth,elevation,gain\na,-10,0,3\na,10,0,7\nb,-10,0,0\nb,10,0,-10\n";

    #[test]
    fn gains_are_interpolated_in_decibels_and_held_beyond_the_edges() {
        let pattern: Pattern = TWO_BEAMS.parse().unwrap();
        let at =
            |beam, azimuth| decibels(pattern.gain(beam, Direction::from_degrees(azimuth, 30.0)));
        assert_eq!(pattern.beams(), 2);
        assert!((at(0, 0.0) - 5.0).abs() < 1e-9);
        assert!((at(1, 5.0) - -7.5).abs() < 1e-9);
        assert!((at(0, 90.0) - 7.0).abs() < 1e-9 && (at(1, -90.0)).abs() < 1e-9);
        assert_eq!(pattern.gain_db(), 7.0);
        assert_eq!(pattern.directions().count(), 2);
    }

    #[test]
    fn good_beams_are_those_near_the_best_one() {
        let pattern: Pattern = TWO_BEAMS.parse().unwrap();
        // The gains are 3 and 0 dB at -10 degrees, 7 and -10 dB at 10 degrees.
        assert_eq!(pattern.good_beams(4.0, 1.0).unwrap(), [2, 1]);
        assert_eq!(pattern.good_beams(3.9, 1.0).unwrap(), [1, 1]);
        assert_eq!(pattern.good_beams(18.0, 1.0).unwrap(), [2, 2]);
        assert_eq!(
            pattern.good_beams(0.5, 1.0).unwrap(),
            [0, 0],
            "the best is not enough"
        );
        assert!(pattern.good_beams(f64::NAN, 1.0).is_err());
    }

    #[test]
    fn a_missing_direction_is_named() {
        let error = format!("{TWO_BEAMS}b,10,5,1\n")
            .parse::<Pattern>()
            .unwrap_err();
        let hole = MmwaveError::PatternHole {
            beam: 0,
            azimuth_deg: -10.0,
            elevation_deg: 5.0,
        };
        assert_eq!(error, hole);
    }

    #[test]
    fn invalid_patterns_are_rejected_with_their_line() {
        for (text, expected) in [
            ("a,1,2", "pattern, line 1: the gain is missing"),
            (
                "\na,x,2,3",
                "pattern, line 2: azimuth \"x\" is not a number",
            ),
            (
                "a,1,200,3",
                "pattern, line 1: elevation 200 is not between -90 and 90",
            ),
            (
                "a,NaN,2,3",
                "pattern, line 1: azimuth NaN is not between -180 and 180",
            ),
            ("a,1,2,3,4", "pattern, line 1: \"4\" follows the gain"),
        ] {
            assert_eq!(text.parse::<Pattern>().unwrap_err().to_string(), expected);
        }
        for text in ["", "a,1,2,3"] {
            assert_eq!(text.parse::<Pattern>(), Err(MmwaveError::PatternEmpty));
        }
    }
}
