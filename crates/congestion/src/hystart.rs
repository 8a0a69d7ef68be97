//! HyStart++ (RFC 9406): leaves the first slow start when the delay grows, before packets are lost.
//!
//! Slow start doubles the window until it has filled the queue, and then loses up to a window.
//! HyStart++ compares the minimum round-trip time of each round with that of the previous round.
//! When it has grown, slow start continues at a quarter of the pace for some rounds (conservative
//! slow start), in case the growth was jitter. If the delay stays, slow start ends.
//!
//! It is part of the [`Window`](crate::Window): every algorithm with `hystart` set has it.

use std::time::Duration;

use crate::event::Ack;
use crate::parameter::parameters;
use crate::rounds::Round;

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

parameters! {
    /// The constants of RFC 9406, section 4.3.
    pub struct HystartParameters, "hystart_" {
        /// Smallest growth of the delay that counts (MIN_RTT_THRESH).
        pub min_rtt_threshold: Duration = ms(4), ms(0)..=ms(1_000);
        /// Growth of the delay that always counts (MAX_RTT_THRESH).
        pub max_rtt_threshold: Duration = ms(16), ms(0)..=ms(10_000);
        /// Between the two, the delay must grow by this part of itself (MIN_RTT_DIVISOR).
        pub min_rtt_divisor: u32 = 8, 1..=1_000;
        /// Samples required to evaluate a round (N_RTT_SAMPLE).
        pub samples: u32 = 8, 1..=1_000;
        /// Divisor of the growth in conservative slow start (CSS_GROWTH_DIVISOR).
        pub css_growth_divisor: u32 = 4, 1..=1_000;
        /// Rounds of conservative slow start before it ends (CSS_ROUNDS).
        pub css_rounds: u32 = 5, 1..=1_000;
        /// Maximum number of packets counted per acknowledgment (L; infinite with pacing).
        pub growth_limit: u32 = 8, 1..=1_000_000;
    }
}

/// The state of one slow start.
#[derive(Clone, Debug)]
pub struct Hystart {
    parameters: HystartParameters,
    round: Round,
    /// currentRoundMinRTT, and the number of samples.
    current: Option<Duration>,
    samples: u32,
    /// lastRoundMinRTT.
    last: Option<Duration>,
    /// Set during conservative slow start.
    conservative: Option<Conservative>,
}

#[derive(Clone, Copy, Debug)]
struct Conservative {
    /// cssBaselineMinRtt: below it the delay has not grown.
    baseline: Duration,
    /// Rounds completed in it.
    rounds: u32,
}

impl Hystart {
    /// State at the start of a flow.
    pub fn new(parameters: HystartParameters) -> Self {
        Self {
            parameters,
            round: Round::first(),
            current: None,
            samples: 0,
            last: None,
            conservative: None,
        }
    }

    /// Packets by which this acknowledgment grows the window, unless slow start is
    /// [over](Hystart::is_over).
    pub fn growth(&mut self, ack: &Ack) -> f64 {
        // RFC 9406, section 4.2
        if self.round.is_over(ack) {
            self.last = self.current.take();
            self.samples = 0;
            if let Some(conservative) = &mut self.conservative {
                conservative.rounds += 1;
            }
        }
        let limited = f64::from(ack.acked.min(self.parameters.growth_limit));
        let growth = match self.conservative {
            None => limited,
            Some(_) => limited / f64::from(self.parameters.css_growth_divisor),
        };
        if let Some(rtt) = ack.rtt {
            self.current = Some(self.current.map_or(rtt, |least| least.min(rtt)));
            self.samples += 1;
        }
        self.evaluate();
        growth
    }

    /// Whether slow start has ended; congestion avoidance continues from the current window.
    pub fn is_over(&self) -> bool {
        let rounds = self
            .conservative
            .map_or(0, |conservative| conservative.rounds);
        rounds >= self.parameters.css_rounds
    }

    /// Whether slow start is conservative.
    pub fn is_conservative(&self) -> bool {
        self.conservative.is_some()
    }

