//! A stream: its two directions, each with its bytes and what is known of them.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;

use crate::learn::{self, Learner};
use crate::outgoing::Outgoing;
use crate::pages::{PAGE, Pages, Spare};
use crate::ranges::RangeSet;
use crate::reader::Reader;
use crate::received::Received;
use crate::{Class, Hints, Instant, StreamId};

/// Deadlines that lie closer together than this count as one.
const MERGED: Duration = Duration::from_millis(1);

/// One ordered byte stream each way.
#[derive(Debug)]
pub struct Stream {
    pub(crate) id: StreamId,
    pub(crate) class: Class,
    /// Learns the class, where nobody has said which it is.
    pub(crate) learner: Option<Learner>,
    pub(crate) hints: Hints,
    pub(crate) send: SendHalf,
    pub(crate) receive: ReceiveHalf,
    /// The peer's OPEN has arrived, or this side opened it.
    pub(crate) opened: bool,
    /// The peer's ACCEPT has arrived.
    pub(crate) accepted: bool,
    /// A RESET has been sent.
    pub(crate) reset_sent: bool,
    /// Nobody reads: what arrives is dropped.
    pub(crate) discard: bool,
    /// Nobody reads or writes any more; reset once what was written has arrived.
    pub(crate) abandoned: bool,
}

/// The bytes that this side sends.
#[derive(Debug, Default)]
pub(crate) struct SendHalf {
    bytes: Outgoing,
    /// Every byte below is acknowledged and forgotten.
    pub(crate) base: u64,
    /// Acknowledged above `base`.
    pub(crate) acked: RangeSet,
    /// Written and not on any path.
    pub(crate) unsent: RangeSet,
    /// The part of `unsent` that has been on a path before.
    pub(crate) again: RangeSet,
    /// Where the next written byte goes.
    pub(crate) written: u64,
    /// When bytes are wanted at the peer: ends of writes that are not acknowledged, ascending, and the time for each.
    pub(crate) due: VecDeque<(u64, Instant)>,
    /// When some bytes were written, by the offset after them, ascending; for the selector.
    pub(crate) marks: VecDeque<(u64, Instant)>,
    /// How far the peer lets this side send.
    pub(crate) limit: u64,
    /// End of the highest byte ever handed to a path.
    pub(crate) highest: u64,
    /// The same when the newest credit came, which also tells that the reader moves.
    pub(crate) highest_at_credit: u64,
    /// No more writes.
    pub(crate) finished: bool,
    /// A FIN is queued, on its way or delivered.
    pub(crate) fin_queued: bool,
    /// The peer has the FIN.
    pub(crate) fin_confirmed: bool,
    /// Everything and the end is acknowledged, or nobody waits for it.
    pub(crate) complete: bool,
}

/// The bytes that this side receives.
#[derive(Debug, Default)]
pub(crate) struct ReceiveHalf {
    pages: Pages,
    /// What has been received, below `read` included.
    pub(crate) received: RangeSet,
    /// Everything below has been handed to the reader.
    pub(crate) read: u64,
    /// End of the highest byte received.
    pub(crate) highest: u64,
    /// Length of the stream, once known.
    pub(crate) size: Option<u64>,
    /// How far the peer may send.
    pub(crate) granted: u64,
    /// What had been read when that was last raised.
    pub(crate) read_at_grant: u64,
    /// How fast it is read.
    pub(crate) reader: Reader,
    /// A CREDIT waits for a path.
    pub(crate) credit_queued: bool,
    /// Version of the newest change, for reports.
    pub(crate) version: u64,
    /// The reader has been told that there is something, and has not come for it.
    pub(crate) announced: bool,
    /// The reader has seen the end.
    pub(crate) ended: bool,
    /// The peer's RESET has arrived.
    pub(crate) reset: bool,
    /// Its code, while the program still reads what had arrived as a whole before.
    pub(crate) late_reset: Option<u64>,
}

impl Stream {
    pub(crate) fn new(id: StreamId, class: Class, send_limit: u64, granted: u64) -> Self {
        Self {
            id,
            class,
            learner: None,
            hints: Hints::default(),
            send: SendHalf {
                limit: send_limit,
                ..SendHalf::default()
            },
            receive: ReceiveHalf {
                granted,
                ..ReceiveHalf::default()
            },
            opened: false,
            accepted: false,
            reset_sent: false,
            discard: false,
            abandoned: false,
        }
    }

