//! What of a client's data time carries IP packets: the rest is preambles, MAC headers, acknowledgements and the time
//! between frames.
//!
//! In its part of the data interval (TDMA) a client has the channel for itself: aggregates of MPDUs, each answered by a block
//! acknowledgement, one after the other, and nothing is sent twice.

use crate::phy::{self, Mcs, SIFS_US};

/// Octets of an IP packet of full size.
pub const PACKET_OCTETS: usize = 1500;
/// What an MPDU has beside its packet: delimiter 4, MAC header with QoS control 26, LLC and SNAP 8, GCMP 24, FCS 4, and 2
/// that fill it up to a multiple of 4 (802.11-2016, 9.2, 9.7.1, 12.5.5).
pub const MPDU_OVERHEAD_OCTETS: usize = 68;
/// Most MPDUs of an aggregate: the bitmap of a compressed block acknowledgement has 64 bits (802.11-2016, 9.3.1.9.3).
pub const MOST_MPDUS: usize = 64;
/// Longest frame of the single-carrier PHY in microseconds (aPPDUMaxTime of the DMG PHY).
pub const LONGEST_FRAME_US: f64 = 2000.0;
/// Octets of a compressed block acknowledgement.
const ACK_OCTETS: usize = 32;

/// Mbit/s of IP packets of 1500 octets in a client's own data time, with a modulation and coding scheme.
pub fn packet_mbps(mcs: &Mcs) -> f64 {
    let octets = PACKET_OCTETS + MPDU_OVERHEAD_OCTETS;
    let duration = |mpdus: usize| mcs.duration_us(mpdus * octets);
    let fits = |mpdus: &usize| duration(*mpdus) <= LONGEST_FRAME_US;
    // MCS 1 has room for five dozen.
    let mpdus = (1..=MOST_MPDUS).rev().find(fits).unwrap_or(1);
    let answer = phy::SINGLE_CARRIER[0].duration_us(ACK_OCTETS);
    let exchange_us = duration(mpdus) + SIFS_US + answer + SIFS_US;
    (mpdus * PACKET_OCTETS * 8) as f64 / exchange_us
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_tenths_of_the_rate_and_more_reach_ip() {
        let share = |index: usize| {
            let mcs = &phy::SINGLE_CARRIER[index - 1];
            packet_mbps(mcs) / mcs.rate_mbps()
        };
        // By hand, MCS 12: 64 * 1568 * 8 bits in 1344 chips each of a block of 512 are 598 blocks, 173.964 us, and 64 chips;
        // 2.473 us of preamble and header before them; two SIFS, and an acknowledgement of 3 blocks, 3.382 us.
        let by_hand = 64.0 * 12_000.0
            / ((598.0 * 512.0 + 64.0 + 4352.0) / 1760.0
                + 6.0
                + (3.0 * 512.0 + 64.0 + 4352.0) / 1760.0);
        assert!((packet_mbps(&phy::SINGLE_CARRIER[11]) - by_hand).abs() < 1e-9);
        assert!((0.89..0.90).contains(&share(12)), "{}", share(12));
        assert!((0.94..0.96).contains(&share(1)), "{}", share(1));
        let all = phy::SINGLE_CARRIER.iter().map(packet_mbps);
        assert!(all.collect::<Vec<_>>().is_sorted());
    }

    #[test]
    fn no_frame_is_longer_than_allowed() {
        let slowest = &phy::SINGLE_CARRIER[0];
        let octets = PACKET_OCTETS + MPDU_OVERHEAD_OCTETS;
        assert!(slowest.duration_us(MOST_MPDUS * octets) > LONGEST_FRAME_US);
        // 385 Mbit/s for 2 ms are 61 of them.
        assert!(slowest.duration_us(61 * octets) <= LONGEST_FRAME_US);
    }
}
