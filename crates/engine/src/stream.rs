//! A stream: its two directions, each with its bytes and their state.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;

use crate::learn::{self, Learner};
use crate::outgoing::Outgoing;
use crate::page::PAGE;
use crate::pages::{Pages, Spare};
use crate::ranges::RangeSet;
use crate::reader::Reader;
use crate::received::Received;
use crate::waiting::Arrivals;
use crate::{Class, Hints, Instant, StreamId};

/// Deadlines closer together than this count as one.
const MERGED: Duration = Duration::from_millis(1);

/// One ordered byte stream each way.
#[derive(Debug)]
pub struct Stream {
    pub(crate) id: StreamId,
    pub(crate) class: Class,
    /// Learns the class of the stream, if the program has set none.
    pub(crate) learner: Option<Learner>,
    pub(crate) hints: Hints,
    pub(crate) send: SendHalf,
    pub(crate) receive: ReceiveHalf,
    /// The peer's OPEN has arrived, or this side opened the stream.
    pub(crate) opened: bool,
    /// The peer's ACCEPT has arrived.
    pub(crate) accepted: bool,
    /// A RESET has been sent.
    pub(crate) reset_sent: bool,
    /// No reader is left; data that arrives is dropped.
    pub(crate) discard: bool,
    /// The program has closed its end. The stream is reset once the written bytes have arrived.
    pub(crate) abandoned: bool,
}

/// The bytes that this side sends.
#[derive(Debug, Default)]
pub(crate) struct SendHalf {
    bytes: Outgoing,
    /// Every byte below this offset is acknowledged and freed.
    pub(crate) base: u64,
    /// Acknowledged bytes above `base`.
    pub(crate) acked: RangeSet,
    /// Bytes written and not on any path.
    pub(crate) unsent: RangeSet,
    /// The part of `unsent` that has been on a path before.
    pub(crate) again: RangeSet,
    /// Offset of the next written byte.
    pub(crate) written: u64,
    /// Deadlines: the ends of unacknowledged writes, ascending, and the time for each.
    pub(crate) due: VecDeque<(u64, Instant)>,
    /// Times at which some bytes were written, by the offset after them, ascending; for the
    /// selector.
    pub(crate) marks: VecDeque<(u64, Instant)>,
    /// The last write left no space in the send buffer.
    pub(crate) is_filled: bool,
    /// Offset that the peer permits this side to send up to.
    pub(crate) limit: u64,
    /// End of the highest byte ever handed to a path.
    pub(crate) highest: u64,
    /// The value of `highest` when the newest credit came, which also shows that the reader reads.
    pub(crate) highest_at_credit: u64,
    /// The program has written its last byte.
    pub(crate) finished: bool,
    /// A FIN is queued, in flight or acknowledged.
    pub(crate) fin_queued: bool,
    /// The FIN has reached the peer.
    pub(crate) fin_confirmed: bool,
    /// All bytes and the end are acknowledged, or the peer does not need them.
    pub(crate) complete: bool,
}

/// The bytes that this side receives.
#[derive(Debug, Default)]
pub(crate) struct ReceiveHalf {
    pages: Pages,
    /// The bytes received, including those below `read`.
    pub(crate) received: RangeSet,
    /// Every byte below this offset has been handed to the reader.
    pub(crate) read: u64,
    /// End of the highest byte received.
    pub(crate) highest: u64,
    /// Length of the stream, once known.
    pub(crate) size: Option<u64>,
    /// Offset that the peer may send up to.
    pub(crate) granted: u64,
    /// The value of `read` when `granted` was last raised.
    pub(crate) read_at_grant: u64,
    /// Statistics of the reader's rate.
    pub(crate) reader: Reader,
    /// When the bytes behind gaps arrived.
    pub(crate) arrivals: Arrivals,
    /// A CREDIT is queued for sending.
    pub(crate) credit_queued: bool,
    /// Version of the newest change, for reports.
    pub(crate) version: u64,
    /// The reader has been notified of readable data and has not read it yet.
    pub(crate) announced: bool,
    /// The reader has seen the end.
    pub(crate) ended: bool,
    /// The peer's RESET has arrived.
    pub(crate) reset: bool,
    /// The code of a RESET that arrived after the whole stream, while the program still reads the
    /// stream.
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