    /// Sets the class; `None` for one that is learnt from what the stream does.
    pub(crate) fn set_class(&mut self, class: Option<Class>, now: Instant) {
        self.class = class.unwrap_or(learn::FIRST);
        self.learner = class.is_none().then(|| Learner::new(now));
    }

    /// Has the learner take note, if there is one.
    pub(crate) fn learn(&mut self, note: impl FnOnce(&mut Learner)) {
        if let Some(learner) = &mut self.learner {
            note(learner);
            self.class = learner.class();
        }
    }

    /// The stream's number.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// The traffic class by which what this side sends is treated; it may change.
    pub fn class(&self) -> Class {
        self.class
    }

    /// What its program wants beyond that.
    pub fn hints(&self) -> &Hints {
        &self.hints
    }

    /// When the lowest byte that is on no path is wanted at the peer; nothing without a deadline.
    pub fn wanted_at(&self) -> Option<Instant> {
        let first = self.send.unsent.first()?.start;
        let mut due = self.send.due.iter();
        due.find(|(end, _)| first < *end).map(|(_, at)| *at)
    }

    /// Written bytes that are on no path.
    pub fn unsent(&self) -> &RangeSet {
        &self.send.unsent
    }

    /// Offset below which the peer has everything.
    pub fn acknowledged(&self) -> u64 {
        self.send.base
    }

    /// Bytes that the peer is known to have and cannot hand on, since some before them are missing.
    pub fn held_back(&self) -> u64 {
        let ranges = self.send.acked.iter();
        ranges.map(|range| range.end - range.start).sum()
    }

    /// Offset after the last byte written so far.
    pub fn written(&self) -> u64 {
        self.send.written
    }

    /// Whether the program has written its last byte.
    pub fn is_finished(&self) -> bool {
        self.send.finished
    }

    /// Offset after the highest byte that has been given to a path.
    pub fn highest_sent(&self) -> u64 {
        self.send.highest
    }

    /// The parts of `range` that the peer has not acknowledged.
    pub fn unacknowledged(&self, range: Range<u64>) -> Vec<Range<u64>> {
        self.send.unacknowledged(range)
    }

    /// Neither direction has anything left to do.
    ///
    /// In any case the peer's bytes are counted up to their end: a stream forgotten before that would leave the
    /// two sides with different opinions of the session's credit.
    pub(crate) fn is_over(&self) -> bool {
        let counted = self.receive.size == Some(self.receive.highest);
        counted && (self.receive.ended || self.discard) && (self.reset_sent || self.send.complete)
    }
}

impl SendHalf {
    /// Bytes written and not acknowledged as a whole prefix: what the buffer holds.
    pub(crate) fn buffered(&self) -> u64 {
        self.written - self.base
    }

    pub(crate) fn write(&mut self, data: &[u8], spare: &mut Spare) {
        self.bytes.write(self.written, data, spare);
        self.note_written(data.len());
    }

    /// As `write`, of memory that is shared with the program.
    pub(crate) fn share(&mut self, chunk: Bytes, spare: &mut Spare) {
        let len = chunk.len();
        self.bytes.share(self.written, chunk, spare);
        self.note_written(len);
    }

    fn note_written(&mut self, len: usize) {
        let end = self.written + len as u64;
        self.unsent.insert(self.written..end);
        self.written = end;
    }

    /// What has been written last is wanted at the peer `within` this time.
    pub(crate) fn wants(&mut self, within: Duration, now: Instant) {
        let at = now + within;
        match self.due.back_mut() {
            // Writes close together share an entry, which bounds their number.
            Some((end, last)) if at.saturating_sub(*last) < MERGED => *end = self.written,
            _ => self.due.push_back((self.written, at)),
        }
    }

    pub(crate) fn read(&self, range: Range<u64>, out: &mut Vec<u8>) {
        self.bytes.read(range, |part| out.extend_from_slice(part));
    }

    pub(crate) fn unacknowledged(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut missing = Vec::new();
        let mut at = range.start.max(self.base);
        for acked in self.acked.within(at..range.end.max(at)) {
            if at < acked.start {
                missing.push(at..acked.start);
            }
            at = acked.end;
        }
        if at < range.end {
            missing.push(at..range.end);
        }
        missing
    }

