//! Quantities with units: `20mbit`, `200ms`, `10GB`, `5%`.
//!
//! A unit is always required, except for `0`: a bare `60` could mean megabits or bits. Letter case
//! does not matter. Parsing is exact: decimal fractions are not rounded through a floating-point
//! number.

use std::time::Duration;

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnitError {
    /// It does not start with a number.
    #[error("'{text}' is not a {kind}: write a number and a unit, such as {example}")]
    NoNumber {
        /// The text.
        text: String,
        /// The expected kind.
        kind: &'static str,
        /// A valid example.
        example: &'static str,
    },
    /// The number has no unit.
    #[error("'{text}' has no unit: write a {kind} such as {example} (units: {units})")]
    NoUnit {
        /// The text.
        text: String,
        /// The expected kind.
        kind: &'static str,
        /// A valid example.
        example: &'static str,
        /// All units of that kind.
        units: &'static str,
    },
    /// The unit does not belong to this kind.
    #[error("'{unit}' in '{text}' is not a unit of a {kind} (units: {units})")]
    UnknownUnit {
        /// The text.
        text: String,
        /// The part after the number.
        unit: String,
        /// The expected kind.
        kind: &'static str,
        /// All units of that kind.
        units: &'static str,
    },
    /// The number is larger than any sensible value.
    #[error("'{text}' is out of range for a {kind}: write at most {most}")]
    OutOfRange {
        /// The text.
        text: String,
        /// The expected kind.
        kind: &'static str,
        /// The largest value of the kind.
        most: &'static str,
    },
}

/// One kind of quantity: its name, an example, and its units with their size in the base unit.
struct Kind {
    name: &'static str,
    example: &'static str,
    list: &'static str,
    /// The largest value, in a large unit.
    most: &'static str,
    units: &'static [(&'static str, u128)],
}

const RATE: Kind = Kind {
    name: "rate",
    example: "20mbit",
    list: "bit, kbit, mbit, gbit",
    most: "18446744073gbit",
    units: &[
        ("bit", 1),
        ("kbit", 1_000),
        ("mbit", 1_000_000),
        ("gbit", 1_000_000_000),
    ],
};

const DURATION: Kind = Kind {
    name: "duration",
    example: "200ms",
    list: "ns, us, ms, s, min, h",
    most: "87600h",
    units: &[
        ("ns", 1),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("min", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ],
};

const SIZE: Kind = Kind {
    name: "size",
    example: "10MB",
    list: "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB",
    most: "16777215TiB",
    units: &[
        ("b", 1),
        ("kb", 1_000),
        ("mb", 1_000_000),
        ("gb", 1_000_000_000),
        ("tb", 1_000_000_000_000),
        ("kib", 1 << 10),
        ("mib", 1 << 20),
        ("gib", 1 << 30),
        ("tib", 1 << 40),
    ],
};

/// In units of 10^-9.
const SHARE: Kind = Kind {
    name: "percentage",
    example: "5%",
    list: "%",
    most: "100%",
    units: &[("%", 10_000_000)],
};

/// A rate in bits per second: `20mbit`, `1.5gbit`, `0`.
pub fn parse_rate(text: &str) -> Result<u64, UnitError> {
    narrow(text, &RATE, parse(text, &RATE)?)
}

/// A duration, at most 10 years: `200ms`, `1.5s`, `0`.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    const TEN_YEARS: u64 = 10 * 365 * 86_400 * 1_000_000_000;
    let nanos = narrow(text, &DURATION, parse(text, &DURATION)?)?;
    if nanos > TEN_YEARS {
        return Err(UnitError::OutOfRange {
            text: text.to_owned(),
            kind: DURATION.name,
            most: DURATION.most,
        });
    }
    Ok(Duration::from_nanos(nanos))
}

/// A number of bytes: `10GB` (powers of 1000), `64KiB` (powers of 1024), `0`.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    narrow(text, &SIZE, parse(text, &SIZE)?)
}

/// A share of a whole, as a number in 0.0..=1.0: `5%`, `0.1%`, `0`.
pub fn parse_percentage(text: &str) -> Result<f64, UnitError> {
    let billionths = parse(text, &SHARE)?;
    if billionths > 1_000_000_000 {
        return Err(UnitError::OutOfRange {
            text: text.to_owned(),
            kind: SHARE.name,
            most: SHARE.most,
        });
    }
    Ok(billionths as f64 / 1e9)
}

/// Formats a rate so that [`parse_rate`] reads it back unchanged: `60mbit`, `1.5gbit`.
pub fn format_rate(bits_per_second: u64) -> String {
    format_exact(u128::from(bits_per_second), &RATE.units[1..], "bit")
}

/// Formats a duration so that [`parse_duration`] reads it back unchanged: `10ms`, `1.5s`.
pub fn format_duration(duration: Duration) -> String {
    format_exact(duration.as_nanos(), &DURATION.units[1..4], "ns")
}

/// Formats a share as a percentage: `5%`.
pub fn format_percentage(share: f64) -> String {
    format!("{}%", (share * 1e9).round() / 1e7)
}

