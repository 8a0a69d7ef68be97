//! The number of frame bytes that a carrier is given at once.

use std::time::Duration;

/// Bytes of frames in a full TLS 1.3 record.
pub const RECORD: u64 = 16 * 1024;

/// Overhead of a record in bytes: header, type and tag (RFC 8446, section 5.2).
pub const RECORD_OVERHEAD: u64 = 22;

/// Maximum bytes handed over at once.
pub(crate) const MAX_AT_ONCE: u64 = 64 * 1024;

/// Minimum frame bytes handed over at once: less would hold hardly any data.
const MIN_AT_ONCE: u64 = 512;

/// Time in which a link delivers a record at most, unless the record is a single segment: a reader
/// gets nothing of a record before all of it has arrived.
const RECORD_TIME: Duration = Duration::from_millis(5);

/// Bytes on the wire of the records for a path with that rate, in bytes per second; `None` for full
/// records.
///
/// Frames that are handed over together and fill less than a record become one record.
pub(crate) fn short_record(rate: f64, segment: u64) -> Option<u64> {
    let bytes = (rate * RECORD_TIME.as_secs_f64()) as u64;
    // Whole segments: a part of one would wait for the next record.
    let whole = bytes / segment.max(1) * segment;
    (bytes < RECORD).then_some(whole.max(segment).max(MIN_AT_ONCE + RECORD_OVERHEAD))
}

/// The budget of a carrier with a low-water mark of `lowat` bytes that is no longer young: a part
/// of the socket's capacity, so that little data is committed early.
pub(crate) fn part_of(lowat: u32) -> u64 {
    u64::from(lowat / 2).clamp(8 * 1024, MAX_AT_ONCE)
}

/// Frame bytes that exactly fill the `room` of a window plus one segment, after the `waits` bytes
/// already in the socket.
///
/// A remainder would leave as a separate packet when the window opens. A window has room for a
/// number of packets, whatever their size, so a young one would carry a third less.
pub(crate) fn whole_segments(room: u64, waits: u64, segment: u64) -> u64 {
    let segment = segment.max(1);
    let end = (waits + room) / segment * segment + segment;
    let wire = match end - waits {
        crumb if crumb < MIN_AT_ONCE + RECORD_OVERHEAD => crumb + segment,
        wire => wire.min(MAX_AT_ONCE),
    };
    let records = wire.div_ceil(RECORD + RECORD_OVERHEAD);
    wire.saturating_sub(records * RECORD_OVERHEAD)
        .max(MIN_AT_ONCE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_record_lasts_5_ms_or_one_segment() {
        let per_ms = |mbit: f64| mbit * 125.0;
        for (mbit, expected) in [
            (0.0, Some(1448)),
            (0.1, Some(1448)),
            (4.0, Some(1448)),
            (10.0, Some(4 * 1448)),
            (20.0, Some(8 * 1448)),
            (30.0, None),
            (f64::INFINITY, None),
        ] {
            assert_eq!(short_record(1e3 * per_ms(mbit), 1448), expected, "{mbit}");
        }
        assert!(short_record(0.0, 0) >= Some(MIN_AT_ONCE));
    }

    fn wire(frames: u64) -> u64 {
        frames + frames.div_ceil(RECORD) * RECORD_OVERHEAD
    }

    #[test]
    fn the_budget_of_a_young_carrier_ends_with_a_whole_segment() {
        for room in [0, 1, 1448, 14_480, 40_000] {
            for waits in [0, 1, 28, 1447, 1448, 5000] {
                let given = wire(whole_segments(room, waits, 1448));
                let beyond = waits + given - (waits + room);
                assert_eq!((waits + given) % 1448, 0, "{room} {waits}");
                assert!((1..=2 * 1448).contains(&beyond), "{room} {waits}: {given}");
            }
        }
        assert_eq!(whole_segments(0, 0, 100), MIN_AT_ONCE);
        assert!(whole_segments(1 << 30, 0, 1448) <= MAX_AT_ONCE);
    }

    proptest! {
        #[test]
        fn a_budget_is_within_its_bounds(
            room in 0u64..1 << 40,
            waits in 0u64..1 << 40,
            segment in 0u64..70_000,
            lowat: u32,
        ) {
            let given = whole_segments(room, waits, segment);
            prop_assert!((MIN_AT_ONCE..=MAX_AT_ONCE + segment).contains(&given));
            prop_assert!((8 * 1024..=MAX_AT_ONCE).contains(&part_of(lowat)));
        }
    }
}
