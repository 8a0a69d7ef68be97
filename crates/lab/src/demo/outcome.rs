//! The outcome of one download.

use serde::Serialize;

use crate::health::Health;

/// The figures of a fetch.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Fetched {
    /// Bytes that arrived.
    pub(crate) bytes: u64,
    /// Seconds from the start of curl's transfer to its end.
    pub(crate) seconds: f64,
    /// Whether it was stopped before its end.
    pub(crate) cut: bool,
    /// Remarks.
    pub(crate) note: String,
    /// The emulator's health during the fetch.
    pub(crate) emulator: Health,
    /// The share of all processors that other programs used during the fetch.
    pub(crate) others_share: f64,
}

impl Fetched {
    pub(super) fn megabits(&self) -> f64 {
        if self.seconds > 0.0 {
            self.bytes as f64 * 8e-6 / self.seconds
        } else {
            0.0
        }
    }
}

/// Outcome of a fetch.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// The fetch succeeded.
    Fetched(Fetched),
    /// The system is not available, for this reason.
    Unavailable(String),
}
