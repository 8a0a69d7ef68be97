//! Open-loop power control: every client is heard with the same power by its best sector (equations
//! 3.1 to 3.5).

use crate::error::{MmwaveError, within};

/// Beam gain is lower at the edges; the thesis subtracts this from each array gain (footnote 3), in
/// dB.
///
/// In eq. 3.5 the two gains have opposite signs. If the correction is subtracted from both, as in
/// the footnote, it cancels, and the best sector does not reach "gamma or a slightly higher SNR".
/// Subtracted only from the client's gain, it does; see [`Announcement::client_dbm`].
pub const EDGE_DB: f64 = 3.0;

/// The access point's announcement in its beacons.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Announcement {
    /// Target power of every client's best sector at the access point in dBm (eq. 3.2).
    pub wanted_dbm: f64,
    /// G_T(j) + P - G_R of eq. 3.5: its power in dBm plus the gain of its best sector over its
    /// quasi-omni pattern, in dB.
    pub sent_db: f64,
}

impl Announcement {
    /// For an access point with a target SNR of gamma dB, noise in dBm, power in dBm, and array
    /// gain in dB.
    ///
    /// # Errors
    ///
    /// A gamma outside of -20 to 60 dB, or impossible noise or power.
    pub fn new(
        gamma_db: f64,
        noise_dbm: f64,
        power_dbm: f64,
        array_db: f64,
    ) -> Result<Self, MmwaveError> {
        let gamma = within("gamma in dB", gamma_db, (-20.0, 60.0), "from -20 to 60")?;
        let noise = within("noise in dBm", noise_dbm, (-200.0, 0.0), "from -200 to 0")?;
        let power = within("power in dBm", power_dbm, (-100.0, 60.0), "from -100 to 60")?;
        let array = within("array gain in dB", array_db, (0.0, 60.0), "from 0 to 60")?;
        Ok(Self {
            // Equations 3.1 and 3.2.
            wanted_dbm: gamma + noise,
            sent_db: array - EDGE_DB + power,
        })
    }

    /// Power of a client's sweep in dBm (eq. 3.5), at most its own limit. `heard_dbm` is the
    /// strongest beacon, `array_db` the gain of the client's best sector over its quasi-omni
    /// pattern.
    ///
    /// `margin_db` is added: 0 is the equation with its footnote; [`EDGE_DB`] subtracts the
    /// footnote's correction only from the client's gain. A client that heard no beacon (negative
    /// infinity) sends at its limit.
    pub fn client_dbm(&self, heard_dbm: f64, array_db: f64, margin_db: f64, limit_dbm: f64) -> f64 {
        let power = self.wanted_dbm - heard_dbm - (array_db - EDGE_DB) + self.sent_db + margin_db;
        if power.is_nan() {
            limit_dbm
        } else {
            power.min(limit_dbm)
        }
    }
}

/// Bits of signaling that JPOC adds to a beacon (section 3.2.3): the target power and the access
/// point's side in steps of 1 dB, 8 and 6 bits as in the thesis, and the number of mini-slots. The
/// thesis' 6 bits for up to 128 mini-slots are an error: 7 are needed, and more for larger numbers.
pub fn signaling_bits(max_mini_slots: u32) -> u32 {
    8 + 6 + (u32::BITS - max_mini_slots.saturating_sub(1).leading_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equation_3_5_by_hand() {
        // gamma 4 over -74: target -70. AP 20 dBm + 15.05 - 3 = 32.05. Heard -40, client 15.05 - 3:
        // -70 + 40 - 12.05 + 32.05.
        let announced = Announcement::new(4.0, -74.0, 20.0, 15.05).unwrap();
        assert_eq!(announced.wanted_dbm, -70.0);
        assert!((announced.client_dbm(-40.0, 15.05, 0.0, 20.0) - -10.0).abs() < 1e-9);
        assert_eq!(announced.client_dbm(-90.0, 15.05, 0.0, 20.0), 20.0);
        assert_eq!(
            announced.client_dbm(f64::NEG_INFINITY, 15.05, 0.0, 20.0),
            20.0
        );
    }

    #[test]
    fn invalid_numbers_are_rejected() {
        assert!(Announcement::new(f64::NAN, -74.0, 20.0, 15.0).is_err());
        assert!(Announcement::new(4.0, 10.0, 20.0, 15.0).is_err());
        assert!(Announcement::new(4.0, -74.0, 20.0, -1.0).is_err());
    }

    #[test]
    fn one_hundred_and_twenty_eight_numbers_need_seven_bits() {
        assert_eq!(signaling_bits(128), 8 + 6 + 7);
        assert_eq!(signaling_bits(129), 8 + 6 + 8);
        assert_eq!(signaling_bits(64), 8 + 6 + 6);
    }

    proptest! {
        /// With the same loss in both directions and beams at their full gains, the best sector
        /// arrives with the target power: the corrections of both sides cancel.
        #[test]
        fn reciprocity_yields_the_target_power(
            gamma in 0.0..20.0f64,
            loss in 60.0..130.0f64,
            ap_power in 0.0..30.0f64,
            ap_array in 3.0..20.0f64,
            array in 3.0..20.0f64,
            ap_element in 0.0..8.0f64,
            element in 0.0..8.0f64,
        ) {
            let announced = Announcement::new(gamma, -74.0, ap_power, ap_array).unwrap();
            let heard = ap_power + ap_element + ap_array + element - loss;
            let power = announced.client_dbm(heard, array, 0.0, f64::INFINITY);
            let arrives = power + element + array + ap_element - loss;
            prop_assert!((arrives - (gamma - 74.0)).abs() < 1e-9);
        }
    }
}
