//! OLIA, the opportunistic linked increases: balances congestion optimally, and stays responsive.
//!
//! Source: Khalili et al., "MPTCP is not Pareto-optimal: performance issues and a possible
//! solution", CoNEXT 2012, and draft-khalili-mptcp-congestion-control-05. The first term of the
//! increase moves traffic away from congestion. The second, epsilon, moves window from the paths
//! with the largest windows to the best paths with small ones.

use crate::algorithm::{Algorithm, Info, has_window};
use crate::control::CongestionControl;
use crate::event::Ack;
use crate::flow::Flow;
use crate::parameter::{BuildError, NoParameters};
use crate::reno;
use crate::siblings::{Bond, Siblings};
use crate::window::Window;

/// See the module.
#[derive(Clone, Debug)]
pub struct Olia {
    window: Window,
}

impl Algorithm for Olia {
    const INFO: Info = Info {
        name: "olia",
        about: "LIA's successor: takes nothing from other flows where it gains nothing",
        source: "Khalili et al., CoNEXT 2012; draft-khalili-mptcp-congestion-control-05",
        coupled: true,
    };
    type Parameters = NoParameters;

    fn new(window: Window, _parameters: NoParameters) -> Result<Self, BuildError> {
        Ok(Self { window })
    }
}

impl CongestionControl for Olia {
    has_window!();

    fn on_ack(&mut self, ack: &Ack, siblings: &Siblings<'_>) {
        let acked = self.window.acknowledge(ack);
        let step = match Bond::new(self.window.flow(), siblings) {
            Some(bond) => acked * increase(&bond),
            None => reno::increase(acked, self.cwnd()),
        };
        self.window.grow(step);
    }
}

/// Packets by which the window grows for each acknowledged packet. May be negative.
fn increase(bond: &Bond<'_>) -> f64 {
    let own = &bond.own;
    let total = bond.total_rate();
    // Khalili et al., the increase of OLIA
    own.rate() / own.rtt() / (total * total) + epsilon(own, bond) / own.cwnd
}

/// The part of a packet that `flow` gains or gives up: alpha_r in the paper, epsilon in its
/// implementations.
fn epsilon(flow: &Flow, bond: &Bond<'_>) -> f64 {
    let (best, largest) = (bond.most(quality), bond.most(whole_window));
    let is_largest = |flow: &Flow| whole_window(flow) == largest;
    let is_best_not_largest = |flow: &Flow| quality(flow) == best && !is_largest(flow);
    let count = |which: &dyn Fn(&Flow) -> bool| bond.flows().filter(which).count() as f64;
    // Khalili et al., alpha_r, with M the paths of largest window and B the best ones
    let gaining = count(&is_best_not_largest);
    if gaining == 0.0 {
        0.0
    } else if is_best_not_largest(flow) {
        1.0 / (bond.count() * gaining)
    } else if is_largest(flow) {
        -1.0 / (bond.count() * count(&is_largest))
    } else {
        0.0
    }
}

/// Quality of a path: l / rtt^2, where l is the data sent between losses.
fn quality(flow: &Flow) -> f64 {
    // Khalili et al., the quantity that B maximizes
    flow.between_losses.longest() as f64 / (flow.rtt() * flow.rtt())
}

/// Windows are compared in whole packets, so that equal paths sometimes have equal windows.
fn whole_window(flow: &Flow) -> f64 {
    flow.cwnd.floor()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::fixture::{assert_close, ms, steady};
    use crate::flow::BetweenLosses;

    fn flow(cwnd: f64, rtt: Duration, since_last: u64, last_two: u64) -> Flow {
        Flow {
            cwnd,
            srtt: rtt,
            between_losses: BetweenLosses {
                since_last,
                last_two,
            },
            ..Flow::default()
        }
    }

    /// Epsilon of each flow.
    fn epsilons(flows: &[Flow]) -> Vec<f64> {
        let one = |own: usize| {
            let bond = Bond::new(flows[own], &Siblings::of(flows, own)).expect("measured");
            epsilon(&flows[own], &bond)
        };
        (0..flows.len()).map(one).collect()
    }

    #[test]
    fn the_increase_matches_the_equations() {
        // Qualities: 100/0.1^2 = 10000 and 10/0.05^2 = 4000. The first path is best, the second has
        // the largest window.
        let flows = [flow(10.0, ms(100), 100, 0), flow(20.0, ms(50), 10, 5)];
        let of =
            |own| increase(&Bond::new(flows[own], &Siblings::of(&flows, own)).expect("measured"));
        // (10/0.1^2) / (100 + 400)^2 + (1/2)/10, and (20/0.05^2) / 500^2 - (1/2)/20
        assert_close(of(0), 0.004 + 0.05);
        assert_close(of(1), 0.032 - 0.025);
    }

    #[test]
    fn packets_between_the_last_two_losses_count_too() {
        let flows = [flow(10.0, ms(50), 1, 100), flow(20.0, ms(50), 50, 60)];
        assert_eq!(epsilons(&flows), [0.5, -0.5]);
    }

    #[test]
    fn epsilon_is_zero_if_the_best_path_has_the_largest_window() {
        let flows = [flow(20.0, ms(50), 100, 0), flow(10.0, ms(50), 50, 0)];
        assert_eq!(epsilons(&flows), [0.0, 0.0]);
        assert_eq!(epsilons(&[flow(20.0, ms(50), 0, 0)]), [0.0]);
    }

    #[test]
    fn a_third_path_neither_gives_nor_takes() {
        let flows = [
            flow(10.0, ms(50), 100, 0),
            flow(30.5, ms(50), 50, 0),
            flow(20.0, ms(50), 50, 0),
            flow(30.9, ms(50), 50, 0),
        ];
        // Two paths have 30 whole packets and give 1/(4 * 2) each.
        assert_eq!(epsilons(&flows), [0.25, -0.125, 0.0, -0.125]);
    }

    #[test]
    fn the_window_may_shrink_but_not_into_slow_start() {
        let mut bond = steady("olia", &[], &[(100.0, 100), (40.0, 50)]);
        bond.repaired_loss(0);
        // The second path has gone longer without a loss, but the first one has the larger window.
        for _ in 0..100 {
            bond.ack(1, 1);
            bond.place(1, 40.0);
        }
        let mut shrinks = 0;
        for _ in 0..20 {
            shrinks += u32::from(bond.ack(0, 1) < 0.0);
            assert!(!bond.flows[0].in_slow_start);
        }
        assert!(shrinks > 0);
        assert!(bond.cwnd(0) >= 49.0);
    }

    proptest! {
        #[test]
        fn epsilons_sum_to_zero(
            flows in prop::collection::vec((1.0..50.0f64, 1..300u64, 0..100u64, 0..100u64), 1..6),
            same in any::<bool>(),
        ) {
            let flows: Vec<Flow> = flows
                .into_iter()
                // Sometimes equal windows and paths, so that sets have several members.
                .map(|(cwnd, rtt, since, two)| if same {
                    flow(cwnd.min(3.0), ms(1 + rtt / 100), since / 50, 0)
                } else {
                    flow(cwnd, ms(rtt), since, two)
                })
                .collect();
            let sum: f64 = epsilons(&flows).iter().sum();
            prop_assert!(sum.abs() < 1e-12, "{sum}");
        }
    }
}
