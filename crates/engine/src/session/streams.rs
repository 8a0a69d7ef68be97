//! Stream operations of programs.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{Event, ReadOutcome, Session, StreamError};
use crate::backlog::{BULK_LIMIT, Bounds};
use crate::frame::MAX_TEXT;
use crate::pages::Spare;
use crate::path::{Control, Path, PathState};
use crate::received::Received;
use crate::stream::{ReceiveHalf, SendHalf, Stream};
use crate::varint;
use crate::{Class, Hints, Instant, Role, StreamId};

/// A stored chunk may keep this much memory alive, however little of it counts ...
const LARGEST_CHUNK: u64 = 1 << 18;

/// ... and all chunks together at most this part of the session's memory.
const UNCOUNTED: u64 = 8;

/// Space in a send buffer that is worth a wake-up, unless the stream's limit is smaller.
const WORTH_A_WAKE_UP: u64 = 32 * 1024;

/// Send buffers hold this many bandwidth-delay products of all paths: FBDT's windows of two, and
/// the next windows, which open while the slowest path's bytes are still in flight.
const SEND_BUFFER_BDP: f64 = 6.0;

impl Session {
    /// Opens a stream to `target` (at most 512 bytes, opaque here). Bytes may be written at once;
    /// [`Event::Accepted`] or [`Event::Reset`] reports the outcome. Without a class, both sides
    /// learn it from the stream's traffic.
    pub fn open_stream(
        &mut self,
        target: &[u8],
        class: impl Into<Option<Class>>,
        now: Instant,
    ) -> Result<StreamId, StreamError> {
        let class = class.into();
        if self.closed {
            return Err(StreamError::Closed);
        }
        if target.len() > MAX_TEXT {
            return Err(StreamError::TargetTooLong);
        }
        if self.next_stream >= self.send_credit.streams
            || self.own_streams >= self.config.max_streams
        {
            return Err(StreamError::NoMoreStreams);
        }
        let id = self.next_stream * 2 + u64::from(self.config.role == Role::Server);
        self.schedulers.note_change();
        self.next_stream += 1;
        self.own_streams += 1;
        self.counters.opened += 1;
        let mut stream = Stream::new(
            id,
            Class::default(),
            self.send_credit.initial,
            self.receive_credit.initial,
        );
        stream.set_class(class, now);
        stream.opened = true;
        self.streams.insert(id, stream);
        let target: Arc<[u8]> = target.into();
        self.queue(
            Control::Open {
                stream: id,
                // Without a class the peer learns its own.
                class: Class::to_open(class),
                target,
            },
            now,
        );
        Ok(id)
    }

    /// Sets the class of the bytes that this side sends on a stream; with `None` it is learned from
    /// the traffic. The peer's direction is not affected.
    pub fn set_class(
        &mut self,
        stream: StreamId,
        class: Option<Class>,
        now: Instant,
    ) -> Result<(), StreamError> {
        self.stream_mut(stream)?.set_class(class, now);
        self.schedulers.stream_ready(stream);
        Ok(())
    }

    /// Sets the hints for the bytes that this side sends on a stream. The deadline applies to later
    /// writes.
    pub fn set_hints(&mut self, stream: StreamId, hints: Hints) -> Result<(), StreamError> {
        self.stream_mut(stream)?.hints = hints;
        self.schedulers.stream_ready(stream);
        Ok(())
    }

    /// Informs the peer that its stream is connected.
    pub fn accept(&mut self, stream: StreamId, now: Instant) -> Result<(), StreamError> {
        self.stream_mut(stream)?;
        self.queue(Control::Accept { stream }, now);
        Ok(())
    }

    /// Accepts as much of `data` as the send buffer has space for. [`Event::Writable`] follows a
    /// short count.
    pub fn write(
        &mut self,
        stream: StreamId,
        data: &[u8],
        now: Instant,
    ) -> Result<usize, StreamError> {
        self.take(stream, data.len(), now, |send, len, spare| {
            send.write(&data[..len], spare);
        })
    }

    /// Like [`Session::write`], without a copy for chunks of 4 KiB or more. The session keeps the
    /// accepted part of such a chunk until the peer has all of it, and so keeps the memory that the
    /// chunk is part of. That memory is not counted, so the session copies when it has more streams
    /// than its memory can hold at 2 MiB each.
    pub fn write_chunk(
        &mut self,
        stream: StreamId,
        chunk: &Bytes,
        now: Instant,
    ) -> Result<usize, StreamError> {
        let most = self.streams.len() as u64 * LARGEST_CHUNK;
        if most > self.config.memory / UNCOUNTED {
            return self.write(stream, chunk, now);
        }
        self.take(stream, chunk.len(), now, |send, len, spare| {
            send.share(chunk.slice(..len), spare);
        })
    }

