//! Whether the emulator kept up: its lateness and CPU utilization.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Above this share of a core the emulator may have been the bottleneck.
const CPU_LIMIT: f64 = 0.95;
/// Packets with this lateness at the 99th percentile affect TCP.
const LATENESS_LIMIT: Duration = Duration::from_millis(2);
/// A larger share of packets lost in the device's own queue is an unintended loss.
const OVERRUN_LIMIT: f64 = 1e-4;

/// The emulator's measurement of itself over a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// Packets delivered.
    pub packets: u64,
    /// Median delay of deliveries after their due time, in microseconds.
    pub lateness_p50_us: f64,
    /// 99th percentile of that delay.
    pub lateness_p99_us: f64,
    /// CPU time of the emulator's thread, as a share of the elapsed time.
    pub cpu_share: f64,
    /// Packets that the kernel dropped because the emulator did not read them in time.
    pub overruns: u64,
}

impl Health {
    /// Why figures measured in this time are unreliable; `None` if they are reliable.
    pub fn objection(&self) -> Option<String> {
        if self.cpu_share > CPU_LIMIT {
            return Some(format!(
                "the emulator used {:.0} % of a core (limit {:.0} %)",
                self.cpu_share * 100.0,
                CPU_LIMIT * 100.0
            ));
        }
        if self.lateness_p99_us > LATENESS_LIMIT.as_secs_f64() * 1e6 {
            return Some(format!(
                "the emulator delivered 1 % of the packets more than {:.1} ms late (limit {:.1} \
                 ms)",
                self.lateness_p99_us / 1e3,
                LATENESS_LIMIT.as_secs_f64() * 1e3
            ));
        }
        if self.overruns as f64 > self.packets as f64 * OVERRUN_LIMIT {
            return Some(format!(
                "{} of {} packets were lost because the emulator did not read them in time",
                self.overruns,
                self.packets + self.overruns
            ));
        }
        None
    }
}

impl std::fmt::Display for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "lateness p50 {:.0} us, p99 {:.0} us; {:.0} % of a core; {} packets, {} overruns",
            self.lateness_p50_us,
            self.lateness_p99_us,
            self.cpu_share * 100.0,
            self.packets,
            self.overruns
        )
    }
}

/// Buckets of each power of two: percentiles are exact to 1/8.
const STEPS: usize = 8;

/// A histogram of durations with logarithmic buckets.
#[derive(Clone, Debug)]
pub struct Histogram {
    /// Counts; bucket `i` holds nanoseconds from `lower(i)` up to `lower(i + 1)`.
    buckets: Vec<u64>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// Empty.
    pub fn new() -> Self {
        Self {
            buckets: vec![0; 64 * STEPS],
            total: 0,
        }
    }

    /// Counts a duration.
    pub fn record(&mut self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanos)] += 1;
        self.total += 1;
    }

    /// Number of counted durations.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The upper end of the bucket in which that share of the values is reached, in microseconds.
    pub fn percentile_us(&self, share: f64) -> f64 {
        let wanted = (self.total as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted && *count > 0 {
                return upper(index) as f64 / 1e3;
            }
        }
        0.0
    }
}

fn bucket(nanos: u64) -> usize {
    if nanos < STEPS as u64 {
        return nanos as usize;
    }
    let power = nanos.ilog2() as usize; // at least 3
    let step = (nanos >> (power - 3)) as usize & (STEPS - 1);
    (power - 2) * STEPS + step
}

fn upper(index: usize) -> u64 {
    if index < STEPS {
        return index as u64;
    }
    let power = index / STEPS + 2;
    let step = (index % STEPS) as u64;
    ((8 + step + 1) << (power - 3)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_cover_every_value_once() {
        for nanos in (0..10_000).chain([1 << 20, 1 << 40, (1 << 62) + 12_345]) {
            let index = bucket(nanos);
            assert!(nanos <= upper(index), "{nanos}");
            assert!(index == 0 || nanos > upper(index - 1), "{nanos}");
        }
        assert!(bucket(u64::MAX) < 64 * STEPS);
    }

    #[test]
    fn percentiles_are_within_an_eighth() {
        let mut histogram = Histogram::new();
        for us in 1..=1000 {
            histogram.record(Duration::from_micros(us));
        }
        assert!((histogram.percentile_us(0.5) / 500.0 - 1.0).abs() < 0.13);
        assert!((histogram.percentile_us(0.99) / 990.0 - 1.0).abs() < 0.13);
        assert_eq!(Histogram::new().percentile_us(0.99), 0.0);
    }

    #[test]
    fn a_busy_or_late_emulator_is_refused() {
        let good = Health {
            packets: 1000,
            lateness_p99_us: 50.0,
            cpu_share: 0.3,
            ..Health::default()
        };
        assert_eq!(good.objection(), None);
        assert!(
            Health {
                cpu_share: 0.99,
                ..good.clone()
            }
            .objection()
            .is_some()
        );
        assert!(
            Health {
                lateness_p99_us: 5000.0,
                ..good.clone()
            }
            .objection()
            .is_some()
        );
        assert!(
            Health {
                overruns: 10,
                ..good
            }
            .objection()
            .is_some()
        );
    }
}
