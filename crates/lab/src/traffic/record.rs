//! Counts arrivals.

use std::time::Duration;

use crate::results::{Arrival, DatagramsRecord, FlowRecord};

use super::{Window, now_ns};

/// Counts arrivals.
pub(crate) struct Recorder {
    window: Window,
    interval_ns: u64,
    pub(crate) record: FlowRecord,
}

impl Recorder {
    pub(crate) fn new(flow: u32, window: Window, interval_ms: u64) -> Self {
        let intervals = window.duration_ms.div_ceil(interval_ms.max(1));
        Self {
            window,
            interval_ns: interval_ms.max(1) * 1_000_000,
            record: FlowRecord {
                flow,
                buckets: vec![0; usize::try_from(intervals).unwrap_or(0)],
                ..FlowRecord::default()
            },
        }
    }

    /// Records when bytes arrive, for the lag.
    pub(crate) fn with_arrivals(mut self) -> Self {
        let duration = Duration::from_millis(self.window.duration_ms);
        self.record = self.record.with_arrivals(duration);
        self
    }

    /// Counts bytes that arrive now; they are ignored after the end of the run.
    pub(crate) fn count(&mut self, bytes: usize) {
        let since = now_ns().saturating_sub(self.window.epoch_ns);
        self.record.count(since, self.interval_ns, bytes as u64);
    }

    /// Records a datagram that arrives now, with the time at which it was sent; after the end of
    /// the run it is ignored.
    pub(crate) fn datagram(&mut self, number: u64, sent_ns: u64, bytes: usize) {
        let now = now_ns();
        if now >= self.window.end_ns() {
            return;
        }
        let since = |ns: u64| ns.saturating_sub(self.window.epoch_ns) as f64 / 1e9;
        let arrival = Arrival {
            number,
            sent_s: since(sent_ns),
            arrived_s: since(now),
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
        };
        let record = &mut self.record.datagrams;
        record
            .get_or_insert_with(DatagramsRecord::default)
            .arrivals
            .push(arrival);
        self.count(bytes);
    }

    /// Records a message that was due at that time, or the answer to a question asked then.
    pub(crate) fn message(&mut self, due_ns: u64) {
        let delay = now_ns().saturating_sub(due_ns) as f64 / 1e6;
        let at = due_ns.saturating_sub(self.window.epoch_ns) as f64 / 1e9;
        self.record.messages.push((at, delay));
    }
}
