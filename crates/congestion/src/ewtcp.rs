//! EWTCP, equally weighted TCP: n flows, each a weaker Reno, that together are about as aggressive
//! as one.
//!
//! Source: Honda et al., "Multipath congestion control for shared bottleneck", PFLDNeT 2009, in the
//! form of Wischik et al., NSDI 2011, and section 1 of the CS 218 report: a / w for each
//! acknowledgment, a = 1 / sqrt(n). It uses only the number of its siblings, so it does not move
//! away from congestion.

use crate::algorithm::{Algorithm, Info, has_window};
use crate::control::CongestionControl;
use crate::event::Ack;
use crate::parameter::{BuildError, Parameters, parameters};
use crate::reno;
use crate::siblings::{Bond, Siblings};
use crate::window::Window;

parameters! {
    /// Parameters of EWTCP.
    pub struct EwtcpParameters {
        /// The weight of a flow among n is 1 / sqrt(n) to this power: 1 as in the paper, 4 for 1 /
        /// n^2 as in some programs, 0 for Reno on each path.
        pub sqrt_power: u32 = 1, 0..=8;
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Ewtcp {
    window: Window,
    parameters: EwtcpParameters,
}

impl Algorithm for Ewtcp {
    const INFO: Info = Info {
        name: "ewtcp",
        about: "each of n flows grows by a part of Reno's step: fair, but does not avoid \
            congestion",
        source: "Honda et al., PFLDNeT 2009; Wischik et al., NSDI 2011 (EWTCP)",
        coupled: true,
    };
    type Parameters = EwtcpParameters;

    fn new(window: Window, parameters: EwtcpParameters) -> Result<Self, BuildError> {
        parameters.check()?;
        Ok(Self { window, parameters })
    }
}

impl CongestionControl for Ewtcp {
    has_window!();

    fn on_ack(&mut self, ack: &Ack, siblings: &Siblings<'_>) {
        let acked = self.window.acknowledge(ack);
        let flows = Bond::new(self.window.flow(), siblings).map_or(1.0, |bond| bond.count());
        let step = self.weight(flows) * reno::increase(acked, self.cwnd());
        self.window.grow(step);
    }
}

impl Ewtcp {
    /// a: one flow's share of Reno's step among `flows`.
    fn weight(&self, flows: f64) -> f64 {
        // CS 218 report, section 1
        let weight = 1.0 / flows.sqrt();
        (0..self.parameters.sqrt_power).fold(1.0, |product, _| product * weight)
    }
}

#[cfg(test)]
mod tests {
    use crate::fixture::{assert_close, steady};

    #[test]
    fn each_of_n_flows_takes_its_share_of_renos_step() {
        let step = |assignments: &[&str], flows: &[(f64, u64)]| {
            steady("ewtcp", assignments, flows).ack(0, 1)
        };
        let two = [(10.0, 100), (20.0, 50)];
        assert_close(step(&[], &two), 0.1 / 2f64.sqrt());
        assert_close(step(&["sqrt_power=4"], &two), 0.1 / 4.0);
        assert_close(step(&["sqrt_power=0"], &two), 0.1);
        assert_close(step(&[], &[(10.0, 100); 4]), 0.05);
        assert_close(step(&[], &[(10.0, 100)]), 0.1);
    }

    #[test]
    fn a_loss_halves_the_window() {
        let mut bond = steady("ewtcp", &[], &[(10.0, 100), (20.0, 50)]);
        assert_eq!(bond.repaired_loss(0), 5.0);
    }
}
