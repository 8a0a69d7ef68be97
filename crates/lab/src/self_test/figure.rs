//! One line of the self-test's table.

use std::fmt;

use serde::Serialize;

/// The largest relative deviation of a figure from its setting.
pub(super) const TOLERANCE: f64 = 0.02;

/// Whether a figure matches its setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It does, within the tolerance.
    Passed,
    /// It does not.
    Failed,
    /// The emulator, or the shaper that it is compared with, did not keep up in any attempt.
    Refused,
}

/// One property of the emulator, as set and as measured.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Name of the property.
    pub name: String,
    /// Unit of the numbers.
    pub unit: &'static str,
    /// The setting, or the result with the kernel's shaper.
    pub asked: f64,
    /// The measured value; the median over the repeats.
    pub measured: f64,
    /// `measured / asked - 1`; `measured` if the setting is 0.
    pub deviation: f64,
    /// Whether the deviation is within the tolerance of 2 %.
    pub verdict: Verdict,
}

impl Figure {
    pub(super) fn new(
        name: impl Into<String>,
        unit: &'static str,
        asked: f64,
        measured: f64,
    ) -> Self {
        let deviation = if asked == 0.0 {
            measured
        } else {
            measured / asked - 1.0
        };
        let verdict = if deviation.abs() <= TOLERANCE {
            Verdict::Passed
        } else {
            Verdict::Failed
        };
        Self {
            name: name.into(),
            unit,
            asked,
            measured,
            deviation,
            verdict,
        }
    }

    /// The median of repeated measurements of the same figure.
    pub(super) fn median_of(figures: &[Self]) -> Option<Self> {
        let first = figures.first()?;
        let pick = |value: fn(&Self) -> f64| median(figures.iter().map(value).collect());
        let mut figure = Self::new(
            first.name.clone(),
            first.unit,
            pick(|f| f.asked),
            pick(|f| f.measured),
        );
        if figures.iter().any(|f| f.verdict == Verdict::Refused) {
            figure.verdict = Verdict::Refused;
        }
        Some(figure)
    }
}

/// The figure's line in the table, under the headings.
impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Passed => "passed",
            Verdict::Failed => "FAILED",
            Verdict::Refused => "refused: the machine was too busy",
        };
        write!(
            f,
            "{:<56} {:>10.3} {:>10.3} {:<8} {:>8.2}%  {verdict}",
            self.name,
            self.asked,
            self.measured,
            self.unit,
            self.deviation * 100.0
        )
    }
}

/// 0 without values.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        len if len % 2 == 1 => values[len / 2],
        len => f64::midpoint(values[len / 2 - 1], values[len / 2]),
    }
}

/// The headings of the table.
pub(super) fn headings() -> String {
    format!(
        "{:<56} {:>10} {:>10} {:<8} {:>9}  verdict",
        "FIGURE", "ASKED", "MEASURED", "UNIT", "DEVIATION"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_per_cent_is_the_limit() {
        let verdict = |asked, measured| Figure::new("x", "ms", asked, measured).verdict;
        assert_eq!(verdict(100.0, 101.9), Verdict::Passed);
        assert_eq!(verdict(100.0, 97.9), Verdict::Failed);
        assert_eq!(verdict(0.0, 0.0), Verdict::Passed);
        assert_eq!(verdict(0.0, 1.0), Verdict::Failed);
        assert_eq!(verdict(100.0, f64::NAN), Verdict::Failed);
    }
}
