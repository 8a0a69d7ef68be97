//! Compares a new scheduler with the built-in ones: `cargo run --release -p sumlink-sim --example
//! own_scheduler -- scenarios/unequal-queue.toml`

use sumlink_engine::PathId;
use sumlink_engine::scheduler::{Pick, Scheduler, View, lowest_unsent};
use sumlink_sim::{Own, compare::compare};

/// The path with the shortest way through its queue sends; the others wait.
#[derive(Debug)]
struct Mine;

impl Scheduler for Mine {
    fn name(&self) -> &'static str {
        "mine"
    }

    fn pick(&mut self, asking: PathId, budget: u64, view: &View<'_>) -> Pick {
        let free = view
            .active_paths()
            .filter(|path| !path.sample().full || path.id() == asking);
        match free.min_by_key(|path| (path.delay(), path.id())) {
            Some(best) if best.id() == asking => lowest_unsent(view, budget),
            _ => Pick::Idle,
        }
    }
}

fn main() -> Result<(), String> {
    let mut own = Own::default();
    own.add_scheduler("mine", |_| Box::new(Mine))?;
    compare(std::env::args().skip(1), &own, &mut std::io::stdout())
}
