//! A rate over approximately the last second.

use crate::Instant;

/// Exponentially decaying average of bytes per second, with a time constant of one second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Meter {
    rate: f64,
    at: Instant,
}

impl Meter {
    pub(crate) fn add(&mut self, bytes: u64, now: Instant) {
        self.rate = self.rate(now) + bytes as f64;
        self.at = now;
    }

    /// Bytes per second.
    pub(crate) fn rate(&self, now: Instant) -> f64 {
        self.rate * (-now.saturating_sub(self.at).as_secs_f64()).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_steady_flow_is_measured_and_fades_when_it_ends() {
        let mut meter = Meter::default();
        for ms in 0..10_000 {
            meter.add(1000, Duration::from_millis(ms));
        }
        let rate = meter.rate(Duration::from_secs(10));
        assert!((0.98e6..1.02e6).contains(&rate), "{rate}");
        assert!(meter.rate(Duration::from_secs(20)) < 100.0);
    }
}
