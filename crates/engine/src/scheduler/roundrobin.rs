//! One piece each in turn: whichever path has room takes the next bytes in order.
//!
//! A full path does not ask and is thereby skipped, as in Linux' multipath TCP 0.95.

use crate::PathId;
use crate::scheduler::{Pick, Scheduler, View, lowest_unsent};

/// See the module.
#[derive(Debug, Default)]
pub struct RoundRobin;

/// What a path takes in one turn, in bytes: about one segment offload batch of small links.
const PIECE: u64 = 16 * 1024;

impl Scheduler for RoundRobin {
    fn name(&self) -> &'static str {
        "roundrobin"
    }

    fn pick(&mut self, _path: PathId, budget: u64, view: &View<'_>) -> Pick {
        lowest_unsent(view, budget.min(PIECE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::fixture::Fixture;

    #[test]
    fn whoever_asks_gets_the_next_piece() {
        let (mut fixture, mut scheduler) = (Fixture::new(&[(80.0, 10), (8.0, 100)]), RoundRobin);
        fixture.write(0, 60_000);
        assert_eq!(fixture.send(&mut scheduler, 1, 100_000), Some(0..PIECE));
        assert_eq!(
            fixture.send(&mut scheduler, 0, 100_000),
            Some(PIECE..2 * PIECE)
        );
        assert_eq!(
            fixture.send(&mut scheduler, 0, 1_000),
            Some(2 * PIECE..2 * PIECE + 1_000)
        );
    }
}
