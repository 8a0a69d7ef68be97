//! Lag: how far a system's delivery is behind that of each link alone.
//!
//! A system that moves as many bytes as its best link may still deliver them later: a byte on a
//! slow path holds back all that follow it. The lag at a time t is the time that the link alone was
//! ahead: the link had delivered as much at t - lag as the system has delivered at t.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Flow, Measurement};

/// Arrivals are counted in intervals of this length: the resolution of a lag.
pub const ARRIVAL_INTERVAL: Duration = Duration::from_millis(10);

/// The part of the limit that does not depend on the link.
const LIMIT_BASE_S: f64 = 0.02;

/// How far a system was behind the link alone that was furthest ahead of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lag {
    /// That link.
    pub link: String,
    /// The greatest lag, in seconds; 0 for a system that was never behind any link.
    pub greatest_s: f64,
    /// The time at which it was the greatest, in seconds since the start of the run.
    pub at_s: f64,
    /// The time with a lag above the limit, in seconds, behind any of the links.
    pub above_s: f64,
    /// The limit: two idle round trips of the fastest link alone and 20 ms.
    pub limit_s: f64,
}

impl Lag {
    /// The lag of a run behind the links alone, measured with the same seed; `None` unless both
    /// recorded their arrivals.
    pub fn of(run: &Measurement, alone: &Measurement) -> Option<Self> {
        let best = alone
            .flows
            .iter()
            .max_by(|a, b| a.goodput_bps.total_cmp(&b.goodput_bps))?;
        let delays = alone
            .links
            .iter()
            .filter(|link| Some(&link.link) == best.link.as_ref());
        let limit_s = 2.0 * delays.filter_map(|link| link.delay_s).sum::<f64>() + LIMIT_BASE_S;
        let mut lag = None;
        for delivery in Delivery::of(run, alone) {
            let lag = lag.get_or_insert(Self {
                limit_s,
                ..Self::default()
            });
            for (index, (behind_s, link)) in delivery.lag().into_iter().enumerate() {
                if behind_s > lag.limit_s {
                    lag.above_s += ARRIVAL_INTERVAL.as_secs_f64();
                }
                if behind_s > lag.greatest_s {
                    lag.greatest_s = behind_s;
                    lag.at_s = (index + 1) as f64 * ARRIVAL_INTERVAL.as_secs_f64();
                    lag.link = link.to_owned();
                }
            }
        }
        lag
    }
}

/// The bytes that a system has delivered in one direction at the end of each
/// [`ARRIVAL_INTERVAL`], beside those of each link alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// `down` or `up`.
    pub direction: &'static str,
    /// Bytes of the system.
    pub own: Vec<f64>,
    /// Bytes of each link alone, by its name.
    pub alone: Vec<(String, Vec<f64>)>,
}

impl Delivery {
    /// The directions in which both a run and the links alone recorded their arrivals.
    pub fn of(run: &Measurement, alone: &Measurement) -> Vec<Self> {
        let in_direction = |direction| {
            let flows = |of: &Measurement| {
                let flows = of
                    .flows
                    .iter()
                    .filter(move |flow| flow.direction == direction);
                flows.cloned().collect::<Vec<Flow>>()
            };
            let own = delivered(flows(run).iter());
            let links = flows(alone).into_iter().map(|flow| {
                let bytes = delivered([&flow].into_iter());
                (flow.link.unwrap_or_default(), bytes)
            });
            let alone: Vec<(String, Vec<f64>)> = links.collect();
            let is_recorded = !own.is_empty()
                && !alone.is_empty()
                && alone.iter().all(|(_, bytes)| !bytes.is_empty());
            is_recorded.then_some(Self {
                direction,
                own,
                alone,
            })
        };
        ["down", "up"]
            .into_iter()
            .filter_map(in_direction)
            .collect()
    }

    /// The lag in seconds at the end of each interval, behind the link that is named.
    pub fn lag(&self) -> Vec<(f64, &str)> {
        let mut lag = vec![(0.0, ""); self.own.len()];
        for (link, bytes) in &self.alone {
            for (most, seconds) in lag.iter_mut().zip(behind(&self.own, bytes)) {
                if seconds > most.0 {
                    *most = (seconds, link);
                }
            }
        }
        lag
    }
}

/// Bytes that the flows have delivered at the end of each interval; empty if one of them has no
/// record.
pub fn delivered<'a>(flows: impl Iterator<Item = &'a Flow>) -> Vec<f64> {
    let mut sum: Vec<u64> = Vec::new();
    for flow in flows {
        if flow.arrivals.is_empty() {
            return Vec::new();
        }
        sum.resize(sum.len().max(flow.arrivals.len()), 0);
        for (total, bytes) in sum.iter_mut().zip(&flow.arrivals) {
            *total += bytes;
        }
    }
    let total = sum.iter().scan(0u64, |total, bytes| {
        *total += bytes;
        Some(*total as f64)
    });
    total.collect()
}

