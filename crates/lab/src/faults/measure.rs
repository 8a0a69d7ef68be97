//! Figures of a fault, computed from the arrivals and the link's traffic.

use std::ops::Range;

use crate::traffic::Arrival;

/// A link has returned when it carries its rate for this long, in seconds ...
const CARRIES_FOR: f64 = 0.1;
/// ... and at least this share of it.
const CARRIES: f64 = 0.9;

/// The longest time in ms between two consecutive arrivals that overlaps the given range (seconds
/// since `zero_ns`), and its start. If no arrival follows, the range's end counts as one.
pub(super) fn longest_gap(
    arrivals: &[Arrival],
    zero_ns: u64,
    time: Range<f64>,
) -> Option<(f64, f64)> {
    let at = |arrival: &Arrival| arrival.at_ns.saturating_sub(zero_ns) as f64 / 1e9;
    // The last arrival before the range starts the first interval.
    let first = arrivals
        .partition_point(|arrival| at(arrival) < time.start)
        .saturating_sub(1);
    let inside = arrivals[first..].iter().map(at);
    let mut times: Vec<f64> = inside.take_while(|at| *at < time.end).collect();
    let next = arrivals.get(first + times.len()).map(at);
    times.push(next.unwrap_or(time.end));
    let gaps = times
        .windows(2)
        .filter_map(|pair| <[f64; 2]>::try_from(pair).ok())
        .map(|[from, to]| ((to - from) * 1e3, from));
    gaps.max_by(|a, b| a.0.total_cmp(&b.0))
}

/// Milliseconds from `since` until a link has carried its rate for a while, by the bytes of each
/// interval; `None` if it has not before `until`. Times are in seconds since the first interval's
/// start.
pub(super) fn carries_again(
    bytes: &[u64],
    interval: f64,
    rate: u64,
    since: f64,
    until: f64,
) -> Option<f64> {
    let width = (CARRIES_FOR / interval).round() as usize;
    // Tolerance for rounding: half a byte.
    let enough = CARRIES * CARRIES_FOR * rate as f64 / 8.0 - 0.5;
    let first = (since / interval).ceil() as usize;
    let windows = bytes.get(first..)?.windows(width.max(1));
    let found = windows
        .enumerate()
        .find(|(_, window)| window.iter().sum::<u64>() as f64 >= enough)?;
    let end = (first + found.0 + width) as f64 * interval;
    (end <= until).then_some((end - since) * 1e3)
}

/// The smallest value that at least that share of all values do not exceed (nearest rank); `None`
/// without values.
pub(super) fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(ms: &[u64]) -> Vec<Arrival> {
        let arrival = |ms: &u64| Arrival {
            at_ns: 1_000_000_000 + ms * 1_000_000,
            bytes: 1,
        };
        ms.iter().map(arrival).collect()
    }

    #[test]
    fn a_gap_counts_from_the_arrival_before_it() {
        let all = arrivals(&[0, 10, 20, 100, 110, 400]);
        let gap = |time: Range<f64>| {
            let (gap, from) = longest_gap(&all, 1_000_000_000, time).unwrap();
            (gap.round() as u64, (from * 1e3).round() as u64)
        };
        assert_eq!(gap(0.0..0.05), (80, 20));
        assert_eq!(gap(0.05..0.11), (80, 20), "the gap overlaps the range");
        assert_eq!(gap(0.11..0.2), (290, 110));
        assert_eq!(gap(0.5..1.0), (600, 400), "no arrival follows");
        assert_eq!(longest_gap(&[], 0, 0.0..1.0), None);
    }

    #[test]
    fn a_link_is_back_when_it_has_carried_its_rate_for_a_while() {
        // 8 Mbit/s are 10,000 bytes per 10 ms.
        let mut bytes = vec![10_000; 50];
        bytes.extend([0; 100]);
        bytes.extend([5_000; 20]);
        bytes.extend([10_000; 50]);
        let back = |since, until| carries_again(&bytes, 0.01, 8_000_000, since, until);
        // The full rate returns at 1.7 s; 10 intervals with 2 of them at half the rate reach 90 %.
        assert!((back(1.5, 9.0).unwrap() - 280.0).abs() < 1e-6);
        assert_eq!(back(1.5, 1.7), None);
        assert!((back(0.203, 9.0).unwrap() - 107.0).abs() < 1e-6);
        assert_eq!(back(5.0, 9.0), None);
    }

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(quantile(&values, 0.5), Some(50.0));
        assert_eq!(quantile(&values, 0.99), Some(99.0));
        assert_eq!(quantile(&values[..3], 0.99), Some(3.0));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
