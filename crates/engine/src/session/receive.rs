//! Frames that arrive.

use std::ops::Range;

use super::{Event, ProtocolError, Session};
use crate::frame::{Ack, Frame, MAX_BODY};
use crate::path::{Control, PathState, Sent};
use crate::stream::Stream;
use crate::{Class, Instant, PathId, StreamId};

/// Separate pieces, of all streams together, that are kept track of: received ones, and acknowledged ones. A sender
/// that works with windows has a few for each path; the bound is for a peer that means harm.
pub(super) const MAX_PIECES: usize = 64 * 1024;

/// The same for acknowledged ones: reports on paths may confirm them in another order than the streams'.
const MAX_ACKED_PIECES: usize = 4 * MAX_PIECES;

/// Closing code for a peer that broke the protocol.
const CODE_PROTOCOL: u64 = 1;

impl Session {
    /// Bytes that arrived on a path, in the order of its carrier, cut anywhere.
    ///
    /// An error is the peer's fault and ends the session: [`Session::has_farewell`] says whether a last frame is to
    /// be sent.
    pub fn handle_frames(
        &mut self,
        id: PathId,
        bytes: &[u8],
        now: Instant,
    ) -> Result<(), ProtocolError> {
        if self.closed {
            return Ok(());
        }
        let Some(path) = self.paths.get_mut(&id) else {
            return Ok(());
        };
        path.last_received = now;
        path.receive_meter.add(bytes.len() as u64, now);
        let partial = std::mem::take(&mut path.partial);
        let result = self.handle_all(id, partial, bytes, now);
        if let Err(error) = &result {
            self.close(CODE_PROTOCOL, &error.to_string(), now);
        }
        result
    }

    fn handle_all(
        &mut self,
        id: PathId,
        mut partial: Vec<u8>,
        mut bytes: &[u8],
        now: Instant,
    ) -> Result<(), ProtocolError> {
        // The end of a frame that was cut comes first; only as much is copied as a frame can be long.
        while !partial.is_empty() && !bytes.is_empty() {
            let before = partial.len();
            let (head, rest) = bytes.split_at(bytes.len().min(MAX_BODY));
            partial.extend_from_slice(head);
            match Frame::decode_one(&partial)? {
                Some((frame, len)) => {
                    self.handle_frame(id, frame, len, now)?;
                    bytes = &bytes[len - before..];
                    partial.clear();
                }
                None => bytes = rest,
            }
        }
        if partial.is_empty() {
            while !self.closed
                && let Some((frame, len)) = Frame::decode_one(bytes)?
            {
                self.handle_frame(id, frame, len, now)?;
                bytes = &bytes[len..];
            }
            partial.extend_from_slice(bytes);
        }
        if self.closed {
            return Ok(());
        }
        if let Some(path) = self.paths.get_mut(&id) {
            path.partial = partial;
        }
        Ok(())
    }

