//! Lowest round-trip time first: bytes in order, over the fastest path with space.
//!
//! The default scheduler of the out-of-tree Linux MPTCP up to 0.95 (`net/mptcp/mptcp_sched.c`).
//! Among the available paths the one with the lowest srtt gets the next segment; a path stays idle
//! while a faster one is available. When the stream's window is full because a slower path holds
//! its first byte, a path with space sends that byte again and the slower path is penalized.
//! `subflow.rs` has the conditions, and explains why its halved window is a limit inside the
//! engine. The repeated bytes stay within the budget that all schedulers have.

use crate::PathId;
use crate::scheduler::subflow::DefaultRule;
use crate::scheduler::{Pick, Scheduler, View};

/// Lowest round-trip time first.
#[derive(Debug, Default)]
pub struct MinRtt {
    subflows: DefaultRule,
}

impl Scheduler for MinRtt {
    fn name(&self) -> &'static str {
        "minrtt"
    }

    fn pick(&mut self, path: PathId, budget: u64, view: &View<'_>) -> Pick {
        match view.path(path) {
            Some(asking) if self.subflows.choose(asking, view) == Some(path) => {
                self.subflows.send(asking, budget, view)
            }
            _ => Pick::Idle,
        }
    }

    fn paths_changed(&mut self) {
        self.subflows.paths_changed();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::fixture::{Fixture, decisions};

    #[test]
    fn a_slower_path_gets_bytes_when_the_faster_one_is_full() {
        let (mut fixture, mut minrtt) =
            (Fixture::new(&[(80.0, 10), (80.0, 12)]), MinRtt::default());
        fixture.write(0, 60_000);
        let table = [
            (1, "", None),
            (0, "", Some(0..10_000)),
            (1, "the faster path's window is full", Some(10_000..20_000)),
        ];
        decisions(
            &mut minrtt,
            &mut fixture,
            10_000,
            &table,
            |fixture, when| {
                if when == "the faster path's window is full" {
                    fixture.change(0, |sample| sample.in_flight = sample.cwnd);
                }
            },
        );
    }

    #[test]
    fn backups_work_only_while_no_other_path_does() {
        let (mut fixture, mut minrtt) =
            (Fixture::new(&[(80.0, 10), (80.0, 12)]), MinRtt::default());
        fixture.write(0, 60_000);
        let path = fixture.paths.get_mut(&PathId(0)).unwrap();
        path.standing.policy.priority = crate::Priority::Backup;
        assert_eq!(fixture.send(&mut minrtt, 1, 10_000), Some(0..10_000));
        fixture.paths.get_mut(&PathId(1)).unwrap().state = crate::PathState::Stalled;
        assert_eq!(fixture.send(&mut minrtt, 0, 10_000), Some(10_000..20_000));
    }
}
