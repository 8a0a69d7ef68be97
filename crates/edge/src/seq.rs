//! TCP sequence numbers as positions that do not wrap around.

/// A byte's place in one direction of a flow: its 32-bit sequence number, unwrapped. Positions
/// start above 2^32, so that bytes before the first one seen have positions, too.
pub type Position = u64;

/// The position of the first sequence number seen.
pub fn first(sequence: u32) -> Position {
    (1 << 32) + u64::from(sequence)
}

/// The position nearest to `reference` with this sequence number. RFC 9293, section 3.4 compares
/// modulo 2^32, and no valid number is more than 2^31 away.
pub fn near(reference: Position, sequence: u32) -> Position {
    let distance = sequence.wrapping_sub(wrapped(reference)).cast_signed();
    reference.saturating_add_signed(i64::from(distance))
}

/// The 32-bit sequence number of a position.
pub fn wrapped(position: Position) -> u32 {
    position as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_continue_across_the_wrap_around() {
        let before = first(u32::MAX - 9);
        let after = near(before, 5);
        assert_eq!(after - before, 15);
        assert_eq!(near(after, u32::MAX - 9), before);
        assert_eq!(wrapped(after), 5);
    }

    #[test]
    fn numbers_before_the_first_one_have_positions() {
        let start = first(0);
        assert_eq!(start - near(start, u32::MAX), 1);
    }

    proptest::proptest! {
        #[test]
        fn nearby_positions_survive_a_round_trip(
            reference in (1u64 << 32)..(1 << 40),
            ahead in -0x7fff_ffffi64..0x7fff_ffff,
        ) {
            let position = reference.checked_add_signed(ahead).unwrap();
            proptest::prop_assert_eq!(near(reference, wrapped(position)), position);
        }
    }
}
