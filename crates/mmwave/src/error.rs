//! What can be wrong with a description of radios, channels and contention.

/// A description of something that cannot exist. Whoever wrote it is at fault.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MmwaveError {
    /// A number outside its range.
    #[error("{what} is {value}, but must be {range}")]
    OutOfRange {
        /// Which one.
        what: &'static str,
        /// What it is.
        value: f64,
        /// What it must be.
        range: &'static str,
    },
    /// More good-beams than mini-slots, or as many: no mini-slot could ever be expected to be empty.
    #[error(
        "{good_beams} good-beams do not fit {mini_slots} mini-slots: there must be more mini-slots than good-beams"
    )]
    TooFewMiniSlots {
        /// Good-beams of a client (K).
        good_beams: f64,
        /// Mini-slots of an A-BFT (M).
        mini_slots: u32,
    },
    /// A client cannot send each of its sectors in a mini-slot of its own.
    #[error("{sectors} sectors need as many mini-slots, but there are {mini_slots}")]
    SectorsExceedMiniSlots {
        /// Sectors of a client (B).
        sectors: usize,
        /// Mini-slots of an A-BFT (M).
        mini_slots: u32,
    },
    /// A line of a pattern file that cannot be read.
    #[error("pattern, line {line}: {reason}")]
    PatternLine {
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// A pattern file that does not give every beam a gain in every direction of its grid.
    #[error(
        "pattern: beam {beam} has no gain at azimuth {azimuth_deg}, elevation {elevation_deg}: \
         every beam must have one in every direction of the grid"
    )]
    PatternHole {
        /// Number of the beam, counted from 0 in the order of the file.
        beam: usize,
        /// Where, in degrees.
        azimuth_deg: f64,
        /// Where, in degrees.
        elevation_deg: f64,
    },
    /// A pattern file without a grid.
    #[error(
        "pattern: a grid of at least two azimuths and one elevation is needed, with one beam or more"
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
