//! The criteria that a row of the matrix must meet.

use std::fmt;

use sumlink_scenario::system::with_socks;
use sumlink_settings::units::{
    format_duration, format_rate, parse_duration, parse_percentage, parse_rate, parse_size,
};

use super::percentile::{Over, Part};

/// A criterion: a figure of a system and its bound.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bar {
    pub(crate) quantity: Quantity,
    /// Bound for the median over the seeds, in the unit of the quantity.
    pub(crate) bound: f64,
}

/// A figure of a system that a bar can be set for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Quantity {
    /// Goodput in bit/s.
    Goodput,
    /// Goodput divided by the sum of the goodputs of the links alone.
    Sum,
    /// Goodput divided by that of the best link alone.
    Best,
    /// Goodput divided by the capacity that loss leaves: the sum of rate x (1 - loss), headers
    /// included.
    Left,
    /// Whole seconds that delivered less than the best link alone delivered in the same second.
    SecondsBelow,
    /// The greatest lag behind a link alone divided by its limit.
    Lag,
    /// Objects that took longer than the workload allows.
    OverLimit,
    /// Completion time divided by that on the best link alone, for objects of at most `up_to`
    /// bytes.
    Completion { up_to: u64 },
    /// Goodput of an object divided by the sum of its goodputs on the links alone, for objects
    /// larger than `above` bytes.
    ObjectSum { above: u64 },
    /// Latency of an answer in excess of the best link alone, in milliseconds.
    Added,
    /// Bytes of intentional duplicates divided by delivered bytes.
    Duplicates,
    /// Peak memory of all receivers for out-of-order bytes, divided by the links' rates times the
    /// largest round-trip time.
    Reorder,
    /// CPU time per delivered byte of all programs at both ends, the traffic programs included,
    /// divided by that of [`REFERENCE`].
    Cpu,
    /// Datagrams that never arrived, in all flows but probes.
    LostDatagrams,
    /// The part of the datagrams that never arrived, in the worse direction.
    Loss,
    /// The longest time without a datagram in milliseconds, in the worse direction.
    Gap,
    /// A percentile of the delay of datagrams in excess of a reference, in milliseconds, in the
    /// worse direction.
    Delay { part: Part, over: Over },
    /// A percentile of the round trip of probes, in excess of the shortest round trip of a link
    /// without traffic, in milliseconds.
    RoundTrip { part: Part },
    /// Goodput divided by that of the same system through its SOCKS5 entry, with the same seed.
    OfSocks,
    /// Peak resident memory of the system's largest program, in bytes.
    Memory,
    /// Connections that were open at the end.
    Open,
    /// Median time of an answer, in milliseconds.
    Latency,
    /// Time from the start of a gateway's program to the first byte through it, in seconds.
    FirstByte,
    /// The competing connection's goodput divided by half the link's goodput alone: 1 is an equal
    /// share.
    Rival,
}

/// The system that CPU cost is compared with: as secure as sumlink, without bonding in user space.
pub(crate) const REFERENCE: &str = "mptcp+tls";

/// All accepted forms, for error messages.
const FORMS: &str = "goodput >= 8gbit, sum >= 0.95, best >= 1, left >= 0.9, seconds below best \
                     <= 0, lag <= 1, within limit, completion <= 1 of best up to 100kB, completion >= 0.95 \
                     of sum above 100kB, added latency <= 500us, duplicates <= 2%, reorder <= 2, \
                     cpu <= 1.5 of mptcp+tls, lost datagrams <= 0, loss <= 0.1%, gap <= 150ms, \
                     delay p99 <= best + 5ms, delay p99 <= idle + 15ms, round trip p95 <= idle + \
                     30ms, socks >= 0.8, memory <= 400MB, open >= 20000, latency <= 1ms, first \
                     byte <= 1s, rival >= 0";

impl Bar {
    /// Reads one of the forms in docs/measuring.md.
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
            ["lag", "<=", bound] => bar(Quantity::Lag, number(bound)),
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
            ["lost", "datagrams", "<=", bound] => bar(Quantity::LostDatagrams, number(bound)),
            ["loss", "<=", bound] => bar(Quantity::Loss, parse_percentage(bound).ok()),
            ["gap", "<=", bound] => bar(Quantity::Gap, milliseconds(bound)),
            ["delay", part, "<=", over @ ("best" | "idle"), "+", bound] => {
                let over = if over == "best" {
                    Over::Best
                } else {
                    Over::Idle
                };
                let part = Part::parse(part);
                part.and_then(|part| bar(Quantity::Delay { part, over }, milliseconds(bound)))
            }
            ["round", "trip", part, "<=", "idle", "+", bound] => Part::parse(part)
                .and_then(|part| bar(Quantity::RoundTrip { part }, milliseconds(bound))),
            ["socks", ">=", bound] => bar(Quantity::OfSocks, number(bound)),
            ["memory", "<=", bound] => {
                let size = parse_size(bound).ok();
                bar(Quantity::Memory, size.map(|size| size as f64))
            }
            ["open", ">=", bound] => bar(Quantity::Open, number(bound)),
            ["latency", "<=", bound] => bar(Quantity::Latency, milliseconds(bound)),
            ["first", "byte", "<=", bound] => {
                let seconds = milliseconds(bound).map(|milliseconds| milliseconds / 1e3);
                bar(Quantity::FirstByte, seconds)
            }
            ["rival", ">=", bound] => bar(Quantity::Rival, number(bound)),
            _ => None,
        };
        found.ok_or_else(|| format!("'{text}' is not a bar (forms: {FORMS})"))
    }

    /// Whether a median meets the bound.
    pub(crate) fn is_reached(&self, median: f64) -> bool {
        // Tolerance for rounding: a bound that is met exactly counts as met.
        const ROUNDING: f64 = 1e-9;
        if self.quantity.more_is_better() {
            median >= self.bound - ROUNDING
        } else {
            median <= self.bound + ROUNDING
        }
    }
}

