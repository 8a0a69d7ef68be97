//! A variant of a row with its verdict.

use serde::Serialize;

use super::bar::Bar;
use crate::results::Spread;

/// Result of a comparison, from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// The bar is met.
    Pass,
    /// No figure, or not one for every seed: the runs have not been requested yet.
    NotRun,
    /// No figure: the emulator was the bottleneck, or the reference system stalled.
    Refused,
    /// The bar is missed, or the system failed.
    Short,
}

impl Verdict {
    /// The word for tables.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::NotRun => "not run",
            Self::Refused => "refused",
            Self::Short => "FALLS SHORT",
        }
    }
}

/// A bar and the judged system's figure.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub(crate) bar: Bar,
    /// Size of the objects that the figure is about.
    pub(crate) size: Option<u64>,
    /// The figure's spread over the seeds.
    pub(crate) spread: Option<Spread>,
    pub(crate) verdict: Verdict,
    /// Reason why figures are missing; empty when none is.
    pub(crate) reason: String,
    /// Medians of the other systems, in order, over the seeds that all of them have.
    pub(crate) others: Vec<(String, Option<f64>)>,
    /// Median of the system under test over those same seeds; it may have more.
    pub(crate) beside_others: Option<f64>,
}

/// A variant of a row with its verdict.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) row: String,
    /// The system under test.
    pub(crate) system: String,
    /// `down, cubic`
    pub(crate) variant: String,
    pub(crate) judged: Vec<Judged>,
    /// Median goodput of each link alone, in bit/s.
    pub(crate) alone: Vec<(String, f64)>,
    /// Median goodput of the judged system, in bit/s.
    pub(crate) goodput_bps: Option<f64>,
    /// Number of the judged system's runs with figures.
    pub(crate) seeds: usize,
    /// The program builds of its runs, if they differ: the figures are then a mixture.
    pub(crate) programs: Vec<String>,
    /// Median CPU utilization of the machine during the runs, other programs included (0 to 1).
    pub(crate) busy: Option<f64>,
    /// Cause of missed bars, if known.
    pub(crate) cause: Option<String>,
}

impl Line {
    /// The first bar for each object size: objects of different sizes have different kinds of bars,
    /// and a chart needs all of them.
    pub(super) fn first(&self) -> impl Iterator<Item = &Judged> {
        let quantity = self.judged.first().map(|judged| judged.bar.quantity);
        self.judged
            .iter()
            .filter(move |judged| judged.size.is_some() || Some(judged.bar.quantity) == quantity)
    }

    /// Whether the line has neither figures nor a reason for their absence.
    pub(super) fn is_empty(&self) -> bool {
        let says = |judged: &Judged| judged.spread.is_some() || !judged.reason.is_empty();
        self.verdict() == Verdict::NotRun && !self.judged.iter().any(says)
    }

    /// Words for the quantities with missed bars.
    pub(crate) fn short(&self) -> Vec<String> {
        let short = self
            .judged
            .iter()
            .filter(|judged| judged.verdict == Verdict::Short);
        short
            .map(|judged| judged.bar.quantity.word().to_owned())
            .collect()
    }

    /// The worst verdict of its bars.
    pub(crate) fn verdict(&self) -> Verdict {
        let verdicts = self.judged.iter().map(|judged| judged.verdict);
        verdicts.max().unwrap_or(Verdict::NotRun)
    }
}
