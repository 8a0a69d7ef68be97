//! TCP Edinburgh (called Eindhoven in the abstract): WhiteHaul without its flaws.
//!
//! Source: the dissertation on WhiteHaul-based spectrum aggregation in Wi-Fi bands, section 5.3,
//! which repairs the findings of section 4.4. Its code is not published.
//!
//! | the dissertation | here |
//! | --- | --- |
//! | infinite initial threshold, slow start by HyStart++ | the same |
//! | the window may grow after a delay spike | only the delay of the last round counts |
//! | no fixed advertised window | recent delivery rate times base rtt plus a part of the budget |
//! | no fixed budget | a part of the base round-trip time, within limits |
//!
//! The window grows fast until the queue holds half the budget, then slowly; above the budget it
//! falls back to half.

use std::time::Duration;

use crate::Instant;
use crate::algorithm::{Algorithm, Info, has_window};
use crate::control::CongestionControl;
use crate::event::{Ack, Loss, Timeout};
use crate::flow::Phase;
use crate::parameter::{BuildError, Parameters, parameters};
use crate::rounds::{Delays, Round};
use crate::siblings::Siblings;
use crate::window::{Window, WindowParameters};

const fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

parameters! {
    /// Parameters of Edinburgh. The dissertation gives no figures; WhiteHaul's are kept where it
    /// has some.
    pub struct EdinburghParameters {
        /// The queueing budget as a multiple of the base round-trip time.
        pub budget_share: f64 = 1.0, 0.0..=100.0;
        /// Smallest queueing budget.
        pub budget_min: Duration = ms(20), ms(1)..=ms(10_000);
        /// Largest queueing budget.
        pub budget_max: Duration = ms(200), ms(1)..=ms(10_000);
        /// The part of the budget that the advertised window may fill.
        pub fill: f64 = 0.5, 0.0..=1.0;
        /// Packets per round trip below the advertised window.
        pub alpha_max: f64 = 50.0, 1.0..=1_000.0;
        /// Share of the window that a loss costs.
        pub beta: f64 = 0.1, 0.01..=0.9;
        /// Below this many packets it grows like Reno.
        pub win_thresh: u32 = 10, 0..=1_000_000;
    }
}

/// Rounds for which a delivery rate is remembered.
const ROUNDS: usize = 10;

/// See the module.
#[derive(Clone, Debug)]
pub struct Edinburgh {
    window: Window,
    parameters: EdinburghParameters,
    round: Round,
    delays: Delays,
    delivery: Delivery,
    /// Growth of the window in packets per round trip.
    alpha: f64,
}

/// Recent delivery rates of the path.
#[derive(Clone, Debug, Default)]
struct Delivery {
    /// Start of this round, and the packets acknowledged in it.
    since: Option<Instant>,
    acked: u64,
    /// Packets per second in the last rounds; the oldest is overwritten.
    rates: [f64; ROUNDS],
    next: usize,
}

impl Algorithm for Edinburgh {
    const INFO: Info = Info {
        name: "edinburgh",
        about: "WhiteHaul repaired: the window grows again after a delay spike, limits follow the \
            path",
        source: "the WhiteHaul dissertation, section 5.3; RFC 9406",
        coupled: false,
    };
    type Parameters = EdinburghParameters;

    fn window_parameters() -> WindowParameters {
        WindowParameters {
            hystart: true,
            ..WindowParameters::default()
        }
    }

    fn new(window: Window, parameters: EdinburghParameters) -> Result<Self, BuildError> {
        parameters.check()?;
        Ok(Self {
            window,
            parameters,
            round: Round::first(),
            delays: Delays::default(),
            delivery: Delivery::default(),
            alpha: parameters.alpha_max,
        })
    }
}

impl CongestionControl for Edinburgh {
    has_window!();

    fn on_ack(&mut self, ack: &Ack, _siblings: &Siblings<'_>) {
        if let Some(rtt) = ack.rtt {
            self.delays.record(rtt);
        }
        self.delivery.acked += u64::from(ack.acked);
        if self.round.is_over(ack) {
            self.delivery.end_round(ack.now);
            self.end_round();
            self.delays.begin_round();
        }
        let acked = self.window.acknowledge(ack);
        self.window.grow(acked * self.alpha / self.cwnd());
    }

    fn on_loss(&mut self, _loss: &Loss, _siblings: &Siblings<'_>) {
        let left = self.after_loss();
        self.window.enter_recovery(left);
    }

    fn on_rto(&mut self, timeout: &Timeout, _siblings: &Siblings<'_>) {
        let left = self.after_loss();
        self.window.enter_loss(left, timeout);
        self.alpha = 1.0;
        self.round.restart();
        self.delays.begin_round();
        self.delivery.restart();
    }
}

impl Edinburgh {
    /// Once per round trip: sets the step, and steps back above the budget.
    fn end_round(&mut self) {
        let (Some(base), Some(queueing)) = (self.delays.base(), self.delays.mean_queueing()) else {
            return;
        };
        let (base, queueing) = (base.as_secs_f64(), queueing.as_secs_f64());
        let budget = self.budget(base);
        let advertised = self.advertised(base, budget);
        let above_budget = queueing > budget;
        let small = self.cwnd() < f64::from(self.parameters.win_thresh);
        let may_grow_fast = !small && !above_budget && self.cwnd() < advertised;
        self.alpha = if may_grow_fast {
            self.parameters.alpha_max
        } else {
            1.0
        };
        let too_large = self.cwnd() >= advertised && !self.window.in_slow_start();
        if above_budget && too_large && self.window.phase() == Phase::Open {
            self.window.set_cwnd(advertised);
            self.window.set_ssthresh(self.cwnd());
        }
    }

