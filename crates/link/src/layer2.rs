//! Retransmission on layer 2: a radio repeats frames that were not acknowledged.

use core::time::Duration;

use crate::random::Random;

/// Slot of the back-off (IEEE 802.11-2020, table 17-21: OFDM PHY, 20 MHz).
const SLOT: Duration = Duration::from_micros(9);
/// Contention window before the first repetition, in slots; it doubles with each one.
const CW_MIN: u32 = 15;
/// Largest contention window, in slots.
const CW_MAX: u32 = 1_023;

/// Repeats packets whose transmission collided with an interferer.
///
/// Each repetition takes the air time of the packet again, after a back-off drawn uniformly from a
/// window that doubles. Interference therefore costs time first; a packet is lost only after the
/// last repetition. The packets behind it wait, because a receiver delivers frames in order.
#[derive(Clone, Debug)]
pub(crate) struct Layer2 {
    /// Whether an interferer is busy now.
    interfering: bool,
    /// Whether an interferer has been busy at any time during the current attempt.
    exposed: bool,
    /// Probability that an exposed attempt fails.
    error: f64,
    /// Maximum number of repetitions per packet.
    retry_limit: u32,
    /// Repetitions of the packet in transmission.
    repeated: u32,
    random: Random,
}

/// Result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The packet was delivered.
    Done,
    /// The packet is sent again after this back-off.
    Again(Duration),
    /// The retry limit is reached; the packet is lost.
    LimitReached,
}

impl Layer2 {
    pub(crate) fn new(random: Random) -> Self {
        Self {
            interfering: false,
            exposed: false,
            error: 0.0,
            retry_limit: 0,
            repeated: 0,
            random,
        }
    }

    /// An interferer becomes busy, or changes its parameters.
    pub(crate) fn begin_interference(&mut self, error: f64, retry_limit: u32) {
        self.interfering = true;
        self.exposed = true;
        self.error = error;
        self.retry_limit = retry_limit;
    }

    /// The interferer becomes silent; the current attempt stays exposed.
    pub(crate) fn end_interference(&mut self) {
        self.interfering = false;
    }

    /// Starts the first attempt of a packet.
    pub(crate) fn begin(&mut self) {
        self.repeated = 0;
        self.exposed = self.interfering;
    }

    /// Ends the current attempt.
    pub(crate) fn end(&mut self) -> Attempt {
        if !self.exposed || self.random.next_f64() >= self.error {
            return Attempt::Done;
        }
        if self.repeated >= self.retry_limit {
            return Attempt::LimitReached;
        }
        let window = ((CW_MIN + 1) << self.repeated.min(6)).min(CW_MAX + 1);
        self.repeated += 1;
        self.exposed = self.interfering;
        let slots = self.random.next_u64() % u64::from(window);
        Attempt::Again(SLOT * slots as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_bounded_and_wait_longer_each_time() {
        let mut layer = Layer2::new(Random::new(1));
        layer.begin();
        assert_eq!(layer.end(), Attempt::Done, "without interference");
        layer.begin_interference(1.0, 9);
        let mut most = [Duration::ZERO; 9];
        for _ in 0..2_000 {
            layer.begin();
            for most in &mut most {
                match layer.end() {
                    Attempt::Again(wait) => *most = wait.max(*most),
                    other => panic!("{other:?} before the limit"),
                }
            }
            assert_eq!(layer.end(), Attempt::LimitReached);
        }
        let slots = most.map(|wait| wait.as_micros() / 9);
        assert_eq!(slots[..2], [15, 31]);
        assert!(slots[6] > 1_000 && slots[8] > 1_000 && slots[8] <= 1_023);
    }

    #[test]
    fn a_briefly_exposed_attempt_may_fail() {
        let mut layer = Layer2::new(Random::new(1));
        layer.begin();
        layer.begin_interference(1.0, 1);
        layer.end_interference();
        assert!(matches!(layer.end(), Attempt::Again(_)));
        assert_eq!(layer.end(), Attempt::Done, "the repetition was not exposed");
    }
}