impl Quantity {
    /// Whether the bound is a minimum (true) or a maximum.
    pub(crate) fn more_is_better(self) -> bool {
        matches!(
            self,
            Self::Goodput
                | Self::Sum
                | Self::Best
                | Self::Left
                | Self::ObjectSum { .. }
                | Self::OfSocks
                | Self::Open
                | Self::Rival
        )
    }

    /// Whether the figure is relative to the links alone.
    pub(crate) fn needs_links(self) -> bool {
        !matches!(
            self,
            Self::Goodput
                | Self::Left
                | Self::OverLimit
                | Self::Duplicates
                | Self::Reorder
                | Self::Cpu
                | Self::LostDatagrams
                | Self::Loss
                | Self::Gap
                | Self::Delay {
                    over: Over::Idle,
                    ..
                }
                | Self::RoundTrip { .. }
                | Self::OfSocks
                | Self::Memory
                | Self::Open
                | Self::Latency
                | Self::FirstByte
        )
    }

    /// Whether concurrent runs on the same machine would distort the figure.
    pub(crate) fn needs_quiet(self) -> bool {
        match self {
            Self::Goodput
            | Self::SecondsBelow
            | Self::Lag
            | Self::Completion { .. }
            | Self::ObjectSum { .. }
            | Self::Added
            | Self::LostDatagrams
            | Self::Loss
            | Self::Gap
            | Self::Delay { .. }
            | Self::RoundTrip { .. }
            | Self::OfSocks
            | Self::Memory
            | Self::Open
            | Self::Latency
            | Self::FirstByte
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

    /// The system, in addition to the links alone, that the figure of a system is relative to.
    pub(crate) fn reference(self, system: &str) -> Option<String> {
        match self {
            Self::Cpu => Some(REFERENCE.to_owned()),
            Self::OfSocks => with_socks(system),
            _ => None,
        }
    }

    /// Words for quantities in the keys of `causes`.
    pub(crate) const WORDS: [&str; 23] = [
        "goodput",
        "sum",
        "best",
        "left",
        "seconds",
        "lag",
        "limit",
        "completion",
        "added",
        "duplicates",
        "reorder",
        "cpu",
        "rival",
        "lost",
        "loss",
        "gap",
        "delay",
        "trip",
        "socks",
        "memory",
        "open",
        "latency",
        "first",
    ];

    /// The word of [`Self::WORDS`] for this quantity.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Goodput => "goodput",
            Self::Sum => "sum",
            Self::Best => "best",
            Self::Left => "left",
            Self::SecondsBelow => "seconds",
            Self::Lag => "lag",
            Self::OverLimit => "limit",
            Self::Completion { .. } | Self::ObjectSum { .. } => "completion",
            Self::Added => "added",
            Self::Duplicates => "duplicates",
            Self::Reorder => "reorder",
            Self::Cpu => "cpu",
            Self::Rival => "rival",
            Self::LostDatagrams => "lost",
            Self::Loss => "loss",
            Self::Gap => "gap",
            Self::Delay { .. } => "delay",
            Self::RoundTrip { .. } => "trip",
            Self::OfSocks => "socks",
            Self::Memory => "memory",
            Self::Open => "open",
            Self::Latency => "latency",
            Self::FirstByte => "first",
        }
    }

