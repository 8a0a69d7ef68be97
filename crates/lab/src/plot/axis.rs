//! Axes: round ticks, and a unit that makes the numbers short.

/// A linear or logarithmic axis from values to places in the picture.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    /// Values at the two ends.
    pub(crate) range: (f64, f64),
    /// Places of the two ends.
    pub(crate) place: (f64, f64),
    logarithmic: bool,
    /// Values of the ticks.
    pub(crate) ticks: Vec<f64>,
}

impl Axis {
    /// From 0 to a round number at or above `largest`, with about so many ticks.
    pub(crate) fn from_zero(largest: f64, place: (f64, f64), about: f64) -> Self {
        let largest = if largest.is_finite() && largest > 0.0 {
            largest.min(1e300)
        } else {
            1.0
        };
        let step = tick_step(largest, about);
        let count = (largest / step - 1e-9).ceil().clamp(1.0, 50.0) as u32;
        let ticks: Vec<f64> = (0..=count).map(|n| f64::from(n) * step).collect();
        Self {
            range: (0.0, step * f64::from(count)),
            place,
            logarithmic: false,
            ticks,
        }
    }

    /// From 0 to exactly `end`.
    pub(crate) fn exact(end: f64, place: (f64, f64), about: f64) -> Self {
        let mut axis = Self::from_zero(end, place, about);
        if end.is_finite() && end > 0.0 {
            axis.range.1 = end.min(1e300);
            axis.ticks.retain(|tick| *tick <= end * (1.0 + 1e-9));
        }
        axis
    }

    /// Over the powers of ten from below `least` to above `largest`; both above 0.
    pub(crate) fn logarithmic(least: f64, largest: f64, place: (f64, f64)) -> Self {
        let low = least.max(1e-12).log10().floor().max(-12.0) as i32;
        let high = (largest.max(1e-12).log10().ceil() as i32).clamp(low + 1, low + 40);
        Self {
            range: (10f64.powi(low), 10f64.powi(high)),
            place,
            logarithmic: true,
            ticks: (low..=high).map(|power| 10f64.powi(power)).collect(),
        }
    }

    /// Where a value stands; values beyond the ends stand at them.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let (low, high) = self.range;
        let value = if value.is_finite() {
            value.clamp(low, high)
        } else {
            low
        };
        let part = if self.logarithmic {
            (value / low).log10() / (high / low).log10()
        } else {
            (value - low) / (high - low)
        };
        self.place.0 + (self.place.1 - self.place.0) * part
    }
}

/// A step of 1, 2 or 5 times a power of ten with which `largest` has at most `about` ticks.
pub(crate) fn tick_step(largest: f64, about: f64) -> f64 {
    let magnitude = 10f64.powf((largest / about).log10().floor());
    [1.0, 2.0, 5.0]
        .into_iter()
        .map(|factor| factor * magnitude)
        .find(|step| largest / step <= about + 1e-9)
        .unwrap_or(10.0 * magnitude)
}

/// A unit, and what one of it is in the basic unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Unit {
    pub(crate) name: &'static str,
    pub(crate) size: f64,
}

impl Unit {
    /// For rates up to `largest` bit/s.
    pub(crate) fn of_rate(largest: f64) -> Self {
        let (name, size) = match largest {
            bps if bps >= 10e9 => ("Gbit/s", 1e9),
            bps if bps >= 1e6 => ("Mbit/s", 1e6),
            bps if bps >= 1e3 => ("kbit/s", 1e3),
            _ => ("bit/s", 1.0),
        };
        Self { name, size }
    }

    /// For times up to `largest` seconds.
    pub(crate) fn of_time(largest: f64) -> Self {
        let (name, size) = if largest >= 2.0 {
            ("s", 1.0)
        } else {
            ("ms", 1e-3)
        };
        Self { name, size }
    }

    /// A tick's number, without the unit.
    pub(crate) fn tick(self, value: f64) -> String {
        short(value / self.size)
    }
}

/// At most three significant digits after those before the point, no trailing zeros.
pub(crate) fn short(value: f64) -> String {
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
            assert!((1..60).contains(&axis.ticks.len()), "{strange}");
            assert!(axis.at(strange).is_finite(), "{strange}");
        }
    }

    #[test]
    fn decades_are_of_equal_length() {
        let axis = Axis::logarithmic(0.02, 7.0, (0.0, 300.0));
        assert_eq!(axis.range, (0.01, 10.0));
        assert!((axis.at(0.1) - 100.0).abs() < 1e-9);
        assert_eq!(axis.at(0.0), 0.0);
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
