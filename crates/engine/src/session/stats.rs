//! Counters of a session and its paths.

use std::time::Duration;

use super::Session;
use crate::path::PathState;
use crate::policy::PathPolicy;
use crate::stream::Stream;
use crate::{Class, Instant, PathId, Selection, StreamId};

/// Counters of a session. Bytes are stream bytes unless stated otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Bytes accepted from local writers.
    pub bytes_written: u64,
    /// Bytes that the peer has acknowledged in order.
    pub bytes_delivered: u64,
    /// Bytes handed to local readers.
    pub bytes_read: u64,
    /// Number of open streams.
    pub streams_open: u64,
    /// Number of streams opened by either side since the session began.
    pub streams_total: u64,
    /// Received bytes behind a gap now.
    pub reorder: u64,
    /// Highest value of `reorder`.
    pub reorder_peak: u64,
    /// 99 % of the bytes received since the session began have waited no longer than this for
    /// earlier ones. Up to a fifth too long, and 0 for less than a millisecond.
    pub in_order_wait_p99: Duration,
    /// Received and unread bytes now.
    pub receive_buffered: u64,
    /// Highest number of received and unread bytes, including gaps.
    pub receive_peak: u64,
    /// Written and unacknowledged bytes now.
    pub send_buffered: u64,
    /// Memory in pages of all receive buffers, in bytes.
    pub receive_memory: u64,
    /// Bytes sent more than once, for any reason.
    pub duplicates_sent: u64,
    /// Bytes received more than once and dropped.
    pub duplicates_received: u64,
}

/// Counters of a path.
#[derive(Clone, Debug, PartialEq)]
pub struct PathStats {
    /// The path.
    pub id: PathId,
    /// Whether it delivers.
    pub state: PathState,
    /// The selector's decision for the path.
    pub selection: Selection,
    /// The reason for it, in one sentence; empty if the selector has not decided about the path.
    pub selection_reason: String,
    /// Smoothed round-trip time.
    pub srtt: Duration,
    /// Round-trip time variation.
    pub rttvar: Duration,
    /// Congestion window in bytes.
    pub cwnd: u64,
    /// Bytes in the queue of its interface; 0 unless a scheduler reads it and the kernel reports
    /// it.
    pub local_queue: u64,
    /// Estimated delivery rate in bytes per second.
    pub rate: f64,
    /// How unreliable the path is; see [`crate::Path::unreliability`].
    pub unreliability: f64,
    /// Frame bytes sent.
    pub bytes_sent: u64,
    /// Frame bytes that the peer has acknowledged.
    pub bytes_confirmed: u64,
    /// Frame bytes received.
    pub bytes_received: u64,
    /// This side's policy for the path.
    pub policy: PathPolicy,
    /// The path is a backup while it adds more latency than permitted.
    pub too_slow: bool,
    /// Frame bytes sent per second, averaged over approximately the last second.
    pub send_rate: f64,
    /// Frame bytes received per second, averaged over approximately the last second.
    pub receive_rate: f64,
    /// Stream bytes sent.
    pub data_sent: u64,
    /// Stream bytes received.
    pub data_received: u64,
    /// Stream bytes sent here after another path had carried them.
    pub duplicates_sent: u64,
    /// Segments that TCP has retransmitted.
    pub retransmitted: u64,
    /// Time since the path joined the session.
    pub age: Duration,
    /// Time since anything last arrived on it.
    pub silent_for: Duration,
    /// Time for which data on it has been unacknowledged without any acknowledgment arriving.
    pub unacknowledged_for: Option<Duration>,
    /// Time for which the path has been stalled, here or by the peer's report.
    pub stalled_for: Option<Duration>,
    /// Time since TCP last got a segment through in either direction; none if unknown. If a stalled
    /// path has a small value, its link works, but badly: a new connection would get no more, and
    /// would grow slowly.
    pub no_progress_for: Option<Duration>,
}

/// Counters of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamStats {
    /// The stream.
    pub id: StreamId,
    /// Class of the bytes that this side sends.
    pub class: Class,
    /// Whether the class was learned instead of set.
    pub learned: bool,
    /// Bytes accepted from the local writer.
    pub bytes_written: u64,
    /// Bytes handed to the local reader.
    pub bytes_read: u64,
}

impl Session {
    /// Counters of every stream, in the order of their numbers.
    pub fn stream_stats(&self) -> impl Iterator<Item = StreamStats> + '_ {
        self.streams.values().map(|stream| StreamStats {
            id: stream.id,
            class: stream.class,
            learned: stream.learner.is_some(),
            bytes_written: stream.send.written,
            bytes_read: stream.receive.read,
        })
    }

    /// The session's counters.
    pub fn stats(&self) -> Stats {
        let receive = self.streams.values().map(|stream| &stream.receive);
        Stats {
            bytes_written: self.counters.written,
            bytes_delivered: self.counters.delivered,
            bytes_read: self.counters.read,
            streams_open: self.streams.len() as u64,
            streams_total: self.counters.opened,
            reorder: self.counters.reorder,
            reorder_peak: self.counters.reorder_peak,
            in_order_wait_p99: self.counters.waits.quantile(0.99),
            receive_buffered: receive.clone().map(|r| r.received.total() - r.read).sum(),
            receive_peak: self.counters.received_peak,
            send_buffered: self
                .streams
                .values()
                .map(|stream: &Stream| stream.send.buffered())
                .sum(),
            receive_memory: receive.map(|r| r.held_bytes() as u64).sum(),
            duplicates_sent: self.counters.duplicates_sent,
            duplicates_received: self.counters.duplicates_received,
        }
    }

    /// Memory that the session holds now: [`Stats::send_buffered`] plus [`Stats::receive_memory`].
    pub fn held(&self) -> u64 {
        let held = |stream: &Stream| stream.send.buffered() + stream.receive.held_bytes() as u64;
        self.streams.values().map(held).sum()
    }

    /// The bytes that a path has been given, and those of them that the peer has reported.
    pub fn path_progress(&self, id: PathId) -> Option<(u64, u64)> {
        let path = self.paths.get(&id)?;
        Some((path.outbound.sent, path.outbound.confirmed))
    }

    /// Counters of every path, in the order of their numbers.
    pub fn path_stats_all(&self, now: Instant) -> Vec<PathStats> {
        let stats = self.paths.values().map(|path| PathStats {
            id: path.id,
            state: path.state,
            selection: path.standing.selection,
            selection_reason: path.standing.selection_reason.clone(),
            srtt: path.sample.srtt,
            rttvar: path.sample.rttvar,
            cwnd: path.sample.cwnd,
            local_queue: path.sample.local_queue,
            rate: path.rate(),
            unreliability: path.unreliability(now),
            bytes_sent: path.outbound.sent,
            bytes_confirmed: path.outbound.confirmed,
            bytes_received: path.inbound.received,
            policy: path.standing.policy,
            too_slow: path.standing.too_slow,
            send_rate: path.totals.send_meter.rate(now),
            receive_rate: path.totals.receive_meter.rate(now),
            data_sent: path.totals.data_sent,
            data_received: path.totals.data_received,
            duplicates_sent: path.totals.duplicates_sent,
            retransmitted: path.sample.retransmitted,
            age: now.saturating_sub(path.joined),
            silent_for: now.saturating_sub(path.inbound.last_received),
            stalled_for: path.stalled_since().map(|since| now.saturating_sub(since)),
            no_progress_for: path.progress.last_moved.map(|at| now.saturating_sub(at)),
            unacknowledged_for: path
                .unacknowledged_since()
                .map(|since| now.saturating_sub(since)),
        });
        stats.collect()
    }
}
