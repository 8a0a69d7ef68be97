//! Decides which frames a path sends next.

mod control;

use std::ops::Range;
use std::time::Duration;

use super::Session;
use crate::frame::{Frame, MAX_DATA, encode_data_head};
use crate::path::{Flight, Path, PathState, RECORD};
use crate::scheduler::{ClassSet, Pick, View, may_work};
use crate::share::Share;
use crate::{Instant, PathId, StreamId};

/// Overhead of a DATA frame in bytes, within the first GiB of a stream and for stream numbers up to
/// 16,383.
const DATA_HEAD: usize = 9;

/// Most reports fit into this many bytes. A report that exceeded the batch would leave as a packet
/// of a few bytes.
const SHORT_REPORT: usize = 64;

/// The frames handed to a path in one call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    pub(super) path: PathId,
    /// Bytes that the path had sent before.
    sent: u64,
    /// Start of the batch in the buffer.
    start: usize,
    /// Approximate size limit in bytes.
    budget: usize,
    pub(super) now: Instant,
}

impl Session {
    /// Appends the next frames of path `id`, approximately `budget` bytes. Returns their length, or
    /// 0 if nothing is to be sent now.
    pub fn poll_transmit(
        &mut self,
        id: PathId,
        budget: usize,
        now: Instant,
        out: &mut Vec<u8>,
    ) -> usize {
        self.latest = self.latest.max(now);
        self.review_policies(now);
        let Some(path) = self.paths.get(&id) else {
            return 0;
        };
        // The caller asks until nothing more comes, often when nothing has changed, not even the
        // time.
        let asked = (now, budget, self.schedulers.changes());
        if path.outbound.idle == Some(asked) && !self.datagrams.may_transmit(id, now) {
            return 0;
        }
        let len = self.transmit(id, budget, now, out);
        if len > 0 {
            self.schedulers.note_change();
        } else if let Some(path) = self.paths.get_mut(&id) {
            path.outbound.idle = Some(asked);
        }
        len
    }

    fn transmit(&mut self, id: PathId, budget: usize, now: Instant, out: &mut Vec<u8>) -> usize {
        let Some(path) = self.paths.get(&id) else {
            return 0;
        };
        let batch = Batch {
            path: id,
            sent: path.outbound.sent,
            start: out.len(),
            budget,
            now,
        };
        if self.closed {
            self.write_close(id, out);
        } else if path.state == PathState::Stalled {
            self.write_ping(&batch, out);
        } else {
            self.write_all(&batch, out);
        }
        self.finish_transmit(&batch, out)
    }

    /// Writes everything that may go over a delivering path, the most urgent first.
    fn write_all(&mut self, batch: &Batch, out: &mut Vec<u8>) {
        let Batch { path: id, now, .. } = *batch;
        let best = self.best_path(now) == Some(id);
        // A datagram is worth less with every millisecond, and bulk data can wait for it.
        self.write_datagrams(batch, out);
        if let Some(path) = self.paths.get_mut(&id)
            && let Some(token) = path.inbound.pong_due.take()
        {
            Frame::Pong { token }.encode(out);
        }
        self.write_control(batch, best, out);
        let due = self.paths.get(&id);
        let due = due.and_then(|path| self.reports.due(path, best));
        if due.is_some_and(|due| due <= now) {
            self.write_report(batch, best, out);
        }
        self.write_ping(batch, out);
        while batch.left(out) > 0 {
            // With its frame heads a piece nearly fills the budget and does not exceed it.
            let left = batch.left(out);
            let heads = DATA_HEAD * left.div_ceil(MAX_DATA + DATA_HEAD);
            let room = match left.saturating_sub(heads) {
                0 if batch.written(out) > 0 => break,
                room => room.max(1),
            };
            match self.pick(id, room as u64, batch.written(out), now) {
                Pick::Send { stream, range } => self.write_data(batch, stream, range, false, out),
                Pick::Repeat { stream, range } | Pick::Race { stream, range } => {
                    self.write_data(batch, stream, range, true, out);
                }
                Pick::Idle => break,
            }
        }
        // A batch that leaves anyway includes the report that is not due yet, which saves a
        // separate packet.
        let goes_along = best && batch.written(out) > 0 && batch.left(out) >= SHORT_REPORT;
        let news = self.paths.get(&id);
        if goes_along && news.is_some_and(|path| self.reports.has_unreported(path, now)) {
            self.write_report(batch, best, out);
        }
    }

    fn write_report(&mut self, batch: &Batch, best: bool, out: &mut Vec<u8>) {
        let Batch { path, now, .. } = *batch;
        let (budget, paths) = (batch.left(out), &mut self.paths);
        let reports = &mut self.reports;
        if budget > 0 && reports.write(path, paths, &self.streams, budget, now, out) && best {
            reports.reported_promptly();
        }
    }

    /// The delivering path on which a byte handed over now arrives first. A path that is late or
    /// has never delivered anything is chosen only if all paths are.
    pub(super) fn best_path(&self, now: Instant) -> Option<PathId> {
        let active = self
            .paths
            .values()
            .filter(|path| path.state == PathState::Active);
        active
            .min_by_key(|path| {
                (
                    !path.is_proven(),
                    path.is_late(now),
                    path.likely_delay(),
                    path.id,
                )
            })
            .map(|path| path.id)
    }

