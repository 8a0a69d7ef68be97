//! BALIA, the balanced linked adaptation: a compromise between friendliness and responsiveness.
//!
//! Source: Peng, Walid, Hwang and Low, "Multipath TCP: analysis, design and implementation",
//! IEEE/ACM Transactions on Networking 24(1), 2016, and draft-walid-mptcp-congestion-control-04. A
//! single flow is Reno. Linux 0.95 divides integers in alpha, which makes it 1 until one path is
//! twice as fast; here they are real numbers.

use crate::algorithm::{Algorithm, Info, has_window};
use crate::control::CongestionControl;
use crate::event::{Ack, Loss, Timeout};
use crate::parameter::{BuildError, NoParameters};
use crate::reno;
use crate::siblings::{Bond, Siblings};
use crate::window::{Window, WindowParameters};

/// See the module.
#[derive(Clone, Debug)]
pub struct Balia {
    window: Window,
}

/// Upper bound of alpha in the decrease: a loss costs at most 1.5 halves of the window.
const MAX_DECREASE: f64 = 1.5;

impl Algorithm for Balia {
    const INFO: Info = Info {
        name: "balia",
        about: "balances friendliness to others against quick reaction; a loss costs weak paths \
            more",
        source: "Peng et al., ToN 24(1), 2016; draft-walid-mptcp-congestion-control-04",
        coupled: true,
    };
    type Parameters = NoParameters;

    fn window_parameters() -> WindowParameters {
        WindowParameters {
            min_ssthresh: 1,
            ..WindowParameters::default()
        }
    }

    fn new(window: Window, _parameters: NoParameters) -> Result<Self, BuildError> {
        Ok(Self { window })
    }
}

impl CongestionControl for Balia {
    has_window!();

    fn on_ack(&mut self, ack: &Ack, siblings: &Siblings<'_>) {
        let acked = self.window.acknowledge(ack);
        let step = match Bond::new(self.window.flow(), siblings) {
            Some(bond) => acked * increase(&bond),
            None => reno::increase(acked, self.cwnd()),
        };
        self.window.grow(step);
    }

    fn on_loss(&mut self, _loss: &Loss, siblings: &Siblings<'_>) {
        let left = self.after_loss(siblings);
        self.window.enter_recovery(left);
    }

    fn on_rto(&mut self, timeout: &Timeout, siblings: &Siblings<'_>) {
        let left = self.after_loss(siblings);
        self.window.enter_loss(left, timeout);
    }
}

impl Balia {
    fn after_loss(&self, siblings: &Siblings<'_>) -> f64 {
        let alpha = Bond::new(self.window.flow(), siblings).map_or(1.0, |bond| alpha(&bond));
        // Peng et al., the decrease of BALIA: min(alpha, 1.5) halves of the window
        self.cwnd() * (1.0 - alpha.min(MAX_DECREASE) / 2.0)
    }
}

/// Packets by which the window grows for each acknowledged packet.
fn increase(bond: &Bond<'_>) -> f64 {
    let (own, total, alpha) = (&bond.own, bond.total_rate(), alpha(bond));
    // Peng et al., the increase of BALIA
    own.rate() / (own.rtt() * total * total) * (1.0 + alpha) / 2.0 * (4.0 + alpha) / 5.0
}

/// Rate of the fastest path over the rate of this one.
fn alpha(bond: &Bond<'_>) -> f64 {
    bond.most(|flow| flow.rate()) / bond.own.rate()
}

#[cfg(test)]
mod tests {
    use crate::fixture::{assert_close, steady};

    #[test]
    fn the_increase_matches_the_equations() {
        // x = 100 and 400 packets/s; alpha = 4 on the slow path, 1 on the fast one
        let mut bond = steady("balia", &[], &[(10.0, 100), (20.0, 50)]);
        // 100 / (0.1 * 500^2) * (1 + 4)/2 * (4 + 4)/5
        assert_close(bond.ack(0, 1), 0.004 * 2.5 * 1.6);
        bond.place(0, 10.0);
        assert_close(bond.ack(1, 1), 400.0 / (0.05 * 500.0 * 500.0));
    }

    #[test]
    fn alpha_is_a_real_number() {
        // x = 100 and 150: whole numbers would make alpha 1
        let mut bond = steady("balia", &[], &[(10.0, 100), (15.0, 100)]);
        assert_close(bond.ack(0, 1), 1000.0 / (250.0 * 250.0) * 1.25 * 1.1);
    }

    #[test]
    fn a_slow_path_loses_three_quarters_a_fast_one_half() {
        let mut bond = steady("balia", &[], &[(10.0, 100), (20.0, 50)]);
        assert_eq!(bond.repaired_loss(1), 10.0);
        // alpha = 200/100
        assert_eq!(bond.repaired_loss(0), 2.5);
        assert_eq!(bond.repaired_loss(0), 1.0);
    }

    #[test]
    fn a_single_flow_is_reno() {
        let mut bond = steady("balia", &[], &[(10.0, 100)]);
        assert_close(bond.ack(0, 1), 0.1);
        bond.place(0, 10.0);
        assert_eq!(bond.repaired_loss(0), 5.0);
    }
}
