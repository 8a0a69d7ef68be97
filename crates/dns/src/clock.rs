//! The clock of the cache.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Time since the machine has booted, including the time in which it was suspended: an answer
/// expires on a laptop that sleeps, too.
pub(crate) fn since_boot() -> Duration {
    // The clock exists since Linux 2.6.39, so the call cannot fail.
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from)
}
