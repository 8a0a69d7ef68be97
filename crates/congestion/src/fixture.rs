//! Test helpers for a [`Player`].

use std::time::Duration;

use crate::Settings;
use crate::player::Player;

pub(crate) fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Settings from a list of `key=value`.
pub(crate) fn settings(assignments: &[&str]) -> Settings {
    let mut settings = Settings::default();
    for assignment in assignments {
        settings.assign(assignment).expect("an assignment");
    }
    settings
}

/// New flows, one for each round-trip time.
pub(crate) fn fresh(name: &str, assignments: &[&str], rtts: &[Duration]) -> Player {
    Player::new(name, &settings(assignments), rtts).expect("an algorithm")
}

/// Flows in congestion avoidance with these windows and round-trip times in milliseconds, all
/// measured.
pub(crate) fn steady(name: &str, assignments: &[&str], flows: &[(f64, u64)]) -> Player {
    let rtts: Vec<_> = flows.iter().map(|&(_, rtt)| ms(rtt)).collect();
    let mut player = fresh(name, assignments, &rtts);
    for (flow, &(cwnd, _)) in flows.iter().enumerate() {
        player.ack(flow, 1);
        player.place(flow, cwnd);
    }
    player
}

impl Player {
    /// Puts a flow into congestion avoidance at this window.
    pub(crate) fn place(&mut self, flow: usize, cwnd: f64) {
        let window = self.controls[flow].window_mut();
        window.set_cwnd(cwnd);
        window.set_ssthresh(cwnd);
        self.flows[flow] = self.controls[flow].flow();
    }
}

/// Panics unless two numbers are equal within rounding errors.
#[track_caller]
pub(crate) fn assert_close(got: f64, expected: f64) {
    let error = (got - expected).abs();
    assert!(
        error <= 1e-9 * expected.abs().max(1.0),
        "{got}, expected {expected}"
    );
}
