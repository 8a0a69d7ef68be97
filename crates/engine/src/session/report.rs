//! Reports: the bytes received on streams and paths, sent over any path.
//!
//! The path with the least delay reports promptly. Every other path repeats the news slightly
//! later, so that an outage of the prompt path's return direction delays nothing. Each change gets
//! a version, each path remembers the newest version that it has reported, and a report on it
//! contains everything newer. Reports do not elicit reports.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::frame::{Ack, Frame, MAX_ACK_RANGES};
use crate::path::{Path, PathState, Paths};
use crate::stream::Stream;
use crate::{Instant, PathId, StreamId};

/// A report is sent at the latest after this time ...
pub(super) const REPORT_DELAY: Duration = Duration::from_millis(5);

/// ... or after this many bytes that elicit one, ...
const REPORT_BYTES: u64 = 64 * 1024;

/// ... but, because of bytes, only this often per round trip. Each report is a packet of its own. A
/// young connection's window full of reports would keep everything else from leaving until they are
/// acknowledged.
const REPORTS_PER_TRIP: u32 = 4;

/// Any path reports if the prompt one has not done so for this long.
const REPORT_ANYWHERE: Duration = Duration::from_millis(15);

/// Interval at which every path reports news.
const REPORT_COPY: Duration = Duration::from_millis(50);

/// Most ends of streams that wait to be reported.
const MAX_GONE: usize = 1024;

/// The state of reporting.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// Counts changes.
    version: u64,
    /// The newest version in any report sent.
    reported: u64,
    /// The changes by version; each stream or path appears once.
    changes: BTreeMap<u64, Change>,
    /// Versions in `changes` of streams that have ended, ascending.
    gone: VecDeque<u64>,
    /// Bytes that elicit a report and that the path with the least delay has not reported.
    unreported: u64,
    /// Arrival time of the first of them.
    since: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Stream(StreamId),
    /// A stream that has ended; a peer that still sends it may stop.
    Gone(StreamId),
    Path(PathId),
}

impl Reports {
    /// A frame arrived on `path`.
    pub(super) fn path_received(&mut self, path: &mut Path, elicits: bool, len: u64, now: Instant) {
        if elicits {
            self.unreported += len;
            self.since.get_or_insert(now);
            self.bump(&mut path.reports.receive_version, Change::Path(path.id));
        }
    }

    /// Data or an end of a stream arrived.
    pub(super) fn stream_changed(
        &mut self,
        streams: &mut BTreeMap<StreamId, Stream>,
        id: StreamId,
    ) {
        if let Some(stream) = streams.get_mut(&id) {
            self.bump(&mut stream.receive.version, Change::Stream(id));
        }
    }

    /// A frame arrived for a stream that has ended.
    pub(super) fn stream_gone(&mut self, id: StreamId) {
        // A peer that keeps sending on one such stream gets one entry, not a list.
        if self
            .changes
            .last_key_value()
            .is_none_or(|(_, last)| *last != Change::Gone(id))
        {
            self.list_gone(id);
        }
    }

    /// A stream has ended; `version` is its last change.
    pub(super) fn stream_retired(&mut self, id: StreamId, version: u64) {
        self.changes.remove(&version);
        self.list_gone(id);
    }

    /// A path has ended; its byte count need not be reported.
    pub(super) fn path_lost(&mut self, lost: PathId) {
        self.changes
            .retain(|_, change| *change != Change::Path(lost));
    }

    /// Reports sent on a path that ended or stalled may not arrive, so all of them count as new
    /// again.
    pub(super) fn report_again(
        &mut self,
        streams: &mut BTreeMap<StreamId, Stream>,
        paths: &mut Paths,
    ) {
        self.reported = self.version;
        for stream in streams
            .values_mut()
            .filter(|stream| stream.receive.version > 0)
        {
            self.bump(&mut stream.receive.version, Change::Stream(stream.id));
        }
        for path in paths
            .values_mut()
            .filter(|path| path.reports.receive_version > 0)
        {
            self.bump(&mut path.reports.receive_version, Change::Path(path.id));
        }
    }

    /// Number of changes that some path has not reported yet.
    #[cfg(test)]
    pub(super) fn pending(&self) -> usize {
        self.changes.len()
    }

