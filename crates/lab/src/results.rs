//! What a run leaves behind: one JSON file per scenario, seed and system, and a summary over them.
//!
//! ```text
//! OUT/SCENARIO/scenario.toml               the file as it was run
//! OUT/SCENARIO/seed-1/SYSTEM.json          a Run; its appearance is what "done" means to a resumed run
//! OUT/SCENARIO/summary.json                a Summary of all that is there
//! ```

mod load;

pub use load::{EventMark, ScenarioResults, load};
pub use sumlink_scenario::results::*;
