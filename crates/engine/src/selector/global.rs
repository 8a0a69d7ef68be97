//! The paper's globally aware, dynamically adjusted algorithm: what a path is worth, counted by the receiver, against a
//! threshold that follows what comes of it.
//!
//! Source: algorithm 2 of the paper on live video over shared hotspots in docs/algorithms.md. B_i is what the peer has counted on the path
//! since its last turn, by the time that took: the counts come back in the reports on every path. Where B_i reaches alpha B_gbl
//! and is more than a segment a round trip, the path helps, and alpha falls by a step. Below alpha B_gbl the path hurts: it is
//! parked, and alpha rises to the mean of itself and its greatest value.
//!
//! "alpha -= 1" cannot be meant with alpha <= 0.2: a step is one percentage point, and alpha never falls below
//! [`LEAST`]. The paper's text lets alpha follow B_gbl, its algorithm the path whose turn it was: the algorithm is taken.

use super::lists::Lists;
use super::{Decision, Seen, Selector, SelectorConfig, mbit};
use crate::Instant;

/// What alpha falls by when a path helps.
const STEP: f64 = 0.01;

/// alpha does not fall below this.
pub const LEAST: f64 = 0.01;

/// See the module.
#[derive(Debug)]
pub struct Global {
    /// alpha_max: where it begins, and the most it can be.
    most: f64,
    alpha: f64,
    lists: Lists,
}

impl Global {
    /// With its greatest threshold and the time of its probe timer.
    pub fn new(config: &SelectorConfig) -> Self {
        Self {
            most: config.alpha,
            alpha: config.alpha,
            lists: Lists::new(config.probe),
        }
    }

    /// The present threshold, from [`LEAST`] to the one that it was made with.
    pub fn alpha(&self) -> f64 {
        self.alpha
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
            format!("the peer counts {own}, {relation} {part:.0} % of the average {all}")
        };
        if rate >= alpha * global {
            // Lines 10 to 13.
            if expected < rate {
                self.alpha = (alpha - STEP).max(LEAST);
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
            seen.push(global.alpha());
        }
        assert!((seen.last().unwrap() - LEAST).abs() < 1e-9, "{seen:?}");
        let steps = seen.windows(2).map(|pair| pair[0] - pair[1]);
        assert!(
            steps
                .clone()
                .all(|step| step < 1e-9 || (step - STEP).abs() < 1e-9),
            "{seen:?}"
        );
        // A path that has all but stopped hurts: half way back to where it began.
        links[1] = (0.001, 30);
        for _ in 0..500 {
            world.step(&mut global, &links, &[true; 2]);
            if global.alpha() > LEAST {
                break;
            }
        }
        assert!(
            (global.alpha() - (LEAST + 0.20) / 2.0).abs() < 1e-9,
            "{}",
            global.alpha()
        );
    }

    #[test]
    fn the_peers_count_decides_and_not_the_round_trip() {
        // The one that the base algorithm parks.
        let mut fixture = Fixture::new("global", &[(10.0, 20), (10.0, 400)]);
        assert_eq!(fixture.run(20.0), []);
        // The one that it does not see.
        let mut fixture = Fixture::new("global", &[(10.0, 20), (0.001, 20)]);
        let decisions = fixture.run(20.0);
        assert_eq!(
            (decisions[0].path.0, decisions[0].selection),
            (1, Selection::Parked)
        );
        assert!(
            decisions[0]
                .reason
                .starts_with("the peer counts 0.001 Mbit/s, below ")
        );
    }

    #[test]
    fn time_without_anything_to_send_does_not_count() {
        let mut fixture = Fixture::new("global", &[(10.0, 20), (8.0, 20)]);
        fixture.run(5.0);
        fixture.idle(60.0);
        assert_eq!(fixture.run(5.0), []);
    }
}