    /// Time of the next report on `path`; `prompt` for the path with the least delay.
    pub(super) fn due(&self, path: &Path, prompt: bool) -> Option<Instant> {
        if path.reports.version >= self.version {
            return None;
        }
        // The first copy after a pause is no more urgent than others. A packet of its own would
        // take the place of a full one in the window of an answer that comes a moment later.
        let copy = path.reports.last_sent + REPORT_COPY;
        let copy = path
            .reports
            .behind_since
            .map(|at| copy.max(at + REPORT_ANYWHERE));
        let own = self.since.map(|since| match prompt {
            true if self.unreported >= REPORT_BYTES => {
                let pause = (path.srtt() / REPORTS_PER_TRIP).min(REPORT_DELAY);
                since.max(path.reports.last_sent + pause)
            }
            true => since + REPORT_DELAY,
            false => since.max(path.reports.last_sent) + REPORT_ANYWHERE,
        });
        match (own, copy) {
            (Some(own), Some(copy)) => Some(own.min(copy)),
            // Changes to be reported again.
            (None, None) => Some(path.reports.last_sent + REPORT_COPY),
            (one, other) => one.or(other),
        }
    }

    /// Whether `path`, the one with the least delay, has unreported changes and has not just
    /// reported.
    pub(super) fn has_unreported(&self, path: &Path, now: Instant) -> bool {
        let is_new = self.since.is_some() && path.reports.version < self.version;
        is_new && now >= path.reports.last_sent + REPORT_DELAY
    }

    /// Appends the changes that `path` has not reported yet, within `budget`; returns whether those
    /// are all.
    pub(super) fn write(
        &mut self,
        path: PathId,
        paths: &mut Paths,
        streams: &BTreeMap<StreamId, Stream>,
        budget: usize,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> bool {
        let from = paths.get(&path).map_or(0, |path| path.reports.version);
        let start = out.len();
        let mut reported = from;
        for (&version, change) in self.changes.range(from + 1..) {
            if out.len() - start >= budget {
                break;
            }
            reported = version;
            match change {
                Change::Stream(id) => {
                    if let Some(stream) = streams.get(id) {
                        Frame::Ack(acknowledgment(stream)).encode(out);
                    }
                }
                Change::Gone(id) => Frame::Ack(Ack {
                    stream: *id,
                    complete: true,
                    cumulative: 0,
                    ranges: Vec::new(),
                })
                .encode(out),
                Change::Path(id) => {
                    if let Some(path) = paths.get(id) {
                        let received = path.inbound.received;
                        Frame::Path {
                            path: u64::from(id.0),
                            received,
                        }
                        .encode(out);
                    }
                }
            }
        }
        let finished = self.changes.range(reported + 1..).next().is_none();
        if finished {
            reported = self.version;
        }
        self.reported = self.reported.max(reported);
        for other in paths.values_mut() {
            if other.id == path {
                other.reports.version = reported;
                other.reports.last_sent = now;
                other.reports.behind_since = other
                    .reports
                    .behind_since
                    .filter(|_| reported < self.reported);
            } else if other.reports.version < reported {
                other.reports.behind_since.get_or_insert(now);
            }
        }
        self.drop_reported(paths);
        finished
    }

    /// The path with the least delay has reported everything. If another path had reported it, it
    /// would still be urgent, because this path delivers it sooner.
    pub(super) fn reported_promptly(&mut self) {
        self.unreported = 0;
        self.since = None;
    }

    /// Adds the end of a stream to the changes.
    ///
    /// If there are too many, the oldest is dropped. A peer that has acknowledgments for all its
    /// frames of the stream needs no such entry, and one that still sends some gets a new entry.
    fn list_gone(&mut self, id: StreamId) {
        if self.gone.len() >= MAX_GONE
            && let Some(oldest) = self.gone.pop_front()
        {
            self.changes.remove(&oldest);
        }
        self.bump(&mut 0, Change::Gone(id));
        self.gone.push_back(self.version);
    }

    fn bump(&mut self, version: &mut u64, change: Change) {
        // Unreported changes will be reported with the newest state anyway.
        if *version > self.reported {
            return;
        }
        self.changes.remove(version);
        self.version += 1;
        *version = self.version;
        self.changes.insert(self.version, change);
    }

    /// Drops changes that every delivering path has reported.
    fn drop_reported(&mut self, paths: &Paths) {
        let active = paths
            .values()
            .filter(|path| path.state == PathState::Active);
        if let Some(reported) = active.map(|path| path.reports.version).min() {
            while self
                .changes
                .first_key_value()
                .is_some_and(|(&version, _)| version <= reported)
            {
                self.changes.pop_first();
            }
            while self
                .gone
                .front()
                .is_some_and(|&version| version <= reported)
            {
                self.gone.pop_front();
            }
        }
    }
}

fn acknowledgment(stream: &Stream) -> Ack {
    let receive = &stream.receive;
    let cumulative = receive.contiguous();
    let above = receive
        .received
        .iter()
        .skip_while(|range| range.start < cumulative || range.start == 0);
    Ack {
        stream: stream.id,
        complete: receive.is_whole(),
        cumulative,
        ranges: above.take(MAX_ACK_RANGES).collect(),
    }
}
