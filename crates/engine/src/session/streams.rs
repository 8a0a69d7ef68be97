//! What programs do with streams.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{Event, ReadOutcome, Session, StreamError};
use crate::backlog::{BULK_MINIMUM, Bounds};
use crate::frame::MAX_TEXT;
use crate::pages::Spare;
use crate::path::{Control, Path, PathState};
use crate::received::Received;
use crate::stream::{ReceiveHalf, SendHalf, Stream};
use crate::varint;
use crate::{Class, Hints, Instant, Role, StreamId};

/// A chunk that is kept may hold so much, however little of it counts ...
const LARGEST_CHUNK: u64 = 1 << 18;

/// ... and all of them together this part of the session's memory.
const UNCOUNTED: u64 = 8;

/// Room in a send buffer that is worth a wake-up, unless the stream may not have so much.
const WORTH_A_WAKE_UP: u64 = 32 * 1024;

/// Send buffers hold this many bandwidth-delay products of all paths: FBDT's windows of two, and the next ones to
/// open while the slowest path's bytes are still under way.
const SEND_BUFFER_BDP: f64 = 6.0;

impl Session {
    /// Opens a stream to `target` (at most 512 bytes, opaque here). Bytes may be written at once; [`Event::Accepted`]
    /// or [`Event::Reset`] tells how it went. Without a class, both sides learn it from what the stream does.
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
                // The peer learns by itself what nobody has told.
                class: Class::to_open(class),
                target,
            },
            now,
        );
        Ok(id)
    }

    /// Has what this side sends on a stream treated as of a class, or as of what the stream itself shows. The peer decides
    /// for itself.
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

    /// What the program wants of what it sends on a stream; the deadline is for what is written from now on.
    pub fn set_hints(&mut self, stream: StreamId, hints: Hints) -> Result<(), StreamError> {
        self.stream_mut(stream)?.hints = hints;
        self.schedulers.stream_ready(stream);
        Ok(())
    }

    /// Tells the peer that its stream is connected.
    pub fn accept(&mut self, stream: StreamId, now: Instant) -> Result<(), StreamError> {
        self.stream_mut(stream)?;
        self.queue(Control::Accept { stream }, now);
        Ok(())
    }

    /// Takes as much of `data` as there is room for; [`Event::Writable`] follows a short count.
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

    /// As [`Session::write`], without a copy: of a chunk of 4 KiB or more the session keeps what it takes until the peer has all
    /// of it, and with that the memory of which the chunk is a part. That is not counted, so with more streams than the session's
    /// memory has room for at 2 MiB each it copies.
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

    /// Has `write` put as many of `offered` bytes into a stream as there is room for.
    fn take(
        &mut self,
        stream: StreamId,
        offered: usize,
        now: Instant,
        write: impl FnOnce(&mut SendHalf, usize, &mut Spare),
    ) -> Result<usize, StreamError> {
        let room = self.room(stream)?;
        self.schedulers.note_change();
        let len = offered.min(room as usize);
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
            // A program that wants to write more than there is room for is ahead of the paths in any case.
            let is_behind = unsent > 0 || len < offered;
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
        // What has a deadline may have got one just now.
        if len > 0 && (self.ready.insert(stream) || has_deadline) {
            self.schedulers.stream_ready(stream);
        }
        if len < offered {
            self.blocked.insert(stream);
        } else {
            self.blocked.remove(&stream);
        }
        Ok(len)
    }

    /// Bytes that a write would take now.
    pub fn room(&self, stream: StreamId) -> Result<u64, StreamError> {
        if self.closed {
            return Err(StreamError::Closed);
        }
        let state = self.streams.get(&stream).ok_or(StreamError::Unknown)?;
        Ok(self.room_of(state, &self.send_bounds()))
    }

    /// Upper limit of a send buffer, from the latest measurements of the paths.
    fn bulk_buffer(&self) -> u64 {
        BULK_MINIMUM.max((SEND_BUFFER_BDP * self.bandwidth_delay()) as u64)
    }

    /// What the paths say about send buffers.
    fn send_bounds(&self) -> Bounds {
        let delivering = self.paths.values();
        let delivering = delivering.filter(|path| path.state == PathState::Active);
        let growing = delivering.clone().filter(|path| path.is_doubling());
        Bounds {
            bulk: self.bulk_buffer(),
            min_rtt: delivering.map(Path::least_rtt).max().unwrap_or_default(),
            growing: growing.map(Path::cwnd).sum(),
        }
    }

    fn room_of(&self, state: &Stream, bounds: &Bounds) -> u64 {
        let own = state.send.buffered();
        let left = self.config.receive_window() - self.send_credit.buffered;
        let bound = self.backlog.bound(state.class, bounds);
        let most = bound.min(self.config.stream_memory);
        let share = self.config.share().more(own, left);
        share.min(most.saturating_sub(own))
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

    /// As [`Session::read`], but the bytes are given to `take` where they are, in pieces of at most [`PAGE`](crate::PAGE)
    /// bytes in their order: for a reader that has no use for a copy.
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

    /// As [`Session::read`], but the bytes come behind what `out` has and in the pages into which they were put when they arrived, at
    /// most so many: only what lies in a page that is not full yet is copied.
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

    /// Pages in which what can be read lies.
    pub fn readable_pages(&self, stream: StreamId) -> Result<usize, StreamError> {
        let state = self.streams.get(&stream).ok_or(StreamError::Unknown)?;
        Ok(state.receive.readable_pages())
    }

    /// Takes back the pages of [`Session::read_pages`], read or not, for what arrives next; beyond 1 MiB of them it has no use for
    /// more.
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

    /// No more writes; the peer reads the end after the last byte.
    pub fn finish(&mut self, stream: StreamId, now: Instant) -> Result<(), StreamError> {
        let state = self.stream_mut(stream)?;
        state.send.finished = true;
        if !state.send.fin_queued {
            state.send.fin_queued = true;
            let size = state.send.written;
            self.blocked.remove(&stream);
            self.queue(Control::Fin { stream, size }, now);
        }
        Ok(())
    }

    /// Ends both directions at once; what has not arrived is lost.
    pub fn reset(&mut self, stream: StreamId, code: u64, now: Instant) {
        self.schedulers.note_change();
        self.end_sending(stream, code, now);
        self.discard_received(stream, now);
        self.retire_if_over(stream, now);
    }

    /// The program has gone away: what it wrote is still delivered, what arrives for it is dropped. Once all is
    /// delivered the stream is reset with code 0, so that a peer does not send for nobody.
    pub fn abandon(&mut self, stream: StreamId, now: Instant) {
        self.schedulers.note_change();
        // A stream that is reset already, or over, has nothing to finish.
        let _ = self.finish(stream, now);
        let Some(state) = self.streams.get_mut(&stream) else {
            return;
        };
        state.abandoned = true;
        self.discard_received(stream, now);
        self.retire_if_over(stream, now);
        self.reset_if_abandoned(stream, now);
    }

    /// The program wants nothing of what arrives any more: it is dropped. What the program writes goes on, until
    /// [`Session::abandon`] at the latest.
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

    /// Resets the direction that this side sends, unless it has done so.
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
        self.blocked.remove(&stream);
        self.schedulers.stream_gone(stream);
        self.queue(Control::Reset { stream, code, size }, now);
        if freed > 0 {
            self.announce_room();
        }
    }

    /// Treats everything received, now and later, as read.
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

    /// Forgets a stream in which neither direction has anything left to do.
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
        self.blocked.remove(&stream);
        self.schedulers.stream_gone(stream);
        self.reports.stream_retired(stream, state.receive.version);
        let (index, ours) = self.split_id(stream);
        if ours {
            if self.own_streams == self.config.max_streams {
                self.say_streams_available();
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

    /// A stream that its program left is reset once what it wrote has arrived: nobody will read the rest.
    pub(super) fn reset_if_abandoned(&mut self, stream: StreamId, now: Instant) {
        let state = self.streams.get(&stream);
        if state.is_some_and(|state| state.abandoned && state.send.complete) {
            self.reset(stream, 0, now);
        }
    }

    /// Says which streams can be written again, once there is room worth a wake-up. The streams whose bytes made
    /// room may not be the ones that wait for it.
    pub(super) fn announce_room(&mut self) {
        if self.blocked.is_empty() {
            return;
        }
        let bounds = self.send_bounds();
        let mut blocked = std::mem::take(&mut self.blocked);
        blocked.retain(|&stream| {
            let Some(state) = self.streams.get(&stream) else {
                return false;
            };
            // A stream that has nothing buffered has room for this much at least.
            let worth = WORTH_A_WAKE_UP.min(self.config.share().floor());
            let enough = self.room_of(state, &bounds) >= worth;
            if enough {
                self.events.push_back(Event::Writable { stream });
            }
            !enough
        });
        self.blocked = blocked;
    }

    /// Once is enough until the owner has heard it.
    pub(super) fn say_streams_available(&mut self) {
        if self.events.back() != Some(&Event::StreamsAvailable) {
            self.events.push_back(Event::StreamsAvailable);
        }
    }

    /// A stream that still takes part; one that this side reset does not.
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