    /// Lets `write` store as many of `offered` bytes in a stream as the send buffer has space for.
    fn take(
        &mut self,
        stream: StreamId,
        offered: usize,
        now: Instant,
        write: impl FnOnce(&mut SendHalf, usize, &mut Spare),
    ) -> Result<usize, StreamError> {
        let space = self.send_space(stream)?;
        self.schedulers.note_change();
        let len = offered.min(space as usize);
        let spare = &mut self.spare;
        let Some(state) = self.streams.get_mut(&stream) else {
            return Err(StreamError::Unknown);
        };
        if state.send.finished {
            return Err(StreamError::Finished);
        }
        let has_deadline = state.hints.deadline.is_some();
        let unsent = state.send.unsent.total();
        write(&mut state.send, len, spare);
        if len > 0 {
            // A program that wants to write more than the send buffer takes is ahead of the paths.
            let was_filled = std::mem::replace(&mut state.send.is_filled, len as u64 == space);
            let is_behind = unsent > 0 || len < offered || was_filled;
            state.learn(|learner| learner.wrote(len as u64, is_behind, now));
            if let Some(within) = state.hints.deadline {
                state.send.wants(within, now);
            }
            if !is_behind {
                self.selecting.note_written(&mut state.send, now);
            }
        }
        self.send_credit.buffered += len as u64;
        self.counters.written += len as u64;
        // Bytes with a deadline may have got it just now.
        if len > 0 && (self.ready.insert(stream) || has_deadline) {
            self.schedulers.stream_ready(stream);
        }
        self.writers.wrote(stream, len < offered);
        Ok(len)
    }

    /// Bytes that a write would accept now.
    pub fn send_space(&self, stream: StreamId) -> Result<u64, StreamError> {
        if self.closed {
            return Err(StreamError::Closed);
        }
        let state = self.streams.get(&stream).ok_or(StreamError::Unknown)?;
        Ok(self.send_space_of(state, &self.send_bounds()))
    }

    /// Bytes that the stream's send buffer may hold, from its class and the rate of the session; 0
    /// for a stream that does not exist. A driver with a buffer of its own in front of it derives
    /// the size of that buffer from this one.
    pub fn send_bound(&self, stream: StreamId) -> u64 {
        let state = self.streams.get(&stream);
        state.map_or(0, |state| self.send_bound_of(state, &self.send_bounds()))
    }

    /// Upper limit of a send buffer, from the latest measurements of the paths.
    fn bulk_buffer(&self) -> u64 {
        BULK_LIMIT.max((SEND_BUFFER_BDP * self.bandwidth_delay()) as u64)
    }

    /// What the paths say about send buffers.
    fn send_bounds(&self) -> Bounds {
        let delivering = self.paths.values();
        let delivering = delivering.filter(|path| path.state == PathState::Active);
        let growing = delivering.clone().filter(|path| path.is_doubling());
        let slowest = delivering.clone().map(Path::min_round_trip).max();
        Bounds {
            bulk: self.bulk_buffer(),
            min_rtt: slowest.unwrap_or_default(),
            latest_rate: delivering.map(Path::rate).sum(),
            growing: growing.map(Path::cwnd).sum(),
        }
    }

    fn send_space_of(&self, state: &Stream, bounds: &Bounds) -> u64 {
        let own = state.send.buffered();
        let left = self.config.receive_window() - self.send_credit.buffered;
        let most = self.send_bound_of(state, bounds);
        let share = self.config.share().more(own, left);
        share.min(most.saturating_sub(own))
    }

    fn send_bound_of(&self, state: &Stream, bounds: &Bounds) -> u64 {
        let bound = self.backlog.bound(state.buffer_class(), bounds);
        bound.min(self.config.stream_memory)
    }

    /// Appends at most `most` received bytes to `out`.
    pub fn read(
        &mut self,
        stream: StreamId,
        most: usize,
        out: &mut Vec<u8>,
        now: Instant,
    ) -> Result<ReadOutcome, StreamError> {
        self.read_with(stream, most, |part| out.extend_from_slice(part), now)
    }