    fn handle_frame(
        &mut self,
        id: PathId,
        frame: Option<Frame<'_>>,
        len: usize,
        now: Instant,
    ) -> Result<(), ProtocolError> {
        if let Some(path) = self.paths.get_mut(&id) {
            path.received += len as u64;
            if let Some(Frame::Data { data, .. }) = &frame {
                path.data_received += data.len() as u64;
            }
            let elicits = frame.as_ref().is_none_or(Frame::elicits_report);
            self.reports.path_received(path, elicits, len as u64, now);
        }
        let Some(frame) = frame else { return Ok(()) };
        match frame {
            Frame::Data {
                stream,
                offset,
                data,
            } => self.on_data(stream, offset, data, now),
            Frame::Ack(ack) => self.on_ack(ack, now),
            Frame::Path { path, received } => self.on_path_report(path, received, now),
            Frame::Open {
                stream,
                class,
                target,
            } => self.on_open(stream, class, target, now),
            Frame::Accept { stream } => self.on_accept(stream),
            Frame::Fin { stream, size } => self.on_fin(stream, size, now),
            Frame::Reset { stream, code, size } => self.on_reset(stream, code, size, now),
            Frame::CreditSession { limit } => {
                // The first credit is all of the peer's memory.
                if self.send_credit.session == 0 {
                    self.send_credit.peer_memory = limit;
                }
                self.send_credit.session = self.send_credit.session.max(limit);
                Ok(())
            }
            Frame::CreditStream { stream, limit } => {
                // Credit for the peer's own stream may overtake its OPEN.
                self.ensure(stream)?;
                if let Some(state) = self.streams.get_mut(&stream)
                    && limit > state.send.limit
                {
                    state.send.limit = limit;
                    state.send.highest_at_credit = state.send.highest;
                }
                Ok(())
            }
            Frame::CreditInitial { limit } => {
                if limit > self.send_credit.initial {
                    self.send_credit.initial = limit;
                    for state in self.streams.values_mut() {
                        state.send.limit = state.send.limit.max(limit);
                    }
                }
                Ok(())
            }
            Frame::CreditStreams { limit } => {
                // The first credit is what the peer takes at once; it may open as many.
                if self.send_credit.streams == 0 {
                    self.send_credit.peer_streams = limit.saturating_mul(2);
                }
                if limit > self.send_credit.streams {
                    self.send_credit.streams = limit;
                    self.say_streams_available();
                }
                Ok(())
            }
            Frame::Ping { token } => {
                if let Some(path) = self.paths.get_mut(&id) {
                    path.pong_due = Some(token);
                }
                Ok(())
            }
            Frame::Pong { .. } => Ok(()),
            Frame::Close { code, reason } => {
                self.end(code, &String::from_utf8_lossy(reason));
                Ok(())
            }
            Frame::Hello(_) | Frame::Welcome { .. } | Frame::Refuse { .. } => {
                Err(ProtocolError::Handshake)
            }
        }
    }

    fn on_data(
        &mut self,
        id: StreamId,
        offset: u64,
        data: &[u8],
        now: Instant,
    ) -> Result<(), ProtocolError> {
        let end = offset + data.len() as u64;
        let spare_limit = self.receive_credit.granted - self.receive_credit.used;
        self.ensure(id)?;
        let Some(stream) = self.streams.get_mut(&id) else {
            self.counters.duplicates_received += data.len() as u64;
            self.reports.stream_gone(id);
            return Ok(());
        };
        let receive = &mut stream.receive;
        if receive.size.is_some_and(|size| end > size) {
            return Err(ProtocolError::Size(id));
        }
        let growth = end.saturating_sub(receive.highest);
        if end > receive.granted || growth > spare_limit {
            return Err(ProtocolError::Credit(id));
        }
        if stream.discard {
            receive.highest = receive.highest.max(end);
            self.counters.pieces -= receive.received.count();
            receive.drop_all(&mut self.spare);
            self.counters.pieces += receive.received.count();
            self.receive_credit.used += growth;
            self.reports.stream_changed(&mut self.streams, id);
            self.release(id, growth, now);
            self.retire_if_over(id, now);
            return Ok(());
        }
        let (reordered, pieces) = (receive.reordered(), receive.received.count());
        let new = receive.store(offset, data, &mut self.spare);
        self.counters.pieces = self.counters.pieces - pieces + receive.received.count();
        if self.counters.pieces > MAX_PIECES {
            return Err(ProtocolError::Pieces(id));
        }
        // What overtakes the OPEN is told after it.
        let announce = stream.opened && receive.is_news();
        receive.announced |= announce;
        let reordered_now = receive.reordered();
        self.receive_credit.used += growth;
        self.counters.reorder = self.counters.reorder - reordered + reordered_now;
        self.counters.reorder_peak = self.counters.reorder_peak.max(self.counters.reorder);
        let held = self.receive_credit.used - self.receive_credit.released;
        self.counters.received_peak = self.counters.received_peak.max(held);
        self.counters.duplicates_received += data.len() as u64 - new;
        if announce {
            self.events.push_back(Event::Readable { stream: id });
        }
        self.reports.stream_changed(&mut self.streams, id);
        self.offer_session_credit(now);
        Ok(())
    }

