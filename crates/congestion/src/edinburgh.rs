//! TCP Edinburgh (called Eindhoven in the abstract): WhiteHaul without its flaws.
//!
//! Source: the dissertation on WhiteHaul-based spectrum aggregation in Wi-Fi bands, section 5.3,
//! which repairs the findings of section 4.4. Its code is not published.
//!
//! | change | source | without it |
//! | --- | --- | --- |
//! | infinite initial threshold | section 5.3 | `initial_ssthresh=20` |
//! | slow start by HyStart++ | section 5.3 | `hystart=false` |
//! | the window may grow after a delay spike: only the delay of the last round counts | section 5.3 | `grows=false` |
//! | advertised window: recent delivery rate times base rtt plus a part of the budget | ours, after section 4.4 | `advertised=100` |
//! | budget: a part of the base round-trip time, within limits | ours, after section 4.4 | `budget=50ms` |
//!
//! Without the last two it is the dissertation's Edinburgh; without all five, WhiteHaul in real
//! numbers. By default the window grows fast until the queue holds half the budget, then slowly;
//! above the budget it falls back to half.

use std::time::Duration;

use crate::Instant;
use crate::algorithm::{Algorithm, Info, has_window};
use crate::control::CongestionControl;
use crate::event::{Ack, Loss, Timeout};
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
        /// Threshold at which the first slow start ends, in packets; 0 for none.
        pub initial_ssthresh: u32 = 0, 0..=1_000_000;
        /// The window grows again after a delay spike; if not, it does so only below the advertised
        /// window, as WhiteHaul's.
        pub grows: bool = true, false..=true;
        /// Without `grows`: rounds of low delay before the step is largest again.
        pub theta: u32 = 2, 1..=200;
        /// The advertised window, in packets; 0 derives it from the path.
        pub advertised: u32 = 0, 0..=1_000_000;
        /// The queueing budget; 0ms derives it from the path.
        pub budget: Duration = Duration::ZERO, Duration::ZERO..=ms(10_000);
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
    /// The delay has exceeded the budget: in the last round, or without `grows` at any time since
    /// it was cleared. `low_rounds` rounds below the budget have passed since.
    spiked: bool,
    low_rounds: u32,
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

    fn new(mut window: Window, parameters: EdinburghParameters) -> Result<Self, BuildError> {
        parameters.check()?;
        if parameters.initial_ssthresh > 0 {
            window.set_ssthresh(f64::from(parameters.initial_ssthresh));
        }
        Ok(Self {
            window,
            parameters,
            round: Round::first(),
            delays: Delays::default(),
            delivery: Delivery::default(),
            alpha: parameters.alpha_max,
            spiked: false,
            low_rounds: 0,
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
        (self.spiked, self.low_rounds) = (false, 0);
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
        self.alpha = self.step(queueing > budget, self.cwnd() >= advertised);
        let too_large = self.cwnd() >= advertised && !self.window.in_slow_start();
        if self.spiked && too_large && self.window.is_open() {
            self.window.set_cwnd(advertised);
            self.window.set_ssthresh(self.cwnd());
        }
    }

    /// Growth of the window in packets per round trip, after a round whose delay was above the
    /// budget or not, with a window that has reached the advertised one or not.
    fn step(&mut self, above_budget: bool, has_reached: bool) -> f64 {
        if above_budget || self.parameters.grows {
            self.spiked = above_budget;
        }
        let is_small = self.cwnd() < f64::from(self.parameters.win_thresh);
        if is_small || above_budget || has_reached {
            return 1.0;
        }
        if self.spiked {
            self.low_rounds += 1;
            if self.low_rounds < self.parameters.theta {
                return self.alpha;
            }
            (self.spiked, self.low_rounds) = (false, 0);
        }
        self.parameters.alpha_max
    }

    /// The accepted queueing delay, in seconds.
    fn budget(&self, base: f64) -> f64 {
        let parameters = &self.parameters;
        if !parameters.budget.is_zero() {
            return parameters.budget.as_secs_f64();
        }
        (base * parameters.budget_share)
            .min(parameters.budget_max.as_secs_f64())
            .max(parameters.budget_min.as_secs_f64())
    }

    /// The window that fills the path and a part of the budget.
    fn advertised(&self, base: f64, budget: f64) -> f64 {
        if self.parameters.advertised > 0 {
            return f64::from(self.parameters.advertised);
        }
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
        through_spike(steady(name, &[], &[(cwnd, base)]), base, spike, rounds)
    }

    fn spike_with(undone: &[&str], cwnd: f64, base: u64, spike: u64, rounds: usize) -> Player {
        through_spike(
            steady("edinburgh", undone, &[(cwnd, base)]),
            base,
            spike,
            rounds,
        )
    }

    fn through_spike(mut bond: Player, base: u64, spike: u64, rounds: usize) -> Player {
        bond.rounds(0, 3);
        bond.set_rtt(0, ms(spike));
        bond.rounds(0, 3);
        bond.set_rtt(0, ms(base));
        bond.rounds(0, rounds);
        bond
    }

    /// The settings that undo each change, in the order of the module's table.
    const UNDONE: [&str; 5] = [
        "initial_ssthresh=20",
        "hystart=false",
        "grows=false",
        "advertised=100",
        "budget=50ms",
    ];

    #[test]
    fn without_its_changes_it_is_whitehaul() {
        let undone = [&UNDONE[..], &["beta=0.09375"]].concat();
        let pair = [("whitehaul", &[][..]), ("edinburgh", &undone[..])];
        let [mut published, mut repaired] =
            pair.map(|(name, undone)| fresh(name, undone, &[ms(20)]));
        let mut agree = |step: &str, act: &dyn Fn(&mut Player)| {
            act(&mut published);
            act(&mut repaired);
            let (a, b) = (published.cwnd(0), repaired.cwnd(0));
            // The listing loses the remainders of its steps.
            assert!((a - b).abs() <= 0.2 * a, "{step}: {a}, {b}");
            let ssthresh = (published.ssthresh(0), repaired.ssthresh(0));
            assert!(
                (ssthresh.0 - ssthresh.1).abs() <= 2.0,
                "{step}: {ssthresh:?}"
            );
        };
        agree("slow start", &|bond| bond.rounds(0, 1));
        agree("a loss", &|bond| bond.lose_first(0));
        agree("beyond 100", &|bond| bond.rounds(0, 40));
        agree("a spike", &|bond| {
            bond.set_rtt(0, ms(120));
            bond.rounds(0, 4);
        });
        agree("the clamp", &|bond| {
            bond.set_rtt(0, ms(20));
            bond.rounds(0, 50);
        });
        agree("a loss in it", &|bond| bond.lose_first(0));
        agree("the end of the clamp", &|bond| bond.rounds(0, 60));
    }

    #[test]
    fn each_change_can_be_undone_alone() {
        let grown = |undone: &[&str]| spike_with(undone, 300.0, 20, 120, 40).cwnd(0);
        // Fixed limits: the clamp to 100 stays, and so does growth by a packet per round trip.
        assert!((130.0..150.0).contains(&grown(&UNDONE[3..])));
        assert!(grown(&UNDONE[2..]) <= 101.0);
        assert!(grown(&["budget=50ms"]) > 300.0);
        assert!((130.0..150.0).contains(&grown(&["advertised=100"])));
        let begun = |undone: &[&str]| {
            let mut bond = fresh("edinburgh", undone, &[ms(20)]);
            bond.rounds(0, 4);
            bond.set_rtt(0, ms(45));
            bond.rounds(0, 1);
            bond.cwnd(0)
        };
        assert!(
            (190.0..210.0).contains(&begun(&[])),
            "a quarter after eight samples"
        );
        assert_eq!(begun(&["hystart=false"]), 320.0);
        assert!(begun(&["initial_ssthresh=20", "advertised=100"]) < 130.0);
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
