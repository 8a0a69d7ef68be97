//! The paper's base algorithm: the value of a path as seen by the sender.
//!
//! Source: algorithm 1 and equation 1 of the paper on live video over shared hotspots in
//! docs/algorithms.md. B_i = mss / srtt; a path with B_i < alpha B_gbl is parked and tried again
//! when the probe timer fires. B_i reflects the length of a path's queue rather than its rate: this
//! rule rates a fast link with a high delay low. "srtt = rtt * 8" at the start, in line 9, is the
//! kernel's scaled form; here srtt = rtt. `lists.rs` explains the turns.

use super::lists::Lists;
use super::{Decision, Seen, Selector, SelectorConfig, mbit};
use crate::Instant;

/// The base algorithm.
#[derive(Debug)]
pub struct Base {
    alpha: f64,
    lists: Lists,
}

impl Base {
    /// Creates the selector with its threshold and the interval of its probe timer.
    pub fn new(config: &SelectorConfig) -> Self {
        Self {
            alpha: config.alpha,
            lists: Lists::new(config.probe),
        }
    }
}

impl Selector for Base {
    fn name(&self) -> &'static str {
        "base"
    }

    fn review(&mut self, seen: &Seen<'_>) -> Vec<Decision> {
        let mut decisions = self.lists.begin(seen);
        let Some(turn) = self.lists.end_turn(seen) else {
            return decisions;
        };
        let path = turn.path;
        // Algorithm 1, line 10.
        let rate = path.mss as f64 / path.srtt_s();
        let global = self.lists.global();
        let (part, rtt) = (self.alpha * 100.0, path.srtt.as_millis());
        let figures = |relation: &str| {
            let (own, all) = (mbit(rate), mbit(global));
            format!("one segment in {rtt} ms is {own}, {relation} {part:.0} % of the average {all}")
        };
        // Equation 1; algorithm 1, lines 18 to 21.
        if rate < self.alpha * global && turn.spared {
            decisions.push(self.lists.park(path.id, seen.now, figures("below")));
        } else {
            decisions.extend(self.lists.keep(path.id, || figures("at least")));
        }
        // Line 26, for a parked path as well: section 3.1.
        self.lists.average(rate);
        decisions
    }

    fn next_review(&self, busy: bool) -> Option<Instant> {
        self.lists.next_review().filter(|_| busy)
    }

    fn threshold(&self) -> Option<f64> {
        Some(self.alpha)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selector::Selection;
    use crate::selector::fixture::Fixture;

    fn fixture(rtts: &[u64]) -> Fixture {
        let links: Vec<(f64, u64)> = rtts.iter().map(|rtt| (10.0, *rtt)).collect();
        Fixture::new("base", &links)
    }

    #[test]
    fn a_path_below_a_fifth_of_the_average_is_parked_with_a_reason() {
        // The average of 20 and 400 ms is that of 1/20 and 1/400: 38 ms; a fifth of it is 190 ms.
        let mut fixture = fixture(&[20, 400]);
        let decisions = fixture.run(10.0);
        let parked = decisions.iter().find(|d| d.selection == Selection::Parked);
        let parked = parked.expect("the slow path is parked");
        assert_eq!(parked.path.0, 1);
        assert_eq!(
            parked.reason,
            "one segment in 400 ms is 0.029 Mbit/s, below 20 % of the average 0.2 Mbit/s"
        );
    }

    #[test]
    fn comparable_paths_stay_active() {
        assert_eq!(fixture(&[20, 30, 60]).run(30.0), []);
    }

    #[test]
    fn a_parked_path_is_tried_again_and_parked_again_or_kept() {
        let mut fixture = fixture(&[20, 400]);
        let decisions = fixture.run(30.0);
        let parked = |d: &&Decision| d.selection == Selection::Parked;
        let times = decisions.iter().filter(parked).count();
        assert!((3..=6).contains(&times), "{decisions:#?}");
        fixture.links[1].1 = 25;
        let decisions = fixture.run(10.0);
        let last = decisions.last().expect("it is tried again");
        assert_eq!((last.path.0, last.selection), (1, Selection::Active));
    }

    #[test]
    fn the_last_active_path_is_kept_however_slow_it_becomes() {
        let mut fixture = fixture(&[20, 400]);
        fixture.run(3.0);
        fixture.links[0].1 = 2000;
        fixture.run(1.5);
        assert!(!fixture.selection(0).rests());
    }

    #[test]
    fn a_parked_path_returns_at_once_when_the_others_fail() {
        let mut fixture = fixture(&[20, 400]);
        fixture.run(3.0);
        assert_eq!(fixture.selection(1), Selection::Parked);
        fixture.works[0] = false;
        let decisions = fixture.run(0.3);
        assert_eq!(decisions[0].reason, "no other path delivers");
        assert_eq!(fixture.selection(1), Selection::Active);
    }
}