    /// Short name for tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Goodput => "goodput",
            Self::Sum => "of the sum",
            Self::Best => "of the best link",
            Self::Left => "of what is left",
            Self::SecondsBelow => "seconds below the best link",
            Self::Lag => "lag, of its limit",
            Self::OverLimit => "objects over the limit",
            Self::Completion { .. } => "completion, of the best link's",
            Self::ObjectSum { .. } => "goodput, of the links' sum",
            Self::Added => "added latency",
            Self::Duplicates => "duplicates",
            Self::Reorder => "reorder memory",
            Self::Cpu => "CPU per byte, of mptcp+tls's",
            Self::Rival => "rival's share",
            Self::OfSocks => "of SOCKS5",
            Self::Memory => "memory",
            Self::Open => "open connections",
            Self::Latency => "latency",
            Self::FirstByte => "first byte",
            Self::LostDatagrams => "lost datagrams",
            Self::Loss => "loss",
            Self::Gap => "longest gap",
            Self::Delay { part, over } => match (part, over) {
                (Part::P50, Over::Best) => "median delay above the best link's",
                (Part::P95, Over::Best) => "95 % delay above the best link's",
                (Part::P99, Over::Best) => "99 % delay above the best link's",
                (Part::P50, Over::Idle) => "median delay above an idle link's",
                (Part::P95, Over::Idle) => "95 % delay above an idle link's",
                (Part::P99, Over::Idle) => "99 % delay above an idle link's",
            },
            Self::RoundTrip { part } => match part {
                Part::P50 => "median round trip above an idle link's",
                Part::P95 => "95 % round trip above an idle link's",
                Part::P99 => "99 % round trip above an idle link's",
            },
        }
    }

    /// Unit of chart axes: the factor from the figure to it, and its name; no name for
    /// dimensionless figures.
    pub(crate) fn axis(self) -> (f64, Option<&'static str>) {
        match self {
            Self::Goodput => (1e-9, Some("Gbit/s")),
            Self::Memory => (1e-6, Some("MB")),
            Self::SecondsBelow | Self::FirstByte => (1.0, Some("s")),
            Self::Latency
            | Self::Added
            | Self::Gap
            | Self::Delay { .. }
            | Self::RoundTrip { .. } => (1.0, Some("ms")),
            _ => (1.0, None),
        }
    }

    /// Formats a value for tables.
    pub(crate) fn format(self, value: f64) -> String {
        match self {
            Self::Goodput => format!("{:.2} Gbit/s", value / 1e9),
            Self::SecondsBelow => format!("{value:.0} s"),
            Self::OverLimit | Self::LostDatagrams | Self::Open => format!("{value:.0}"),
            Self::Memory => format!("{:.0} MB", value / 1e6),
            Self::FirstByte => format!("{value:.2} s"),
            Self::Latency
            | Self::Added
            | Self::Gap
            | Self::Delay { .. }
            | Self::RoundTrip { .. } => {
                format!("{value:.2} ms")
            }
            Self::Duplicates | Self::Loss => format!("{:.2} %", value * 100.0),
            Self::Reorder | Self::Cpu | Self::Lag => format!("{value:.2}"),
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
            Quantity::Duplicates | Quantity::Loss => format!("{} %", self.bound * 100.0),
            Quantity::Goodput => format_rate(self.bound as u64),
            Quantity::Memory => format!("{} MB", self.bound / 1e6),
            Quantity::FirstByte => format!("{} s", self.bound),
            Quantity::Latency
            | Quantity::Added
            | Quantity::Gap
            | Quantity::Delay { .. }
            | Quantity::RoundTrip { .. } => {
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
            "delay p98 <= best + 5ms",
            "delay p99 <= 5ms",
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
            ("lost datagrams <= 0", 0.0, 1.0),
            ("loss <= 0.1%", 0.001, 0.001_01),
            ("gap <= 150ms", 150.0, 150.1),
            ("delay p99 <= best + 5ms", 5.0, 5.1),
            ("delay p50 <= idle + 1ms", -0.1, 1.1),
            ("round trip p95 <= idle + 30ms", 30.0, 30.1),
            ("socks >= 0.8", 0.8, 0.799_9),
            ("memory <= 400MB", 4e8, 4.000_1e8),
            ("open >= 20000", 20_000.0, 19_999.0),
            ("latency <= 1ms", 1.0, 1.000_1),
            ("first byte <= 1s", 1.0, 1.000_1),
        ];
        for (text, reached, missed) in cases {
            assert!(bar(text).is_reached(reached), "{text}");
            assert!(!bar(text).is_reached(missed), "{text}");
        }
        assert!(!bar("sum >= 0").is_reached(f64::NAN));
        assert!(!bar("within limit").is_reached(f64::NAN));
    }

    #[test]
    fn bars_are_formatted_with_their_sign() {
        assert_eq!(bar("sum >= 0.97").to_string(), "≥ 0.97");
        assert_eq!(bar("duplicates <= 2%").to_string(), "≤ 2 %");
        assert_eq!(bar("added latency <= 0.5ms").to_string(), "≤ 500us");
        assert_eq!(bar("goodput >= 8gbit").to_string(), "≥ 8gbit");
        assert_eq!(Quantity::Duplicates.format(0.0123), "1.23 %");
        assert_eq!(bar("memory <= 400MB").to_string(), "≤ 400 MB");
        assert_eq!(bar("first byte <= 1s").to_string(), "≤ 1 s");
        assert_eq!(Quantity::Memory.format(3.2e8), "320 MB");
    }
}
