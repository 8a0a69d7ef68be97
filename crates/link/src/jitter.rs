//! Variation of the delay from packet to packet.

use core::time::Duration;

use crate::random::Random;

/// Distribution of the delay around its mean, independent from packet to packet.
///
/// A delay never becomes negative: if the variation exceeds the delay, the negative part of the
/// distribution collapses to a delay of 0 and the mean rises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Jitter {
    /// Distribution of the deviation from the mean delay.
    pub distribution: Distribution,
    /// Whether a packet may overtake another one.
    ///
    /// If not, a packet that would overtake is due together with its predecessor. Packets spaced
    /// much closer than the jitter then vary less than configured, and their mean delay is nearer
    /// to the largest delay than to the configured one.
    pub reorder: bool,
}

/// A distribution with mean 0.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Distribution {
    /// Always 0.
    #[default]
    Constant,
    /// Uniform between minus and plus this duration; the standard deviation is `1/sqrt(3)` of it.
    Uniform(Duration),
    /// Normal with this standard deviation, truncated at three of them (which leaves 98.7 % of it).
    Normal(Duration),
}

impl Jitter {
    /// No jitter.
    pub const NONE: Self = Self {
        distribution: Distribution::Constant,
        reorder: false,
    };

    /// Uniform between minus and plus `spread`, in order.
    pub fn uniform(spread: Duration) -> Self {
        Self {
            distribution: Distribution::Uniform(spread),
            reorder: false,
        }
    }

    /// Normal with this standard deviation, truncated at three of them, in order.
    pub fn normal(deviation: Duration) -> Self {
        Self {
            distribution: Distribution::Normal(deviation),
            reorder: false,
        }
    }

    /// The same jitter with reordering allowed.
    pub fn reordering(self) -> Self {
        Self {
            reorder: true,
            ..self
        }
    }
}

impl Distribution {
    /// The largest deviation from the mean.
    pub(crate) fn bound(self) -> Duration {
        match self {
            Self::Constant => Duration::ZERO,
            Self::Uniform(spread) => spread,
            Self::Normal(deviation) => deviation.saturating_mul(3),
        }
    }

    /// A delay drawn around `mean`.
    #[inline]
    pub(crate) fn draw(self, mean: Duration, random: &mut Random) -> Duration {
        let (scale, unit) = match self {
            Self::Constant => return mean,
            Self::Uniform(spread) => (spread, 2.0 * random.next_f64() - 1.0),
            Self::Normal(deviation) => (deviation, cut_normal(random)),
        };
        let offset = scale
            .checked_mul(4)
            .map_or(Duration::MAX, |_| scale.mul_f64(unit.abs()));
        if unit < 0.0 {
            mean.saturating_sub(offset)
        } else {
            mean.saturating_add(offset)
        }
    }
}

/// Standard normal truncated at three, by redrawing larger values.
fn cut_normal(random: &mut Random) -> f64 {
    loop {
        let z = random.next_normal();
        if z.abs() <= 3.0 {
            return z;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean and standard deviation of 100 000 draws, in milliseconds.
    fn moments(distribution: Distribution, mean: Duration) -> (f64, f64) {
        let mut random = Random::new(3);
        let n = 100_000;
        let draws: Vec<f64> = (0..n)
            .map(|_| distribution.draw(mean, &mut random))
            .inspect(|d| {
                let bound = distribution.bound();
                assert!(*d <= mean + bound && *d >= mean.saturating_sub(bound));
            })
            .map(|d| d.as_secs_f64() * 1e3)
            .collect();
        let average = draws.iter().sum::<f64>() / f64::from(n);
        let variance = draws.iter().map(|d| (d - average).powi(2)).sum::<f64>() / f64::from(n);
        (average, variance.sqrt())
    }

    #[test]
    fn moments_match_the_configuration() {
        let ms = Duration::from_millis;
        let (mean, deviation) = moments(Distribution::Uniform(ms(6)), ms(20));
        assert!((mean - 20.0).abs() < 0.1 && (deviation - 3.464).abs() < 0.05);
        // A normal distribution truncated at three has a standard deviation of 0.9866.
        let (mean, deviation) = moments(Distribution::Normal(ms(5)), ms(20));
        assert!((mean - 20.0).abs() < 0.1 && (deviation - 4.933).abs() < 0.05);
        assert_eq!(moments(Distribution::Constant, ms(20)), (20.0, 0.0));
    }

    #[test]
    fn delays_are_never_negative_and_never_overflow() {
        let (mean, _) = moments(
            Distribution::Uniform(Duration::from_millis(8)),
            Duration::ZERO,
        );
        assert!(
            (mean - 2.0).abs() < 0.05,
            "half of it is 0, the rest 4 ms on average"
        );
        let mut random = Random::new(1);
        for distribution in [Distribution::Uniform, Distribution::Normal] {
            distribution(Duration::MAX).draw(Duration::MAX, &mut random);
        }
    }
}
