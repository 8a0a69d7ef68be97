//! Virtual time.

use std::time::Duration;

/// A time in nanoseconds: since the start of the simulation, or between two events.
///
/// Integers only, so that a run has the same times on every build and every machine.
pub type Nanos = u64;

/// One microsecond.
pub const MICROSECOND: Nanos = 1_000;
/// One millisecond.
pub const MILLISECOND: Nanos = 1_000_000;
/// One second.
pub const SECOND: Nanos = 1_000_000_000;

/// Returns `what * times / by` without overflow; 128-bit division is used only for large products.
pub(crate) fn scaled(what: u64, times: u64, by: u64) -> u64 {
    match what.checked_mul(times) {
        Some(product) => product / by,
        None => (u128::from(what) * u128::from(times) / u128::from(by)) as u64,
    }
}

/// Converts a time to the type that the engine and the links use.
pub fn duration(time: Nanos) -> Duration {
    Duration::from_nanos(time)
}

/// Converts a [`Duration`] to nanoseconds; saturates beyond five centuries.
pub fn nanos(time: Duration) -> Nanos {
    u64::try_from(time.as_nanos()).unwrap_or(Nanos::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_products_are_scaled_exactly() {
        assert_eq!(scaled(10, SECOND, 3), 3_333_333_333);
        assert_eq!(scaled(1 << 40, 1 << 40, 1 << 50), 1 << 30);
        assert_eq!(scaled(u64::MAX, 7, 14), u64::MAX / 2);
    }
}
