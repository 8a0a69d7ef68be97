//! Splits a datagram that fits no packet into two parts.
//!
//! The first part fills the present packet, and the second one begins the next packet of the path,
//! before the first part of the following datagram. All packets of a transfer with such datagrams
//! are full. Halves of equal length would take two packets each, and their headers twice.

/// Least bytes of a part for which it is worth filling a packet.
const MIN_PART: usize = 64;

/// The space for the parts of a datagram, in bytes of its payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Space {
    /// In the present packet.
    pub(super) here: usize,
    /// The present packet has nothing else.
    pub(super) is_empty: bool,
    /// In an empty packet of any usable path: a part may be sent again over another one.
    pub(super) anywhere: usize,
}

/// The length of the first part of a datagram of `len` bytes, which does not fit the present
/// packet; none if it has to wait for the next packet, or if that would not help either.
pub(super) fn split(len: usize, space: &Space) -> Option<usize> {
    if !space.is_empty && len <= space.anywhere {
        // In one packet, it is lost only if that packet is.
        return None;
    }
    let first = space.here.min(space.anywhere).min(len.saturating_sub(1));
    if first >= MIN_PART && len - first <= space.anywhere {
        return Some(first);
    }
    // Parts that fit this path, but not all others.
    let middle = len.div_ceil(2);
    (space.is_empty && (1..=space.here).contains(&middle)).then_some(middle)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn space(here: usize, is_empty: bool) -> Space {
        Space {
            here,
            is_empty,
            anywhere: 1400,
        }
    }

    #[test]
    fn the_first_part_fills_the_packet() {
        assert_eq!(split(1452, &space(1410, true)), Some(1400));
        assert_eq!(split(1452, &space(1340, false)), Some(1340));
        assert_eq!(split(1452, &space(100, false)), Some(100));
    }

    #[test]
    fn what_fits_one_packet_waits_for_it() {
        assert_eq!(split(1400, &space(1340, false)), None);
        assert_eq!(split(1452, &space(63, false)), None, "hardly any room");
        assert_eq!(
            split(2800, &space(1300, false)),
            None,
            "too much would be left"
        );
        assert_eq!(split(2800, &space(1405, true)), Some(1400));
    }

    #[test]
    fn a_path_with_larger_packets_than_the_others_takes_halves() {
        assert_eq!(split(5000, &space(2500, true)), Some(2500));
        assert_eq!(split(5001, &space(2500, true)), None);
    }

    proptest! {
        #[test]
        fn both_parts_fit(len in 1..70_000usize, here in 0..9000usize, is_empty: bool,
                          anywhere in 0..9000usize) {
            let space = Space { here, is_empty, anywhere };
            if let Some(first) = split(len, &space) {
                prop_assert!(first <= here && (1..=len).contains(&first));
                prop_assert!(len - first <= anywhere.max(here));
            }
        }
    }
}
