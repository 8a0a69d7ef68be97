//! Axes with round ticks and a unit that keeps the numbers short; values beyond an axis are always
//! marked.
//!
//! An axis covers all values that it is made for. Only [`Axis::limited`] leaves values out;
//! [`Svg::beyond`] marks each of them with an arrow and its number.
//!
//! [`Svg::beyond`]: super::Svg::beyond

/// A linear or logarithmic axis that maps values to positions in the chart.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Values at the two ends.
    pub range: (f64, f64),
    /// Positions of the two ends.
    pub place: (f64, f64),
    logarithmic: bool,
    /// Values of the ticks.
    pub ticks: Vec<f64>,
}

/// The end of an axis beyond which a value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Below the first value of the axis.
    Low,
    /// Above its last value.
    High,
}

/// The largest value that an axis can have.
const LARGEST: f64 = 1e300;
/// Maximum distance of a value from the axis, in lengths of the axis: far enough to be noticed, and
/// still a finite number.
const MAX_DISTANCE: f64 = 100.0;
/// The smallest value of a logarithmic axis.
const SMALLEST: f64 = 1e-12;

impl Axis {
    /// From 0 to a round number at or above `largest`, with about `about` ticks. Negative values
    /// need [`Axis::covering`].
    pub fn from_zero(largest: f64, place: (f64, f64), about: f64) -> Self {
        Self::covering([largest.max(0.0)], place, about)
    }

    /// Covers 0 and all values, between two round numbers, with about `about` ticks. Non-finite
    /// values are ignored.
    pub fn covering(values: impl IntoIterator<Item = f64>, place: (f64, f64), about: f64) -> Self {
        let values = values.into_iter().filter(|value| value.is_finite());
        let (least, largest) = values.fold((0.0_f64, 0.0_f64), |(least, largest), value| {
            (least.min(value), largest.max(value))
        });
        let (least, largest) = match (least.max(-LARGEST), largest.min(LARGEST)) {
            (least, largest) if largest - least < f64::MIN_POSITIVE => (least, least + 1.0),
            range => range,
        };
        let step = tick_step(largest - least, about);
        let steps = |value: f64| (value / step - 1e-9).ceil().clamp(0.0, 50.0) as i32;
        let (low, high) = (steps(-least), steps(largest).max(1 - steps(-least)));
        Self {
            range: (-step * f64::from(low), step * f64::from(high)),
            place,
            logarithmic: false,
            ticks: (-low..=high).map(|n| f64::from(n) * step).collect(),
        }
    }

    /// As [`Axis::covering`], but ignores values beyond `limits`. Draw those with
    /// [`Svg::beyond`](super::Svg::beyond).
    pub fn limited(
        values: impl IntoIterator<Item = f64>,
        limits: (f64, f64),
        place: (f64, f64),
        about: f64,
    ) -> Self {
        let within = |value: &f64| (limits.0..=limits.1).contains(value);
        Self::covering(values.into_iter().filter(within), place, about)
    }

    /// From 0 to exactly `end`.
    pub fn exact(end: f64, place: (f64, f64), about: f64) -> Self {
        let mut axis = Self::from_zero(end, place, about);
        if end.is_finite() && end > 0.0 {
            axis.range.1 = end.min(LARGEST);
            axis.ticks.retain(|tick| *tick <= end * (1.0 + 1e-9));
        }
        axis
    }

    /// Covers the powers of ten around all values above 0. Values of 0 or less are beyond the low
    /// end.
    pub fn logarithmic(values: impl IntoIterator<Item = f64>, place: (f64, f64)) -> Self {
        let values = values.into_iter();
        let positive = values.filter(|value| value.is_finite() && *value > 0.0);
        let (least, largest) = positive
            .fold((f64::INFINITY, 0.0_f64), |(least, largest), value| {
                (least.min(value), largest.max(value))
            });
        let least = if least.is_finite() { least } else { 1.0 };
        let low = least.max(SMALLEST).log10().floor() as i32;
        let high = (largest.clamp(SMALLEST, LARGEST).log10().ceil() as i32).max(low + 1);
        Self {
            range: (10f64.powi(low), 10f64.powi(high)),
            place,
            logarithmic: true,
            ticks: (low..=high).map(|power| 10f64.powi(power)).collect(),
        }
    }