/// The lag in seconds at the end of each interval, from the bytes that a system and a link alone
/// have delivered by then.
pub fn behind(own: &[f64], alone: &[f64]) -> Vec<f64> {
    let interval = ARRIVAL_INTERVAL.as_secs_f64();
    // The number of intervals after which the link had delivered no more than the system has now.
    let mut whole = 0;
    let lag = own.iter().enumerate().map(|(index, bytes)| {
        while whole <= index && alone.get(whole).is_some_and(|had| had <= bytes) {
            whole += 1;
        }
        if whole > index {
            return 0.0;
        }
        let before = whole.checked_sub(1).map_or(0.0, |at| alone[at]);
        let part = match alone.get(whole) {
            Some(after) => (bytes - before) / (after - before),
            // All that the link delivered in its time.
            None => return 0.0,
        };
        ((index + 1) as f64 - whole as f64 - part) * interval
    });
    lag.collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::results::LinkSeries;

    fn cumulative(bytes: &[u64]) -> Vec<f64> {
        delivered([&flow(None, bytes)].into_iter())
    }

    fn flow(link: Option<&str>, bytes: &[u64]) -> Flow {
        Flow {
            link: link.map(str::to_owned),
            direction: "down".to_owned(),
            goodput_bps: bytes.iter().sum::<u64>() as f64,
            arrivals: bytes.to_vec(),
            ..Flow::default()
        }
    }

    fn in_intervals(own: &[u64], alone: &[u64]) -> Vec<f64> {
        let lag = behind(&cumulative(own), &cumulative(alone));
        let interval = ARRIVAL_INTERVAL.as_secs_f64();
        lag.iter()
            .map(|lag| (lag / interval * 1e6).round() / 1e6)
            .collect()
    }

    #[test]
    fn a_pause_is_a_lag_until_the_bytes_are_made_up_for() {
        assert_eq!(in_intervals(&[4, 4, 4], &[4, 4, 4]), [0.0; 3]);
        assert_eq!(in_intervals(&[4, 0, 0, 12], &[4; 4]), [0.0, 1.0, 2.0, 0.0]);
        assert_eq!(in_intervals(&[4, 2, 4], &[4; 3]), [0.0, 0.5, 0.5]);
        // Ahead of the link, a pause delays nothing that the link would have delivered.
        assert_eq!(in_intervals(&[12, 0, 0, 0], &[4; 4]), [0.0, 0.0, 0.0, 1.0]);
    }

    #[test]
    fn a_link_that_stood_still_was_not_ahead() {
        assert_eq!(in_intervals(&[0, 4, 0], &[4, 0, 4]), [1.0, 0.0, 1.0]);
        assert_eq!(in_intervals(&[0, 0], &[0, 0]), [0.0, 0.0]);
        // Measured for a shorter time.
        assert_eq!(in_intervals(&[0, 4, 0], &[8, 0]), [1.0, 1.5, 2.5]);
        assert_eq!(in_intervals(&[0, 8, 0], &[8, 0]), [1.0, 0.0, 0.0]);
    }

    #[test]
    fn the_link_that_was_furthest_ahead_counts() {
        let delay = |direction: &str| LinkSeries {
            link: "fast".to_owned(),
            direction: direction.to_owned(),
            delay_s: Some(0.001),
            ..LinkSeries::default()
        };
        let alone = Measurement {
            flows: vec![
                flow(Some("fast"), &[0, 9, 9, 9]),
                flow(Some("near"), &[3; 4]),
            ],
            links: vec![delay("down"), delay("up")],
            ..Measurement::default()
        };
        let bond = Measurement {
            flows: vec![flow(None, &[0, 0, 0, 30])],
            ..Measurement::default()
        };
        let lag = Lag::of(&bond, &alone).unwrap();
        assert_eq!(lag.link, "near");
        assert!((lag.greatest_s - 0.03).abs() < 1e-9, "{lag:?}");
        assert!((lag.at_s - 0.03).abs() < 1e-9, "{lag:?}");
        // Two round trips of 2 ms and 20 ms.
        assert!((lag.limit_s - 0.024).abs() < 1e-9, "{lag:?}");
        assert!((lag.above_s - 0.01).abs() < 1e-9, "{lag:?}");
        assert_eq!(Lag::of(&Measurement::default(), &alone), None);
        assert_eq!(Lag::of(&bond, &Measurement::default()), None);
    }

    proptest! {
        /// A system that has at each time delivered as much as the link is never behind, and no lag
        /// exceeds the time since the start.
        #[test]
        fn a_lag_lies_between_zero_and_the_time_since_the_start(
            own in prop::collection::vec(0u64..5, 1..50),
            alone in prop::collection::vec(0u64..5, 1..50),
        ) {
            let (own, alone) = (cumulative(&own), cumulative(&alone));
            let interval = ARRIVAL_INTERVAL.as_secs_f64();
            for (index, lag) in behind(&own, &alone).into_iter().enumerate() {
                let since_start = (index + 1) as f64 * interval;
                prop_assert!((0.0..=since_start + 1e-9).contains(&lag));
                let had = alone.get(index).or(alone.last());
                let is_ahead = had.is_none_or(|had| *had <= own[index]);
                prop_assert_eq!(is_ahead, lag <= 1e-12);
            }
        }
    }
}
