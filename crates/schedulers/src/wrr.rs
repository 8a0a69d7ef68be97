//! Weighted round-robin: in each round a path sends in proportion to its throughput.
//!
//! Source: the paper on the live video broadcast over shared hotspots in docs/algorithms.md:
//! virtual interfaces are served by weighted round-robin, and one with a higher throughput gets
//! more of the round. There the interfaces share one radio, and only one of them can send at a
//! time. Here all can, so a path waits only when it has used its quota and another has not. That
//! paper's selection of the paths that take part is not implemented here.

use sumlink_engine::scheduler::rounds::{Full, Rounds};
use sumlink_engine::scheduler::{Pick, RepeatLimit, Scheduler, View};
use sumlink_engine::{Path, PathId};

/// Weighted round-robin.
#[derive(Debug, Default)]
pub struct Wrr {
    rounds: Rounds,
}

/// Bytes in a round for each path that takes part.
const PIECE: u64 = 32 * 1024;

impl Scheduler for Wrr {
    fn name(&self) -> &'static str {
        "wrr"
    }

    fn pick(&mut self, path: PathId, budget: u64, view: &View<'_>) -> Pick {
        let Some(asking) = view.path(path) else {
            return Pick::Idle;
        };
        let all: f64 = view.active_paths().map(Path::rate).sum();
        let round = (PIECE * view.active_paths().count() as u64) as f64;
        // Hotspots paper, section 3: weighted round-robin; read as quota_i = throughput_i /
        // sum(throughput) * round. A path with hardly any throughput still sends a segment in each
        // round, or its rate would never be measured again.
        let quota = |path: &Path| ((path.rate() / all * round) as u64).max(path.mss());
        self.rounds.pick(asking, budget, view, Full::Skip, quota)
    }

    fn paths_changed(&mut self) {
        self.rounds.reset();
    }

    fn repeat_limit(&self) -> RepeatLimit {
        RepeatLimit::Nothing
    }
}

#[cfg(test)]
mod tests {
    use sumlink_engine::testing::Fixture;

    use super::*;

    #[test]
    fn paths_send_in_proportion_to_their_throughput() {
        let links = [(10.0, 10), (30.0, 100), (60.0, 1)];
        let (mut fixture, mut wrr) = (Fixture::new(&links), Wrr::default());
        fixture.write(0, 10_000_000);
        let sent = fixture.shares(&mut wrr, 4_000, 1_500);
        for (part, expected) in sent.iter().zip([0.1, 0.3, 0.6]) {
            assert!((part - expected).abs() < 0.01, "{sent:?}");
        }
    }

    #[test]
    fn a_full_path_misses_the_rest_of_its_turn() {
        let (mut fixture, mut wrr) = (Fixture::new(&[(50.0, 10), (50.0, 10)]), Wrr::default());
        fixture.write(0, 10_000_000);
        assert_eq!(fixture.send(&mut wrr, 0, 100_000), Some(0..PIECE));
        assert_eq!(fixture.send(&mut wrr, 0, 100_000), None);
        fixture.change(1, |sample| sample.full = true);
        assert_eq!(fixture.send(&mut wrr, 0, 100_000), Some(PIECE..2 * PIECE));
    }
}