    /// Position of a value. A value beyond the axis is outside of the plot, where the mistake is
    /// visible; a value without a position, such as 0 on a logarithmic axis, is at the end.
    pub fn at(&self, value: f64) -> f64 {
        let (low, high) = self.range;
        let value = match value {
            _ if value.is_nan() || value == f64::NEG_INFINITY => low,
            _ if value == f64::INFINITY => high,
            _ if self.logarithmic && value <= 0.0 => low,
            _ => value,
        };
        let part = if self.logarithmic {
            // The quotient of two doubles may be infinite; the difference of logarithms is not.
            (value.log10() - low.log10()) / (high.log10() - low.log10())
        } else {
            (value - low) / (high - low)
        };
        let part = part.clamp(-MAX_DISTANCE, MAX_DISTANCE);
        self.place.0 + (self.place.1 - self.place.0) * part
    }

    /// The end beyond which a value lies, if it is not on the axis.
    pub fn beyond(&self, value: f64) -> Option<End> {
        let (low, high) = self.range;
        // Rounding must not place a value beyond the tick that was made for it.
        let tolerance = (high - low) * 1e-9;
        let low = if self.logarithmic {
            low * (1.0 - 1e-9)
        } else {
            low - tolerance
        };
        match value {
            _ if value.is_nan() || value < low => Some(End::Low),
            _ if value > high + tolerance => Some(End::High),
            _ => None,
        }
    }

    /// Position of a value, or of the end beyond which it lies: for shapes that lead to an arrow
    /// there.
    pub fn up_to(&self, value: f64) -> f64 {
        match self.beyond(value) {
            None => self.at(value),
            Some(End::Low) => self.place.0,
            Some(End::High) => self.place.1,
        }
    }
}

/// A step of 1, 2 or 5 times a power of ten with which `largest` has at most `about` ticks.
pub fn tick_step(largest: f64, about: f64) -> f64 {
    let magnitude = 10f64.powf((largest / about).log10().floor());
    [1.0, 2.0, 5.0]
        .into_iter()
        .map(|factor| factor * magnitude)
        .find(|step| largest / step <= about + 1e-9)
        .unwrap_or(10.0 * magnitude)
}

/// A unit and its size in the basic unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    /// Label at the axis.
    pub name: &'static str,
    /// Its size in the base unit.
    pub size: f64,
}

impl Unit {
    /// For rates up to `largest` bit/s.
    pub fn of_rate(largest: f64) -> Self {
        let (name, size) = match largest {
            bps if bps >= 10e9 => ("Gbit/s", 1e9),
            bps if bps >= 1e6 => ("Mbit/s", 1e6),
            bps if bps >= 1e3 => ("kbit/s", 1e3),
            _ => ("bit/s", 1.0),
        };
        Self { name, size }
    }

    /// For times up to `largest` seconds.
    pub fn of_time(largest: f64) -> Self {
        let (name, size) = if largest >= 2.0 {
            ("s", 1.0)
        } else {
            ("ms", 1e-3)
        };
        Self { name, size }
    }

    /// A tick's number, without the unit.
    pub fn tick(self, value: f64) -> String {
        short(value / self.size)
    }
}

