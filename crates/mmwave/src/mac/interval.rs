//! Division of a beacon interval: BTI, A-BFT, ATI, and the rest for data.

use crate::error::{MmwaveError, within};
use crate::phy;

/// Fixed parts of a beacon interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// From one BTI to the next, in microseconds; 100 ms in the thesis.
    pub length_us: f64,
    /// Sectors that the access point sweeps.
    pub ap_sectors: usize,
    /// Octets of a DMG Beacon: 64 is our choice, for a short name and no optional elements.
    pub beacon_octets: usize,
    /// Octets of the frames that announce the schedule to one client in the ATI: our choice.
    pub announce_octets: usize,
}

impl Interval {
    /// 100 ms, 36 sectors.
    pub const THESIS: Self = Self {
        length_us: 100_000.0,
        ap_sectors: 36,
        beacon_octets: 64,
        announce_octets: 64,
    };

    /// Durations in a beacon interval with an A-BFT of `abft_us` microseconds, in which `clients`
    /// clients get data time. `signaling_bits` are added to each beacon (JPOC's).
    ///
    /// # Errors
    ///
    /// Impossible frames of the control PHY; parts that exceed the interval.
    pub fn divide(
        &self,
        abft_us: f64,
        clients: usize,
        signaling_bits: u32,
    ) -> Result<Parts, MmwaveError> {
        let octets = self.beacon_octets + signaling_bits.div_ceil(8) as usize;
        let bti_us = self.ap_sectors as f64 * (phy::control_us(octets)? + phy::SBIFS_US);
        let announce = phy::control_us(self.announce_octets)? + phy::SIFS_US;
        // A request and an answer for each client.
        let ati_us = 2.0 * announce * clients as f64;
        let header = bti_us + abft_us + ati_us + 3.0 * phy::MBIFS_US;
        within(
            "BTI, A-BFT and ATI in us",
            header,
            (0.0, self.length_us),
            "shorter than the beacon interval",
        )?;
        Ok(Parts {
            bti_us,
            abft_us,
            ati_us,
            data_us: self.length_us - header,
        })
    }
}

/// Durations in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Parts {
    /// Sweep of the access point.
    pub bti_us: f64,
    /// Contention for beam training.
    pub abft_us: f64,
    /// Announcements.
    pub ati_us: f64,
    /// Data, divided equally among the clients that may send (TDMA).
    pub data_us: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fill_the_interval() {
        let parts = Interval::THESIS.divide(2320.0, 16, 0).unwrap();
        let sum = parts.bti_us + parts.abft_us + parts.ati_us + parts.data_us;
        assert!((100_000.0 - sum - 27.0).abs() < 1e-6);
        // 64 octets: 464 bits in 4 code words; (88 + 464 + 672) * 32 / 1760 + 4.291 = 26.545 us.
        assert!(
            (parts.bti_us - 36.0 * 27.545).abs() < 0.1,
            "{}",
            parts.bti_us
        );
    }

    #[test]
    fn signaling_makes_beacons_longer() {
        let bti = |bits| Interval::THESIS.divide(0.0, 0, bits).unwrap().bti_us;
        // 21 bits are three octets: 24 bits of 32 chips in each of 36 beacons, in the same code
        // words.
        assert!((bti(21) - bti(0) - 36.0 * 24.0 * 32.0 / 1760.0).abs() < 1e-6);
    }

    #[test]
    fn a_header_longer_than_the_interval_is_rejected() {
        assert!(Interval::THESIS.divide(100_000.0, 1, 0).is_err());
    }
}