    /// Compares this round with the last one, or with the baseline.
    fn evaluate(&mut self) {
        let Some(current) = self.current else { return };
        if self.samples < self.parameters.samples {
            return;
        }
        // RFC 9406, section 4.2
        match (self.conservative, self.last) {
            (None, Some(last)) if current >= last.saturating_add(self.threshold(last)) => {
                self.conservative = Some(Conservative {
                    baseline: current,
                    rounds: 0,
                });
            }
            (Some(conservative), _) if current < conservative.baseline => self.conservative = None,
            _ => {}
        }
    }

    /// Growth of the delay that counts, after a round of `last`: RttThresh.
    fn threshold(&self, last: Duration) -> Duration {
        let parameters = &self.parameters;
        let part = last / parameters.min_rtt_divisor;
        part.min(parameters.max_rtt_threshold)
            .max(parameters.min_rtt_threshold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slow start in which every round has `window` acknowledgments of one packet each.
    struct Rounds {
        hystart: Hystart,
        sent: u64,
    }

    impl Rounds {
        fn new() -> Self {
            let hystart = Hystart::new(HystartParameters::default());
            Self { hystart, sent: 0 }
        }

        /// One round with this delay; returns the growth of the window.
        fn round(&mut self, rtt: Duration, window: u64) -> f64 {
            let begin = self.sent;
            self.sent += window;
            let acks = (1..=window).map(|n| Ack {
                now: Duration::ZERO,
                acked: 1,
                rtt: Some(rtt),
                srtt: rtt,
                acknowledged: begin + n,
                sent: self.sent,
                cwnd_limited: true,
            });
            acks.map(|ack| self.hystart.growth(&ack)).sum()
        }
    }

    #[test]
    fn a_steady_delay_does_not_end_slow_start() {
        let mut rounds = Rounds::new();
        for _ in 0..20 {
            assert_eq!(rounds.round(ms(40), 10), 10.0);
            assert!(!rounds.hystart.is_conservative());
        }
    }

    #[test]
    fn a_delay_that_grows_and_stays_ends_slow_start_after_five_rounds() {
        let mut rounds = Rounds::new();
        rounds.round(ms(40), 10);
        // 40 / 8 = 5 ms more; the eighth sample decides, so two packets grow at a quarter.
        assert_eq!(rounds.round(ms(45), 10), 8.5);
        for round in 1..5 {
            assert_eq!(rounds.round(ms(45), 10), 2.5, "{round}");
            assert!(!rounds.hystart.is_over(), "{round}");
        }
        rounds.round(ms(45), 1);
        assert!(rounds.hystart.is_over());
    }

    #[test]
    fn jitter_does_not_end_slow_start() {
        let mut rounds = Rounds::new();
        rounds.round(ms(40), 10);
        rounds.round(ms(60), 10);
        assert!(rounds.hystart.is_conservative());
        rounds.round(ms(59), 10);
        assert!(!rounds.hystart.is_conservative(), "below the baseline");
        assert_eq!(rounds.round(ms(59), 10), 10.0);
    }

    #[test]
    fn seven_samples_are_too_few() {
        let mut rounds = Rounds::new();
        rounds.round(ms(40), 7);
        rounds.round(ms(400), 7);
        assert!(!rounds.hystart.is_conservative());
    }

    #[test]
    fn the_threshold_is_an_eighth_between_4_and_16_ms() {
        let hystart = Hystart::new(HystartParameters::default());
        for (last, threshold) in [(8, 4), (80, 10), (800, 16)] {
            assert_eq!(hystart.threshold(ms(last)), ms(threshold), "{last}");
        }
    }

    #[test]
    fn one_acknowledgment_counts_for_at_most_eight_packets() {
        let mut hystart = Hystart::new(HystartParameters::default());
        let ack = Ack {
            now: Duration::ZERO,
            acked: 40,
            rtt: None,
            srtt: ms(10),
            acknowledged: 40,
            sent: 80,
            cwnd_limited: true,
        };
        assert_eq!(hystart.growth(&ack), 8.0);
    }
}
