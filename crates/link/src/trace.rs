//! Recorded or generated delivery opportunities, in the format of Mahimahi.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

/// Delivery times of a link: a list of opportunities, repeated forever.
///
/// The text format is that of Mahimahi (Netravali et al., "Mahimahi: Accurate Record-and-Replay for
/// HTTP", USENIX ATC 2015). Each line is one whole number, the time in milliseconds since the start
/// of the trace at which [`Trace::OPPORTUNITY`] bytes may be delivered. A stamp may occur several
/// times, and stamps never decrease. After the last one the trace starts again, with the last stamp
/// as its new zero.
///
/// As an extension, the first line `# unit: us` sets the unit to microseconds: an opportunity every
/// millisecond is 12 Mbit/s, and above 1 Gbit/s more than 80 of them would share a stamp. `# unit:
/// ms` states the default. No other comments are allowed.
///
/// ```
/// use sumlink_link::Trace;
///
/// let trace: Trace = "1\n2\n4\n4\n".parse().unwrap();
/// assert_eq!(trace.mean_rate(), 12_000_000); // four opportunities of 1500 bytes in 4 ms
///
/// let error = "1\n2\n3\n4\n5\n6\nx\n".parse::<Trace>().unwrap_err();
/// assert!(error.to_string().starts_with("line 7: \"x\" is not a whole number of milliseconds"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// In microseconds, never decreasing; the last one is the period and not 0.
    stamps: Arc<[u64]>,
}

/// Reasons for rejecting the text of a trace. Lines are counted from 1.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// The trace has no stamps.
    #[error("the trace is empty; it needs at least one line with a time stamp above 0")]
    Empty,
    /// A line is not a number.
    #[error(
        "line {line}: \"{text}\" is not a whole number of {unit}; each line is the time of one \
         delivery opportunity"
    )]
    NotAStamp {
        /// Line number.
        line: usize,
        /// Its text, truncated if long.
        text: String,
        /// `milliseconds` or `microseconds`.
        unit: &'static str,
    },
    /// A stamp is before its predecessor.
    #[error("line {line}: {stamp} is before {previous} in the line above; sort the trace")]
    Decreasing {
        /// Line number.
        line: usize,
        /// Its stamp.
        stamp: u64,
        /// The stamp of the line above.
        previous: u64,
    },
    /// A stamp is implausibly large.
    #[error("line {line}: {stamp} is more than ten years; is the unit right?")]
    TooLate {
        /// Line number.
        line: usize,
        /// Its stamp.
        stamp: u64,
    },
    /// Every stamp is 0.
    #[error("the last time stamp is 0, and it is the period; it must be above 0")]
    ZeroPeriod,
}

/// Ten years in microseconds; keeps all sums of times far from an overflow.
const MAX_STAMP: u64 = 10 * 365 * 86_400 * 1_000_000;

impl Trace {
    /// Bytes of one opportunity.
    pub const OPPORTUNITY: u64 = 1_500;

    /// Creates a trace from stamps in microseconds. Errors count each stamp as one line.
    pub fn from_micros(stamps: Vec<u64>) -> Result<Self, TraceError> {
        check(&stamps, 1, 1)?;
        Ok(Self {
            stamps: stamps.into(),
        })
    }

    /// Creates a trace of a rate that changes in steps. Each `(since, bits per second)` holds until
    /// the next one, the last one until `end`; the time before the first one is empty.
    ///
    /// The rates are kept exactly over time: a fraction of an opportunity at a change is carried
    /// over. The period is `end` if an opportunity falls on it; otherwise it ends with the last
    /// opportunity.
    pub fn from_rates(steps: &[(Duration, u64)], end: Duration) -> Result<Self, TraceError> {
        let bits = u128::from(Self::OPPORTUNITY) * 8 * 1_000_000;
        let mut stamps = Vec::new();
        // Bits * 10^6 sent since the last opportunity.
        let mut credit = 0;
        for (i, (since, rate)) in steps.iter().enumerate() {
            let until = steps.get(i + 1).map_or(end, |(at, _)| *at).min(end);
            let length = until.saturating_sub(*since).as_micros();
            let rate = u128::from(*rate);
            let total = credit + rate * length;
            for n in 1..=total / bits {
                let at = since.as_micros() + (n * bits - credit).div_ceil(rate);
                stamps.push(u64::try_from(at).unwrap_or(u64::MAX));
            }
            credit = total % bits;
        }
        Self::from_micros(stamps)
    }

    /// Duration of the trace before it repeats.
    pub fn period(&self) -> Duration {
        Duration::from_micros(self.period_micros())
    }

    /// Opportunities in one period.
    pub fn opportunities(&self) -> usize {
        self.stamps.len()
    }

    /// Bits per second over one period.
    pub fn mean_rate(&self) -> u64 {
        let bits = self.stamps.len() as u128 * u128::from(Self::OPPORTUNITY) * 8;
        u64::try_from(bits * 1_000_000 / u128::from(self.period_micros())).unwrap_or(u64::MAX)
    }

    /// Microseconds from the start of the trace to the opportunity with that number, repeats
    /// included.
    pub(crate) fn micros_of(&self, number: u64) -> u64 {
        let len = self.stamps.len() as u64;
        let stamp = self.stamps[(number % len) as usize];
        (number / len)
            .saturating_mul(self.period_micros())
            .saturating_add(stamp)
    }