    fn pick(&mut self, id: PathId, budget: u64, handed: u64, now: Instant) -> Pick {
        let Some(path) = self.paths.get(&id) else {
            return Pick::Idle;
        };
        if path.has_max_flights() || !may_work(&self.paths, path) {
            return Pick::Idle;
        }
        let mut view = View {
            now,
            paths: &self.paths,
            streams: &self.streams,
            ready: &self.ready,
            writers: &self.writers,
            classes: ClassSet::ALL,
            last_served: 0,
            credit: self
                .send_credit
                .session
                .saturating_sub(self.send_credit.used),
            granted: self.send_credit.session,
            share: Share::new(self.send_credit.peer_memory, self.send_credit.peer_streams),
            repeat_balance: 0,
            advance: Duration::ZERO,
            race_budget: 0,
            handed,
            memory: self.config.memory,
            fbdt: &self.config.fbdt,
        };
        let pick = self.schedulers.pick(id, budget, &mut view);
        if pick == Pick::Idle {
            view.classes = ClassSet::ALL;
            self.waits_since = view.can_send().then_some(now);
        }
        pick
    }

    fn write_data(
        &mut self,
        batch: &Batch,
        stream_id: StreamId,
        range: Range<u64>,
        repeat: bool,
        out: &mut Vec<u8>,
    ) {
        let Batch { path: id, now, .. } = *batch;
        let Some(stream) = self.streams.get_mut(&stream_id) else {
            return;
        };
        debug_assert!(!range.is_empty() && range.end <= stream.send.written);
        let mut at = range.start;
        while at < range.end {
            let end = range.end.min(at + MAX_DATA as u64);
            encode_data_head(stream_id, at, (end - at) as usize, out);
            stream.send.read(at..end, out);
            at = end;
        }
        let len = range.end - range.start;
        let unsent = stream.send.unsent.remove(range.clone());
        debug_assert!(repeat || unsent == len, "a scheduler sends what is unsent");
        let growth = range.end.saturating_sub(stream.send.highest);
        stream.send.highest = stream.send.highest.max(range.end);
        self.send_credit.used += growth;
        self.counters.data_sent += len;
        // Retransmissions because of a failed path count as duplicates, too, although the first
        // copy may never have arrived.
        let twice = if repeat {
            len
        } else {
            stream.send.again.remove(range.clone())
        };
        self.counters.duplicates_sent += twice;
        if stream.send.unsent.is_empty() {
            self.ready.remove(&stream_id);
        }
        if repeat {
            self.mark_repeated(id, stream_id, &range);
        }
        let Some(path) = self.paths.get_mut(&id) else {
            return;
        };
        path.totals.data_sent += len;
        path.totals.duplicates_sent += twice;
        path.note_outstanding(now);
        let handed = batch.written(out) as f64;
        let ahead = Duration::from_secs_f64(handed / path.shown_rate());
        let way = path.queued_delay() + ahead;
        let flight = Flight {
            stream: stream_id,
            range,
            sent_at: now,
            expected_at: now + way,
            patience: path.patience(),
            round_trip: 2 * way.saturating_sub(path.beyond_half()),
            repeated: repeat,
            path_end: batch.path_end(out),
            record_end: batch.record_end(out),
        };
        path.outbound.flights.push_back(flight);
        path.progress.first_data.get_or_insert(now);
    }

    fn mark_repeated(&mut self, by: PathId, stream: StreamId, range: &Range<u64>) {
        for path in self.paths.values_mut().filter(|path| path.id != by) {
            path.mark_repeated(stream, range);
        }
    }

    fn finish_transmit(&mut self, batch: &Batch, out: &[u8]) -> usize {
        let len = batch.written(out);
        if let Some(path) = self.paths.get_mut(&batch.path)
            && len > 0
        {
            path.outbound.sent += len;
            let end = path.outbound.sent;
            // The last record ends with the batch, full or not.
            let of_last_record = |flight: &&mut Flight| flight.record_end > end;
            for flight in path
                .outbound
                .flights
                .iter_mut()
                .rev()
                .take_while(of_last_record)
            {
                flight.record_end = end;
            }
            path.totals.send_meter.add(len, batch.now);
        }
        len as usize
    }
}

impl Batch {
    /// Bytes written so far.
    fn written(&self, out: &[u8]) -> u64 {
        (out.len() - self.start) as u64
    }

    /// Bytes that may still be written.
    pub(super) fn left(&self, out: &[u8]) -> usize {
        self.budget.saturating_sub(out.len() - self.start)
    }

    /// The path's count of sent bytes at the current end of the batch.
    fn path_end(&self, out: &[u8]) -> u64 {
        self.sent + self.written(out)
    }

    /// The path's count of sent bytes at the end of the current TLS record, if it becomes full.
    /// Each batch begins a record.
    fn record_end(&self, out: &[u8]) -> u64 {
        self.sent + self.written(out).next_multiple_of(RECORD)
    }
}

impl Path {
    /// Records that data that elicits a report leaves: from now on the peer owes one.
    fn note_outstanding(&mut self, now: Instant) {
        if self.outbound.flights.is_empty() && self.outbound.control.is_empty() {
            self.progress.acknowledged_at = now;
        }
        self.outbound.last_asked = Some(now);
        self.outbound.idle_pings = 0;
    }
}
