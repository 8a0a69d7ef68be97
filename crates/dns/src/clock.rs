//! The clock of the cache.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Time since the machine booted, including suspended time: answers expire on a sleeping laptop,
/// too.
pub(crate) fn since_boot() -> Duration {
    // The clock exists since Linux 2.6.39, so the call cannot fail.
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from)
}
