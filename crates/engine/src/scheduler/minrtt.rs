//! Least round-trip time first: bytes in order, over the fastest path that has room.
//!
//! The rule of Linux' multipath TCP since its first version: among the paths with room in their congestion
//! window, the one of least srtt. Here a path asks when its carrier has room, so the rule turns into: a path
//! stays idle while a faster one still has room.

use crate::PathId;
use crate::path::Path;
use crate::scheduler::{Pick, Scheduler, View, lowest_unsent};

/// See the module.
#[derive(Debug, Default)]
pub struct MinRtt;

impl Scheduler for MinRtt {
    fn name(&self) -> &'static str {
        "minrtt"
    }

    fn pick(&mut self, path: PathId, budget: u64, view: &View<'_>) -> Pick {
        let Some(asking) = view.path(path) else {
            return Pick::Idle;
        };
        let faster_has_room = view
            .active_paths()
            .any(|other| other.srtt() < asking.srtt() && has_room(other));
        if faster_has_room {
            Pick::Idle
        } else {
            lowest_unsent(view, budget)
        }
    }
}

/// Room in the congestion window that nothing unsent in the socket will take.
fn has_room(path: &Path) -> bool {
    let sample = path.sample();
    sample.in_flight + sample.unsent < sample.cwnd
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::fixture::Fixture;

    #[test]
    fn a_slower_path_gets_bytes_when_the_faster_one_is_full() {
        let (mut fixture, mut minrtt) = (Fixture::new(&[(80.0, 10), (80.0, 12)]), MinRtt);
        fixture.write(0, 60_000);
        assert_eq!(fixture.send(&mut minrtt, 1, 10_000), None);
        assert_eq!(fixture.send(&mut minrtt, 0, 10_000), Some(0..10_000));
        fixture.queue_on(0, 10_000_000);
        assert_eq!(fixture.send(&mut minrtt, 1, 10_000), Some(10_000..20_000));
    }
}