    /// Like [`Session::read`], but passes the bytes to `take` in place, in order and in pieces of
    /// at most [`PAGE`](crate::PAGE) bytes, for a reader that needs no copy.
    pub fn read_with(
        &mut self,
        stream: StreamId,
        most: usize,
        take: impl FnMut(&[u8]),
        now: Instant,
    ) -> Result<ReadOutcome, StreamError> {
        self.read_by(
            stream,
            |receive, spare| receive.take(most, take, spare),
            now,
        )
    }

    /// Like [`Session::read`], but appends at most `most` bytes to `out` in the pages that they
    /// were stored in on arrival. Only bytes in a page that is not full yet are copied.
    pub fn read_pages(
        &mut self,
        stream: StreamId,
        most: usize,
        out: &mut Received,
        now: Instant,
    ) -> Result<ReadOutcome, StreamError> {
        self.read_by(
            stream,
            |receive, spare| receive.hand_over(most, out, spare),
            now,
        )
    }

    /// Number of pages that hold the readable bytes.
    pub fn readable_pages(&self, stream: StreamId) -> Result<usize, StreamError> {
        let state = self.streams.get(&stream).ok_or(StreamError::Unknown)?;
        Ok(state.receive.readable_pages())
    }

    /// Takes back the pages of [`Session::read_pages`], read or not, for data that arrives next.
    /// Pages beyond 1 MiB are freed.
    pub fn recycle(&mut self, pages: Received) {
        self.spare.give_all(pages.into_pages());
    }

    fn read_by(
        &mut self,
        stream: StreamId,
        take: impl FnOnce(&mut ReceiveHalf, &mut Spare) -> usize,
        now: Instant,
    ) -> Result<ReadOutcome, StreamError> {
        self.schedulers.note_change();
        let state = self.streams.get_mut(&stream).ok_or(StreamError::Unknown)?;
        let len = take(&mut state.receive, &mut self.spare);
        let finished = state.receive.size == Some(state.receive.read);
        state.receive.ended |= finished;
        if finished && let Some(code) = state.receive.late_reset.take() {
            self.events.push_back(Event::Reset { stream, code });
        }
        if state.receive.readable() == 0 {
            state.receive.announced = false;
        }
        self.counters.read += len as u64;
        self.release(stream, len as u64, now);
        self.retire_if_over(stream, now);
        Ok(ReadOutcome { len, finished })
    }

    /// Ends the writing direction; the peer reads the end after the last byte.
    pub fn finish(&mut self, stream: StreamId, now: Instant) -> Result<(), StreamError> {
        let state = self.stream_mut(stream)?;
        state.send.finished = true;
        if !state.send.fin_queued {
            state.send.fin_queued = true;
            let size = state.send.written;
            self.writers.remove(stream);
            self.queue(Control::Fin { stream, size }, now);
        }
        Ok(())
    }

    /// Ends both directions at once; data that has not arrived is lost.
    pub fn reset(&mut self, stream: StreamId, code: u64, now: Instant) {
        self.schedulers.note_change();
        self.end_sending(stream, code, now);
        self.discard_received(stream, now);
        self.retire_if_over(stream, now);
    }

    /// The program has closed its end. Its written bytes are still delivered, and arriving bytes
    /// are dropped. Once all are delivered the stream is reset with code 0, so that the peer stops
    /// sending.
    pub fn abandon(&mut self, stream: StreamId, now: Instant) {
        self.schedulers.note_change();
        // A stream that is reset or has ended has nothing to finish.
        let _ = self.finish(stream, now);
        let Some(state) = self.streams.get_mut(&stream) else {
            return;
        };
        state.abandoned = true;
        self.discard_received(stream, now);
        self.retire_if_over(stream, now);
        self.reset_if_abandoned(stream, now);
    }

    /// The program wants no more received data, so arriving bytes are dropped. The writing
    /// direction continues, until [`Session::abandon`] at the latest.
    pub fn ignore_received(&mut self, stream: StreamId, now: Instant) {
        self.discard_received(stream, now);
        self.retire_if_over(stream, now);
    }

    /// Bandwidth-delay product in bytes: the sum of the rates times the largest round-trip time.
    pub(super) fn bandwidth_delay(&self) -> f64 {
        let rate: f64 = self.paths.values().map(Path::rate).sum();
        let rtt = self
            .paths
            .values()
            .map(Path::srtt)
            .max()
            .unwrap_or(Duration::ZERO);
        rate * rtt.as_secs_f64()
    }

