//! One segment per path in turn: bytes in order, regardless of the paths' properties.
//!
//! Source: `net/mptcp/mptcp_rr.c` of Linux MPTCP 0.95. A path that has had its turn waits until
//! every other one has had its own; full paths are skipped. A segment is a piece of 16 KiB here,
//! approximately a TLS record: frames of single TCP segments would cost more than they carry.

use sumlink_engine::PathId;
use sumlink_engine::scheduler::rounds::{Full, Rounds};
use sumlink_engine::scheduler::{Pick, RepeatLimit, Scheduler, View, lowest_unsent};

/// Round-robin.
#[derive(Debug, Default)]
pub struct RoundRobin {
    rounds: Rounds,
}

/// Bytes that a path takes in one turn.
const PIECE: u64 = 16 * 1024;

impl Scheduler for RoundRobin {
    fn name(&self) -> &'static str {
        "roundrobin"
    }

    fn pick(&mut self, path: PathId, budget: u64, view: &View<'_>) -> Pick {
        let Some(asking) = view.path(path) else {
            return Pick::Idle;
        };
        // mptcp_rr.c, mptcp_rr_next_segment: a subflow sends while it has quota left (num_segments,
        // 1 by default); when none has, all begin anew. One that accepts no data
        // (mptcp_rr_is_available) is skipped.
        let turn = self.rounds.turn(asking, view, Full::Skip, |_| PIECE);
        if turn == 0 {
            return Pick::Idle;
        }
        let pick = lowest_unsent(view, budget.min(turn));
        if let Pick::Send { .. } = &pick {
            // A turn is one segment, however short it is.
            self.rounds.take(path, turn);
        }
        pick
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
    use sumlink_engine::testing::{Fixture, decisions};

    use super::*;

    #[test]
    fn paths_take_turns_and_full_ones_are_skipped() {
        let links = [(80.0, 10), (8.0, 100), (1.0, 300)];
        let (mut fixture, mut scheduler) = (Fixture::new(&links), RoundRobin::default());
        fixture.write(0, 200_000);
        let piece = |n: u64| Some(n * PIECE..(n + 1) * PIECE);
        let table = [
            (1, "any path may begin", piece(0)),
            (1, "it has had its turn", None),
            (0, "", piece(1)),
            (1, "path 2 has not had its turn", None),
            (2, "", piece(2)),
            (1, "a new round", piece(3)),
            (0, "", piece(4)),
            (0, "path 2 is full", piece(5)),
            (0, "path 1 has its turn", None),
            (1, "", piece(6)),
        ];
        decisions(
            &mut scheduler,
            &mut fixture,
            100_000,
            &table,
            |fixture, when| {
                fixture.change(2, |sample| sample.full |= when == "path 2 is full");
            },
        );
    }
}
