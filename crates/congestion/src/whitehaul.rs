//! WhiteHaul: Illinois changed for long wireless links, with its flaws.
//!
//! Source: the listing in Appendix A of the dissertation on WhiteHaul-based spectrum aggregation in
//! Wi-Fi bands, whose section 4.4 describes the flaws; the system is Kassem et al., "WhiteHaul",
//! MobiSys 2020. The listing:
//!
//! - Slow start ends at 20 packets.
//! - The step up is 50 packets per round trip below the advertised window (the listing's comment
//!   says 10). It is 1 from there on, or when the mean queueing delay of a round exceeds the
//!   budget. beta is 6/64 at any delay.
//! - Once the delay has exceeded the budget (`rtt_above`), window and threshold are set to the
//!   advertised window at the end of each round in which they are above it, in state Open only.
//!   `rtt_above` is cleared only below that window: the clamp stays until a loss or a timeout ends
//!   it.
//! - A loss leaves 58 of 64 packets (lines 486 to 489). Section 4.4 says that a loss always reduces
//!   the window to 100; in the listing only the clamp does, which needs a delay.
//! - Each of three subflows has an advertised window of its own, all of them 100. The listing knows
//!   a subflow by its subnet; here it is the order in which subflows join their bond.
//! - Arithmetic is in whole packets, and the remainder of a step is lost.
//!
//! [`edinburgh`](crate::edinburgh) is the same without the flaws.

use std::time::Duration;

use crate::algorithm::{Algorithm, Info, has_window};
use crate::control::CongestionControl;
use crate::event::{Ack, Loss, Timeout};
use crate::flow::Phase;
use crate::parameter::{BuildError, Parameters, parameters};
use crate::rounds::{Delays, Round};
use crate::siblings::Siblings;
use crate::window::Window;

parameters! {
    /// Constants of the listing, and parameters of its kernel module.
    pub struct WhitehaulParameters {
        /// Threshold at which the first slow start ends, in packets (line 111).
        pub initial_ssthresh: u32 = 20, 2..=1_000_000;
        /// The advertised window, in packets (line 49).
        pub advertised: u32 = 100, 2..=1_000_000;
        /// That of the second subflow (line 53); 0 for the same.
        pub advertised_2: u32 = 0, 0..=1_000_000;
        /// That of the third subflow (line 57); 0 for the same.
        pub advertised_3: u32 = 0, 0..=1_000_000;
        /// Queueing delay above which the window is clamped (line 228).
        pub budget: Duration = Duration::from_millis(50), Duration::ZERO..=Duration::from_secs(10);
        /// Rounds of low delay before the step is largest again (line 45).
        pub theta: u32 = 2, 1..=200;
        /// Below this many packets it is Reno (line 40).
        pub win_thresh: u32 = 10, 0..=1_000_000;
        /// Packets per round trip below the advertised window (line 28).
        pub alpha_max: u32 = 50, 1..=1_000;
        /// Share of the window that a loss costs (lines 34 to 37).
        pub beta: f64 = 0.09375, 0.01..=0.9;
    }
}

/// Larger samples are clamped to this: U32_MAX / ALPHA_MAX microseconds (line 30).
const MAX_RTT: Duration = Duration::from_micros(671_088);

/// Samples no larger than this do not become the base (lines 23 and 140).
const MIN_BASE: Duration = Duration::from_micros(100);

/// See the module.
#[derive(Clone, Debug)]
pub struct Whitehaul {
    window: Window,
    parameters: WhitehaulParameters,
    round: Round,
    delays: Delays,
    /// The smallest sample above 100 us.
    base: Option<Duration>,
    /// The advertised window of this subflow, in packets.
    advertised: f64,
    /// Growth of the window in packets per round trip.
    alpha: u32,
    /// Packets acknowledged since the window last grew (snd_cwnd_cnt).
    acked: u64,
    /// The delay has exceeded the budget; `rtt_low` rounds below the budget have passed since.
    rtt_above: bool,
    rtt_low: u32,
}

impl Algorithm for Whitehaul {
    const INFO: Info = Info {
        name: "whitehaul",
        about: "Illinois for long wireless links, clamped to 100 packets after one delay spike: \
            as published",
        source: "the WhiteHaul dissertation, appendix A; Kassem et al., MobiSys 2020",
        coupled: false,
    };
    type Parameters = WhitehaulParameters;

    fn new(mut window: Window, parameters: WhitehaulParameters) -> Result<Self, BuildError> {
        parameters.check()?;
        window.set_ssthresh(f64::from(parameters.initial_ssthresh));
        Ok(Self {
            window,
            parameters,
            round: Round::first(),
            delays: Delays::default(),
            base: None,
            advertised: parameters.advertised_at(0),
            alpha: parameters.alpha_max,
            acked: 0,
            rtt_above: false,
            rtt_low: 0,
        })
    }
}