    /// Notes that the peer has `range`; frees what no longer has to be kept.
    pub(crate) fn acknowledge(&mut self, range: Range<u64>, spare: &mut Spare) {
        let range = range.start.max(self.base)..range.end;
        if range.is_empty() {
            return;
        }
        self.unsent.remove(range.clone());
        self.again.remove(range.clone());
        self.acked.insert(range);
        if let Some(first) = self.acked.first()
            && first.start <= self.base
        {
            self.base = first.end;
            self.acked.remove(first);
            self.bytes.free_below(self.base, spare);
            while self.due.front().is_some_and(|(end, _)| *end <= self.base) {
                self.due.pop_front();
            }
        }
    }

    /// Bytes that were on a path which failed: unsent again, unless acknowledged.
    pub(crate) fn requeue(&mut self, range: Range<u64>) {
        for missing in self.unacknowledged(range) {
            self.again.insert(missing.clone());
            self.unsent.insert(missing);
        }
    }

    /// The peer has every byte and the end.
    pub(crate) fn is_delivered(&self) -> bool {
        self.finished && self.fin_confirmed && self.base == self.written
    }

    /// Forgets all bytes: the stream is reset, or the peer needs none of them.
    pub(crate) fn abandon(&mut self, spare: &mut Spare) {
        self.bytes.clear(spare);
        self.unsent = RangeSet::new();
        self.again = RangeSet::new();
        self.acked = RangeSet::new();
        self.due = VecDeque::new();
        self.base = self.written;
        self.finished = true;
        self.complete = true;
    }
}

impl ReceiveHalf {
    /// Memory in pages.
    pub(crate) fn held_bytes(&self) -> usize {
        self.pages.held_bytes()
    }

    /// Everything below this offset has been received.
    pub(crate) fn contiguous(&self) -> u64 {
        self.received
            .first()
            .filter(|first| first.start == 0)
            .map_or(0, |first| first.end)
    }

    /// Bytes received behind a gap.
    pub(crate) fn reordered(&self) -> u64 {
        self.received.total() - self.contiguous()
    }

    /// Bytes that the reader can have now.
    pub(crate) fn readable(&self) -> u64 {
        self.contiguous() - self.read
    }

    /// There is something that the reader has not been told of.
    pub(crate) fn is_news(&self) -> bool {
        !self.announced && (self.readable() > 0 || self.is_whole() && !self.ended)
    }

    /// All bytes are received.
    pub(crate) fn is_whole(&self) -> bool {
        self.size == Some(self.contiguous())
    }

    /// Stores `data`; returns how many of its bytes are new.
    pub(crate) fn store(&mut self, offset: u64, data: &[u8], spare: &mut Spare) -> u64 {
        let end = offset + data.len() as u64;
        self.highest = self.highest.max(end);
        let new = self.received.insert(offset..end);
        // Bytes below `read` are in the set, so a frame with anything new may still reach below it.
        let from = offset.max(self.read);
        if new > 0 && from < end {
            self.pages
                .write(from, &data[(from - offset) as usize..], spare);
        }
        new
    }

    /// Hands at most `most` bytes to the reader, in pieces.
    pub(crate) fn take(
        &mut self,
        most: usize,
        give: impl FnMut(&[u8]),
        spare: &mut Spare,
    ) -> usize {
        let len = self.readable().min(most as u64);
        self.pages.read(self.read..self.read + len, give);
        self.read += len;
        self.pages.free_below(self.read, spare);
        len as usize
    }

    /// Pages in which what can be read lies.
    pub(crate) fn readable_pages(&self) -> usize {
        let page = PAGE as u64;
        match self.readable() {
            0 => 0,
            len => ((self.read + len).div_ceil(page) - self.read / page) as usize,
        }
    }

    /// Hands what lies in at most `most` pages to the reader; returns how many bytes.
    pub(crate) fn hand_over(
        &mut self,
        most: usize,
        out: &mut Received,
        spare: &mut Spare,
    ) -> usize {
        let end_page = (self.read / PAGE as u64).saturating_add(most as u64);
        let end = end_page.saturating_mul(PAGE as u64).min(self.contiguous());
        let range = self.read..end.max(self.read);
        let len = (range.end - range.start) as usize;
        self.read = range.end;
        self.pages.hand_over(range, spare, out);
        len
    }

    /// Drops what has been received and treats it as read.
    pub(crate) fn drop_all(&mut self, spare: &mut Spare) {
        self.pages.clear(spare);
        self.received.insert(0..self.highest);
        self.read = self.highest;
    }
}
