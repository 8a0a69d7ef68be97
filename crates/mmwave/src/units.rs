//! Decibels, noise, and constants of the 60 GHz band.

use crate::error::{MmwaveError, positive, within};

/// Speed of light in meters per second.
pub const SPEED_OF_LIGHT: f64 = 299_792_458.0;

/// Center frequency of the thesis' channel in GHz (section 3.3.2).
pub const CENTRE_GHZ: f64 = 60.0;

/// Thermal noise density at 290 K in dBm per hertz.
const THERMAL_DBM_PER_HZ: f64 = -174.0;

/// A ratio of powers from decibels.
pub fn linear(db: f64) -> f64 {
    10f64.powf(db / 10.0)
}

/// Decibels of a ratio of powers; a ratio of 0 is negative infinity.
pub fn decibels(ratio: f64) -> f64 {
    10.0 * ratio.log10()
}

/// Wavelength in meters of a frequency in GHz.
pub fn wavelength(ghz: f64) -> f64 {
    SPEED_OF_LIGHT / (ghz * 1e9)
}

/// Noise power of a receiver in dBm: -174 + 10 log10(bandwidth in hertz) + noise figure in dB.
///
/// The thesis' cell (2 GHz, 7 dB) has -74.0 dBm. Its -90 dBm of section 3.2.3 matches no bandwidth
/// of 802.11ad.
///
/// # Errors
///
/// A bandwidth that is not above 0, a noise figure outside of 0 to 60 dB.
pub fn noise_dbm(bandwidth_hz: f64, noise_figure_db: f64) -> Result<f64, MmwaveError> {
    let bandwidth = positive("bandwidth in hertz", bandwidth_hz)?;
    let figure = within(
        "noise figure in dB",
        noise_figure_db,
        (0.0, 60.0),
        "from 0 to 60",
    )?;
    Ok(THERMAL_DBM_PER_HZ + decibels(bandwidth) + figure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_follows_from_bandwidth_and_noise_figure() {
        assert!((noise_dbm(2e9, 7.0).unwrap() - -73.99).abs() < 0.01);
        assert!((noise_dbm(1.76e9, 10.0).unwrap() - -71.54).abs() < 0.01);
        assert!(noise_dbm(0.0, 7.0).is_err() && noise_dbm(2e9, -1.0).is_err());
        assert!(noise_dbm(f64::NAN, 7.0).is_err());
    }

    #[test]
    fn decibels_and_back() {
        for db in [-100.0, -3.0, 0.0, 15.05] {
            assert!((decibels(linear(db)) - db).abs() < 1e-9);
        }
        assert_eq!(decibels(0.0), f64::NEG_INFINITY);
        assert!((wavelength(60.0) - 0.004_997).abs() < 1e-6);
    }
}
