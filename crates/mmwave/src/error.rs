//! Errors in the description of radios, channels and contention.

/// An impossible description. Its author is at fault.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MmwaveError {
    /// A number outside its range.
    #[error("{what} is {value}, but must be {range}")]
    OutOfRange {
        /// Name of the parameter.
        what: &'static str,
        /// Its value.
        value: f64,
        /// The allowed range.
        range: &'static str,
    },
    /// At least as many good-beams as mini-slots: no mini-slot would be expected to be empty.
    #[error(
        "{good_beams} good-beams do not fit {mini_slots} mini-slots: use more mini-slots than \
         good-beams"
    )]
    TooFewMiniSlots {
        /// Good-beams of a client (K).
        good_beams: f64,
        /// Mini-slots of an A-BFT (M).
        mini_slots: u32,
    },
    /// A client has too few mini-slots to send each of its sectors in a separate one.
    #[error("{sectors} sectors need as many mini-slots, but only {mini_slots} are available")]
    SectorsExceedMiniSlots {
        /// Sectors of a client (B).
        sectors: usize,
        /// Mini-slots of an A-BFT (M).
        mini_slots: u32,
    },
    /// An invalid line of a pattern file.
    #[error("pattern, line {line}: {reason}")]
    PatternLine {
        /// Line number, counted from 1.
        line: usize,
        /// The error.
        reason: String,
    },
    /// A pattern file without a gain for every beam in every direction of its grid.
    #[error(
        "pattern: beam {beam} has no gain at azimuth {azimuth_deg}, elevation {elevation_deg}: \
         every beam must have one in every direction of the grid"
    )]
    PatternHole {
        /// Number of the beam, counted from 0 in the order of the file.
        beam: usize,
        /// Angle in degrees.
        azimuth_deg: f64,
        /// Angle in degrees.
        elevation_deg: f64,
    },
    /// A pattern file without a grid.
    #[error(
        "pattern: needs at least one beam and a grid of at least two azimuths and one elevation"
    )]
    PatternEmpty,
}

/// Checks that a number is finite and within `least..=most`.
pub(crate) fn within(
    what: &'static str,
    value: f64,
    (least, most): (f64, f64),
    range: &'static str,
) -> Result<f64, MmwaveError> {
    if value.is_finite() && (least..=most).contains(&value) {
        return Ok(value);
    }
    Err(MmwaveError::OutOfRange { what, value, range })
}

/// Checks that a number is finite and above 0.
pub(crate) fn positive(what: &'static str, value: f64) -> Result<f64, MmwaveError> {
    within(what, value, (f64::MIN_POSITIVE, f64::MAX), "above 0")
}

/// Checks that a number is a share, 0.0..=1.0.
pub(crate) fn share(what: &'static str, value: f64) -> Result<f64, MmwaveError> {
    within(what, value, (0.0, 1.0), "from 0 to 1")
}
