//! Types for medians and spread over the seeds of a scenario, and for the bounds set by the links.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Datagrams, Environment, Measurement, SCHEMA};

/// The summary of one scenario; see [`Summary::from_runs`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The scenario's name.
    pub scenario: String,
    /// Description of the scenario.
    pub about: String,
    /// `down`, `up` or `both`.
    pub direction: String,
    /// The kind of workload.
    pub workload: String,
    /// Time limit for an object in seconds, if the workload has one.
    pub limit_s: Option<f64>,
    /// The machine and versions of the newest run.
    pub environment: Environment,
    /// Goodput of each link alone, in the order of the scenario; empty if not measured.
    pub alone: Vec<(String, Spread)>,
    /// Goodput of each link when all carry independent flows at once; empty if not measured.
    pub simultaneous: Vec<(String, Spread)>,
    /// Completion time of objects in seconds on the link alone with the lowest median, with its
    /// name: no system may be slower.
    pub best_alone_completion_s: Option<(String, Quantiles)>,
    /// The bounds set by the links.
    pub bounds: Bounds,
    /// Every system, in the order of the scenario.
    pub systems: Vec<SystemSummary>,
    /// Warnings about the figures, one line each.
    pub warnings: Vec<String>,
}

/// Upper bounds of the goodput, after eq. 5.1 to 5.3 of the WhiteHaul dissertation.
///
/// There, "interference" stands for any impairment of the links by the scenario, and "clean" for
/// the same links without it:
///
/// ```text
/// clean MPTCP        <= clean simultaneous        <= clean individual            (5.3)
///      v                      v                          v
/// interference MPTCP <= interference simultaneous <= interference individual
/// ```
///
/// The right end of a row bounds every system; the column under "clean MPTCP" only kernel MPTCP,
/// and only with the congestion control that the links were measured with. All hold for averages,
/// not for an instant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bounds {
    /// Sum of the medians of the links alone, with the scenario's impairments: no system can exceed
    /// it.
    pub sum_alone_bps: Option<f64>,
    /// Sum of the medians of the links when all are used at once: less than that of the links alone
    /// where they disturb each other.
    pub sum_simultaneous_bps: Option<f64>,
    /// The fastest link alone: no system may fall below it.
    pub best_alone_bps: Option<f64>,
    /// MPTCP on the clean links, if the scenario names another one that measured it.
    pub clean_mptcp_bps: Option<f64>,
    /// The hard bound of MPTCP, eq. 5.1: the lesser of `sum_alone_bps` and `clean_mptcp_bps`.
    /// Without a clean measurement it is `sum_alone_bps`, and looser.
    pub hard_bps: Option<f64>,
    /// The soft bound of MPTCP, eq. 5.2: the lesser of `sum_simultaneous_bps` and
    /// `clean_mptcp_bps`. Soft, because it holds "most of the time" only. Without a clean
    /// measurement it is `sum_simultaneous_bps`.
    pub soft_bps: Option<f64>,
}

/// One system over all seeds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SystemSummary {
    /// Its name.
    pub system: String,
    /// Runs with figures.
    pub runs: usize,
    /// Reasons for runs without figures, each with its number of runs.
    pub missing: Vec<Missing>,
    /// Goodput in bit/s.
    pub goodput_bps: Option<Spread>,
    /// Completion time of objects in seconds, over all objects of all seeds.
    pub completion_s: Option<Quantiles>,
    /// Objects of a run that took longer than the workload allows, or did not arrive; unknown
    /// without a limit.
    pub over_limit: Option<Spread>,
    /// Delay of messages in milliseconds, over all messages of all seeds.
    pub message_delay_ms: Option<Quantiles>,
    /// Flows of datagrams, in the order of links and directions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub datagrams: Vec<DatagramSummary>,
    /// Goodput divided by the sum of the links alone, for each seed (eq. 3.1 of the WhiteHaul
    /// dissertation); absent for the links alone themselves.
    pub aggregation_ratio: Option<Spread>,
    /// -1 to 1: 0 is the best link alone, 1 the sum (eq. 3.2), for each seed.
    pub aggregation_benefit: Option<Spread>,
    /// Number of seeds, out of `aggregation_ratio.count`, in which it was slower than the best link
    /// alone.
    pub below_best: usize,
    /// Greatest lag behind a link alone in milliseconds, for each seed (see [`Lag`](super::Lag)).
    pub lag_ms: Option<Spread>,
    /// Time with a lag above its limit in seconds, for each seed.
    pub lag_above_s: Option<Spread>,
    /// Time in milliseconds that 99 % of the bytes did not exceed in waiting for earlier ones, for
    /// each seed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_order_wait_p99_ms: Option<Spread>,
    /// Jain's index over the goodput of the flows for each seed, if there are several (Jain, Chiu
    /// and Hawe, DEC-TR-301, 1984): 1 is an equal share for all, 1/n everything for one of n.
    pub fairness: Option<Spread>,
    /// The contribution of each link, in the order of the scenario.
    pub links: Vec<LinkPart>,
    /// Retransmitted segments.
    pub retransmissions: Option<Spread>,
    /// Bytes of intentional duplicates.
    pub duplicates_bytes: Option<Spread>,
    /// CPU seconds of all its programs per measured second; unknown where the system is the kernel
    /// itself.
    pub cpu_share: Option<Spread>,
    /// Peak memory of the largest of its programs in bytes; unknown where the system is the kernel
    /// itself.
    pub peak_memory_bytes: Option<Spread>,
}

/// Runs without figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// `skipped`, `refused`, `failed` or `not run`.
    pub kind: String,
    /// The reason.
    pub reason: String,
    /// Number of runs.
    pub runs: usize,
}