    /// Number of the first opportunity at or after that time.
    pub(crate) fn first_from(&self, micros: u64) -> u64 {
        // The last stamp of a period coincides with the zero of the next one.
        let period = self.period_micros();
        let cycle = micros.saturating_sub(1) / period;
        let within = micros - cycle * period;
        let index = self.stamps.partition_point(|stamp| *stamp < within) as u64;
        cycle.saturating_mul(self.stamps.len() as u64) + index
    }

    fn period_micros(&self) -> u64 {
        self.stamps[self.stamps.len() - 1]
    }
}

impl std::str::FromStr for Trace {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Self, TraceError> {
        let (unit, micros) = match text.lines().next().map(str::trim) {
            Some("# unit: us") => ("microseconds", 1),
            _ => ("milliseconds", 1_000),
        };
        let marked = text
            .lines()
            .next()
            .is_some_and(|first| matches!(first.trim(), "# unit: us" | "# unit: ms"));
        let first_line = 1 + usize::from(marked);
        let mut stamps = Vec::new();
        for (i, line) in text.lines().enumerate().skip(usize::from(marked)) {
            let stamp = line.trim().parse().map_err(|_| TraceError::NotAStamp {
                line: i + 1,
                text: line.trim().chars().take(40).collect(),
                unit,
            })?;
            stamps.push(stamp);
        }
        check(&stamps, micros, first_line)?;
        Ok(Self {
            stamps: stamps.into_iter().map(|stamp| stamp * micros).collect(),
        })
    }
}

/// Checks stamps in a unit of `micros` microseconds.
fn check(stamps: &[u64], micros: u64, first_line: usize) -> Result<(), TraceError> {
    let mut previous = 0;
    for (i, stamp) in stamps.iter().copied().enumerate() {
        let line = first_line + i;
        if stamp < previous {
            return Err(TraceError::Decreasing {
                line,
                stamp,
                previous,
            });
        }
        if stamp > MAX_STAMP / micros {
            return Err(TraceError::TooLate { line, stamp });
        }
        previous = stamp;
    }
    match stamps.last() {
        None => Err(TraceError::Empty),
        Some(0) => Err(TraceError::ZeroPeriod),
        Some(_) => Ok(()),
    }
}

/// Writes the text format, in milliseconds if that is exact.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = if self.stamps.iter().all(|stamp| stamp % 1_000 == 0) {
            1_000
        } else {
            writeln!(f, "# unit: us")?;
            1
        };
        for stamp in self.stamps.iter() {
            writeln!(f, "{}", stamp / micros)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Trace, TraceError> {
        text.parse()
    }

    #[test]
    fn milliseconds_microseconds_and_line_ends() {
        let trace = parse("0\n0\n5\n").unwrap();
        assert_eq!((trace.opportunities(), trace.period().as_millis()), (3, 5));
        assert_eq!(parse("# unit: ms\r\n0\r\n0\r\n5\r\n").unwrap(), trace);
        assert_eq!(parse("# unit: us\n0\n0\n5000").unwrap(), trace);
        // 2.4 Gbit/s: one opportunity every 5 us.
        assert_eq!(parse("# unit: us\n5\n").unwrap().mean_rate(), 2_400_000_000);
    }

    #[test]
    fn errors_name_the_line() {
        let message = |text| parse(text).unwrap_err().to_string();
        assert!(
            message("1\n2\n3\n4\n5\n6\nx\n").starts_with("line 7: \"x\" is not a whole number")
        );
        assert!(message("1\n\n3\n").starts_with("line 2: \"\" is not"));
        assert!(message("1\n-3\n").starts_with("line 2: \"-3\" is not"));
        assert!(
            message("# unit: us\n1.5\n").contains("line 2: \"1.5\" is not a whole number of mic")
        );
        assert!(message("# unit: s\n1\n").starts_with("line 1: \"# unit: s\" is not"));
        assert!(message("# unit: us\n3\n2\n").starts_with("line 3: 2 is before 3"));
        assert!(
            message("18446744073709551615\n").starts_with("line 1: 18446744073709551615 is more")
        );
        assert_eq!(parse(""), Err(TraceError::Empty));
        assert_eq!(parse("# unit: us\n"), Err(TraceError::Empty));
        assert_eq!(parse("0\n0\n"), Err(TraceError::ZeroPeriod));
        assert!(message(&"\u{1}".repeat(1_000_000)).len() < 200);
    }

    #[test]
    fn written_traces_parse_back() {
        for text in ["0\n1\n1\n7\n", "# unit: us\n1\n1\n2500\n"] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn the_last_stamp_is_the_zero_of_the_next_period() {
        let trace = Trace::from_micros(vec![0, 3, 10]).unwrap();
        let times: Vec<u64> = (0..7).map(|n| trace.micros_of(n)).collect();
        assert_eq!(times, [0, 3, 10, 10, 13, 20, 20]);
        for micros in 0..25 {
            let first = trace.first_from(micros);
            assert!(trace.micros_of(first) >= micros);
            assert!(
                first == 0 || trace.micros_of(first - 1) < micros,
                "{micros}"
            );
        }
    }

    #[test]
    fn rates_become_opportunities() {
        let second = Duration::from_secs(1);
        let steps = [
            (Duration::ZERO, 12_000_000),
            (second, 0),
            (2 * second, 6_000_000),
        ];
        let trace = Trace::from_rates(&steps, 4 * second).unwrap();
        assert_eq!((trace.opportunities(), trace.period()), (2_000, 4 * second));
        assert_eq!(
            trace.first_from(1_000_001),
            1_000,
            "no opportunity while the rate is 0"
        );
        assert_eq!(trace.micros_of(1_000), 2_002_000);
        assert_eq!(Trace::from_rates(&[], second), Err(TraceError::Empty));
    }
}
