//! A phased array behind one RF chain: elements half a wavelength apart, with one phase shifter
//! each.

use core::f64::consts::{PI, TAU};

use crate::error::{MmwaveError, within};
use crate::geometry::Direction;
use crate::units::linear;

/// Gain of an element straight ahead in dBi (3GPP TR 38.901, table 7.3-1).
const ELEMENT_DBI: f64 = 8.0;
/// Half-power beamwidth of an element in degrees, in both planes (table 7.3-1).
const ELEMENT_WIDTH_DEG: f64 = 65.0;
/// Maximum attenuation of any direction relative to straight ahead, in dB (table 7.3-1).
const ELEMENT_FLOOR_DB: f64 = 30.0;

/// A planar array of columns and rows, facing azimuth 0, elevation 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Array {
    columns: usize,
    rows: usize,
    /// Bits of a phase shifter; 0 allows any phase.
    phase_bits: u32,
}

/// Phases of all elements, as unit phasors; one sector of a codebook.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights(Vec<(f64, f64)>);

/// Phases of several sectors of an array, element by element: all sectors of an element are
/// adjacent, so that their gains are summed in parallel.
#[derive(Clone, Debug, PartialEq)]
pub struct Beams {
    count: usize,
    re: Vec<f64>,
    im: Vec<f64>,
}

impl Beams {
    /// Sectors of one array.
    pub fn new(beams: &[Weights]) -> Self {
        let elements = beams.first().map_or(0, |beam| beam.0.len());
        let of = |part: fn(&(f64, f64)) -> f64| {
            let all = (0..elements).flat_map(|n| beams.iter().map(move |beam| part(&beam.0[n])));
            all.collect()
        };
        Self {
            count: beams.len(),
            re: of(|weight| weight.0),
            im: of(|weight| weight.1),
        }
    }

    /// Their number.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Maximum number.
    pub const MAX: usize = 256;
}

impl Array {
    /// The thesis' array: 8 by 4 elements, phase shifters of two bits.
    pub const THESIS: Self = Self {
        columns: 8,
        rows: 4,
        phase_bits: 2,
    };

    /// An array of that size; `phase_bits` 0 allows any phase.
    ///
    /// # Errors
    ///
    /// Fewer than 1 or more than 64 columns or rows, or more than 8 bits.
    pub fn new(columns: usize, rows: usize, phase_bits: u32) -> Result<Self, MmwaveError> {
        let size = (1.0, 64.0);
        within("columns of the array", columns as f64, size, "from 1 to 64")?;
        within("rows of the array", rows as f64, size, "from 1 to 64")?;
        within(
            "bits of a phase shifter",
            f64::from(phase_bits),
            (0.0, 8.0),
            "from 0 to 8",
        )?;
        Ok(Self {
            columns,
            rows,
            phase_bits,
        })
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.columns * self.rows
    }

    /// Gain of all elements in phase over a single one, in dB: 10 log10 of their number. In eq. 3.5
    /// this is the difference between a trained beam and the quasi-omni pattern.
    pub fn gain_db(&self) -> f64 {
        10.0 * (self.elements() as f64).log10()
    }

    /// The phases that point the beam into a direction, rounded to the resolution of the phase
    /// shifters.
    pub fn steer(&self, direction: Direction) -> Weights {
        let phasor = |phase: f64| {
            let phase = if self.phase_bits == 0 {
                phase
            } else {
                let step = TAU / f64::from(1u32 << self.phase_bits);
                (phase / step).round() * step
            };
            (phase.cos(), phase.sin())
        };
        Weights(self.phases(direction).map(phasor).collect())
    }

    /// Gain of a beam in a direction over an isotropic antenna, as a ratio; all elements share the
    /// power.
    pub fn gain(&self, weights: &Weights, direction: Direction) -> f64 {
        let mut gain = [0.0];
        let beams = Beams::new(core::slice::from_ref(weights));
        self.add_gains(&beams, direction, 1.0, &mut gain);
        gain[0]
    }