/// At most three significant digits after those before the point, no trailing zeros.
pub fn short(value: f64) -> String {
    if !value.is_finite() || value.abs() >= 1e15 || (value != 0.0 && value.abs() < 1e-6) {
        return format!("{value:.2e}");
    }
    let digits = if value == 0.0 {
        0
    } else {
        (2 - value.abs().log10().floor() as i32).clamp(0, 9) as usize
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(tick_step(229.0, 8.0), 50.0);
        assert_eq!(tick_step(1.0, 8.0), 0.2);
        assert_eq!(tick_step(2_400.0, 8.0), 500.0);
        assert_eq!(Axis::from_zero(229.0, (0.0, 1.0), 5.0).ticks.len(), 6);
        for strange in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e-320, f64::MAX] {
            let axis = Axis::from_zero(strange, (0.0, 100.0), 5.0);
            assert!((2..60).contains(&axis.ticks.len()), "{strange}");
            assert!(axis.at(strange).is_finite(), "{strange}");
        }
    }

    #[test]
    fn decades_are_of_equal_length() {
        let axis = Axis::logarithmic([0.02, 7.0, 0.0], (0.0, 300.0));
        assert_eq!(axis.range, (0.01, 10.0));
        assert!((axis.at(0.1) - 100.0).abs() < 1e-9);
        assert_eq!((axis.at(0.0), axis.beyond(0.0)), (0.0, Some(End::Low)));
        assert_eq!(axis.beyond(0.02), None);
        for nothing in [vec![], vec![0.0], vec![f64::NAN]] {
            let axis = Axis::logarithmic(nothing, (0.0, 1.0));
            assert!(
                axis.at(0.5).is_finite() && axis.ticks.len() >= 2,
                "{axis:?}"
            );
        }
    }

    #[test]
    fn any_axis_may_span_all_doubles() {
        let place = (0.0, 300.0);
        let values = [
            f64::MIN,
            -1.0,
            0.0,
            f64::MIN_POSITIVE,
            3.4e-286,
            1.0,
            3.6e296,
            f64::MAX,
        ];
        for first in values {
            for second in values {
                for axis in [
                    Axis::logarithmic([first, second], place),
                    Axis::covering([first, second], place, 5.0),
                    Axis::from_zero(second, place, 5.0),
                    Axis::exact(second, place, 5.0),
                ] {
                    for value in values {
                        assert!(axis.at(value).is_finite(), "{value} on {axis:?}");
                        // A value within the rounding tolerance of an end counts as on the axis.
                        let place = axis.up_to(value);
                        assert!(
                            (-1e-6..=300.0 + 1e-6).contains(&place),
                            "{value} on {axis:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn an_axis_covers_all_of_its_values() {
        let all = [
            vec![34.78, -18.76, 10.0],
            vec![-3.0, -0.5],
            vec![0.0],
            vec![1e-9, 7.0, 299.9],
        ];
        for values in all {
            let axis = Axis::covering(values.iter().copied(), (100.0, 500.0), 6.0);
            for value in values {
                assert_eq!(axis.beyond(value), None, "{value}: {axis:?}");
                assert!(
                    (100.0..=500.0).contains(&axis.at(value)),
                    "{value}: {axis:?}"
                );
                assert_eq!(axis.at(value), axis.up_to(value));
            }
            assert!((2..=12).contains(&axis.ticks.len()), "{axis:?}");
            assert!(axis.ticks.contains(&0.0), "{axis:?}");
        }
        let axis = Axis::logarithmic([0.008, 1.2], (0.0, 300.0));
        assert_eq!(axis.range, (0.001, 10.0));
    }

    #[test]
    fn a_value_beyond_a_limited_axis_has_no_position_on_it() {
        let values = [34.78, -18.76, 10.0, 4.0];
        let axis = Axis::limited(values, (-5.0, 30.0), (0.0, 100.0), 5.0);
        assert_eq!(axis.range, (0.0, 10.0));
        let ends = values.map(|value| axis.beyond(value));
        assert_eq!(ends, [Some(End::High), Some(End::Low), None, None]);
        assert!(axis.at(34.78) > 100.0 && axis.at(-18.76) < 0.0);
        assert_eq!((axis.up_to(34.78), axis.up_to(-18.76)), (100.0, 0.0));
    }

    #[test]
    fn numbers_are_short() {
        let cases = [
            (0.0, "0"),
            (0.2, "0.2"),
            (1500.0, "1500"),
            (2.345_67, "2.35"),
            (0.012_34, "0.0123"),
        ];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
    }
}
