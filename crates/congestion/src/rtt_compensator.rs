//! RTT compensator: linked increases, scaled to compensate for different round-trip times.
//!
//! Source: Wischik et al., NSDI 2011 (RTT compensation), and the CS 218 report. The report defines
//! a = 1 / sqrt(n) in its introduction and LIA's alpha in its equation 1. With the latter the rule
//! equals LIA's, and only the latter compensates. The algorithm keeps its own name because the
//! report measures it under that name.

use crate::algorithm::{Algorithm, Info, has_window};
use crate::control::CongestionControl;
use crate::event::Ack;
use crate::lia;
use crate::parameter::{BuildError, NoParameters};
use crate::siblings::Siblings;
use crate::window::Window;

/// See the module.
#[derive(Clone, Debug)]
pub struct RttCompensator {
    window: Window,
}

impl Algorithm for RttCompensator {
    const INFO: Info = Info {
        name: "rtt-compensator",
        about: "LIA's predecessor, under the name that the first papers use",
        source: "Wischik et al., NSDI 2011 (RTT compensation)",
        coupled: true,
    };
    type Parameters = NoParameters;

    fn new(window: Window, _parameters: NoParameters) -> Result<Self, BuildError> {
        Ok(Self { window })
    }
}

impl CongestionControl for RttCompensator {
    has_window!();

    fn on_ack(&mut self, ack: &Ack, siblings: &Siblings<'_>) {
        let acked = self.window.acknowledge(ack);
        // CS 218 report, section 3.2.1, equations 1 and 2
        self.window
            .grow(lia::increase(acked, &self.window, siblings));
    }
}
