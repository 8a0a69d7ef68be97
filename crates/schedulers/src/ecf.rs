//! ECF, earliest completion first: a slower path is left idle if waiting for the fastest one
//! delivers all waiting bytes sooner.
//!
//! Source: Lim, Nahum, Towsley and Gibbens, "ECF: An MPTCP path scheduler to manage heterogeneous
//! paths", CoNEXT 2017, algorithm 1, as implemented in `net/mptcp/mptcp_ecf.c` of Linux MPTCP 0.95.
//! The products are real numbers here; in the original they overflow 32 bits.

use sumlink_engine::scheduler::subflow::{DefaultRule, fastest};
use sumlink_engine::scheduler::{Pick, Scheduler, View};
use sumlink_engine::{Path, PathId};

/// ECF.
#[derive(Debug, Default)]
pub struct Ecf {
    subflows: DefaultRule,
    /// It has waited for the fastest path; the condition for waiting now includes the hysteresis.
    waiting: bool,
}

/// The hysteresis: relative increase of the slower path's side while waiting.
const BETA: f64 = 0.25;

impl Scheduler for Ecf {
    fn name(&self) -> &'static str {
        "ecf"
    }

    fn pick(&mut self, path: PathId, budget: u64, view: &View<'_>) -> Pick {
        let (Some(slow), Some(fast)) = (view.path(path), fastest(view)) else {
            return Pick::Idle;
        };
        if self.subflows.choose(slow, view) != Some(path) {
            return Pick::Idle;
        }
        if path != fast.id() && self.is_better_to_wait(slow, fast, view) {
            return Pick::Idle;
        }
        self.subflows.send(slow, budget, view)
    }

    fn paths_changed(&mut self) {
        self.subflows.paths_changed();
    }
}

impl Ecf {
    fn is_better_to_wait(&mut self, slow: &Path, fast: &Path, view: &View<'_>) -> bool {
        let unsent: u64 = view.ready_streams().map(|s| s.unsent().total()).sum();
        let window = |path: &Path| self.subflows.window(path, view.now);
        // Rounds that a path needs for all waiting bytes, at least one.
        let rounds = |path: &Path| (unsent as f64 / window(path) as f64).max(1.0);
        let (rtt_f, rtt_s) = (fast.srtt().as_secs_f64(), slow.srtt().as_secs_f64());
        let delta = fast.sample().rttvar.max(slow.sample().rttvar).as_secs_f64();
        let hysteresis = if self.waiting { 1.0 + BETA } else { 1.0 };
        // ECF, algorithm 1: (1 + k/CWND_f) RTT_f < (1 + waiting beta) (RTT_s + delta)
        if (1.0 + rounds(fast)) * rtt_f < hysteresis * (rtt_s + delta) {
            // ECF, algorithm 1: k/CWND_s RTT_s >= 2 RTT_f + delta
            let waits = rounds(slow) * rtt_s >= 2.0 * rtt_f + delta;
            self.waiting |= waits;
            waits
        } else {
            self.waiting = false;
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sumlink_engine::scheduler::minrtt::MinRtt;
    use sumlink_engine::testing::Fixture;

    use super::*;

    /// Two paths, of 10 and 60 ms; the fast one's window is full and `unsent` bytes wait.
    fn busy(unsent: usize) -> Fixture {
        let mut fixture = Fixture::new(&[(80.0, 10), (80.0, 60)]);
        fixture.write(0, unsent);
        for path in [0, 1] {
            fixture.change(path, |sample| sample.cwnd = 100_000);
        }
        fixture.change(0, |sample| sample.in_flight = sample.cwnd);
        fixture
    }

    #[test]
    fn it_waits_where_minrtt_does_not() {
        // (1 + k / 100 kB) 10 ms < 60 ms while k < 500 kB
        for (unsent, waits) in [(1, true), (499_000, true), (501_000, false)] {
            let sends =
                |scheduler: &mut dyn Scheduler| busy(unsent).send(scheduler, 1, 10_000).is_some();
            assert!(sends(&mut MinRtt::default()));
            assert_eq!(sends(&mut Ecf::default()), !waits, "{unsent}");
        }
    }

    #[test]
    fn a_slightly_slower_path_is_used_at_once() {
        // 1 * 19 ms < 2 * 10 ms: it completes before the fast path has had two round trips.
        for (ms, waits) in [(19, false), (20, true)] {
            let (mut fixture, mut ecf) = (busy(1), Ecf::default());
            fixture.change(0, |sample| sample.srtt = Duration::from_micros(9_999));
            fixture.change(1, |sample| sample.srtt = Duration::from_millis(ms));
            assert_eq!(fixture.send(&mut ecf, 1, 10_000).is_none(), waits, "{ms}");
        }
    }

    #[test]
    fn variation_makes_both_sides_slower() {
        let (mut fixture, mut ecf) = (busy(1), Ecf::default());
        fixture.change(1, |sample| sample.rttvar = Duration::from_millis(41));
        assert!(fixture.send(&mut ecf, 1, 10_000).is_some(), "60 < 20 + 41");
    }

    #[test]
    fn waiting_continues_within_the_hysteresis() {
        // While waiting: (1 + k / 100 kB) 10 ms < 1.25 * 60 ms, so k < 650 kB
        let (mut fixture, mut ecf) = (busy(499_000), Ecf::default());
        assert_eq!(fixture.send(&mut ecf, 1, 10_000), None);
        fixture.write(0, 100_000);
        assert_eq!(fixture.send(&mut ecf, 1, 10_000), None, "599 kB");
        assert!(busy(599_000).send(&mut Ecf::default(), 1, 10_000).is_some());
        fixture.write(0, 60_000);
        assert!(fixture.send(&mut ecf, 1, 10_000).is_some(), "659 kB");
        assert!(!ecf.waiting);
    }

    #[test]
    fn a_halved_window_counts_as_halved() {
        // Of 100 kB the penalty leaves 50 kB: 299 kB take seven rounds of 10 ms there, and at least
        // 60 ms.
        let (mut fixture, mut ecf) = (busy(299_000), Ecf::default());
        assert_eq!(fixture.send(&mut ecf, 1, 10_000), None);
        ecf.subflows.halve(fixture.path(0), fixture.now);
        ecf.waiting = false;
        assert!(fixture.send(&mut ecf, 1, 10_000).is_some());
    }

    #[test]
    fn large_numbers_do_not_overflow() {
        let (mut fixture, mut ecf) = (busy(60_000_000), Ecf::default());
        fixture.change(0, |sample| sample.cwnd = 1 << 40);
        fixture.change(0, |sample| sample.in_flight = 1 << 40);
        fixture.change(1, |sample| sample.srtt = Duration::from_secs(600));
        assert_eq!(fixture.send(&mut ecf, 1, 10_000), None);
    }
}
