//! Uncoupled: Reno on each path, independent of the others.
//!
//! Source: Wischik et al., "Design, implementation and evaluation of congestion control for
//! multipath TCP", NSDI 2011, and the CS 218 report. n flows over one bottleneck take n times the
//! share of one flow.

use crate::algorithm::{Algorithm, Info, has_window};
use crate::control::CongestionControl;
use crate::event::Ack;
use crate::parameter::{BuildError, NoParameters};
use crate::reno;
use crate::siblings::Siblings;
use crate::window::Window;

/// See the module.
#[derive(Clone, Debug)]
pub struct Uncoupled {
    window: Window,
}

impl Algorithm for Uncoupled {
    const INFO: Info = Info {
        name: "uncoupled",
        about: "Reno on each path: n flows over one bottleneck take n shares",
        source: "Wischik et al., NSDI 2011",
        coupled: false,
    };
    type Parameters = NoParameters;

    fn new(window: Window, _parameters: NoParameters) -> Result<Self, BuildError> {
        Ok(Self { window })
    }
}

impl CongestionControl for Uncoupled {
    has_window!();

    fn on_ack(&mut self, ack: &Ack, _siblings: &Siblings<'_>) {
        let acked = self.window.acknowledge(ack);
        self.window.grow(reno::increase(acked, self.window.cwnd()));
    }
}

#[cfg(test)]
mod tests {
    use crate::fixture::{assert_close, steady};

    #[test]
    fn siblings_change_nothing() {
        let mut alone = steady("reno", &[], &[(10.0, 100)]);
        let mut bond = steady("uncoupled", &[], &[(10.0, 100), (200.0, 5)]);
        assert_close(bond.ack(0, 1), alone.ack(0, 1));
        assert_close(bond.repaired_loss(0), alone.repaired_loss(0));
    }
}