    /// Gain of one of several beams; `beam` must be below [`Beams::count`].
    pub fn gain_of(&self, beams: &Beams, beam: usize, direction: Direction) -> f64 {
        let (mut re, mut im) = (0.0, 0.0);
        let mut at = beam;
        self.response(direction, |c, d| {
            let (a, b) = (beams.re[at], beams.im[at]);
            re += a * c + b * d;
            im += b * c - a * d;
            at += beams.count;
        });
        self.shared(direction) * (re * re + im * im)
    }

    /// Adds `factor` times the gain of each beam to its sum; `sums` has [`Beams::count`] entries,
    /// at most [`Beams::MAX`].
    pub fn add_gains(&self, beams: &Beams, direction: Direction, factor: f64, sums: &mut [f64]) {
        let count = beams.count;
        let (mut re, mut im) = ([0.0; Beams::MAX], [0.0; Beams::MAX]);
        let (re, im) = (&mut re[..count], &mut im[..count]);
        let mut at = 0;
        self.response(direction, |c, d| {
            let weights = at..at + count;
            let weights = beams.re[weights.clone()].iter().zip(&beams.im[weights]);
            for ((re, im), (a, b)) in re.iter_mut().zip(im.iter_mut()).zip(weights) {
                *re += a * c + b * d;
                *im += b * c - a * d;
            }
            at += count;
        });
        let element = self.shared(direction);
        for (sum, (re, im)) in sums.iter_mut().zip(re.iter().zip(im.iter())) {
            *sum += factor * (element * (re * re + im * im));
        }
    }

    /// Radiation of each element in that direction, given its share of the power.
    fn shared(&self, direction: Direction) -> f64 {
        element_gain(direction) / self.elements() as f64
    }

    /// Passes the phasor of each element towards a direction, column by column, row after row.
    /// Within a row, each phasor is its neighbor's times a constant phasor, so two sines and
    /// cosines suffice for all.
    fn response(&self, direction: Direction, mut visit: impl FnMut(f64, f64)) {
        let (across, up) = steps(direction);
        let ((across_sin, across_cos), (up_sin, up_cos)) = (across.sin_cos(), up.sin_cos());
        let (mut row_re, mut row_im) = (1.0, 0.0);
        for _ in 0..self.rows {
            let (mut re, mut im) = (row_re, row_im);
            for _ in 0..self.columns {
                visit(re, im);
                (re, im) = (
                    re * across_cos - im * across_sin,
                    re * across_sin + im * across_cos,
                );
            }
            (row_re, row_im) = (
                row_re * up_cos - row_im * up_sin,
                row_re * up_sin + row_im * up_cos,
            );
        }
    }

    /// Phase of each element towards a direction, in radians.
    fn phases(&self, direction: Direction) -> impl Iterator<Item = f64> + use<> {
        let (across, up) = steps(direction);
        let columns = self.columns;
        (0..self.elements()).map(move |n| (n % columns) as f64 * across + (n / columns) as f64 * up)
    }
}

/// Phase difference between columns and between rows, in radians.
fn steps(direction: Direction) -> (f64, f64) {
    let across = PI * direction.elevation.cos() * direction.azimuth.sin();
    (across, PI * direction.elevation.sin())
}

