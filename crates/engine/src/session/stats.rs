//! What a session and its paths have done.

use std::time::Duration;

use super::Session;
use crate::path::PathState;
use crate::policy::PathPolicy;
use crate::stream::Stream;
use crate::{Class, Instant, PathId, Selection, StreamId};

/// Counters of a session. Bytes are stream bytes unless said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stats {
    /// Taken from local writers.
    pub bytes_written: u64,
    /// Acknowledged by the peer, in order.
    pub bytes_delivered: u64,
    /// Handed to local readers.
    pub bytes_read: u64,
    /// Streams open now.
    pub streams_open: u64,
    /// Streams opened since the session began, by either side.
    pub streams_total: u64,
    /// Received behind a gap, now.
    pub reorder: u64,
    /// The most that `reorder` has been.
    pub reorder_peak: u64,
    /// Received and not read, now.
    pub receive_buffered: u64,
    /// The most that was received beyond what was read, gaps included.
    pub receive_peak: u64,
    /// Written and not acknowledged, now.
    pub send_buffered: u64,
    /// Memory in pages of all receive buffers.
    pub receive_memory: u64,
    /// Sent more than once, for whatever reason.
    pub duplicates_sent: u64,
    /// Received more than once and dropped.
    pub duplicates_received: u64,
}

/// Counters of a path.
#[derive(Clone, Debug, PartialEq)]
pub struct PathStats {
    /// The path.
    pub id: PathId,
    /// Whether it delivers.
    pub state: PathState,
    /// What the selector has made of it.
    pub selection: Selection,
    /// Why, in one sentence; empty while it has decided nothing about it.
    pub selection_reason: String,
    /// Smoothed round-trip time.
    pub srtt: Duration,
    /// Round-trip time variation.
    pub rttvar: Duration,
    /// Congestion window in bytes.
    pub cwnd: u64,
    /// Bytes that wait in its interface's queue; 0 unless a scheduler reads it and the kernel tells of it.
    pub local_queue: u64,
    /// Estimated rate of delivery, in bytes per second.
    pub rate: f64,
    /// How much the path is doubted; see [`crate::Path::unreliability`].
    pub unreliability: f64,
    /// Frame bytes sent.
    pub bytes_sent: u64,
    /// Frame bytes that the peer has confirmed.
    pub bytes_confirmed: u64,
    /// Frame bytes received.
    pub bytes_received: u64,
    /// What this side may send over it.
    pub policy: PathPolicy,
    /// It is a backup for as long as it adds more latency than it may.
    pub too_slow: bool,
    /// Frame bytes per second sent over the last second or so.
    pub send_rate: f64,
    /// Frame bytes per second received over the last second or so.
    pub receive_rate: f64,
    /// Stream bytes sent.
    pub data_sent: u64,
    /// Stream bytes received.
    pub data_received: u64,
    /// Stream bytes sent here after another path had carried them.
    pub duplicates_sent: u64,
    /// Segments that TCP has retransmitted.
    pub retransmitted: u64,
    /// How long the path has been part of the session.
    pub age: Duration,
    /// How long nothing has arrived on it.
    pub silent_for: Duration,
    /// How long something on it has been waiting for a confirmation without any arriving.
    pub stuck_for: Option<Duration>,
    /// How long it has been of no use: stalled, or so by the peer's word.
    pub useless_for: Option<Duration>,
    /// Time since TCP last got a segment through, either way; nothing where nobody knows. A path that is of no use although
    /// this is short is on a link that works, badly: a new connection would get no more, and be slow to grow afterwards.
    pub still_for: Option<Duration>,
}

/// Counters of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamStats {
    /// The stream.
    pub id: StreamId,
    /// How what this side sends is treated.
    pub class: Class,
    /// Whether the class was learnt rather than told.
    pub learnt: bool,
    /// Taken from the local writer.
    pub bytes_written: u64,
    /// Handed to the local reader.
    pub bytes_read: u64,
}

impl Session {
    /// Every stream's counters, in the order of their numbers.
    pub fn stream_stats(&self) -> impl Iterator<Item = StreamStats> + '_ {
        self.streams.values().map(|stream| StreamStats {
            id: stream.id,
            class: stream.class,
            learnt: stream.learner.is_some(),
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

    /// Bytes that the session holds now: [`Stats::send_buffered`] and [`Stats::receive_memory`] together.
    pub fn held(&self) -> u64 {
        let held = |stream: &Stream| stream.send.buffered() + stream.receive.held_bytes() as u64;
        self.streams.values().map(held).sum()
    }

    /// Every path's counters, in the order of their numbers.
    pub fn path_stats_all(&self, now: Instant) -> Vec<PathStats> {
        let stats = self.paths.values().map(|path| PathStats {
            id: path.id,
            state: path.state,
            selection: path.selection,
            selection_reason: path.selection_reason.clone(),
            srtt: path.sample.srtt,
            rttvar: path.sample.rttvar,
            cwnd: path.sample.cwnd,
            local_queue: path.sample.local_queue,
            rate: path.rate(),
            unreliability: path.unreliability(now),
            bytes_sent: path.sent,
            bytes_confirmed: path.confirmed,
            bytes_received: path.received,
            policy: path.policy,
            too_slow: path.too_slow,
            send_rate: path.send_meter.rate(now),
            receive_rate: path.receive_meter.rate(now),
            data_sent: path.data_sent,
            data_received: path.data_received,
            duplicates_sent: path.duplicates_sent,
            retransmitted: path.sample.retransmitted,
            age: now.saturating_sub(path.joined),
            silent_for: now.saturating_sub(path.last_received),
            useless_for: path.useless_since().map(|since| now.saturating_sub(since)),
            still_for: path.last_moved.map(|at| now.saturating_sub(at)),
            stuck_for: path.stuck_since().map(|since| now.saturating_sub(since)),
        });
        stats.collect()
    }
}
