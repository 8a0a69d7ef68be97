//! Reception of overlapping frames at the access point.

use crate::error::{MmwaveError, within};
use crate::units::linear;

/// Conditions for decoding at the access point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hearing {
    /// Minimum SNR of a sector sweep frame in dB: 1 in the thesis (in the firmware's units); about
    /// -11 for the control PHY.
    pub min_snr_db: f64,
    /// A frame is captured if it is stronger than all others together by this many dB (thesis,
    /// footnote 1: 3).
    pub capture_db: f64,
    /// Whether frames below the minimum SNR do not interfere, as section 3.2.2 assumes (its
    /// footnote 6); otherwise they interfere with their power.
    pub weak_is_silent: bool,
}

impl Hearing {
    /// The thesis' thresholds; weak frames interfere.
    pub const THESIS: Self = Self {
        min_snr_db: 1.0,
        capture_db: 3.0,
        weak_is_silent: false,
    };

    /// Checks the values.
    ///
    /// # Errors
    ///
    /// A minimum SNR outside of -30 to 60 dB, or a capture outside of 0 to 60 dB.
    pub fn new(
        min_snr_db: f64,
        capture_db: f64,
        weak_is_silent: bool,
    ) -> Result<Self, MmwaveError> {
        Ok(Self {
            min_snr_db: within(
                "least SNR in dB",
                min_snr_db,
                (-30.0, 60.0),
                "from -30 to 60",
            )?,
            capture_db: within("capture in dB", capture_db, (0.0, 60.0), "from 0 to 60")?,
            weak_is_silent,
        })
    }

    /// Index of the frame that is decoded among overlapping ones, given their SNRs in dB; at most
    /// one is.
    pub fn heard(&self, snr_db: &[f64]) -> Option<usize> {
        let (strongest, best) = crate::budget::best(snr_db);
        if best < self.min_snr_db {
            return None;
        }
        let counts = |snr: f64| !self.weak_is_silent || snr >= self.min_snr_db;
        let others = snr_db
            .iter()
            .enumerate()
            .filter(|(index, snr)| *index != strongest && counts(**snr));
        let rest: f64 = others.map(|(_, snr)| linear(*snr)).sum();
        (linear(best) >= rest * linear(self.capture_db)).then_some(strongest)
    }

    /// Whether the energy of overlapping frames is below the detection threshold: an empty
    /// mini-slot of eq. 3.8.
    pub fn empty(&self, snr_db: &[f64]) -> bool {
        if self.weak_is_silent {
            return snr_db.iter().all(|snr| *snr < self.min_snr_db);
        }
        let energy: f64 = snr_db.iter().map(|snr| linear(*snr)).sum();
        energy < linear(self.min_snr_db)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stronger_by_three_decibels_is_heard() {
        let hearing = Hearing::THESIS;
        assert_eq!(hearing.heard(&[10.0, 13.1]), Some(1));
        assert_eq!(hearing.heard(&[10.0, 12.9]), None);
        assert_eq!(hearing.heard(&[0.9]), None);
        assert_eq!(hearing.heard(&[1.0]), Some(0));
        assert_eq!(hearing.heard(&[]), None);
        // Two frames of 10 dB have 13 dB together.
        assert_eq!(hearing.heard(&[10.0, 10.0, 15.9]), None);
        assert_eq!(hearing.heard(&[10.0, 10.0, 16.1]), Some(2));
    }

    #[test]
    fn weak_frames_interfere_unless_configured_otherwise() {
        let silent = Hearing::new(1.0, 3.0, true).unwrap();
        assert_eq!(Hearing::THESIS.heard(&[3.0, 0.9]), None);
        assert_eq!(silent.heard(&[3.0, 0.9]), Some(0));
        // Three frames of 0 dB have 4.8 dB of energy, though none reaches 1 dB.
        assert!(!Hearing::THESIS.empty(&[0.0; 3]) && silent.empty(&[0.0; 3]));
        assert!(Hearing::THESIS.empty(&[]) && Hearing::THESIS.empty(&[0.5]));
    }

    #[test]
    fn invalid_thresholds_are_rejected() {
        assert!(Hearing::new(f64::NAN, 3.0, false).is_err());
        assert!(Hearing::new(1.0, -1.0, false).is_err());
    }
}
