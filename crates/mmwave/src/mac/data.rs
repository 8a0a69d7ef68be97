//! Share of a client's data time that carries IP packets; the rest is preambles, MAC headers,
//! acknowledgments and the time between frames.
//!
//! In its part of the data interval (TDMA) a client has exclusive use of the channel. It sends
//! aggregates of MPDUs, each answered by a block acknowledgment, without retransmissions.

use crate::phy::{self, Mcs, SIFS_US};

/// Octets of a full-size IP packet.
pub const PACKET_OCTETS: usize = 1500;
/// Overhead of an MPDU: delimiter 4, MAC header with QoS control 26, LLC and SNAP 8, GCMP 24, FCS
/// 4, and 2 of padding to a multiple of 4 (802.11-2016, 9.2, 9.7.1, 12.5.5).
pub const MPDU_OVERHEAD_OCTETS: usize = 68;
/// Maximum number of MPDUs of an aggregate: the bitmap of a compressed block acknowledgment has 64
/// bits (802.11-2016, 9.3.1.9.3).
pub const MAX_MPDUS: usize = 64;
/// Longest frame of the single-carrier PHY in microseconds (aPPDUMaxTime of the DMG PHY).
pub const LONGEST_FRAME_US: f64 = 2000.0;
/// Octets of a compressed block acknowledgment.
const ACK_OCTETS: usize = 32;

/// Mbit/s of IP packets of 1500 octets in a client's own data time, with a modulation and coding
/// scheme.
pub fn packet_mbps(mcs: &Mcs) -> f64 {
    // MCS 1 has room for 61 MPDUs.
    let mpdus = largest(mcs, f64::MAX).max(1);
    (mpdus * PACKET_OCTETS * 8) as f64 / exchange_us(mcs, mpdus)
}

/// Number of packets of 1500 octets that fit a service period of this many microseconds:
/// maximum-size aggregates, and a last one whose acknowledgment ends within the period.
pub fn packets_within(mcs: &Mcs, period_us: f64) -> usize {
    let whole = largest(mcs, f64::MAX).max(1);
    let each_us = exchange_us(mcs, whole);
    let count = (period_us / each_us).max(0.0).floor();
    count as usize * whole + largest(mcs, period_us - count * each_us)
}

/// MPDUs of the largest aggregate that fits a frame and is acknowledged within this many
/// microseconds; 0 if none is.
fn largest(mcs: &Mcs, within_us: f64) -> usize {
    let fits = |mpdus: &usize| {
        aggregate_us(mcs, *mpdus) <= LONGEST_FRAME_US && exchange_us(mcs, *mpdus) <= within_us
    };
    (1..=MAX_MPDUS).rev().find(fits).unwrap_or(0)
}

fn aggregate_us(mcs: &Mcs, mpdus: usize) -> f64 {
    mcs.duration_us(mpdus * (PACKET_OCTETS + MPDU_OVERHEAD_OCTETS))
}

/// An aggregate and its acknowledgment, with the gaps between frames.
fn exchange_us(mcs: &Mcs, mpdus: usize) -> f64 {
    let answer = phy::SINGLE_CARRIER[0].duration_us(ACK_OCTETS);
    aggregate_us(mcs, mpdus) + SIFS_US + answer + SIFS_US
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_least_nine_tenths_of_the_rate_reach_ip() {
        let share = |index: usize| {
            let mcs = &phy::SINGLE_CARRIER[index - 1];
            packet_mbps(mcs) / mcs.rate_mbps()
        };
        // By hand, MCS 12: 64 * 1568 * 8 bits in 1344 chips each of a block of 512 are 598 blocks,
        // 173.964 us, and 64 chips; 2.473 us of preamble and header before them; two SIFS, and an
        // acknowledgment of 3 blocks, 3.382 us.
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
        assert!(slowest.duration_us(MAX_MPDUS * octets) > LONGEST_FRAME_US);
        // 61 MPDUs fit 2 ms at 385 Mbit/s.
        assert!(slowest.duration_us(61 * octets) <= LONGEST_FRAME_US);
    }

    #[test]
    fn a_service_period_has_whole_exchanges() {
        for mcs in &phy::SINGLE_CARRIER {
            let one = exchange_us(mcs, 1);
            assert_eq!(packets_within(mcs, one - 0.01), 0);
            assert_eq!(packets_within(mcs, -1.0), 0);
            assert_eq!(packets_within(mcs, one + 0.01), 1);
            let mut before = 0;
            for period_us in [100.0, 300.0, 1000.0, 9500.0, 95_000.0] {
                let packets = packets_within(mcs, period_us);
                let most = packet_mbps(mcs) * period_us / (PACKET_OCTETS * 8) as f64;
                assert!(packets >= before && packets as f64 <= most + 1e-9);
                // The loss is less than a packet and the overhead of an exchange.
                assert!(packets as f64 > 0.9 * most - 2.0, "{mcs:?} {period_us}");
                before = packets;
            }
        }
    }
}
