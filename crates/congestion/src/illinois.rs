//! TCP Illinois: the higher the queueing delay, the smaller the steps up and the larger the step
//! down.
//!
//! Source: Liu, Basar and Srikant, "TCP-Illinois: a loss- and delay-based congestion control
//! algorithm for high-speed networks", VALUETOOLS 2006, with the constants and safeguards of Linux'
//! `tcp_illinois.c`: Reno for small windows, and some rounds of low delay before the largest step
//! returns. Losses decide when to change the window, delays by how much.

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
    /// Parameters of Illinois.
    pub struct IllinoisParameters {
        /// Packets per round trip at the largest delay.
        pub alpha_min: f64 = 0.3, 0.01..=0.99;
        /// Packets per round trip without delay.
        pub alpha_max: f64 = 10.0, 1.0..=1_000.0;
        /// Share of the window that a loss costs without delay.
        pub beta_min: f64 = 0.125, 0.01..=0.9;
        /// Share of the window that a loss costs at a large delay.
        pub beta_max: f64 = 0.5, 0.01..=0.9;
        /// Below this many packets it is Reno (win_thresh in Linux).
        pub win_thresh: u32 = 15, 0..=1_000_000;
        /// Rounds of low delay before the step is largest again (theta in Linux).
        pub theta: u32 = 5, 1..=1_000;
    }
}

/// Steps of Reno, for small windows and after timeouts.
const RENO_ALPHA: f64 = 1.0;
const RENO_BETA: f64 = 0.5;

/// Shares of the largest queueing delay: below the first the step up is largest; below the second
/// the step down is smallest, above the third largest (d1, d2 and d3).
const LOW_DELAY: f64 = 0.01;
const MIN_DECREASE_DELAY: f64 = 0.1;
const MAX_DECREASE_DELAY: f64 = 0.8;

/// See the module.
#[derive(Clone, Debug)]
pub struct Illinois {
    window: Window,
    parameters: IllinoisParameters,
    round: Round,
    delays: Delays,
    /// Growth of the window in packets per round trip.
    alpha: f64,
    /// Share of the window that a loss costs.
    beta: f64,
    /// The delay has been high; `rounds_low` rounds of low delay have passed since.
    was_high: bool,
    rounds_low: u32,
}

impl Algorithm for Illinois {
    const INFO: Info = Info {
        name: "illinois",
        about: "for fast long paths: losses trigger a change of the window, delays set its size",
        source: "Liu, Basar and Srikant, VALUETOOLS 2006; tcp_illinois.c of Linux",
        coupled: false,
    };
    type Parameters = IllinoisParameters;

    fn new(window: Window, parameters: IllinoisParameters) -> Result<Self, BuildError> {
        parameters.check()?;
        Ok(Self {
            window,
            parameters,
            round: Round::first(),
            delays: Delays::default(),
            alpha: parameters.alpha_max,
            beta: RENO_BETA,
            was_high: false,
            rounds_low: 0,
        })
    }
}

impl CongestionControl for Illinois {
    has_window!();

    fn on_ack(&mut self, ack: &Ack, _siblings: &Siblings<'_>) {
        if let Some(rtt) = ack.rtt {
            self.delays.record(rtt);
        }
        if self.window.phase() != Phase::Recovery && self.round.is_over(ack) {
            self.update_steps();
            self.delays.begin_round();
        }
        let acked = self.window.acknowledge(ack);
        // Liu et al.: alpha / w for each acknowledgment
        self.window.grow(acked * self.alpha / self.cwnd());
    }

    fn on_loss(&mut self, _loss: &Loss, _siblings: &Siblings<'_>) {
        // Liu et al.: w - beta w
        self.window.enter_recovery(self.cwnd() * (1.0 - self.beta));
    }

    fn on_rto(&mut self, timeout: &Timeout, _siblings: &Siblings<'_>) {
        let left = self.cwnd() * (1.0 - self.beta);
        self.window.enter_loss(left, timeout);
        (self.alpha, self.beta) = (RENO_ALPHA, RENO_BETA);
        (self.was_high, self.rounds_low) = (false, 0);
        self.round.restart();
        self.delays.begin_round();
    }
}

impl Illinois {
    /// Once per round trip.
    fn update_steps(&mut self) {
        if self.cwnd() < f64::from(self.parameters.win_thresh) {
            (self.alpha, self.beta) = (RENO_ALPHA, RENO_BETA);
        } else if let Some(delay) = self.delays.mean_queueing() {
            let (delay, most) = (seconds(delay), seconds(self.delays.max_queueing()));
            self.alpha = self.alpha(delay, most);
            self.beta = self.beta(delay, most);
        }
    }

