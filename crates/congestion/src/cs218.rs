//! CS218: LIA, faster after a time without losses and at low delay.
//!
//! Source: the CS 218 report, "Improving multipath TCP congestion control", section 3.2.3. After
//! five acknowledgments in a row, a delay window is added to LIA's alpha: alpha times the best
//! round-trip time over the last one.
//!
//! Readings: the report's "CWND = alpha + DWND" is the increase, not the window, and replaces alpha
//! in LIA's increase. Like LIA's it stays below Reno's unless `capped` is off. The best round-trip
//! time is updated before use, as "at best twice" requires; with `best_after` after it, as in the
//! listing. With `adds_window` the delay window is added to the window itself at each
//! acknowledgment, as in the line "cwndTotal += DWND". Acknowledgments in recovery do not count.

use std::time::Duration;

use crate::algorithm::{Algorithm, Info, has_window};
use crate::control::CongestionControl;
use crate::event::{Ack, Loss, Timeout};
use crate::flow::Phase;
use crate::lia;
use crate::parameter::{BuildError, Parameters, parameters};
use crate::reno;
use crate::siblings::{Bond, Siblings};
use crate::window::Window;

parameters! {
    /// Parameters of CS218.
    pub struct Cs218Parameters {
        /// Acknowledgments in a row after which a path counts as free (CS 218 report, section
        /// 3.2.3).
        pub acks: u32 = 5, 0..=1_000_000;
        /// Never be more aggressive than Reno, as LIA; the report does not specify this.
        pub capped: bool = true, false..=true;
        /// Update the best round-trip time after its use (the report's listing), so that a new best
        /// one counts more than once.
        pub best_after: bool = false, false..=true;
        /// Add the delay window to the window at each acknowledgment, not to alpha (the report's
        /// cwndTotal += DWND).
        pub adds_window: bool = false, false..=true;
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Cs218 {
    window: Window,
    parameters: Cs218Parameters,
    /// Acknowledgments since the last loss: ackCount.
    acks: u32,
    /// The last round-trip time measured.
    last_rtt: Option<Duration>,
    /// The best one for the delay window.
    best_rtt: Duration,
}

impl Algorithm for Cs218 {
    const INFO: Info = Info {
        name: "cs218",
        about: "LIA, up to twice as fast on paths without losses and with low delay",
        source: "CS 218 project report, \"Improving multipath TCP congestion control\", 2017, \
            section 3.2.3",
        coupled: true,
    };
    type Parameters = Cs218Parameters;

    fn new(window: Window, parameters: Cs218Parameters) -> Result<Self, BuildError> {
        parameters.check()?;
        Ok(Self {
            window,
            parameters,
            acks: 0,
            last_rtt: None,
            best_rtt: Duration::ZERO,
        })
    }
}

impl CongestionControl for Cs218 {
    has_window!();

    fn on_ack(&mut self, ack: &Ack, siblings: &Siblings<'_>) {
        if self.window.phase() != Phase::Recovery {
            self.acks = self.acks.saturating_add(1);
        }
        self.last_rtt = ack.rtt.or(self.last_rtt);
        let before = self.window.min_rtt();
        let acked = self.window.acknowledge(ack);
        self.best_rtt = match self.parameters.best_after && !before.is_zero() {
            true => before,
            false => self.window.min_rtt(),
        };
        let step = self.increase(acked, siblings);
        self.window.grow(step);
    }

    fn on_loss(&mut self, _loss: &Loss, _siblings: &Siblings<'_>) {
        self.acks = 0;
        self.window.enter_recovery(self.cwnd() / 2.0);
    }

    fn on_rto(&mut self, timeout: &Timeout, _siblings: &Siblings<'_>) {
        self.acks = 0;
        self.window.enter_loss(self.cwnd() / 2.0, timeout);
    }
}

impl Cs218 {
    fn increase(&self, acked: f64, siblings: &Siblings<'_>) -> f64 {
        let most = reno::increase(acked, self.cwnd());
        let Some(bond) = Bond::new(self.window.flow(), siblings) else {
            return most;
        };
        // CS 218 report, section 3.2.3: (alpha + DWND) / w_total
        let alpha = lia::alpha(&bond);
        let delay_window = alpha * self.delay_share();
        let (in_alpha, added) = match self.parameters.adds_window {
            true => (0.0, delay_window),
            false => (delay_window, 0.0),
        };
        let step = (alpha + in_alpha) * acked / bond.total_window();
        let step = if self.parameters.capped {
            step.min(most)
        } else {
            step
        };
        step + added
    }

    /// DWND as a share of alpha: best over last round-trip time, 0 before the sixth acknowledgment.
    fn delay_share(&self) -> f64 {
        match self.last_rtt {
            Some(last) if self.acks > self.parameters.acks && !last.is_zero() => {
                self.best_rtt.as_secs_f64() / last.as_secs_f64()
            }
            _ => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::fixture::{assert_close, ms, steady};
    use crate::player::Player;

    /// Windows and paths of `lia`'s test: LIA's increase is 0.032. The first acknowledgment has
    /// been counted.
    fn bond(assignments: &[&str]) -> Player {
        let mut bond = steady("cs218", assignments, &[(10.0, 100), (20.0, 50)]);
        bond.repaired_loss(0);
        bond.place(0, 10.0);
        bond
    }

    fn step(bond: &mut Player) -> f64 {
        let step = bond.ack(0, 1);
        bond.place(0, 10.0);
        step
    }

    #[test]
    fn the_sixth_acknowledgment_in_a_row_adds_the_delay_window() {
        let mut bond = bond(&[]);
        for ack in 1..=5 {
            assert_close(step(&mut bond), 0.032);
            assert_eq!(bond.cwnd(0), 10.0, "{ack}");
        }
        assert_close(step(&mut bond), 0.064);
        bond.repaired_loss(0);
        bond.place(0, 10.0);
        assert_close(step(&mut bond), 0.032);
    }

    #[test]
    fn the_delay_window_shrinks_as_the_delay_grows() {
        let mut bond = bond(&["acks=0"]);
        bond.set_rtt(0, ms(200));
        // alpha = 30 * 8000 / (50 + 400)^2, and half of it for a delay twice the best one
        let alpha = 30.0 * 8000.0 / (450.0 * 450.0);
        assert_close(step(&mut bond), alpha * 1.5 / 30.0);
    }

    #[test]
    fn the_cap_is_renos_step() {
        // alpha is nearly 1 with a negligible sibling: twice that exceeds Reno's step
        let flows = [(10.0, 100), (1.0, 1000)];
        let mut capped = steady("cs218", &["acks=0"], &flows);
        assert_close(capped.ack(0, 1), 0.1);
        let mut uncapped = steady("cs218", &["acks=0", "capped=false"], &flows);
        // alpha = 11 * 1000 / 101^2
        assert_close(uncapped.ack(0, 1), 2.0 * 1000.0 / (101.0 * 101.0));
    }

    #[test]
    fn a_new_best_delay_counts_once_unless_it_is_updated_after_its_use() {
        for (assignment, share) in [("best_after=false", 1.0), ("best_after=true", 2.0)] {
            let mut bond = bond(&["acks=0", assignment]);
            bond.set_rtt(0, ms(50));
            // alpha / total = 8000 / (200 + 400)^2
            let alpha = 8000.0 / (600.0 * 600.0);
            assert_close(step(&mut bond), alpha * (1.0 + share));
        }
    }

    #[test]
    fn the_delay_window_can_be_added_to_the_window() {
        let mut bond = bond(&["acks=0", "adds_window=true"]);
        assert_close(step(&mut bond), 0.032 + 0.96);
    }

    #[test]
    fn acknowledgments_in_recovery_do_not_count() {
        let mut bond = bond(&[]);
        bond.lose(0);
        for _ in 0..20 {
            bond.ack(0, 1);
        }
        bond.recover(0);
        bond.place(0, 10.0);
        assert_close(step(&mut bond), 0.032);
    }
}
