//! The paper's globally aware, dynamically adjusted algorithm: the value of a path as counted by
//! the receiver, against a threshold that adapts to the outcome.
//!
//! Source: algorithm 2 of the paper on live video over shared hotspots in docs/algorithms.md. B_i
//! is the bytes that the peer has counted on the path since its last turn, divided by that time;
//! reports on any path return the counts. Where B_i reaches alpha B_gbl and exceeds a segment per
//! round trip, the path helps, and alpha falls by a step. Below alpha B_gbl the path hurts: it is
//! parked, and alpha rises to the mean of itself and its highest value.
//!
//! "alpha -= 1" cannot be meant literally with alpha <= 0.2: a step is one percentage point, and
//! alpha never falls below [`MIN`]. In the paper's text alpha follows B_gbl, in its algorithm the
//! path whose turn it was; this implements the algorithm.

use super::lists::Lists;
use super::{Decision, Seen, Selector, SelectorConfig, mbit};
use crate::Instant;

/// Decrease of alpha when a path helps.
const STEP: f64 = 0.01;

/// alpha does not fall below this.
pub const MIN: f64 = 0.01;

/// The globally aware algorithm.
#[derive(Debug)]
pub struct Global {
    /// alpha_max: the initial and highest value of alpha.
    most: f64,
    alpha: f64,
    lists: Lists,
}

impl Global {
    /// Creates the selector with its highest threshold and the interval of its probe timer.
    pub fn new(config: &SelectorConfig) -> Self {
        Self {
            most: config.alpha,
            alpha: config.alpha,
            lists: Lists::new(config.probe),
        }
    }
}

impl Selector for Global {
    fn name(&self) -> &'static str {
        "global"
    }

    fn review(&mut self, seen: &Seen<'_>) -> Vec<Decision> {
        let mut decisions = self.lists.begin(seen);
        let Some(turn) = self.lists.end_turn(seen) else {
            return decisions;
        };
        let (path, rate) = (turn.path, turn.received);
        // Algorithm 2, line 9.
        let expected = path.mss as f64 / path.srtt_s();
        let (alpha, global) = (self.alpha, self.lists.global());
        let figures = |relation: &str| {
            let (own, all, part) = (mbit(rate), mbit(global), alpha * 100.0);
            format!("the peer receives {own}, {relation} {part:.0} % of the average {all}")
        };
        if rate >= alpha * global {
            // Lines 10 to 13.
            if expected < rate {
                self.alpha = (alpha - STEP).max(MIN);
            }
            decisions.extend(self.lists.keep(path.id, || figures("at least")));
        } else if turn.spared {
            // Lines 15 to 18.
            self.alpha = (alpha + self.most) / 2.0;
            decisions.push(self.lists.park(path.id, seen.now, figures("below")));
        }
        // Line 20.
        self.lists.average(rate);
        decisions
    }

    fn next_review(&self, busy: bool) -> Option<Instant> {
        self.lists.next_review().filter(|_| busy)
    }

    /// alpha, from [`MIN`] to the initial value.
    fn threshold(&self) -> Option<f64> {
        Some(self.alpha)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selector::fixture::Fixture;
    use crate::selector::{Selection, fixture};

    #[test]
    fn alpha_falls_by_a_point_whenever_a_path_helps_down_to_one_percent() {
        let config = "global".parse().unwrap();
        let mut global = Global::new(&config);
        let mut links = [(10.0, 20), (8.0, 30)];
        let mut world = fixture::World::new(2);
        let mut seen = Vec::new();
        for _ in 0..500 {
            world.step(&mut global, &links, &[true; 2]);
            seen.push(global.alpha);
        }
        assert!((seen.last().unwrap() - MIN).abs() < 1e-9, "{seen:?}");
        let steps = seen.windows(2).map(|pair| pair[0] - pair[1]);
        assert!(
            steps
                .clone()
                .all(|step| step < 1e-9 || (step - STEP).abs() < 1e-9),
            "{seen:?}"
        );
        // A path that has almost stopped hurts: alpha rises halfway to its initial value.
        links[1] = (0.001, 30);
        for _ in 0..500 {
            world.step(&mut global, &links, &[true; 2]);
            if global.alpha > MIN {
                break;
            }
        }
        assert!(
            (global.alpha - (MIN + 0.20) / 2.0).abs() < 1e-9,
            "{}",
            global.alpha
        );
    }

    #[test]
    fn the_count_of_the_peer_decides_and_not_the_round_trip() {
        // The base algorithm parks this path.
        let mut fixture = Fixture::new("global", &[(10.0, 20), (10.0, 400)]);
        assert_eq!(fixture.run(20.0), []);
        // The base algorithm misses this path.
        let mut fixture = Fixture::new("global", &[(10.0, 20), (0.001, 20)]);
        let decisions = fixture.run(20.0);
        assert_eq!(
            (decisions[0].path.0, decisions[0].selection),
            (1, Selection::Parked)
        );
        assert!(
            decisions[0]
                .reason
                .starts_with("the peer receives 0.001 Mbit/s, below ")
        );
    }

    #[test]
    fn idle_time_does_not_count() {
        let mut fixture = Fixture::new("global", &[(10.0, 20), (8.0, 20)]);
        fixture.run(5.0);
        fixture.idle(60.0);
        assert_eq!(fixture.run(5.0), []);
    }
}