    fn alpha(&mut self, delay: f64, most: f64) -> f64 {
        let IllinoisParameters {
            alpha_min,
            alpha_max,
            theta,
            ..
        } = self.parameters;
        let low = LOW_DELAY * most;
        if delay > low {
            self.was_high = true;
            // Liu et al., f1: k1 / (k2 + delay) is alpha_max at `low` and alpha_min at `most`
            let span = (most - low) * alpha_min / (alpha_max - alpha_min);
            return span * alpha_max / (span - low + delay);
        }
        if self.was_high {
            self.rounds_low += 1;
            if self.rounds_low < theta {
                return self.alpha;
            }
            (self.was_high, self.rounds_low) = (false, 0);
        }
        alpha_max
    }

    fn beta(&self, delay: f64, most: f64) -> f64 {
        let IllinoisParameters {
            beta_min, beta_max, ..
        } = self.parameters;
        let (low, high) = (MIN_DECREASE_DELAY * most, MAX_DECREASE_DELAY * most);
        // Liu et al., f2: a line from beta_min at `low` to beta_max at `high`
        if delay <= low {
            beta_min
        } else if delay >= high {
            beta_max
        } else {
            beta_min + (beta_max - beta_min) * (delay - low) / (high - low)
        }
    }
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{assert_close, ms, steady};
    use crate::hystart::HystartParameters;
    use crate::window::WindowParameters;

    fn illinois() -> Illinois {
        let window = Window::new(WindowParameters::default(), HystartParameters::default());
        Illinois::new(window.unwrap(), IllinoisParameters::default()).unwrap()
    }

    #[test]
    fn alpha_falls_from_10_to_0_3_as_the_delay_grows() {
        // With a largest delay of 100 ms, 1 ms is low; k1 = 99 * 3 / 9.7 and k2 = 99 * 0.3 / 9.7 -
        // 1.
        let table = [
            (0.001, 10.0),
            (0.001_000_1, 9.999_7),
            (0.05, 0.588_1),
            (0.1, 0.3),
        ];
        for (delay, alpha) in table {
            let found = illinois().alpha(delay, 0.1);
            assert!((found - alpha).abs() < 1e-4, "{delay}: {found}");
        }
    }

    #[test]
    fn beta_grows_from_an_eighth_to_a_half() {
        for (delay, beta) in [
            (0.0, 0.125),
            (0.01, 0.125),
            (0.045, 0.3125),
            (0.08, 0.5),
            (0.1, 0.5),
        ] {
            assert_close(illinois().beta(delay, 0.1), beta);
        }
        assert_close(illinois().beta(0.0, 0.0), 0.125);
    }

    #[test]
    fn five_rounds_of_low_delay_restore_the_largest_step() {
        let mut illinois = illinois();
        illinois.alpha = illinois.alpha(0.1, 0.1);
        for _ in 1..5 {
            assert_close(illinois.alpha(0.0, 0.1), 0.3);
        }
        assert_eq!(illinois.alpha(0.0, 0.1), 10.0);
        assert_eq!(illinois.alpha(0.0, 0.1), 10.0);
    }

    #[test]
    fn small_windows_grow_as_in_reno() {
        let mut bond = steady("illinois", &[], &[(14.0, 100)]);
        bond.round(0);
        bond.place(0, 14.0);
        assert_close(bond.ack(0, 1), 1.0 / 14.0);
        bond.place(0, 14.0);
        assert_eq!(bond.repaired_loss(0), 7.0);
    }

    #[test]
    fn without_delay_large_windows_grow_by_ten_packets_and_lose_an_eighth() {
        let mut bond = steady("illinois", &[], &[(80.0, 100)]);
        bond.round(0);
        bond.place(0, 80.0);
        let grown = bond.round(0);
        assert!((9.0..10.0).contains(&grown), "{grown}");
        bond.place(0, 80.0);
        assert_eq!(bond.repaired_loss(0), 70.0);
    }

    #[test]
    fn delay_shrinks_steps_and_raises_the_cost_of_losses() {
        let mut bond = steady("illinois", &[], &[(80.0, 100)]);
        bond.round(0);
        bond.set_rtt(0, ms(200));
        bond.rounds(0, 2);
        bond.place(0, 80.0);
        let grown = bond.round(0);
        assert!((0.25..0.35).contains(&grown), "{grown}");
        bond.place(0, 80.0);
        assert_eq!(bond.repaired_loss(0), 40.0);
    }
}
