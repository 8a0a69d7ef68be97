//! A small seeded generator, so that a run can be repeated packet by packet.

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Random {
    /// Counter that the output function scrambles.
    state: u64,
}

impl Random {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Another generator, independent of this one for all practical purposes, for the given
    /// purpose. It depends on this generator's state but does not change it.
    ///
    /// All generators walk the same cycle of 2^64 states from starting points that the output
    /// function has scattered over it: a thousand streams of 10^9 numbers each overlap with a
    /// probability of about 10^6 * 10^9 / 2^64, one in 20 000.
    pub fn split(&self, purpose: u64) -> Self {
        let purpose = Self::new(purpose).next_u64();
        let state = Self::new(self.state ^ purpose).next_u64();
        Self { state }
    }

    /// The next 64 uniformly distributed bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `0.0..1.0`, with 53 bits of resolution.
    pub fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Exponentially distributed with mean 1.
    pub fn next_exponential(&mut self) -> f64 {
        // 1 - u is in (0, 1], so the logarithm is finite.
        -(1.0 - self.next_f64()).ln()
    }

    /// Normally distributed with mean 0 and variance 1 (Box and Muller, 1958).
    pub fn next_normal(&mut self) -> f64 {
        let radius = (2.0 * self.next_exponential()).sqrt();
        radius * (core::f64::consts::TAU * self.next_f64()).cos()
    }
}

/// Purposes of the random streams of one link.
pub(crate) mod purpose {
    /// Packet losses.
    pub(crate) const LOSS: u64 = 1;
    /// The delay of each packet.
    pub(crate) const JITTER: u64 = 2;
    /// Failures and back-offs on layer 2.
    pub(crate) const LAYER2: u64 = 3;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_matches_the_published_vector() {
        // The published test vector for seed 1234567.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(random.next_u64(), 3_203_168_211_198_807_973);
        assert_eq!(random.next_u64(), 9_817_491_932_198_370_423);
    }

    #[test]
    fn purposes_have_separate_streams() {
        let random = Random::new(1);
        let first = |purpose| random.split(purpose).next_u64();
        assert_eq!(first(1), first(1));
        let all: std::collections::HashSet<u64> = (0..10_000).map(first).collect();
        assert_eq!(all.len(), 10_000);
        assert_ne!(
            random.split(1).split(2).state,
            random.split(2).split(1).state
        );
    }

    #[test]
    fn fractions_stay_in_range_and_average_one_half() {
        let mut random = Random::new(7);
        let n = 100_000;
        let sum: f64 = (0..n)
            .map(|_| random.next_f64())
            .inspect(|x| assert!((0.0..1.0).contains(x)))
            .sum();
        assert!((sum / f64::from(n) - 0.5).abs() < 0.01);
    }
}
