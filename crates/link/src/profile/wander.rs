//! A randomly wandering rate.

use core::time::Duration;

use crate::random::Random;

/// A first-order autoregressive process (a sampled Ornstein-Uhlenbeck process): standard normal at
/// any moment, with a correlation of `exp(-t/tau)` between moments t apart.
#[derive(Clone, Debug)]
pub(super) struct Wander {
    value: f64,
    /// Weight of the previous value in each step.
    memory: f64,
    random: Random,
}

impl Wander {
    pub(super) fn new(step: Duration, tau: Duration, mut random: Random) -> Self {
        Self {
            value: random.next_normal(),
            memory: (-step.as_secs_f64() / tau.as_secs_f64()).exp(),
            random,
        }
    }

    /// The next value.
    pub(super) fn next(&mut self) -> f64 {
        let value = self.value;
        let fresh = (1.0 - self.memory * self.memory).sqrt();
        self.value = self.memory * value + fresh * self.random.next_normal();
        value
    }
}

/// Maps a wandering value to a rate in Mbit/s.
#[derive(Clone, Copy, Debug)]
pub(super) enum Law {
    /// `mean + deviation * value`.
    Normal { mean: f64, deviation: f64 },
    /// `median * exp(deviation * value)`.
    LogNormal { median: f64, deviation: f64 },
}

/// A distribution with bounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates {
    pub(super) law: Law,
    /// Smallest and largest Mbit/s.
    pub(super) bounds: (f64, f64),
}

impl Rates {
    pub(super) fn at(&self, value: f64) -> f64 {
        let rate = match self.law {
            Law::Normal { mean, deviation } => mean + deviation * value,
            Law::LogNormal { median, deviation } => median * (deviation * value).exp(),
        };
        rate.clamp(self.bounds.0, self.bounds.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_standard_normal_and_decorrelates_in_tau() {
        let second = Duration::from_secs(1);
        let mut wander = Wander::new(second / 10, 2 * second, Random::new(1));
        let values: Vec<f64> = (0..400_000).map(|_| wander.next()).collect();
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|x| x * x).sum::<f64>() / n;
        let later = values.windows(21).map(|w| w[0] * w[20]).sum::<f64>() / n;
        assert!(
            mean.abs() < 0.06 && (variance - 1.0).abs() < 0.06,
            "{mean} {variance}"
        );
        assert!((later - (-1.0f64).exp()).abs() < 0.06, "{later}");
    }
}
