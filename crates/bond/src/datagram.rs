//! Decisions about datagram carriers: QUIC connections (RFC 9000) that carry datagrams (RFC 9221),
//! and the TCP carriers that stand in for them.
//!
//! | question | answer |
//! | --- | --- |
//! | How much may be in flight? | [`BoundedCubic`] |
//! | How much may wait in the QUIC connection? | [`Room`] |
//! | Which TCP carriers take datagrams in frames? | [`stand_ins`] |
//! | How does QUIC acknowledge, probe and end? | [`quic`] |
//! | How much does a session's task move at once? | [`turns`] |

mod bounded_cubic;
pub mod quic;
mod room;
pub mod turns;

use sumlink_engine::PathId;

pub use bounded_cubic::{Acked, BoundedCubic, SMALLEST_PACKET};
pub use room::Room;

/// One TCP carrier of each link, which takes datagrams in frames; the first one in the order of
/// `carriers`, which yields each carrier's path with its link, if that is known.
///
/// A carrier without a link stands in for itself only. While the link's QUIC carrier delivers, the
/// engine uses that one.
pub fn stand_ins(
    carriers: impl IntoIterator<Item = (PathId, Option<u64>)>,
) -> Vec<(PathId, Option<u64>)> {
    let mut wanted: Vec<(PathId, Option<u64>)> = Vec::new();
    for (path, link) in carriers {
        let has_stand_in = wanted.iter().any(|(_, other)| *other == link);
        if link.is_none() || !has_stand_in {
            wanted.push((path, link));
        }
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_carrier_of_each_link_stands_in() {
        let carriers = [
            (3, Some(1)),
            (4, None),
            (5, Some(1)),
            (6, Some(2)),
            (7, None),
        ];
        let carriers = carriers.map(|(path, link)| (PathId(path), link));
        let paths: Vec<u32> = stand_ins(carriers).iter().map(|(path, _)| path.0).collect();
        assert_eq!(paths, [3, 4, 6, 7]);
    }
}
