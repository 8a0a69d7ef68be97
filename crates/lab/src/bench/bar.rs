//! What a row of the matrix must reach.

use std::fmt;

use sumlink_settings::units::{
    format_duration, format_rate, parse_duration, parse_percentage, parse_rate, parse_size,
};

/// A figure of a system, and what it must be.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bar {
    pub(crate) quantity: Quantity,
    /// What the median over the seeds is compared with, in the quantity's own unit.
    pub(crate) bound: f64,
}

/// A figure of a system.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Quantity {
    /// Goodput in bit/s.
    Goodput,
    /// Goodput over the sum of the links alone.
    Sum,
    /// Goodput over that of the best link alone.
    Best,
    /// Goodput over what the links' rates and losses leave: the sum of rate x (1 - loss), headers included.
    Left,
    /// Whole seconds in which less arrived than over the best link alone in the same second.
    SecondsBelow,
    /// Objects that took longer than the workload allows.
    OverLimit,
    /// Completion time over that on the best link alone, of objects up to so many bytes.
    Completion { up_to: u64 },
    /// Goodput of an object over the sum of the goodputs that it has on the links alone, of objects above so many
    /// bytes.
    ObjectSum { above: u64 },
    /// Milliseconds that an answer takes longer than on the best link alone.
    Added,
    /// Bytes sent on purpose more than once over bytes that arrived.
    Duplicates,
    /// The most that the receivers held at once because earlier bytes were missing, over what the links' rates carry
    /// in the largest round-trip time.
    Reorder,
    /// CPU time of all programs at both ends, the traffic's included, for each byte that arrived, over that of
    /// [`REFERENCE`].
    Cpu,
    /// The rival's goodput over what the link carries alone, divided by two: 1 is an equal share.
    Rival,
}

/// What a program costs that is as safe as sumlink without it.
pub(crate) const REFERENCE: &str = "mptcp+tls";

/// Every form, for messages.
const FORMS: &str = "goodput >= 8gbit, sum >= 0.95, best >= 1, left >= 0.9, seconds below best <= 0, within limit, \
                     completion <= 1 of best up to 100kB, completion >= 0.95 of sum above 100kB, \
                     added latency <= 500us, duplicates <= 2%, reorder <= 2, cpu <= 1.5 of mptcp+tls, rival >= 0";

impl Bar {
    /// Reads one of the forms in docs/laboratory.md.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |text: &str| {
            let number: Option<f64> = text.parse().ok();
            number.filter(|number| number.is_finite() && *number >= 0.0)
        };
        let bar = |quantity, bound: Option<f64>| {
            Some(Self {
                quantity,
                bound: bound?,
            })
        };
        let milliseconds = |text: &str| Some(parse_duration(text).ok()?.as_secs_f64() * 1e3);
        let found = match *words.as_slice() {
            ["goodput", ">=", bound] => {
                let rate = parse_rate(bound).ok();
                bar(Quantity::Goodput, rate.map(|rate| rate as f64))
            }
            ["cpu", "<=", bound, "of", REFERENCE] => bar(Quantity::Cpu, number(bound)),
            ["sum", ">=", bound] => bar(Quantity::Sum, number(bound)),
            ["best", ">=", bound] => bar(Quantity::Best, number(bound)),
            ["left", ">=", bound] => bar(Quantity::Left, number(bound)),
            ["seconds", "below", "best", "<=", bound] => bar(Quantity::SecondsBelow, number(bound)),
            ["within", "limit"] => bar(Quantity::OverLimit, Some(0.0)),
            ["completion", "<=", bound, "of", "best", "up", "to", size] => parse_size(size)
                .ok()
                .and_then(|up_to| bar(Quantity::Completion { up_to }, number(bound))),
            ["completion", ">=", bound, "of", "sum", "above", size] => parse_size(size)
                .ok()
                .and_then(|above| bar(Quantity::ObjectSum { above }, number(bound))),
            ["added", "latency", "<=", bound] => bar(Quantity::Added, milliseconds(bound)),
            ["duplicates", "<=", bound] => bar(Quantity::Duplicates, parse_percentage(bound).ok()),
            ["reorder", "<=", bound] => bar(Quantity::Reorder, number(bound)),
            ["rival", ">=", bound] => bar(Quantity::Rival, number(bound)),
            _ => None,
        };
        found.ok_or_else(|| format!("'{text}' is no bar (forms: {FORMS})"))
    }

    /// Whether a median reaches it.
    pub(crate) fn is_reached(&self, median: f64) -> bool {
        // What is measured has no more digits than these; a bound that is met exactly is met.
        const HAIR: f64 = 1e-9;
        if self.quantity.more_is_better() {
            median >= self.bound - HAIR
        } else {
            median <= self.bound + HAIR
        }
    }
}