/// A link's share of a system's goodput.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkPart {
    /// The link's name.
    pub link: String,
    /// Goodput in bit/s: that of the flows bound to the link. Without such flows, the system's
    /// goodput divided in proportion to the wire bytes of the links.
    pub goodput_bps: Spread,
}

/// A flow of datagrams over the seeds of a scenario.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DatagramSummary {
    /// See [`Datagrams`].
    pub link: Option<String>,
    /// See [`Datagrams`].
    pub direction: String,
    /// The part of the datagrams that never arrived, 0..=1.
    pub loss: Option<Spread>,
    /// Surplus copies.
    pub duplicates: Option<Spread>,
    /// Datagrams out of order.
    pub reordered: Option<Spread>,
    /// Half of a run's datagrams had a shorter delay, in milliseconds.
    pub delay_p50_ms: Option<Spread>,
    /// The same for 95 % of them.
    pub delay_p95_ms: Option<Spread>,
    /// The same for 99 % of them.
    pub delay_p99_ms: Option<Spread>,
    /// See [`Datagrams`].
    pub jitter_ms: Option<Spread>,
    /// See [`Datagrams`].
    pub gap_ms: Option<Spread>,
    /// Mean opinion scores of a call.
    pub mos: Option<Spread>,
}

impl DatagramSummary {
    /// A summary for each combination of a link and a direction.
    pub fn of_all<'a>(runs: impl IntoIterator<Item = &'a Measurement>) -> Vec<Self> {
        let mut flows: BTreeMap<(Option<&str>, &str), Vec<&Datagrams>> = BTreeMap::new();
        for flow in runs.into_iter().flat_map(|run| &run.datagrams) {
            let key = (flow.link.as_deref(), flow.direction.as_str());
            flows.entry(key).or_default().push(flow);
        }
        let summarized = flows.into_iter().map(|((link, direction), flows)| {
            let each = |value: &dyn Fn(&Datagrams) -> Option<f64>| {
                Spread::of(flows.iter().filter_map(|flow| value(flow)))
            };
            let delay = |part: fn(&Quantiles) -> f64| {
                each(&|flow: &Datagrams| flow.delay_ms.as_ref().map(part))
            };
            Self {
                link: link.map(str::to_owned),
                direction: direction.to_owned(),
                loss: each(&|flow| Some(flow.loss())),
                duplicates: each(&|flow| Some(flow.duplicates as f64)),
                reordered: each(&|flow| Some(flow.reordered as f64)),
                delay_p50_ms: delay(|delay| delay.p50),
                delay_p95_ms: delay(|delay| delay.p95),
                delay_p99_ms: delay(|delay| delay.p99),
                jitter_ms: each(&|flow| Some(flow.jitter_ms)),
                gap_ms: each(&|flow| Some(flow.gap_ms)),
                mos: each(&|flow| flow.call.map(|call| call.mos)),
            }
        });
        summarized.collect()
    }
}

/// The distribution of a value over several seeds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Half of the values are below.
    pub median: f64,
    /// The minimum.
    pub min: f64,
    /// A quarter of the values are below.
    pub q1: f64,
    /// Three quarters of the values are below.
    pub q3: f64,
    /// The maximum.
    pub max: f64,
    /// Number of values.
    pub count: usize,
}

/// The distribution of many values of one kind; users notice the tail.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// The minimum.
    pub min: f64,
    /// Half of the values are below.
    pub p50: f64,
    /// 95 % of the values are below.
    pub p95: f64,
    /// 99 % of the values are below.
    pub p99: f64,
    /// The maximum.
    pub max: f64,
    /// Number of values.
    pub count: usize,
}

impl Summary {
    /// An empty summary.
    pub fn new(scenario: &str) -> Self {
        Self {
            schema: SCHEMA,
            scenario: scenario.to_owned(),
            ..Self::default()
        }
    }
}

impl Spread {
    /// The distribution of the finite values; `None` if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values = sorted(values);
        Some(Self {
            median: quantile(&values, 0.5)?,
            min: quantile(&values, 0.0)?,
            q1: quantile(&values, 0.25)?,
            q3: quantile(&values, 0.75)?,
            max: quantile(&values, 1.0)?,
            count: values.len(),
        })
    }
}

impl Quantiles {
    /// The distribution of the finite values; `None` if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let values = sorted(values);
        Some(Self {
            min: quantile(&values, 0.0)?,
            p50: quantile(&values, 0.5)?,
            p95: quantile(&values, 0.95)?,
            p99: quantile(&values, 0.99)?,
            max: quantile(&values, 1.0)?,
            count: values.len(),
        })
    }
}

/// The finite values in ascending order.
pub fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values
        .into_iter()
        .filter(|value| value.is_finite())
        .collect();
    values.sort_by(f64::total_cmp);
    values
}

/// A quantile of ascending values, interpolated (Hyndman and Fan 1996, type 7).
pub fn quantile(ascending: &[f64], part: f64) -> Option<f64> {
    let at = part * ascending.len().checked_sub(1)? as f64;
    let (low, high) = (
        *ascending.get(at.floor() as usize)?,
        *ascending.get(at.ceil() as usize)?,
    );
    // Not low + (high - low) * t, which overflows where both are huge.
    Some(low * (1.0 - at.fract()) + high * at.fract())
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
        let tail = Quantiles::of((0..=100).map(f64::from)).unwrap();
        assert_eq!((tail.p50, tail.p95, tail.p99), (50.0, 95.0, 99.0));
        assert_eq!(Quantiles::of([f64::INFINITY]), None);
    }
}
