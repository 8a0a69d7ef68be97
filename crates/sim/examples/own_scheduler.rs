//! A scheduler of one's own against the others:
//! `cargo run --release -p sumlink-sim --example own_scheduler -- scenarios/unequal-queue.toml`

use sumlink_engine::PathId;
use sumlink_engine::scheduler::{Pick, Scheduler, View, lowest_unsent};
use sumlink_scenario::{results::Outcome, scenario::Scenario};

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
    let file = std::env::args().nth(1).ok_or("usage: own_scheduler FILE")?;
    let scenario = Scenario::load(file.as_ref()).map_err(|error| error.to_string())?;
    let mut own = sumlink_sim::Own::default();
    own.add_scheduler("mine", |_| Box::new(Mine))?;
    for system in [
        "sumlink:mine",
        "sumlink:fbdt",
        "sumlink:minrtt",
        "sumlink:blest",
        "alone",
    ] {
        match sumlink_sim::run_own(&scenario, system, 1, &own, None)?.outcome {
            Outcome::Measured(all) => println!("{system:16} {:8.2} Mbit/s", all.goodput_bps / 1e6),
            other => println!("{system:16} {other:?}"),
        }
    }
    Ok(())
}