impl CongestionControl for Whitehaul {
    has_window!();

    fn on_ack(&mut self, ack: &Ack, siblings: &Siblings<'_>) {
        self.advertised = self.parameters.advertised_at(siblings.place());
        if let Some(rtt) = ack.rtt {
            self.record(rtt.min(MAX_RTT));
        }
        self.window.measure(ack);
        if self.window.phase() == Phase::Recovery {
            return;
        }
        if self.round.is_over(ack) {
            self.update_alpha();
            self.delays.begin_round();
            self.clamp();
        }
        if !self.window.may_grow(ack) {
            return;
        }
        if self.window.in_slow_start() {
            self.window.slow_start(ack);
        } else {
            self.avoid_congestion(ack.acked);
        }
    }

    fn on_loss(&mut self, _loss: &Loss, _siblings: &Siblings<'_>) {
        let left = self.after_loss();
        self.window.enter_recovery(left);
    }

    fn on_rto(&mut self, timeout: &Timeout, _siblings: &Siblings<'_>) {
        let left = self.after_loss();
        self.window.enter_loss(left, timeout);
        // lines 354 to 360
        self.alpha = 1;
        (self.rtt_above, self.rtt_low) = (false, 0);
        self.round.restart();
        self.delays.begin_round();
    }
}

impl Whitehaul {
    fn record(&mut self, rtt: Duration) {
        // lines 133 to 149
        self.delays.record(rtt);
        if rtt > MIN_BASE && self.base.is_none_or(|base| rtt < base) {
            self.base = Some(rtt);
        }
    }

    /// Once per round trip.
    fn update_alpha(&mut self) {
        // lines 305 to 312
        if self.cwnd() < f64::from(self.parameters.win_thresh) {
            self.alpha = 1;
        } else if let Some(mean) = self.delays.mean() {
            self.alpha = self.alpha(self.above_budget(mean));
        }
    }

    /// Whether a round with this mean is above the budget. Without a base, or with a mean below it,
    /// the listing's unsigned numbers wrap around, which counts as above.
    fn above_budget(&self, mean: Duration) -> bool {
        let queueing = self.base.and_then(|base| mean.checked_sub(base));
        queueing.is_none_or(|queueing| queueing > self.parameters.budget)
    }

    fn alpha(&mut self, above_budget: bool) -> u32 {
        // lines 225 to 258
        if above_budget {
            self.rtt_above = true;
            return 1;
        }
        if self.cwnd() >= self.advertised {
            return 1;
        }
        if self.rtt_above {
            self.rtt_low += 1;
            if self.rtt_low < self.parameters.theta {
                return self.alpha;
            }
            (self.rtt_above, self.rtt_low) = (false, 0);
        }
        self.parameters.alpha_max
    }

    fn clamp(&mut self) {
        // lines 363 to 383
        let above = self.cwnd() >= self.window.ssthresh() && self.cwnd() >= self.advertised;
        if self.window.is_open() && above && self.rtt_above {
            self.window.set_cwnd(self.advertised);
            self.window.set_ssthresh(self.cwnd());
        }
    }

    fn avoid_congestion(&mut self, acked: u32) {
        // lines 452 to 471
        self.acked += u64::from(acked);
        let (delta, cwnd) = (self.acked * u64::from(self.alpha), self.cwnd() as u64);
        if delta >= cwnd {
            self.window.grow((delta / cwnd) as f64);
            self.acked = 0;
        }
    }

    fn after_loss(&self) -> f64 {
        // lines 486 to 489
        self.cwnd() - (self.cwnd() * self.parameters.beta).floor()
    }
}

