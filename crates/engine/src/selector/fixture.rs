//! Simulated paths for the selectors' tests: each carries the rate of its link, or its share of the
//! offered load.

use std::time::Duration;

use super::{Decision, Seen, SeenPath, Selection, Selector, by_name};
use crate::{Instant, PathId};

/// Time step of the simulation.
const STEP: Duration = Duration::from_millis(10);

/// Simulates the bytes that paths carry.
#[derive(Debug)]
pub(super) struct World {
    pub(super) now: Instant,
    counted: Vec<f64>,
    delivered: f64,
    pub(super) rests: Vec<bool>,
    /// Bits per second that the program offers; none for as many as the paths take.
    pub(super) offered: Option<f64>,
    /// Cost of a path that carries data: the share of the goodput, and the additional delivery
    /// delay.
    pub(super) costs: Vec<(f64, Duration)>,
}

impl World {
    pub(super) fn new(paths: usize) -> Self {
        Self {
            now: Instant::from_secs(100),
            counted: vec![0.0; paths],
            delivered: 0.0,
            rests: vec![false; paths],
            offered: None,
            costs: vec![(0.0, Duration::ZERO); paths],
        }
    }

    /// One time step; `links` are (Mbit/s, round-trip milliseconds).
    pub(super) fn step(
        &mut self,
        selector: &mut dyn Selector,
        links: &[(f64, u64)],
        works: &[bool],
    ) -> Vec<Decision> {
        self.now += STEP;
        let carries = |index: usize| works[index] && !self.rests[index];
        let rates: Vec<f64> = (0..links.len())
            .map(|index| {
                if carries(index) {
                    links[index].0 * 1e6 / 8.0
                } else {
                    0.0
                }
            })
            .collect();
        let kept: f64 = (0..links.len())
            .filter(|index| carries(*index))
            .map(|index| 1.0 - self.costs[index].0)
            .product();
        let all: f64 = rates.iter().sum();
        let asked = self.offered.map_or(all, |bits| bits / 8.0);
        let used = if all > 0.0 {
            (asked / all).min(1.0)
        } else {
            0.0
        };
        for (count, rate) in self.counted.iter_mut().zip(&rates) {
            *count += rate * used * STEP.as_secs_f64();
        }
        let goodput = (all * kept).min(asked);
        self.delivered += goodput * STEP.as_secs_f64();
        if selector.next_review(true).is_none_or(|at| at > self.now) {
            return Vec::new();
        }
        let fastest = links.iter().map(|link| link.1).min().unwrap_or_default();
        let more: Duration = (0..links.len())
            .filter(|index| carries(*index))
            .map(|index| self.costs[index].1)
            .sum();
        let delays = match self.offered {
            Some(_) => vec![Duration::from_millis(fastest) + more; 2],
            None => Vec::new(),
        };
        let paths: Vec<SeenPath> = (0..links.len())
            .map(|index| SeenPath {
                id: PathId(index as u32),
                works: works[index],
                srtt: Duration::from_millis(links[index].1),
                mss: 1448,
                received: self.counted[index] as u64,
                rate: links[index].0 * 1e6 / 8.0,
            })
            .collect();
        let decisions = selector.review(&Seen {
            now: self.now,
            waiting: asked >= all,
            delivered: self.delivered as u64,
            delays: &delays,
            paths: &paths,
        });
        for decision in &decisions {
            self.rests[decision.path.0 as usize] = decision.selection.rests();
        }
        decisions
    }

    /// Bytes delivered in order so far.
    pub(super) fn delivered(&self) -> f64 {
        self.delivered
    }
}

/// A selector and its simulated paths.
pub(super) struct Fixture {
    pub(super) links: Vec<(f64, u64)>,
    pub(super) works: Vec<bool>,
    pub(super) world: World,
    selector: Box<dyn Selector>,
    selections: Vec<Selection>,
}

impl Fixture {
    /// One path for each (Mbit/s, round-trip milliseconds).
    pub(super) fn new(selector: &str, links: &[(f64, u64)]) -> Self {
        let config = selector.parse().expect("the selector is known");
        Self {
            links: links.to_vec(),
            works: vec![true; links.len()],
            world: World::new(links.len()),
            selector: by_name(&config).expect("the selector is known"),
            selections: vec![Selection::Active; links.len()],
        }
    }

    /// Runs for `seconds`; returns the decisions.
    pub(super) fn run(&mut self, seconds: f64) -> Vec<Decision> {
        let mut all = Vec::new();
        for _ in 0..(seconds / STEP.as_secs_f64()) as usize {
            let selector = self.selector.as_mut();
            for decision in self.world.step(selector, &self.links, &self.works) {
                self.selections[decision.path.0 as usize] = decision.selection;
                all.push(decision);
            }
        }
        all
    }

    /// Runs for `seconds` without data to send.
    pub(super) fn idle(&mut self, seconds: f64) {
        self.world.now += Duration::from_secs_f64(seconds);
    }

    pub(super) fn selection(&self, path: usize) -> Selection {
        self.selections[path]
    }
}
