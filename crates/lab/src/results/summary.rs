//! Medians and spread over the seeds of a scenario, and what the links allow.

use serde::{Deserialize, Serialize};

use super::{Environment, SCHEMA};

/// All that is known about one scenario.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The scenario's name.
    pub scenario: String,
    /// What it is about.
    pub about: String,
    /// `down`, `up` or `both`.
    pub direction: String,
    /// The kind of workload.
    pub workload: String,
    /// The machine and versions, of the newest run.
    pub environment: Environment,
    /// Goodput of each link alone, in the order of the scenario; empty if that was not measured.
    pub alone: Vec<(String, Spread)>,
    /// Goodput of each link when all carry independent flows at once; empty if that was not measured.
    pub simultaneous: Vec<(String, Spread)>,
    /// What no system can exceed.
    pub bounds: Bounds,
    /// Every system, in the order of the scenario.
    pub systems: Vec<SystemSummary>,
}

/// Upper bounds of the goodput of an aggregating system.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// Sum of the medians of the links alone: eq. 5.1 of the WhiteHaul dissertation without its second term, which is a
    /// measurement of MPTCP on clean links.
    pub hard_bps: Option<f64>,
    /// Sum of the medians of the links at once: eq. 5.2, likewise.
    pub soft_bps: Option<f64>,
    /// The fastest link alone.
    pub best_alone_bps: Option<f64>,
}

/// One system over all seeds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SystemSummary {
    /// Its name.
    pub system: String,
    /// Runs with figures.
    pub runs: usize,
    /// Why runs have none, each reason once with its number.
    pub missing: Vec<(String, usize)>,
    /// Goodput in bit/s.
    pub goodput_bps: Option<Spread>,
    /// Completion time of objects in seconds, over all objects of all seeds.
    pub completion_s: Option<Spread>,
    /// Delay of messages in milliseconds, over all messages of all seeds.
    pub message_delay_ms: Option<Spread>,
    /// Goodput over the sum of the links alone, seed by seed (eq. 3.1 of the WhiteHaul dissertation).
    pub aggregation_ratio: Option<Spread>,
    /// -1 to 1: 0 is the best link alone, 1 the sum (eq. 3.2), seed by seed.
    pub aggregation_benefit: Option<Spread>,
    /// Segments sent again.
    pub retransmissions: Option<Spread>,
    /// Bytes sent twice on purpose.
    pub duplicates_bytes: Option<Spread>,
    /// CPU seconds of all its programs per second measured.
    pub cpu_share: Option<Spread>,
    /// Largest memory of one of its programs in bytes.
    pub peak_memory_bytes: Option<Spread>,
}

/// Where the values of several seeds lie.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Half of the values are below.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// A quarter of the values are below.
    pub q1: f64,
    /// Three quarters of the values are below.
    pub q3: f64,
    /// The largest.
    pub max: f64,
    /// How many values.
    pub count: usize,
}

impl Summary {
    /// An empty one.
    pub fn new(scenario: &str) -> Self {
        Self {
            schema: SCHEMA,
            scenario: scenario.to_owned(),
            ..Self::default()
        }
    }
}

impl Spread {
    /// Of some values; `None` if there are none. Quantiles are interpolated (Hyndman and Fan 1996, type 7).
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values
            .into_iter()
            .filter(|value| value.is_finite())
            .collect();
        values.sort_by(f64::total_cmp);
        let quantile = |part: f64| {
            let at = part * (values.len() - 1) as f64;
            let (low, high) = (values[at.floor() as usize], values[at.ceil() as usize]);
            low + (high - low) * at.fract()
        };
        (!values.is_empty()).then(|| Self {
            median: quantile(0.5),
            min: quantile(0.0),
            q1: quantile(0.25),
            q3: quantile(0.75),
            max: quantile(1.0),
            count: values.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_interpolated() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0, f64::NAN]).unwrap();
        assert_eq!((spread.min, spread.median, spread.max), (1.0, 2.5, 4.0));
        assert_eq!((spread.q1, spread.q3, spread.count), (1.75, 3.25, 4));
        assert_eq!(Spread::of([]), None);
    }
}
