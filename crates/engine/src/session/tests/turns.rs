//! A scheduler whose paths take turns, with all bytes in order.

use crate::PathId;
use crate::scheduler::rounds::{Full, Rounds};
use crate::scheduler::{OwnSchedulers, Pick, Scheduler, View};

/// Its name.
pub(super) const NAME: &str = "turns";

/// The scheduler with turns of `quota` bytes, as the own scheduler of a session.
pub(super) fn schedulers(quota: u64) -> OwnSchedulers {
    let mut own = OwnSchedulers::default();
    let added = own.add(NAME, move |_| {
        Box::new(Turns {
            rounds: Rounds::default(),
            quota,
        })
    });
    added.expect("the name is valid");
    own
}

#[derive(Debug)]
struct Turns {
    rounds: Rounds,
    quota: u64,
}

impl Scheduler for Turns {
    fn name(&self) -> &'static str {
        NAME
    }

    fn pick(&mut self, path: PathId, budget: u64, view: &View<'_>) -> Pick {
        match view.path(path) {
            Some(asking) => {
                let quota = |_: &_| self.quota;
                self.rounds.pick(asking, budget, view, Full::Skip, quota)
            }
            None => Pick::Idle,
        }
    }

    fn paths_changed(&mut self) {
        self.rounds.reset();
    }
}
