//! Times in packets: microseconds modulo 2^30, which is 18 minutes.

use std::time::Duration;

use super::wire::TIME_MODULUS;
use crate::Instant;

/// The time as it is written into packets.
pub(crate) fn stamp(now: Instant) -> u64 {
    // Sums of the modulus have no effect on the remainder.
    now.as_micros() as u64 % TIME_MODULUS
}

/// The shortest signed way from `from` to `to`, in microseconds.
pub(crate) fn between(from: u64, to: u64) -> i64 {
    let ahead = to.wrapping_sub(from) % TIME_MODULUS;
    match ahead < TIME_MODULUS / 2 {
        true => ahead as i64,
        false => ahead as i64 - TIME_MODULUS as i64,
    }
}

/// A duration in microseconds.
pub(crate) fn micros(duration: Duration) -> i64 {
    duration.as_micros() as i64
}

/// A duration of microseconds, or zero if negative.
pub(crate) fn duration(micros: i64) -> Duration {
    Duration::from_micros(micros.max(0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_right_across_the_end_of_the_range() {
        for (from, to, way) in [
            (5, 9, 4),
            (9, 5, -4),
            (TIME_MODULUS - 2, 3, 5),
            (3, TIME_MODULUS - 2, -5),
        ] {
            assert_eq!(between(from, to), way);
        }
        let late = Instant::from_secs(100_000);
        let later = late + Duration::from_micros(7);
        assert_eq!(between(stamp(late), stamp(later)), 7);
    }
}
