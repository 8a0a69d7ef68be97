//! Independent random loss.

use crate::random::Random;

/// Which packets a link loses, behind its rate server: a packet that a radio sends in vain has still used
/// the air.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
pub enum Loss {
    /// Each packet with this probability, 0.0..=1.0 (other values are clamped, NaN means 0),
    /// independently of all others.
    Independent(f64),
}

impl Loss {
    /// No packet.
    pub const NONE: Self = Self::Independent(0.0);
}

/// Loses each packet with the same probability, independently of all others.
#[derive(Clone, Debug)]
pub(crate) struct LossProcess {
    /// Probability of loss, 0.0..=1.0.
    probability: f64,
    /// Where the dice come from.
    random: Random,
}

impl LossProcess {
    pub(crate) fn new(probability: f64, seed: u64) -> Self {
        let mut loss = Self {
            probability: 0.0,
            random: Random::new(seed),
        };
        loss.set_probability(probability);
        loss
    }

    /// Changes which packets are lost from now on.
    pub(crate) fn set(&mut self, loss: Loss) {
        let Loss::Independent(probability) = loss;
        self.set_probability(probability);
    }

    /// Changes the probability; values outside 0.0..=1.0 are clamped, NaN means 0.
    pub(crate) fn set_probability(&mut self, probability: f64) {
        self.probability = if probability.is_nan() {
            0.0
        } else {
            probability.clamp(0.0, 1.0)
        };
    }

    /// Whether the next packet is lost.
    ///
    /// One number is drawn for each packet even where the probability is 0 or 1, so that a change in the
    /// middle of a run leaves the rest of the sequence where it was.
    pub(crate) fn loses_next(&mut self) -> bool {
        self.random.next_f64() < self.probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost_of(n: u32, probability: f64) -> u32 {
        let mut loss = LossProcess::new(probability, 42);
        (0..n).map(|_| u32::from(loss.loses_next())).sum()
    }

    #[test]
    fn nothing_everything_and_the_share_between() {
        assert_eq!(lost_of(10_000, 0.0), 0);
        assert_eq!(lost_of(10_000, 1.0), 10_000);
        let lost = lost_of(100_000, 0.05);
        // Five standard deviations of a binomial distribution: 5 * sqrt(n p (1 - p)) = 345.
        assert!(lost.abs_diff(5_000) < 345, "{lost} of 100000 lost at 5 %");
    }

    #[test]
    fn nonsense_is_clamped() {
        assert_eq!(lost_of(100, f64::NAN), 0);
        assert_eq!(lost_of(100, -1.0), 0);
        assert_eq!(lost_of(100, 7.0), 100);
    }
}
