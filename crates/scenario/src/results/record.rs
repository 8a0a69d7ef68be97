//! What a flow brought.

use serde::{Deserialize, Serialize};

/// A flow as its receiver saw it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowRecord {
    /// Number of the flow: even, and 1 more for an upload.
    pub flow: u32,
    /// The link that it was bound to.
    #[serde(default)]
    pub link: Option<String>,
    /// Whether it is somebody else's, and no part of what is measured.
    #[serde(default)]
    pub rival: bool,
    /// Whether there was ever a connection.
    pub connected: bool,
    /// Bytes that arrived in each interval.
    pub buckets: Vec<u64>,
    /// Objects that arrived.
    pub objects: Vec<ObjectRecord>,
    /// When each message was due, in seconds since the start, and how many milliseconds later it arrived; of a
    /// question and its answer, when it was asked and how long the answer took.
    pub messages: Vec<(f64, f64)>,
    /// What the ends of its session counted, where its programs use the library and could ask both.
    #[serde(default)]
    pub ends: Option<EndsRecord>,
    /// Why it is not what it should be.
    pub error: Option<String>,
}

/// What both ends of a session counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EndsRecord {
    /// Bytes that they sent more than once.
    pub duplicates_bytes: u64,
    /// The most bytes that either held because earlier ones were missing, added.
    pub reorder_peak_bytes: u64,
}

impl EndsRecord {
    /// What both of two ends, or of two sessions, counted.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            duplicates_bytes: self.duplicates_bytes + other.duplicates_bytes,
            reorder_peak_bytes: self.reorder_peak_bytes + other.reorder_peak_bytes,
        }
    }
}

/// An object that arrived.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ObjectRecord {
    /// Bytes of it.
    pub size: u64,
    /// When it was asked for, in seconds since the start of the run.
    pub start_s: f64,
    /// How long it took.
    pub duration_s: f64,
}