impl WhitehaulParameters {
    /// The advertised window of the subflow in that place, in packets.
    fn advertised_at(&self, place: usize) -> f64 {
        // lines 426 to 453
        let own = match place {
            1 => self.advertised_2,
            2 => self.advertised_3,
            _ => 0,
        };
        f64::from(if own == 0 { self.advertised } else { own })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::fixture::{fresh, ms, steady};
    use crate::player::Player;

    fn new_flow(rtt: u64) -> Player {
        fresh("whitehaul", &[], &[ms(rtt)])
    }

    #[test]
    fn slow_start_ends_at_20_packets() {
        let mut whitehaul = new_flow(100);
        assert_eq!(whitehaul.ssthresh(0), 20.0);
        assert_eq!(whitehaul.round(0), 10.0);
        assert_eq!(whitehaul.cwnd(0), 20.0);
    }

    #[test]
    fn it_grows_by_up_to_50_packets_to_the_advertised_window_and_by_one_from_there() {
        let mut whitehaul = new_flow(100);
        whitehaul.round(0);
        // From 20 packets: each acknowledgment adds 50, which is 2 windows, then 1 with the
        // remainder lost.
        whitehaul.ack(0, 1);
        assert_eq!(whitehaul.cwnd(0), 22.0);
        while whitehaul.cwnd(0) < 100.0 {
            whitehaul.round(0);
        }
        whitehaul.round(0);
        let grown = whitehaul.round(0);
        assert!((0.0..=1.0).contains(&grown), "{grown}");
    }

    #[test]
    fn the_remainder_of_a_step_is_lost() {
        let mut whitehaul = steady("whitehaul", &[], &[(60.0, 100)]);
        // 50 < 60; 100 / 60 is one packet, where 1.67 would be due
        assert_eq!(whitehaul.ack(0, 1), 0.0);
        assert_eq!(whitehaul.ack(0, 1), 1.0);
        assert_eq!(whitehaul.ack(0, 1), 0.0);
    }

    #[test]
    fn a_loss_takes_6_of_64_packets_in_whole_packets() {
        let mut whitehaul = steady("whitehaul", &[], &[(100.0, 100)]);
        assert_eq!(whitehaul.repaired_loss(0), 91.0);
    }

    #[test]
    fn a_delay_above_the_budget_sets_window_and_threshold_to_the_advertised_window() {
        let mut whitehaul = steady("whitehaul", &[], &[(300.0, 20)]);
        whitehaul.rounds(0, 2);
        whitehaul.set_rtt(0, ms(71));
        whitehaul.rounds(0, 3);
        assert_eq!(whitehaul.ssthresh(0), 100.0);
        assert!((100.0..=101.0).contains(&whitehaul.cwnd(0)));
    }

    #[test]
    fn a_delay_equal_to_the_budget_does_not() {
        let mut whitehaul = steady("whitehaul", &[], &[(300.0, 20)]);
        whitehaul.rounds(0, 2);
        whitehaul.set_rtt(0, ms(70));
        whitehaul.rounds(0, 3);
        assert!(whitehaul.cwnd(0) >= 300.0);
    }

    #[test]
    fn the_clamp_ends_by_a_loss_and_two_rounds_of_low_delay() {
        let mut whitehaul = steady("whitehaul", &[], &[(300.0, 20)]);
        whitehaul.rounds(0, 2);
        whitehaul.set_rtt(0, ms(100));
        whitehaul.rounds(0, 3);
        whitehaul.set_rtt(0, ms(20));
        whitehaul.rounds(0, 50);
        assert!(whitehaul.cwnd(0) <= 101.0, "the clamp stays without a loss");
        whitehaul.repaired_loss(0);
        whitehaul.rounds(0, 100);
        assert!(whitehaul.cwnd(0) > 120.0, "{}", whitehaul.cwnd(0));
    }

    #[test]
    fn no_clamp_while_packets_are_missing() {
        let mut whitehaul = steady("whitehaul", &[], &[(300.0, 20)]);
        whitehaul.rounds(0, 2);
        whitehaul.set_rtt(0, ms(100));
        whitehaul.controls[0].window_mut().set_disorder(true);
        whitehaul.rounds(0, 3);
        assert!(whitehaul.cwnd(0) >= 300.0, "{}", whitehaul.cwnd(0));
        whitehaul.controls[0].window_mut().set_disorder(false);
        whitehaul.rounds(0, 2);
        assert!(whitehaul.cwnd(0) <= 101.0, "{}", whitehaul.cwnd(0));
    }

    #[test]
    fn each_subflow_has_its_advertised_window() {
        let clamped = |assignments: &[&str]| -> Vec<f64> {
            let mut bond = steady("whitehaul", assignments, &[(300.0, 20); 4]);
            bond.rounds_of_all(2);
            (0..4).for_each(|flow| bond.set_rtt(flow, ms(100)));
            bond.rounds_of_all(3);
            (0..4).map(|flow| bond.ssthresh(flow)).collect()
        };
        let all = clamped(&["advertised=150"]);
        assert_eq!(all, [150.0; 4]);
        let own = clamped(&["advertised_2=60", "advertised_3=200"]);
        assert_eq!(own, [100.0, 60.0, 200.0, 100.0]);
    }

    #[test]
    fn a_base_below_100_us_counts_as_a_delay_above_the_budget() {
        let rtt = Duration::from_micros(80);
        let mut whitehaul = fresh("whitehaul", &[], &[rtt]);
        whitehaul.place(0, 300.0);
        whitehaul.rounds(0, 3);
        assert!(whitehaul.cwnd(0) <= 101.0);
    }
}