/// Formats a value in the largest unit in which it is at least 1, with all necessary decimals.
fn format_exact(value: u128, units: &[(&str, u128)], base: &str) -> String {
    match units.iter().rev().find(|(_, size)| value >= *size) {
        None => format!("{value}{base}"),
        Some((unit, size)) => {
            let digits = size.ilog10() as usize;
            let text = format!("{}.{:0digits$}", value / size, value % size);
            format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
        }
    }
}

fn narrow(text: &str, kind: &Kind, value: u128) -> Result<u64, UnitError> {
    let out_of_range = || UnitError::OutOfRange {
        text: text.to_owned(),
        kind: kind.name,
        most: kind.most,
    };
    u64::try_from(value).map_err(|_| out_of_range())
}

/// Parses a quantity in base units, rounded down to a whole number.
fn parse(text: &str, kind: &Kind) -> Result<u128, UnitError> {
    let trimmed = text.trim();
    let no_number = || UnitError::NoNumber {
        text: text.to_owned(),
        kind: kind.name,
        example: kind.example,
    };
    let out_of_range = || UnitError::OutOfRange {
        text: text.to_owned(),
        kind: kind.name,
        most: kind.most,
    };
    let end = trimmed
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(trimmed.len());
    let (number, unit) = (&trimmed[..end], trimmed[end..].trim());
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.contains('.') || (number.contains('.') && fraction.is_empty()) {
        return Err(no_number());
    }
    // Sensible quantities have at most 18 digits, and the arithmetic below stays in range.
    if whole.len() > 18 || fraction.len() > 18 {
        return Err(out_of_range());
    }
    let scale = 10u128.pow(fraction.len() as u32);
    let digits: u128 = format!("{whole}{fraction}")
        .parse()
        .map_err(|_| out_of_range())?;
    if unit.is_empty() {
        if digits == 0 {
            return Ok(0);
        }
        return Err(UnitError::NoUnit {
            text: text.to_owned(),
            kind: kind.name,
            example: kind.example,
            units: kind.list,
        });
    }
    let lower = unit.to_ascii_lowercase();
    let size = kind
        .units
        .iter()
        .find(|(name, _)| *name == lower)
        .map(|(_, size)| *size);
    let size = size.ok_or_else(|| UnitError::UnknownUnit {
        text: text.to_owned(),
        unit: unit.to_owned(),
        kind: kind.name,
        units: kind.list,
    })?;
    digits
        .checked_mul(size)
        .map(|product| product / scale)
        .ok_or_else(out_of_range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_spellings_are_accepted() {
        assert_eq!(parse_rate("20mbit"), Ok(20_000_000));
        assert_eq!(parse_rate("1.5Gbit"), Ok(1_500_000_000));
        assert_eq!(parse_rate("0"), Ok(0));
        assert_eq!(parse_duration("200ms"), Ok(Duration::from_millis(200)));
        assert_eq!(parse_duration("1.5 s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_size("10GB"), Ok(10_000_000_000));
        assert_eq!(parse_size("64KiB"), Ok(65_536));
        assert_eq!(parse_percentage("5%"), Ok(0.05));
        assert_eq!(parse_percentage("0.1%"), Ok(0.001));
        assert_eq!(parse_percentage("100%"), Ok(1.0));
    }

    #[test]
    fn errors_name_the_problem() {
        let message = |error: UnitError| error.to_string();
        assert_eq!(
            message(parse_rate("60").unwrap_err()),
            "'60' has no unit: write a rate such as 20mbit (units: bit, kbit, mbit, gbit)"
        );
        assert_eq!(
            message(parse_rate("60mbps").unwrap_err()),
            "'mbps' in '60mbps' is not a unit of a rate (units: bit, kbit, mbit, gbit)"
        );
        assert_eq!(
            message(parse_duration("fast").unwrap_err()),
            "'fast' is not a duration: write a number and a unit, such as 200ms"
        );
        for bad in ["", "-5%", ".5%", "5.%", "1.2.3%", "%"] {
            assert!(
                matches!(parse_percentage(bad), Err(UnitError::NoNumber { .. })),
                "{bad}"
            );
        }
        assert!(matches!(
            parse_percentage("101%"),
            Err(UnitError::OutOfRange { .. })
        ));
        assert!(matches!(
            parse_rate("99999999999gbit"),
            Err(UnitError::OutOfRange { .. })
        ));
        assert!(matches!(
            parse_size("1234567890123456789B"),
            Err(UnitError::OutOfRange { .. })
        ));
        assert!(matches!(
            parse_duration("1000000h"),
            Err(UnitError::OutOfRange { .. })
        ));
    }

    #[test]
    fn formatted_quantities_parse_back() {
        for rate in [0, 1, 999, 60_000_000, 1_500_000_000, 2_400_000_001] {
            assert_eq!(parse_rate(&format_rate(rate)), Ok(rate));
        }
        assert_eq!(format_rate(60_000_000), "60mbit");
        assert_eq!(format_rate(1_500_000_000), "1.5gbit");
        for nanos in [0, 1, 999, 10_000_000, 1_500_000_000] {
            let duration = Duration::from_nanos(nanos);
            assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }
        assert_eq!(format_duration(Duration::from_millis(10)), "10ms");
        assert_eq!(format_percentage(0.05), "5%");
        assert_eq!(format_percentage(0.001), "0.1%");
    }
}