/// Gain of one element over an isotropic antenna, as a ratio: 3GPP TR 38.901, table 7.3-1. With
/// only this element on, an array has its quasi-omni pattern.
pub fn element_gain(direction: Direction) -> f64 {
    // The table's zenith is relative to the device, as the elevation is here.
    let plane = |angle: f64| {
        let turned = angle.to_degrees() / ELEMENT_WIDTH_DEG;
        (12.0 * turned * turned).min(ELEMENT_FLOOR_DB)
    };
    let down = plane(direction.azimuth) + plane(direction.elevation);
    linear(ELEMENT_DBI - down.min(ELEMENT_FLOOR_DB))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::decibels;

    fn degrees(azimuth: f64, elevation: f64) -> Direction {
        Direction::from_degrees(azimuth, elevation)
    }

    #[test]
    fn all_elements_in_phase_gain_15_db() {
        let array = Array::new(8, 4, 0).unwrap();
        assert!((array.gain_db() - 15.05).abs() < 0.01);
        for direction in [degrees(0.0, 0.0), degrees(45.0, -20.0)] {
            let gain = array.gain(&array.steer(direction), direction) / element_gain(direction);
            assert!((decibels(gain) - array.gain_db()).abs() < 1e-9);
        }
    }

    #[test]
    fn two_bits_cost_less_than_two_decibels() {
        // Rounding to a quarter turn costs 0.9 dB on average over phases (sinc^2(1/4)).
        let array = Array::THESIS;
        let mut sum = 0.0;
        for azimuth in -6..=6 {
            let direction = degrees(f64::from(azimuth) * 10.0, 12.0);
            let gain = array.gain(&array.steer(direction), direction) / element_gain(direction);
            let loss = array.gain_db() - decibels(gain);
            assert!((-1e-9..2.5).contains(&loss), "{loss}");
            sum += loss;
        }
        assert!((0.4..1.4).contains(&(sum / 13.0)), "{}", sum / 13.0);
    }

    #[test]
    fn a_beam_of_eight_columns_is_13_degrees_wide() {
        // 0.886 wavelengths / (8 * half a wavelength) = 12.7 degrees at half power.
        let array = Array::new(8, 4, 0).unwrap();
        let beam = array.steer(degrees(0.0, 0.0));
        let at = |azimuth: f64| {
            decibels(array.gain(&beam, degrees(azimuth, 0.0)) / element_gain(degrees(azimuth, 0.0)))
        };
        assert!((at(0.0) - at(6.35) - 3.0).abs() < 0.05);
        assert!((at(0.0) - at(14.4775)) > 60.0, "the first null");
    }

    #[test]
    fn an_element_radiates_at_most_its_power() {
        // The mean over the sphere: the table's 8 dBi and widths leave 1.8 dB of losses in the
        // element.
        let mut sum = 0.0;
        let mut weight = 0.0;
        for azimuth in -90..90 {
            for elevation in -45..45 {
                let direction = Direction::from_degrees(
                    f64::from(azimuth) * 2.0 + 1.0,
                    f64::from(elevation) * 2.0 + 1.0,
                );
                sum += element_gain(direction) * direction.elevation.cos();
                weight += direction.elevation.cos();
            }
        }
        let mean = decibels(sum / weight);
        assert!((-2.0..-1.6).contains(&mean), "{mean}");
    }

    #[test]
    fn summed_beams_have_the_gains_of_single_ones() {
        let array = Array::THESIS;
        let beams: Vec<Weights> = (-4..=4)
            .map(|n| array.steer(degrees(f64::from(n) * 13.0, f64::from(n) * 5.0)))
            .collect();
        let all = Beams::new(&beams);
        assert_eq!(all.count(), 9);
        for direction in [
            degrees(0.0, 0.0),
            degrees(-70.0, 33.0),
            degrees(170.0, -60.0),
        ] {
            let mut sums = [1.0; 9];
            array.add_gains(&all, direction, 2.0, &mut sums);
            for (index, beam) in beams.iter().enumerate() {
                // Element by element, as in the definition.
                let (mut re, mut im) = (0.0, 0.0);
                for (phase, (a, b)) in array.phases(direction).zip(&beam.0) {
                    re += a * phase.cos() + b * phase.sin();
                    im += b * phase.cos() - a * phase.sin();
                }
                let gain = element_gain(direction) / 32.0 * (re * re + im * im);
                assert!((sums[index] - 1.0 - 2.0 * gain).abs() < 1e-9, "{index}");
                assert!((array.gain_of(&all, index, direction) - gain).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn invalid_sizes_are_rejected() {
        assert!(Array::new(0, 4, 2).is_err());
        assert!(Array::new(8, 65, 2).is_err());
        assert!(Array::new(8, 4, 9).is_err());
    }
}
