//! Rates over time, and the links' shares.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{LinkSeries, Series};
use crate::config::{Direction, LinkSpec};

/// Rate in bit/s; 0 for an empty time.
pub fn rate(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        bytes as f64 * 8.0 / seconds
    } else {
        0.0
    }
}

/// Converts the bytes of each interval to rates.
pub fn series(buckets: &[u64], interval: Duration) -> Series {
    let seconds = interval.as_secs_f64();
    Series {
        start_s: 0.0,
        interval_s: seconds,
        bps: buckets.iter().map(|bytes| rate(*bytes, seconds)).collect(),
    }
}

impl Series {
    /// The longest time without arrivals since `from_s`, in seconds. Counts whole intervals;
    /// shorter gaps are not visible.
    pub fn longest_gap_s(&self, from_s: f64) -> f64 {
        let measured = self.bps.iter().enumerate().filter(|(index, _)| {
            // Half an interval of tolerance for rounding errors of summed times.
            self.start_s + *index as f64 * self.interval_s >= from_s - self.interval_s / 2.0
        });
        let mut longest = 0u32;
        let mut now = 0u32;
        for (_, bps) in measured {
            now = if *bps > 0.0 { 0 } else { now + 1 };
            longest = longest.max(now);
        }
        f64::from(longest) * self.interval_s
    }
}

/// The sum of several series; a shorter one counts as 0 after its end.
pub fn sum_series<'a>(all: impl Iterator<Item = &'a Series>) -> Series {
    all.fold(Series::default(), |mut sum, series| {
        if sum.bps.len() < series.bps.len() {
            sum.bps.resize(series.bps.len(), 0.0);
        }
        for (total, value) in sum.bps.iter_mut().zip(&series.bps) {
            *total += value;
        }
        sum.start_s = series.start_s;
        sum.interval_s = series.interval_s;
        sum
    })
}

/// Name of the direction.
pub fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Up => "up",
        Direction::Down => "down",
    }
}

/// Sets each link's one-way delays at the start of the run.
pub fn set_delays<'a>(links: &mut [LinkSeries], specs: impl Iterator<Item = &'a LinkSpec>) {
    for spec in specs {
        for (way, shape) in Direction::BOTH.into_iter().zip(&spec.shapes) {
            let same = |link: &&mut LinkSeries| {
                link.link == spec.name && link.direction == direction_name(way)
            };
            if let Some(link) = links.iter_mut().find(same) {
                link.delay_s = Some(shape.delay.as_secs_f64());
            }
        }
    }
}

/// Sets each link's share of the traffic in its direction.
pub fn set_shares(links: &mut [LinkSeries]) {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for link in links.iter() {
        *sums.entry(link.direction.clone()).or_default() += link.wire_bytes;
    }
    for link in links {
        let sum = sums.get(&link.direction).copied().unwrap_or(0);
        link.share = if sum > 0 {
            link.wire_bytes as f64 / sum as f64
        } else {
            0.0
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series_of(bps: &[f64]) -> Series {
        Series {
            start_s: 0.0,
            interval_s: 0.1,
            bps: bps.to_vec(),
        }
    }

    #[test]
    fn the_longest_gap_is_counted_in_whole_intervals_after_the_warm_up() {
        let series = Series {
            start_s: 0.0,
            interval_s: 0.1,
            bps: vec![0.0, 0.0, 0.0, 5.0, 0.0, 0.0, 1.0, 0.0],
        };
        assert!((series.longest_gap_s(0.0) - 0.3).abs() < 1e-9);
        assert!((series.longest_gap_s(0.3) - 0.2).abs() < 1e-9);
        assert!((series.longest_gap_s(0.6) - 0.1).abs() < 1e-9);
        assert_eq!(Series::default().longest_gap_s(0.0), 0.0);
    }

    #[test]
    fn series_add_up_whatever_their_lengths() {
        let (a, b) = (series_of(&[1.0, 2.0]), series_of(&[10.0, 20.0, 30.0]));
        assert_eq!(
            sum_series([&a, &b].into_iter()),
            series_of(&[11.0, 22.0, 30.0])
        );
        assert_eq!(sum_series([].into_iter()), Series::default());
    }

    #[test]
    fn shares_are_of_one_direction() {
        let link = |direction: &str, bytes| LinkSeries {
            direction: direction.to_owned(),
            wire_bytes: bytes,
            ..LinkSeries::default()
        };
        let mut links = vec![link("down", 300), link("down", 100), link("up", 0)];
        set_shares(&mut links);
        let shares: Vec<_> = links.iter().map(|link| link.share).collect();
        assert_eq!(shares, [0.75, 0.25, 0.0]);
    }
}
