//! Compares the measurements with the bars.

use std::collections::BTreeMap;

use serde::Serialize;

use super::kind::{FLAPPING, Kind, Load, way};
use super::measure::quantile;
use super::records::Chunk;
use crate::config::Direction;

/// A figure with two bars: for the median, and for the 99th percentile of the faults.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) most: f64,
    /// The bars, if any.
    pub(super) bars: Option<[f64; 2]>,
}

/// The result of a kind of fault in a direction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Line {
    pub(super) kind: &'static str,
    pub(super) direction: &'static str,
    pub(super) faults: usize,
    /// Longest times without an arrival, in ms.
    pub(super) gap: Option<Spread>,
    /// The same before the faults.
    pub(super) steady_gap: Option<Spread>,
    /// From the end of a fault until the link carries its rate again, in ms.
    pub(super) back: Option<Spread>,
    /// Faults without a return in the observed time.
    pub(super) never_back: usize,
    /// Goodput relative to the steady link alone, and the bar.
    pub(super) goodput: Option<[f64; 2]>,
    /// Duplicate bytes divided by delivered bytes.
    pub(super) duplicates: Option<f64>,
    /// Number of laboratories with a late emulator.
    pub(super) objections: usize,
}

impl Line {
    pub(super) fn new(kind: &'static Kind, direction: Direction, chunks: &[Chunk]) -> Self {
        let faults = || chunks.iter().flat_map(|chunk| &chunk.faults);
        let spread = |values: Vec<f64>, bars| {
            Some(Spread {
                p50: quantile(&values, 0.5)?,
                p99: quantile(&values, 0.99)?,
                most: quantile(&values, 1.0)?,
                bars,
            })
        };
        let flaps = kind.load == Load::Flapping;
        let gaps = faults().map(|fault| fault.gap_ms).collect();
        let steady = faults().map(|fault| fault.steady_gap_ms).collect();
        let back: Vec<f64> = faults().filter_map(|fault| fault.back_ms).collect();
        let loads = kind.load != Load::Interactive;
        let total = |of: fn(&Chunk) -> Option<f64>| chunks.iter().map(of).sum::<Option<f64>>();
        let share = |part: Option<f64>, whole: Option<f64>| Some(part? / whole?);
        let goodput = share(total(|c| Some(c.goodput_bps)), total(|c| c.alone_bps));
        let duplicates = share(
            total(|chunk| Some(chunk.duplicates_bytes? as f64)),
            total(|chunk| Some(chunk.bytes as f64)),
        );
        Self {
            kind: kind.name,
            direction: way(direction),
            faults: faults().count(),
            gap: spread(gaps, (!flaps).then_some(kind.gap)),
            steady_gap: spread(steady, None),
            never_back: match loads {
                true => faults().count() - back.len(),
                false => 0,
            },
            back: spread(back, kind.back),
            goodput: goodput
                .filter(|share| flaps && share.is_finite())
                .map(|share| [share, FLAPPING]),
            duplicates: duplicates.filter(|share| share.is_finite()),
            objections: chunks.iter().filter(|c| c.objection.is_some()).count(),
        }
    }

    /// Descriptions of all missed bars.
    pub(super) fn shortcomings(&self) -> Vec<String> {
        let mut short = Vec::new();
        for (what, spread) in [("gap", &self.gap), ("return", &self.back)] {
            let Some((spread, bars)) = spread.as_ref().and_then(|s| Some((s, s.bars?))) else {
                continue;
            };
            for (name, value, bar) in [("p50", spread.p50, bars[0]), ("p99", spread.p99, bars[1])] {
                if value > bar {
                    short.push(format!("{what} {name} {value:.0} ms (bar: {bar:.0})"));
                }
            }
        }
        // One fault in a hundred may exceed the time.
        let judged = Kind::by_name(self.kind).is_some_and(|kind| kind.back.is_some());
        if judged && self.never_back * 100 > self.faults {
            short.push(format!(
                "{} of {} links did not return",
                self.never_back, self.faults
            ));
        }
        if let Some([share, bar]) = self.goodput
            && share < bar
        {
            short.push(format!("goodput {share:.3} (bar: {bar})"));
        }
        if self.objections > 0 {
            short.push(format!(
                "the emulator was late in {} laboratories",
                self.objections
            ));
        }
        if self.faults == 0 {
            short.push("not measured".to_owned());
        }
        short
    }
}

/// Number of lines by whether they pass.
pub(super) fn verdicts(lines: &[Line]) -> BTreeMap<bool, usize> {
    let mut counts = BTreeMap::new();
    for line in lines {
        *counts.entry(line.shortcomings().is_empty()).or_default() += 1;
    }
    counts
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::records::Fault;
    use super::*;
    use crate::faults::kind::KINDS;

    /// A chunk with faults that have these gaps and return times.
    pub(crate) fn chunk(kind: &Kind, figures: &[(f64, Option<f64>)]) -> Chunk {
        let fault = |(gap_ms, back_ms): &(f64, Option<f64>)| Fault {
            gap_ms: *gap_ms,
            back_ms: *back_ms,
            steady_gap_ms: 20.0,
            ..Fault::default()
        };
        Chunk {
            kind: kind.name.to_owned(),
            direction: "down".to_owned(),
            number: 0,
            asked: figures.len() as u64,
            seconds: 10.0,
            bytes: 1_000_000,
            goodput_bps: 19e6,
            alone_bps: (kind.load == Load::Flapping).then_some(19.2e6),
            duplicates_bytes: Some(5000),
            objection: None,
            faults: figures.iter().map(fault).collect(),
        }
    }

    fn short(kind: &'static Kind, figures: &[(f64, Option<f64>)]) -> Vec<String> {
        Line::new(kind, Direction::Down, &[chunk(kind, figures)]).shortcomings()
    }

    #[test]
    fn median_and_99th_percentile_have_separate_bars() {
        let blackhole = Kind::by_name("blackhole").unwrap();
        let good = (150.0, Some(400.0));
        let mut figures = vec![good; 100];
        assert_eq!(short(blackhole, &figures), [] as [String; 0]);
        figures[0] = (600.0, None);
        assert_eq!(short(blackhole, &figures), [] as [String; 0], "1 of 100");
        figures[1] = (600.0, Some(3500.0));
        figures[2] = (150.0, None);
        assert_eq!(
            short(blackhole, &figures),
            [
                "gap p99 600 ms (bar: 500)",
                "return p99 3500 ms (bar: 3000)",
                "2 of 100 links did not return"
            ]
        );
        let slow = vec![(250.0, Some(1200.0)); 3];
        assert_eq!(
            short(blackhole, &slow),
            [
                "gap p50 250 ms (bar: 200)",
                "return p50 1200 ms (bar: 1000)"
            ]
        );
        assert_eq!(short(blackhole, &[]), ["not measured"]);
    }

    #[test]
    fn a_flapping_link_is_judged_by_goodput() {
        let flapping = Kind::by_name("flapping-blackhole").unwrap();
        assert_eq!(short(flapping, &[(900.0, None)]), [] as [String; 0]);
        let mut slow = chunk(flapping, &[(1.0, None)]);
        slow.goodput_bps = 18e6;
        let line = Line::new(flapping, Direction::Down, &[slow]);
        assert_eq!(line.shortcomings(), ["goodput 0.938 (bar: 0.95)"]);
        assert_eq!(line.duplicates, Some(0.005));
        assert_eq!(verdicts(&[line]), BTreeMap::from([(false, 1)]));
        assert_eq!(KINDS.len(), 13);
    }
}
