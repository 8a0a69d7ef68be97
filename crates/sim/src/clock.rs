//! Virtual time.

use std::time::Duration;

/// Nanoseconds: since the beginning of the simulation, or between two moments.
///
/// Whole numbers only, so that the same run has the same times on every build and every machine.
pub type Nanos = u64;

/// One microsecond.
pub const MICROSECOND: Nanos = 1_000;
/// One millisecond.
pub const MILLISECOND: Nanos = 1_000_000;
/// One second.
pub const SECOND: Nanos = 1_000_000_000;

/// What the engine and the links take for a time.
pub fn duration(time: Nanos) -> Duration {
    Duration::from_nanos(time)
}

/// What they give for one; times beyond five centuries are cut.
pub fn nanos(time: Duration) -> Nanos {
    u64::try_from(time.as_nanos()).unwrap_or(Nanos::MAX)
}
