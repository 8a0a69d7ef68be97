//! A percentile of delays, and its reference.

use crate::results::Quantiles;

/// A percentile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    P50,
    P95,
    P99,
}

impl Part {
    const ALL: [Self; 3] = [Self::P50, Self::P95, Self::P99];

    /// Its name in a bar.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::P50 => "p50",
            Self::P95 => "p95",
            Self::P99 => "p99",
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|part| part.name() == text)
    }

    /// The percentile of a distribution.
    pub(super) fn of(self, all: &Quantiles) -> f64 {
        match self {
            Self::P50 => all.p50,
            Self::P95 => all.p95,
            Self::P99 => all.p99,
        }
    }
}

/// The reference of a delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// The same percentile on the best link alone.
    Best,
    /// The shortest delay of a link, as the scenario sets it.
    Idle,
}
