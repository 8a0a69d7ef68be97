//! LIA, the linked increases: together the flows are as fast as one TCP flow on the best path.
//!
//! Source: RFC 6356. The flows share the increase by alpha, and none is more aggressive on its path
//! than Reno. A single flow is Reno.

use crate::algorithm::{Algorithm, Info, has_window};
use crate::control::CongestionControl;
use crate::event::Ack;
use crate::parameter::{BuildError, NoParameters};
use crate::reno;
use crate::siblings::{Bond, Siblings};
use crate::window::Window;

/// See the module.
#[derive(Clone, Debug)]
pub struct Lia {
    window: Window,
}

impl Algorithm for Lia {
    const INFO: Info = Info {
        name: "lia",
        about: "the bond takes as much as one flow on its best path: fair on shared bottlenecks",
        source: "RFC 6356",
        coupled: true,
    };
    type Parameters = NoParameters;

    fn new(window: Window, _parameters: NoParameters) -> Result<Self, BuildError> {
        Ok(Self { window })
    }
}

impl CongestionControl for Lia {
    has_window!();

    fn on_ack(&mut self, ack: &Ack, siblings: &Siblings<'_>) {
        let acked = self.window.acknowledge(ack);
        self.window.grow(increase(acked, &self.window, siblings));
    }
}

/// Packets by which LIA's window grows when `acked` packets are acknowledged.
pub(crate) fn increase(acked: f64, window: &Window, siblings: &Siblings<'_>) -> f64 {
    let most = reno::increase(acked, window.cwnd());
    match Bond::new(window.flow(), siblings) {
        // RFC 6356, section 3, equation 1
        Some(bond) => (alpha(&bond) * acked / bond.total_window()).min(most),
        None => most,
    }
}

/// Aggressiveness of the bond as a whole; 1 for a single flow.
pub(crate) fn alpha(bond: &Bond<'_>) -> f64 {
    // RFC 6356, section 3, equation 2
    let best = bond.most(|flow| flow.rate() / flow.rtt());
    let rate = bond.total_rate();
    bond.total_window() * best / (rate * rate)
}

#[cfg(test)]
mod tests {
    use crate::fixture::{assert_close, steady};

    #[test]
    fn the_increase_matches_the_equations() {
        // alpha = 30 * max(10/0.1^2, 20/0.05^2) / (10/0.1 + 20/0.05)^2 = 30 * 8000 / 500^2 = 0.96
        for name in ["lia", "rtt-compensator"] {
            let mut bond = steady(name, &[], &[(10.0, 100), (20.0, 50)]);
            assert_close(bond.ack(0, 1), 0.96 / 30.0);
            bond.place(0, 10.0);
            assert_close(bond.ack(1, 2), 2.0 * 0.96 / 30.0);
        }
    }

    #[test]
    fn no_path_grows_faster_than_reno() {
        // alpha / total = max(2/0.01^2, 100/1^2) / (200 + 100)^2 = 2/9 for each packet, where Reno
        // takes 0.01
        let mut bond = steady("lia", &[], &[(2.0, 10), (100.0, 1000)]);
        assert_close(bond.ack(1, 1), 0.01);
        bond.place(1, 100.0);
        assert_close(bond.ack(0, 1), 2.0 / 9.0);
    }

    #[test]
    fn a_loss_halves_the_window_of_its_path() {
        let mut bond = steady("lia", &[], &[(10.0, 100), (20.0, 50)]);
        assert_eq!(bond.repaired_loss(1), 10.0);
        assert_eq!(bond.cwnd(0), 10.0);
    }

    #[test]
    fn slow_start_is_not_coupled() {
        let mut bond = steady("lia", &[], &[(10.0, 100), (20.0, 50)]);
        bond.controls[0].window_mut().set_ssthresh(100.0);
        assert_eq!(bond.ack(0, 2), 2.0);
    }
}