impl Quantity {
    /// Whether the bound is the least that must be reached, or the most.
    pub(crate) fn more_is_better(self) -> bool {
        matches!(
            self,
            Self::Goodput
                | Self::Sum
                | Self::Best
                | Self::Left
                | Self::ObjectSum { .. }
                | Self::Rival
        )
    }

    /// Whether it is relative to what the links deliver alone.
    pub(crate) fn needs_links(self) -> bool {
        !matches!(
            self,
            Self::Goodput
                | Self::Left
                | Self::OverLimit
                | Self::Duplicates
                | Self::Reorder
                | Self::Cpu
        )
    }

    /// Whether other runs on the same machine would show in it.
    pub(crate) fn needs_quiet(self) -> bool {
        match self {
            Self::Goodput
            | Self::SecondsBelow
            | Self::Completion { .. }
            | Self::ObjectSum { .. }
            | Self::Added
            | Self::Cpu => true,
            Self::Sum
            | Self::Best
            | Self::Left
            | Self::OverLimit
            | Self::Duplicates
            | Self::Reorder
            | Self::Rival => false,
        }
    }

    /// The system, beside the links alone, that it is relative to.
    pub(crate) fn reference(self) -> Option<&'static str> {
        matches!(self, Self::Cpu).then_some(REFERENCE)
    }

    /// The words for quantities where causes are told.
    pub(crate) const WORDS: [&str; 12] = [
        "goodput",
        "sum",
        "best",
        "left",
        "seconds",
        "limit",
        "completion",
        "added",
        "duplicates",
        "reorder",
        "cpu",
        "rival",
    ];

    /// One of them.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Goodput => "goodput",
            Self::Sum => "sum",
            Self::Best => "best",
            Self::Left => "left",
            Self::SecondsBelow => "seconds",
            Self::OverLimit => "limit",
            Self::Completion { .. } | Self::ObjectSum { .. } => "completion",
            Self::Added => "added",
            Self::Duplicates => "duplicates",
            Self::Reorder => "reorder",
            Self::Cpu => "cpu",
            Self::Rival => "rival",
        }
    }

    /// A short name, for tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Goodput => "goodput",
            Self::Sum => "of the sum",
            Self::Best => "of the best link",
            Self::Left => "of what is left",
            Self::SecondsBelow => "seconds below the best link",
            Self::OverLimit => "objects over the limit",
            Self::Completion { .. } => "completion, of the best link's",
            Self::ObjectSum { .. } => "goodput, of the links' sum",
            Self::Added => "added latency",
            Self::Duplicates => "duplicates",
            Self::Reorder => "reorder memory",
            Self::Cpu => "CPU per byte, of mptcp+tls's",
            Self::Rival => "rival's share",
        }
    }

    /// What axes of pictures are in: the factor from the figure to it, and its name; without one for what has no unit.
    pub(crate) fn axis(self) -> (f64, Option<&'static str>) {
        match self {
            Self::Goodput => (1e-9, Some("Gbit/s")),
            Self::SecondsBelow => (1.0, Some("s")),
            Self::Added => (1.0, Some("ms")),
            _ => (1.0, None),
        }
    }

    /// A value as it stands in tables.
    pub(crate) fn format(self, value: f64) -> String {
        match self {
            Self::Goodput => format!("{:.2} Gbit/s", value / 1e9),
            Self::SecondsBelow => format!("{value:.0} s"),
            Self::OverLimit => format!("{value:.0}"),
            Self::Added => format!("{value:.2} ms"),
            Self::Duplicates => format!("{:.2} %", value * 100.0),
            Self::Reorder | Self::Cpu => format!("{value:.2}"),
            _ => format!("{value:.3}"),
        }
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.quantity.more_is_better() {
            "≥"
        } else {
            "≤"
        };
        let bound = match self.quantity {
            Quantity::Duplicates => format!("{} %", self.bound * 100.0),
            Quantity::Goodput => format_rate(self.bound as u64),
            Quantity::Added => {
                format_duration(std::time::Duration::from_secs_f64(self.bound / 1e3))
            }
            _ => format!("{}", self.bound),
        };
        write!(f, "{sign} {bound}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(text: &str) -> Bar {
        Bar::parse(text).unwrap()
    }

    #[test]
    fn every_form_is_read() {
        for form in FORMS.split(", ") {
            assert!(Bar::parse(form).is_ok(), "{form}");
        }
        assert_eq!(bar("duplicates <= 2%").bound, 0.02);
        assert_eq!(bar("added latency <= 0.5ms").bound, 0.5);
        let files = bar("completion <= 1 of best up to 100kB");
        assert_eq!(files.quantity, Quantity::Completion { up_to: 100_000 });
        for wrong in [
            "sum",
            "sum > 1",
            "sum >= x",
            "sum >= -1",
            "sum >= NaN",
            "best <= 1",
            "goodput >= 8",
            "cpu <= 1.5",
            "",
        ] {
            let error = Bar::parse(wrong).unwrap_err();
            assert!(error.contains("forms: goodput >= 8gbit"), "{error}");
        }
    }

    #[test]
    fn a_bound_that_is_met_exactly_is_met() {
        let cases = [
            ("sum >= 0.97", 0.97, 0.969_99),
            ("best >= 1", 1.0, 0.999_9),
            ("left >= 0.9", 0.9, 0.899_9),
            ("seconds below best <= 0", 0.0, 1.0),
            ("within limit", 0.0, 1.0),
            ("completion <= 1 of best up to 100kB", 1.0, 1.000_1),
            ("completion >= 0.95 of sum above 100kB", 0.95, 0.949_9),
            ("added latency <= 0.5ms", 0.5, 0.500_1),
            ("duplicates <= 2%", 0.02, 0.020_01),
            ("reorder <= 2", 2.0, 2.000_1),
            ("rival >= 0.8", 0.8, 0.799_9),
            ("goodput >= 8gbit", 8e9, 7.999e9),
            ("cpu <= 1.5 of mptcp+tls", 1.5, 1.500_1),
        ];
        for (text, reached, missed) in cases {
            assert!(bar(text).is_reached(reached), "{text}");
            assert!(!bar(text).is_reached(missed), "{text}");
        }
        assert!(!bar("sum >= 0").is_reached(f64::NAN));
        assert!(!bar("within limit").is_reached(f64::NAN));
    }

    #[test]
    fn bars_are_shown_with_their_sign() {
        assert_eq!(bar("sum >= 0.97").to_string(), "≥ 0.97");
        assert_eq!(bar("duplicates <= 2%").to_string(), "≤ 2 %");
        assert_eq!(bar("added latency <= 0.5ms").to_string(), "≤ 500us");
        assert_eq!(bar("goodput >= 8gbit").to_string(), "≥ 8gbit");
        assert_eq!(Quantity::Duplicates.format(0.0123), "1.23 %");
    }
}