    /// The accepted queueing delay, in seconds.
    fn budget(&self, base: f64) -> f64 {
        let parameters = &self.parameters;
        (base * parameters.budget_share)
            .min(parameters.budget_max.as_secs_f64())
            .max(parameters.budget_min.as_secs_f64())
    }

    /// The window that fills the path and a part of the budget.
    fn advertised(&self, base: f64, budget: f64) -> f64 {
        match self.delivery.best() {
            Some(rate) => {
                let window = rate * (base + self.parameters.fill * budget);
                window.max(f64::from(self.parameters.win_thresh))
            }
            None => f64::INFINITY,
        }
    }

    fn after_loss(&self) -> f64 {
        self.cwnd() * (1.0 - self.parameters.beta)
    }
}

impl Delivery {
    fn end_round(&mut self, now: Instant) {
        let lasted = self.since.map(|since| now.saturating_sub(since));
        if let Some(lasted) = lasted.filter(|lasted| !lasted.is_zero()) {
            self.rates[self.next] = self.acked as f64 / lasted.as_secs_f64();
            self.next = (self.next + 1) % ROUNDS;
        }
        (self.since, self.acked) = (Some(now), 0);
    }

    /// Acknowledgments that arrive now are for data sent earlier: the next round is not measured.
    fn restart(&mut self) {
        self.since = None;
    }

    /// Best rate of the last rounds, in packets per second.
    fn best(&self) -> Option<f64> {
        let best = self.rates.iter().copied().fold(0.0, f64::max);
        (best > 0.0).then_some(best)
    }
}

#[cfg(test)]
mod tests {
    use crate::fixture::{fresh, ms, steady};
    use crate::player::Player;

    /// Three rounds at `base`, three at `spike` and `rounds` at `base` again.
    fn spike(name: &str, cwnd: f64, base: u64, spike: u64, rounds: usize) -> Player {
        let mut bond = steady(name, &[], &[(cwnd, base)]);
        bond.rounds(0, 3);
        bond.set_rtt(0, ms(spike));
        bond.rounds(0, 3);
        bond.set_rtt(0, ms(base));
        bond.rounds(0, rounds);
        bond
    }

    #[test]
    fn it_leaves_the_clamp_of_whitehaul() {
        for rounds in [10, 40, 100] {
            let whitehaul = spike("whitehaul", 300.0, 20, 120, rounds);
            assert!((100.0..=101.0).contains(&whitehaul.cwnd(0)), "{rounds}");
            assert_eq!(whitehaul.ssthresh(0), 100.0);
            let edinburgh = spike("edinburgh", 300.0, 20, 120, rounds);
            assert!(edinburgh.cwnd(0) > 300.0, "{rounds}: {}", edinburgh.cwnd(0));
        }
    }

    #[test]
    fn slow_start_is_not_cut_short() {
        let mut edinburgh = fresh("edinburgh", &[], &[ms(20)]);
        assert_eq!(edinburgh.ssthresh(0), f64::INFINITY);
        edinburgh.rounds(0, 6);
        assert_eq!(edinburgh.cwnd(0), 640.0);
        edinburgh.set_rtt(0, ms(40));
        edinburgh.rounds(0, 7);
        assert!(!edinburgh.flows[0].in_slow_start, "HyStart++");
    }

    #[test]
    fn above_the_budget_the_window_follows_the_delivery_rate() {
        // 300 packets in 20 ms: 15,000 packets/s. The budget is 20 ms, so the window holds 20 + 10
        // ms at that rate.
        let mut edinburgh = steady("edinburgh", &[], &[(600.0, 20)]);
        edinburgh.rounds(0, 2);
        edinburgh.place(0, 300.0);
        let advertised = |bond: &mut Player| {
            bond.set_rtt(0, ms(41));
            bond.rounds(0, 2);
            bond.ssthresh(0)
        };
        // The rate of the 600 packets is remembered for ten rounds: the window is not cut.
        assert!(advertised(&mut edinburgh) == 300.0);
        edinburgh.set_rtt(0, ms(20));
        for _ in 0..12 {
            edinburgh.round(0);
            edinburgh.place(0, 300.0);
        }
        edinburgh.place(0, 600.0);
        let ssthresh = advertised(&mut edinburgh);
        assert!((440.0..=460.0).contains(&ssthresh), "{ssthresh}");
    }

    #[test]
    fn it_grows_fast_with_a_short_queue_and_slowly_otherwise() {
        let grown = |rtt: u64| {
            let mut edinburgh = steady("edinburgh", &[], &[(300.0, 20)]);
            edinburgh.set_rtt(0, ms(rtt));
            for _ in 0..15 {
                edinburgh.round(0);
                edinburgh.place(0, 300.0);
            }
            edinburgh.round(0)
        };
        assert!(grown(25) > 40.0);
        assert!((0.9..=1.0).contains(&grown(35)));
        assert!(grown(45) < 0.0);
    }

    #[test]
    fn a_loss_takes_a_tenth() {
        let mut edinburgh = steady("edinburgh", &[], &[(100.0, 20)]);
        assert_eq!(edinburgh.repaired_loss(0), 90.0);
    }
}
