//! The physical layer of 802.11ad: durations of frames, and the rate for an SNR.

use crate::error::{MmwaveError, within};

/// Chips per microsecond.
const CHIPS_PER_US: f64 = 1760.0;
/// Preamble of the control PHY in microseconds: 7552 chips (short training and channel estimation).
const CONTROL_PREAMBLE_US: f64 = 7552.0 / CHIPS_PER_US;
/// Chips per bit of the control PHY.
const CONTROL_SPREADING: f64 = 32.0;
/// Data bits of a code word of the control PHY, and its parity bits.
const CONTROL_WORD: (usize, usize) = (168, 168);

/// Octets of a sector sweep frame (SSW).
pub const SSW_OCTETS: usize = 26;
/// Octets of the feedback (SSW-FBCK) and of its acknowledgment.
pub const FEEDBACK_OCTETS: usize = 28;

/// SSW frame of an 802.11ay (EDMG) station in microseconds.
pub const EDMG_SSW_US: f64 = 19.273;
/// Short SSW frame of 802.11ay in microseconds.
pub const SHORT_SSW_US: f64 = 13.411;
/// Feedback of 802.11ay in microseconds.
pub const EDMG_FEEDBACK_US: f64 = 24.945;

/// Between two frames of a sweep with the same antenna (SBIFS), in microseconds.
pub const SBIFS_US: f64 = 1.0;
/// Between a frame and its answer (SIFS), in microseconds.
pub const SIFS_US: f64 = 3.0;
/// Before and after feedback (MBIFS = 3 SIFS), in microseconds.
pub const MBIFS_US: f64 = 9.0;
/// Maximum propagation time (aAirPropagationTime), in microseconds.
pub const AIR_US: f64 = 0.1;

/// Duration of a frame of the control PHY (MCS 0) in microseconds (802.11-2016, 20.12.3).
///
/// # Errors
///
/// Fewer than 14 or more than 1023 octets.
pub fn control_us(octets: usize) -> Result<f64, MmwaveError> {
    let range = "from 14 to 1023";
    within(
        "length of a control frame in octets",
        octets as f64,
        (14.0, 1023.0),
        range,
    )?;
    // 5 octets of header and 6 of the payload share the first code word.
    let bits = (octets - 6) * 8;
    let words = 1 + bits.div_ceil(CONTROL_WORD.0);
    let sent = 11 * 8 + bits + words * CONTROL_WORD.1;
    Ok(CONTROL_PREAMBLE_US + sent as f64 * CONTROL_SPREADING / CHIPS_PER_US)
}

/// Chips of a block of the single-carrier PHY, those of them that carry data, and those after the
/// last block.
const BLOCK: f64 = 512.0;
const BLOCK_DATA: f64 = 448.0;
const GUARD: f64 = 64.0;
/// Chips before the data: short training 2176, channel estimation 1152, header 1024 (802.11ad-2012,
/// clause 21.6).
const DATA_HEAD: f64 = 4352.0;

/// A modulation and coding scheme of the single-carrier PHY.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mcs {
    /// Its number, 1 to 12.
    pub index: u8,
    /// Minimum SNR in dB for a bit error rate of 1e-6.
    pub min_snr_db: f64,
    /// Bits per symbol times code rate, divided by repetitions.
    efficiency: f64,
}

impl Mcs {
    /// Rate in Mbit/s: 448 of 512 symbols carry data.
    pub fn rate_mbps(&self) -> f64 {
        CHIPS_PER_US * BLOCK_DATA / BLOCK * self.efficiency
    }

    /// Duration of a frame of this many octets in microseconds: preamble, header, whole blocks, and
    /// the guard interval after the last one (802.11-2016, 20.12.3). The padding of data to whole
    /// code words is omitted: it is less than a block.
    pub fn duration_us(&self, octets: usize) -> f64 {
        let bits = (octets * 8) as f64;
        let blocks = (bits / (BLOCK_DATA * self.efficiency)).ceil();
        (DATA_HEAD + blocks * BLOCK + GUARD) / CHIPS_PER_US
    }
}

const fn mcs(index: u8, min_snr_db: f64, efficiency: f64) -> Mcs {
    Mcs {
        index,
        min_snr_db,
        efficiency,
    }
}

/// The single-carrier schemes (802.11ad-2012, table 21-18 in 21.6.3.1.2). MCS 6 needs less SNR than
/// MCS 5 and is faster, so 5 is never the best choice.
pub const SINGLE_CARRIER: [Mcs; 12] = [
    mcs(1, -2.0, 1.0 / 4.0),
    mcs(2, 0.4, 1.0 / 2.0),
    mcs(3, 1.8, 5.0 / 8.0),
    mcs(4, 3.2, 3.0 / 4.0),
    mcs(5, 4.0, 13.0 / 16.0),
    mcs(6, 3.4, 1.0),
    mcs(7, 4.8, 5.0 / 4.0),
    mcs(8, 6.0, 3.0 / 2.0),
    mcs(9, 7.2, 13.0 / 8.0),
    mcs(10, 9.2, 2.0),
    mcs(11, 10.8, 5.0 / 2.0),
    mcs(12, 12.6, 3.0),
];

/// The fastest scheme that an SNR in dB allows; `None` below MCS 1.
pub fn best_mcs(snr_db: f64) -> Option<Mcs> {
    let fits = SINGLE_CARRIER
        .into_iter()
        .filter(|mcs| mcs.min_snr_db <= snr_db);
    fits.max_by(|a, b| a.efficiency.total_cmp(&b.efficiency))
}

/// Rate in Mbit/s that an SNR in dB allows; 0 below MCS 1.
pub fn rate_mbps(snr_db: f64) -> f64 {
    best_mcs(snr_db).map_or(0.0, |mcs| mcs.rate_mbps())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_frames_last_as_long_as_in_the_standard() {
        assert!((control_us(SSW_OCTETS).unwrap() - 14.909).abs() < 0.001);
        assert!((control_us(FEEDBACK_OCTETS).unwrap() - 18.255).abs() < 0.001);
        assert!(control_us(13).is_err() && control_us(1024).is_err());
    }

    #[test]
    fn rates_match_the_standard() {
        let rates = [
            385.0, 770.0, 962.5, 1155.0, 1251.25, 1540.0, 1925.0, 2310.0, 2502.5, 3080.0, 3850.0,
            4620.0,
        ];
        for (mcs, rate) in SINGLE_CARRIER.iter().zip(rates) {
            assert!((mcs.rate_mbps() - rate).abs() < 1e-9, "{}", mcs.index);
        }
    }

    #[test]
    fn more_snr_is_never_slower() {
        assert_eq!(rate_mbps(-2.1), 0.0);
        assert_eq!(best_mcs(4.2).map(|mcs| mcs.index), Some(6));
        assert_eq!(best_mcs(100.0).map(|mcs| mcs.index), Some(12));
        let rates: Vec<f64> = (-50..200)
            .map(|tenth| rate_mbps(f64::from(tenth) / 10.0))
            .collect();
        assert!(rates.is_sorted());
    }
}
