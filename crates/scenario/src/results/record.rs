//! The record of a flow.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::datagrams::Arrival;
use super::lag::ARRIVAL_INTERVAL;

/// A flow as recorded by its receiver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowRecord {
    /// Number of the flow: even, and 1 more for an upload.
    pub flow: u32,
    /// The link that it was bound to.
    #[serde(default)]
    pub link: Option<String>,
    /// Whether it belongs to the rival and is not part of the measurement.
    #[serde(default)]
    pub rival: bool,
    /// Whether it was ever connected.
    pub connected: bool,
    /// Bytes that arrived in each interval.
    pub buckets: Vec<u64>,
    /// Bytes that arrived in each [`ARRIVAL_INTERVAL`]; empty for flows without a lag.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arrivals: Vec<u64>,
    /// Objects that arrived.
    pub objects: Vec<ObjectRecord>,
    /// For each message its due time in seconds since the start, and its lateness in milliseconds;
    /// for a question and its answer, the time of the question and the duration of the answer.
    pub messages: Vec<(f64, f64)>,
    /// Its datagrams, if it consists of such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub datagrams: Option<DatagramsRecord>,
    /// Its connections, if it consists of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<Connections>,
    /// Counters of both ends of its session, if its programs use the library and both answered.
    #[serde(default)]
    pub ends: Option<EndsRecord>,
    /// The error of the flow, if any.
    pub error: Option<String>,
}

/// Counters of both ends of a session since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EndsRecord {
    /// Bytes of duplicates sent by both ends.
    pub duplicates_bytes: u64,
    /// Peak memory for out-of-order bytes, summed over both ends.
    pub reorder_peak_bytes: u64,
    /// 99 % of the bytes waited no longer than this for earlier ones, in seconds, at the end where
    /// it is longer.
    #[serde(default)]
    pub in_order_wait_p99_s: f64,
}

impl FlowRecord {
    /// Counts bytes that arrived that many nanoseconds after the start of the run, in intervals
    /// of that length; they are ignored after its end.
    pub fn count(&mut self, since_ns: u64, interval_ns: u64, bytes: u64) {
        let arrival_ns = ARRIVAL_INTERVAL.as_nanos() as u64;
        for (counts, interval) in [
            (&mut self.buckets, interval_ns),
            (&mut self.arrivals, arrival_ns),
        ] {
            let index = usize::try_from(since_ns / interval).unwrap_or(usize::MAX);
            if let Some(count) = counts.get_mut(index) {
                *count += bytes;
            }
        }
    }

    /// Records each arrival's time as well, for a run of that length, so that its lag is known.
    #[must_use]
    pub fn with_arrivals(mut self, duration: Duration) -> Self {
        let intervals = duration.as_nanos().div_ceil(ARRIVAL_INTERVAL.as_nanos());
        self.arrivals = vec![0; usize::try_from(intervals).unwrap_or(0)];
        self
    }
}

impl EndsRecord {
    /// The counters of two ends, or of two sessions, together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            duplicates_bytes: self.duplicates_bytes + other.duplicates_bytes,
            reorder_peak_bytes: self.reorder_peak_bytes + other.reorder_peak_bytes,
            in_order_wait_p99_s: self.in_order_wait_p99_s.max(other.in_order_wait_p99_s),
        }
    }
}

/// The datagrams of a flow that arrived.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DatagramsRecord {
    /// Whether the far end returned them: the arrivals are those of the round trip.
    pub echo: bool,
    /// Every copy, in order of arrival.
    pub arrivals: Vec<Arrival>,
}

/// Numbers of connections, or of questions to a name server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connections {
    /// Those that were answered, in the warm-up as well.
    pub answered: u64,
    /// Those that failed: refused, reset, ended early or without an answer in time.
    pub failed: u64,
    /// Those that were open at the end.
    pub open: u64,
}

impl Connections {
    /// The sums of two flows.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            answered: self.answered + other.answered,
            failed: self.failed + other.failed,
            open: self.open + other.open,
        }
    }
}

/// An object that arrived.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ObjectRecord {
    /// Its size in bytes.
    pub size: u64,
    /// Time of the request, in seconds since the start of the run.
    pub start_s: f64,
    /// Duration of the fetch.
    pub duration_s: f64,
}