    fn on_ack(&mut self, ack: Ack, now: Instant) -> Result<(), ProtocolError> {
        self.check_known(ack.stream)?;
        let Some(stream) = self.streams.get_mut(&ack.stream) else {
            return Ok(());
        };
        let send = &mut stream.send;
        if send.complete {
            return Ok(());
        }
        let end = ack.ranges.last().map_or(ack.cumulative, |range| range.end);
        let can_be_complete = send.fin_queued && send.highest == send.written;
        if end > send.highest || ack.complete && !can_be_complete {
            return Err(ProtocolError::Acknowledged);
        }
        if ack.complete {
            // A peer that forgot the stream has had all of it, and lists nothing.
            self.acknowledge(ack.stream, 0..u64::MAX, now);
            self.complete(ack.stream, now);
        } else {
            self.acknowledge(ack.stream, 0..ack.cumulative, now);
            ack.ranges
                .into_iter()
                .for_each(|range| self.acknowledge(ack.stream, range, now));
        }
        self.announce_room();
        if self.send_credit.pieces > MAX_ACKED_PIECES {
            return Err(ProtocolError::Pieces(ack.stream));
        }
        Ok(())
    }

    /// The peer has `range` of what this side sent, as far as there is such.
    fn acknowledge(&mut self, id: StreamId, range: Range<u64>, now: Instant) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let send = &mut stream.send;
        if send.complete {
            return;
        }
        let (buffered, pieces) = (send.buffered(), send.acked.count());
        send.acknowledge(range.start..range.end.min(send.highest), &mut self.spare);
        self.send_credit.buffered -= buffered - send.buffered();
        self.send_credit.pieces = self.send_credit.pieces - pieces + send.acked.count();
        if send.unsent.is_empty() {
            self.ready.remove(&id);
        }
        if send.is_delivered() {
            self.complete(id, now);
        }
    }

    /// The peer has all of a stream and its end.
    fn complete(&mut self, id: StreamId, now: Instant) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.send.complete {
            return;
        }
        stream.send.complete = true;
        self.events.push_back(Event::Delivered { stream: id });
        self.retire_if_over(id, now);
        self.reset_if_abandoned(id, now);
    }

    fn on_path_report(
        &mut self,
        path: u64,
        received: u64,
        now: Instant,
    ) -> Result<(), ProtocolError> {
        let id = u32::try_from(path)
            .map(PathId)
            .map_err(|_| ProtocolError::Acknowledged)?;
        // The path may have ended here while the report was on its way.
        let Some(path) = self.paths.get_mut(&id) else {
            return Ok(());
        };
        if received > path.sent {
            return Err(ProtocolError::Acknowledged);
        }
        if received <= path.confirmed {
            return Ok(());
        }
        path.confirmed = received;
        path.last_progress = now;
        let mut ended = Vec::new();
        while path
            .control
            .front()
            .is_some_and(|sent| sent.path_end <= received)
        {
            if let Some(Sent {
                frame: Some(Control::Fin { stream, .. }),
                ..
            }) = path.control.pop_front()
            {
                ended.push(stream);
            }
        }
        if path.state == PathState::Stalled {
            path.state = PathState::Active;
            self.events.push_back(Event::PathRecovered { path: id });
            self.scheduler.paths_changed();
        }
        while let Some(path) = self.paths.get_mut(&id)
            && path
                .flights
                .front()
                .is_some_and(|flight| flight.path_end <= received)
            && let Some(flight) = path.flights.pop_front()
        {
            self.acknowledge(flight.stream, flight.range, now);
        }
        for id in ended {
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.send.fin_confirmed = true;
                // Its bytes may all be acknowledged already.
                self.acknowledge(id, 0..0, now);
            }
        }
        self.announce_room();
        Ok(())
    }

    fn on_open(
        &mut self,
        id: StreamId,
        class: u64,
        target: &[u8],
        _now: Instant,
    ) -> Result<(), ProtocolError> {
        if self.split_id(id).1 {
            return Err(ProtocolError::UnknownStream(id));
        }
        let class = Class::from_code(class);
        let target = target.to_vec();
        self.ensure(id)?;
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(());
        };
        if !stream.opened {
            stream.opened = true;
            stream.class = class;
            self.counters.opened += 1;
            if !stream.discard {
                // Data and even the end may have overtaken the OPEN.
                let announce = stream.receive.is_news();
                stream.receive.announced |= announce;
                self.events.push_back(Event::Opened {
                    stream: id,
                    class,
                    target,
                });
                if announce {
                    self.events.push_back(Event::Readable { stream: id });
                }
            }
        }
        Ok(())
    }

    fn on_accept(&mut self, id: StreamId) -> Result<(), ProtocolError> {
        if !self.split_id(id).1 {
            return Err(ProtocolError::UnknownStream(id));
        }
        self.check_known(id)?;
        // A frame that was on a path which failed comes twice.
        if let Some(stream) = self.streams.get_mut(&id).filter(|stream| !stream.accepted) {
            stream.accepted = true;
            if !stream.reset_sent {
                self.events.push_back(Event::Accepted { stream: id });
            }
        }
        Ok(())
    }

    fn on_fin(&mut self, id: StreamId, size: u64, now: Instant) -> Result<(), ProtocolError> {
        self.ensure(id)?;
        let Some(stream) = self.streams.get_mut(&id) else {
            self.reports.stream_gone(id);
            return Ok(());
        };
        let receive = &mut stream.receive;
        if receive.size.is_some_and(|known| known != size) || size < receive.highest {
            return Err(ProtocolError::Size(id));
        }
        receive.size = Some(size);
        let announce = stream.opened && receive.is_whole() && receive.is_news() && !stream.discard;
        receive.announced |= announce;
        if announce {
            self.events.push_back(Event::Readable { stream: id });
        }
        self.reports.stream_changed(&mut self.streams, id);
        self.retire_if_over(id, now);
        Ok(())
    }

    fn on_reset(
        &mut self,
        id: StreamId,
        code: u64,
        size: u64,
        now: Instant,
    ) -> Result<(), ProtocolError> {
        let spare_limit = self.receive_credit.granted - self.receive_credit.used;
        self.ensure(id)?;
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(());
        };
        let receive = &mut stream.receive;
        if receive.reset {
            return Ok(());
        }
        // A FIN may have told a larger size than what was sent before the reset, unless all of it has arrived.
        if size < receive.highest || receive.size.is_some_and(|known| size > known) {
            return Err(ProtocolError::Size(id));
        }
        let growth = size - receive.highest;
        if size > receive.granted || growth > spare_limit {
            return Err(ProtocolError::Credit(id));
        }
        receive.reset = true;
        self.receive_credit.used += growth;
        // What has arrived as a whole before is still read, as TCP does it: the peer's program may have left in the
        // belief that it was delivered.
        let readable = receive.is_whole() && !receive.ended && !stream.discard;
        let tell = stream.opened && !stream.reset_sent && !readable;
        if readable {
            receive.late_reset = Some(code);
        }
        receive.size = Some(size);
        receive.highest = size;
        if !readable {
            self.discard_received(id, now);
        }
        self.end_sending(id, code, now);
        if tell {
            self.events.push_back(Event::Reset { stream: id, code });
        }
        self.retire_if_over(id, now);
        Ok(())
    }

    /// Makes the stream of a frame if the peer may open it. Afterwards it is there, or it is over.
    fn ensure(&mut self, id: StreamId) -> Result<(), ProtocolError> {
        self.check_known(id)?;
        let (index, ours) = self.split_id(id);
        if !ours && !self.streams.contains_key(&id) && !self.retired.covers(index..index + 1) {
            let (limit, granted) = (self.send_credit.initial, self.receive_credit.initial);
            self.streams
                .insert(id, Stream::new(id, Class::default(), limit, granted));
        }
        Ok(())
    }

    /// Refuses streams that their opener cannot have.
    fn check_known(&self, id: StreamId) -> Result<(), ProtocolError> {
        let (index, ours) = self.split_id(id);
        match ours {
            true if index >= self.next_stream => Err(ProtocolError::UnknownStream(id)),
            false if index >= self.receive_credit.streams => Err(ProtocolError::Streams(id)),
            _ => Ok(()),
        }
    }
}
