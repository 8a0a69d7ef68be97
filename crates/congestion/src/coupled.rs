//! Coupled, the fully coupled algorithm: all windows grow and shrink as one.
//!
//! Source: Wischik et al., NSDI 2011 (COUPLED), and the CS 218 report. The path with the most
//! losses ends with the smallest window: all traffic moves to the path with the fewest losses, and
//! stays there when that changes.

use crate::algorithm::{Algorithm, Info, has_window};
use crate::control::CongestionControl;
use crate::event::{Ack, Loss, Timeout};
use crate::parameter::{BuildError, NoParameters};
use crate::reno;
use crate::siblings::{Bond, Siblings};
use crate::window::{Window, WindowParameters};

/// See the module.
#[derive(Clone, Debug)]
pub struct Coupled {
    window: Window,
}

impl Algorithm for Coupled {
    const INFO: Info = Info {
        name: "coupled",
        about: "all windows change as one: traffic moves to the path with the fewest losses",
        source: "Wischik et al., NSDI 2011 (COUPLED)",
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

impl CongestionControl for Coupled {
    has_window!();

    fn on_ack(&mut self, ack: &Ack, siblings: &Siblings<'_>) {
        let acked = self.window.acknowledge(ack);
        // CS 218 report, section 1: 1 / w_total for each acknowledgment, which never exceeds 1 /
        // w_r
        let total = self.total(siblings);
        self.window.grow(reno::increase(acked, total));
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

impl Coupled {
    /// The sum of all windows; the flow's own until it has been measured.
    fn total(&self, siblings: &Siblings<'_>) -> f64 {
        let bond = Bond::new(self.window.flow(), siblings);
        bond.map_or(self.cwnd(), |bond| bond.total_window())
    }

    fn after_loss(&self, siblings: &Siblings<'_>) -> f64 {
        // CS 218 report, section 1; the window enforces the minimum
        self.cwnd() - self.total(siblings) / 2.0
    }
}

#[cfg(test)]
mod tests {
    use crate::fixture::{assert_close, steady};

    #[test]
    fn it_grows_by_one_packet_per_total_window() {
        let mut bond = steady("coupled", &[], &[(10.0, 100), (20.0, 50)]);
        assert_close(bond.ack(0, 1), 1.0 / 30.0);
        assert_close(bond.ack(1, 3), 3.0 / (30.0 + 1.0 / 30.0));
    }

    #[test]
    fn a_loss_costs_half_the_total_down_to_one_packet() {
        let mut bond = steady("coupled", &[], &[(10.0, 100), (20.0, 50)]);
        assert_eq!(bond.repaired_loss(1), 5.0);
        assert_eq!(bond.repaired_loss(0), 2.5);
        assert_eq!(bond.repaired_loss(0), 1.0, "2.5 - 7.5 / 2");
        bond.time_out(1, false);
        assert_eq!((bond.cwnd(1), bond.ssthresh(1)), (1.0, 2.0));
    }

    #[test]
    fn all_traffic_moves_to_the_path_that_loses_least() {
        let mut bond = steady("coupled", &[], &[(50.0, 100), (50.0, 100)]);
        for round in 0..400 {
            bond.round(0);
            bond.round(1);
            if round % 5 == 0 {
                bond.repaired_loss(0);
            }
            if round % 20 == 0 {
                bond.repaired_loss(1);
            }
        }
        let (worse, better) = (bond.cwnd(0), bond.cwnd(1));
        assert!(worse < 5.0 && better > 15.0, "{worse} {better}");
    }
}
