//! Decodes arriving bytes into frames and dispatches them.

mod confirm;
mod inbound;

use super::{ProtocolError, Session};
use crate::frame::{Frame, MAX_BODY};
use crate::stream::Stream;
use crate::{Class, Instant, PathId, PeerText, Role, StreamId};

/// Most separate ranges of all streams together, for received and for acknowledged bytes. A sender
/// that uses windows has a few for each path; the limit protects against a malicious peer.
pub(super) const MAX_PIECES: usize = 64 * 1024;

/// Close code for a peer that violates the protocol.
pub(super) const CODE_PROTOCOL: u64 = 1;

impl Session {
    /// Handles bytes that arrived on a path, in the order of its carrier, split anywhere.
    ///
    /// An error is the peer's fault and ends the session. [`Session::is_close_pending`] then
    /// returns whether a CLOSE is to be sent.
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
        self.schedulers.note_change();
        path.inbound.last_received = now;
        path.totals.receive_meter.add(bytes.len() as u64, now);
        let partial = std::mem::take(&mut path.inbound.partial);
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
        // Completes a partial frame first; at most one frame's length is copied.
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
            path.inbound.partial = partial;
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
            path.inbound.received += len as u64;
            if let Some(Frame::Data { data, .. }) = &frame {
                path.totals.data_received += data.len() as u64;
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
                // The first credit equals all of the peer's memory.
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
                    self.schedulers.stream_ready(stream);
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
                // The first credit is the number of streams that the peer accepts at once; it may
                // open as many itself.
                if self.send_credit.streams == 0 {
                    self.send_credit.peer_streams = limit.saturating_mul(2);
                }
                if limit > self.send_credit.streams {
                    self.send_credit.streams = limit;
                    self.announce_streams_available();
                }
                Ok(())
            }
            Frame::Ping { token } => {
                if let Some(path) = self.paths.get_mut(&id) {
                    path.inbound.pong_due = Some(token);
                    if self.config.role == Role::Server {
                        path.note_pinged(now);
                    }
                }
                Ok(())
            }
            Frame::Pong { .. } => Ok(()),
            Frame::Policy {
                path,
                version,
                policy,
            } => {
                // No path can have such a number.
                if let Ok(path) = u32::try_from(path) {
                    self.on_policy(PathId(path), version, policy);
                }
                Ok(())
            }
            Frame::PathState {
                path,
                version,
                state,
            } => {
                // No path can have such a number.
                if let Ok(path) = u32::try_from(path) {
                    self.on_path_state(PathId(path), version, state, now);
                }
                Ok(())
            }
            // It belongs to the handshake: the session has nothing to do with it.
            Frame::Server { .. } => Ok(()),
            Frame::Datagram { packet } => self.on_datagram_frame(id, packet, now),
            Frame::Close { code, reason } => {
                self.end(code, PeerText::new(reason));
                Ok(())
            }
            Frame::Hello(_)
            | Frame::Welcome { .. }
            | Frame::Refuse { .. }
            | Frame::Join { .. }
            | Frame::Joined { .. } => Err(ProtocolError::Handshake),
        }
    }

    /// Creates the stream of a frame if the peer may open it. Afterwards it exists or has ended.
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

    /// Rejects streams that their opener cannot have.
    fn check_known(&self, id: StreamId) -> Result<(), ProtocolError> {
        let (index, ours) = self.split_id(id);
        match ours {
            true if index >= self.next_stream => Err(ProtocolError::UnknownStream(id)),
            false if index >= self.receive_credit.streams => Err(ProtocolError::Streams(id)),
            _ => Ok(()),
        }
    }
}