    /// Resets the direction that this side sends, unless it is already reset.
    pub(super) fn end_sending(&mut self, stream: StreamId, code: u64, now: Instant) {
        let Some(state) = self
            .streams
            .get_mut(&stream)
            .filter(|state| !state.reset_sent)
        else {
            return;
        };
        state.reset_sent = true;
        let (code, size) = (code.min(varint::MAX), state.send.highest);
        let freed = state.send.buffered();
        self.send_credit.buffered -= freed;
        self.send_credit.pieces -= state.send.acked.count();
        state.send.abandon(&mut self.spare);
        self.ready.remove(&stream);
        self.writers.remove(stream);
        self.schedulers.stream_gone(stream);
        self.queue(Control::Reset { stream, code, size }, now);
        if freed > 0 {
            self.announce_writable();
        }
    }

    /// Treats all received data, now and later, as read.
    pub(super) fn discard_received(&mut self, stream: StreamId, now: Instant) {
        let Some(state) = self.streams.get_mut(&stream) else {
            return;
        };
        state.discard = true;
        let unread = state.receive.highest - state.receive.read;
        self.counters.reorder -= state.receive.reordered();
        self.counters.pieces -= state.receive.received.count();
        state.receive.drop_all(&mut self.spare);
        self.counters.pieces += state.receive.received.count();
        self.release(stream, unread, now);
    }

    /// Forgets a stream if neither direction has anything left to do.
    pub(super) fn retire_if_over(&mut self, stream: StreamId, now: Instant) {
        if !self.streams.get(&stream).is_some_and(Stream::is_over) {
            return;
        }
        let Some(state) = self.streams.remove(&stream) else {
            return;
        };
        self.send_credit.buffered -= state.send.buffered();
        self.send_credit.pieces -= state.send.acked.count();
        self.counters.pieces -= state.receive.received.count();
        self.ready.remove(&stream);
        self.writers.remove(stream);
        self.schedulers.stream_gone(stream);
        self.reports.stream_retired(stream, state.receive.version);
        let (index, ours) = self.split_id(stream);
        if ours {
            if self.own_streams == self.config.max_streams {
                self.announce_streams_available();
            }
            self.own_streams -= 1;
        } else {
            self.retired.insert(index..index + 1);
            let unused = self.receive_credit.streams - self.retired.total();
            if unused <= self.config.max_streams * 3 / 4 {
                self.queue(Control::CreditStreams, now);
            }
        }
    }

    /// Resets a stream whose program has closed its end, once the written bytes have arrived:
    /// nothing will read the rest.
    pub(super) fn reset_if_abandoned(&mut self, stream: StreamId, now: Instant) {
        let state = self.streams.get(&stream);
        if state.is_some_and(|state| state.abandoned && state.send.complete) {
            self.reset(stream, 0, now);
        }
    }

    /// Reports which streams can be written again, once the space is worth a wake-up. The space may
    /// come from the bytes of other streams than the waiting ones.
    pub(super) fn announce_writable(&mut self) {
        if self.writers.blocked().is_empty() {
            return;
        }
        let bounds = self.send_bounds();
        let mut writers = std::mem::take(&mut self.writers);
        let writable = writers.notify(|stream| {
            let state = self.streams.get(&stream);
            // A stream with an empty send buffer always has at least this much space.
            let worth = WORTH_A_WAKE_UP.min(self.config.share().floor());
            state.is_some_and(|state| self.send_space_of(state, &bounds) >= worth)
        });
        self.writers = writers;
        for stream in writable {
            self.events.push_back(Event::Writable { stream });
        }
    }

    /// Reports it once, until the owner has taken the event.
    pub(super) fn announce_streams_available(&mut self) {
        if self.events.back() != Some(&Event::StreamsAvailable) {
            self.events.push_back(Event::StreamsAvailable);
        }
    }

    /// A stream that is still in use; a stream that this side has reset is not.
    pub(super) fn stream_mut(&mut self, stream: StreamId) -> Result<&mut Stream, StreamError> {
        if self.closed {
            return Err(StreamError::Closed);
        }
        self.schedulers.note_change();
        let state = self
            .streams
            .get_mut(&stream)
            .filter(|state| !state.reset_sent);
        state.ok_or(StreamError::Unknown)
    }
}