    /// Sets the class; with `None` it is learned from the stream's traffic.
    pub(crate) fn set_class(&mut self, class: Option<Class>, now: Instant) {
        self.class = class.unwrap_or(learn::FIRST);
        self.learner = class.is_none().then(|| Learner::new(now));
    }

    /// The class that bounds the send buffer. While the class is not learned, the stream may be
    /// bulk, which needs the most.
    pub(crate) fn buffer_class(&self) -> Class {
        match &self.learner {
            Some(learner) if !learner.is_sure() => Class::Background,
            _ => self.class,
        }
    }

    /// Passes an observation to the learner, if the stream has one.
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

    /// The traffic class of the bytes that this side sends; it may change.
    pub fn class(&self) -> Class {
        self.class
    }

    /// The program's hints beyond the class.
    pub fn hints(&self) -> &Hints {
        &self.hints
    }

    /// Deadline of the lowest unsent byte; none without a deadline.
    pub fn wanted_at(&self) -> Option<Instant> {
        let first = self.send.unsent.first()?.start;
        let mut due = self.send.due.iter();
        due.find(|(end, _)| first < *end).map(|(_, at)| *at)
    }

    /// Written bytes that are not on any path.
    pub fn unsent(&self) -> &RangeSet {
        &self.send.unsent
    }

    /// Offset below which the peer has acknowledged every byte.
    pub fn acknowledged(&self) -> u64 {
        self.send.base
    }

    /// Bytes that the peer has received but cannot deliver yet, since bytes before them are
    /// missing.
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

    /// Whether neither direction has anything left to do.
    ///
    /// The peer's bytes are counted up to their end in any case. If a stream were forgotten
    /// earlier, the two sides would disagree about the session's credit.
    pub(crate) fn is_over(&self) -> bool {
        let counted = self.receive.size == Some(self.receive.highest);
        counted && (self.receive.ended || self.discard) && (self.reset_sent || self.send.complete)
    }
}

impl SendHalf {
    /// Bytes in the send buffer: from the lowest unacknowledged byte to the end of the written
    /// data.
    pub(crate) fn buffered(&self) -> u64 {
        self.written - self.base
    }

    pub(crate) fn write(&mut self, data: &[u8], spare: &mut Spare) {
        self.bytes.write(self.written, data, spare);
        self.note_written(data.len());
    }

    /// Like `write`, for memory that is shared with the program.
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

    /// Sets a deadline for the latest write: its bytes should reach the peer `within` this time.
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

    /// Returns bytes of a failed path to `unsent`, unless they are acknowledged.
    pub(crate) fn requeue(&mut self, range: Range<u64>) {
        for missing in self.unacknowledged(range) {
            self.again.insert(missing.clone());
            self.unsent.insert(missing);
        }
    }

    /// Whether the peer has every byte and the end.
    pub(crate) fn is_delivered(&self) -> bool {
        self.finished && self.fin_confirmed && self.base == self.written
    }

    /// Frees all bytes: the stream is reset, or the peer needs none of them.
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

    /// Bytes that the reader can read now.
    pub(crate) fn readable(&self) -> u64 {
        self.contiguous() - self.read
    }

    /// Whether the reader has not been notified yet of readable data or of the end.
    pub(crate) fn needs_notice(&self) -> bool {
        !self.announced && (self.readable() > 0 || self.is_whole() && !self.ended)
    }

    /// Whether all bytes have been received.
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

    /// Number of pages that hold the readable bytes.
    pub(crate) fn readable_pages(&self) -> usize {
        let page = PAGE as u64;
        match self.readable() {
            0 => 0,
            len => ((self.read + len).div_ceil(page) - self.read / page) as usize,
        }
    }

    /// Hands the bytes in at most `most` pages to the reader; returns how many bytes.
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

    /// Drops the received bytes and counts them as read.
    pub(crate) fn drop_all(&mut self, spare: &mut Spare) {
        self.pages.clear(spare);
        self.arrivals.clear();
        self.received.insert(0..self.highest);
        self.read = self.highest;
    }
}
