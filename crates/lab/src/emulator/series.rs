//! The traffic of each direction of each link over time.

use std::time::Duration;

/// Maximum number of intervals per direction; later ones are not recorded.
const MAX_SAMPLES: usize = 1 << 20;

/// Wire bytes delivered in each interval since the start, by due time.
#[derive(Debug)]
pub(super) struct WireSeries {
    /// Start of the first interval.
    zero: Duration,
    interval: Duration,
    /// Bytes in each interval, for each of the model's links; trailing intervals may be missing.
    bytes: Vec<Vec<u64>>,
}

impl WireSeries {
    /// `interval` must be positive.
    pub(super) fn new(links: usize, interval: Duration) -> Self {
        Self {
            zero: Duration::ZERO,
            interval,
            bytes: vec![Vec::new(); links],
        }
    }

    /// Restarts the series at `now`.
    pub(super) fn begin(&mut self, now: Duration) {
        self.zero = now;
        self.bytes.iter_mut().for_each(Vec::clear);
    }

    pub(super) fn record(&mut self, link: usize, due: Duration, bytes: u64) {
        let Some(since) = due.checked_sub(self.zero) else {
            return;
        };
        let index = self.intervals(since);
        let series = &mut self.bytes[link];
        if index >= MAX_SAMPLES {
            return;
        }
        if index >= series.len() {
            series.resize(index + 1, 0);
        }
        series[index] += bytes;
    }

    /// The complete intervals up to `now`, by link.
    pub(super) fn read(&self, now: Duration) -> Vec<Vec<u64>> {
        let complete = self
            .intervals(now.saturating_sub(self.zero))
            .min(MAX_SAMPLES);
        let fit = |series: &Vec<u64>| {
            let mut series = series.clone();
            series.resize(complete, 0);
            series
        };
        self.bytes.iter().map(fit).collect()
    }

    /// Number of whole intervals in `time`.
    fn intervals(&self, time: Duration) -> usize {
        // 584 years of nanoseconds fit into 64 bits, and dividing 128 bits is slow.
        (time.as_nanos() as u64 / self.interval.as_nanos() as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn bytes_are_counted_where_they_were_due() {
        let mut series = WireSeries::new(2, 10 * MS);
        series.record(0, 5 * MS, 1);
        series.begin(7 * MS);
        series.record(0, 6 * MS, 100);
        series.record(0, 7 * MS, 10);
        series.record(0, 17 * MS, 20);
        series.record(0, 26 * MS, 3);
        series.record(1, 46 * MS, 4);
        assert_eq!(
            series.read(37 * MS),
            [vec![10, 23, 0], vec![0, 0, 0]],
            "the fourth interval is incomplete"
        );
        assert_eq!(series.read(47 * MS)[1], [0, 0, 0, 4]);
        series.record(1, Duration::from_secs(1 << 40), 1);
        assert_eq!(series.bytes[1].len(), 4, "bounded");
    }
}
