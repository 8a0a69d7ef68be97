//! The results of runs: one JSON file per scenario, seed and system, and a summary.
//!
//! ```text
//! OUT/SCENARIO/scenario.toml               the file as it was run
//! OUT/SCENARIO/seed-1/SYSTEM.json          a Run; a resumed series skips runs with an existing file
//! OUT/SCENARIO/summary.json                a Summary of all runs
//! ```

mod load;

pub use load::{EventMark, ScenarioResults, load};
pub use sumlink_scenario::results::*;
