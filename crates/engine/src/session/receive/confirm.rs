//! Acknowledgments: of stream bytes, and of the byte counts of whole paths, which prove the same.

use std::ops::Range;

use super::MAX_PIECES;
use crate::frame::Ack;
use crate::path::Control;
use crate::session::{Event, ProtocolError, Session};
use crate::{Instant, PathId, StreamId};

/// Like [`MAX_PIECES`], for acknowledged ranges: reports of paths may acknowledge bytes in another
/// order than that of the streams.
const MAX_ACKED_PIECES: usize = 4 * MAX_PIECES;

impl Session {
    pub(super) fn on_ack(&mut self, ack: Ack, now: Instant) -> Result<(), ProtocolError> {
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
            // A peer that has forgotten the stream has received all of it and lists no ranges.
            self.acknowledge(ack.stream, 0..u64::MAX, now);
            self.complete(ack.stream, now);
        } else {
            self.acknowledge(ack.stream, 0..ack.cumulative, now);
            ack.ranges
                .into_iter()
                .for_each(|range| self.acknowledge(ack.stream, range, now));
        }
        self.announce_writable();
        if self.send_credit.pieces > MAX_ACKED_PIECES {
            return Err(ProtocolError::Pieces(ack.stream));
        }
        Ok(())
    }

    /// The peer has received `range`, or the part of it that this side has sent.
    fn acknowledge(&mut self, id: StreamId, range: Range<u64>, now: Instant) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let send = &mut stream.send;
        if send.complete {
            return;
        }
        let (buffered, pieces) = (send.buffered(), send.acked.count());
        let held_back = send.acked.total();
        send.acknowledge(range.start..range.end.min(send.highest), &mut self.spare);
        let delivered = buffered - send.buffered();
        self.send_credit.buffered -= delivered;
        self.counters.delivered += delivered;
        // Includes bytes behind a gap, so that unequal delays do not look like bursts.
        let acknowledged = delivered + send.acked.total() - held_back;
        let is_backlogged = !self.ready.is_empty() || self.writers.are_ahead();
        self.backlog.acknowledged(acknowledged, is_backlogged, now);
        self.selecting.note_delivered(send, now);
        self.send_credit.pieces = self.send_credit.pieces - pieces + send.acked.count();
        if send.unsent.is_empty() {
            self.ready.remove(&id);
        }
        if send.is_delivered() {
            self.complete(id, now);
        }
    }

    /// The peer has received all of a stream and its end.
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

    pub(super) fn on_path_report(
        &mut self,
        path: u64,
        received: u64,
        now: Instant,
    ) -> Result<(), ProtocolError> {
        let id = u32::try_from(path)
            .map(PathId)
            .map_err(|_| ProtocolError::Acknowledged)?;
        // The path may have ended here while the report was in flight.
        let Some(path) = self.paths.get_mut(&id) else {
            return Ok(());
        };
        if received > path.outbound.sent {
            return Err(ProtocolError::Acknowledged);
        }
        if received <= path.outbound.confirmed {
            return Ok(());
        }
        path.confirm(received, now);
        let mut ended = Vec::new();
        let mut newest = None;
        while path
            .outbound
            .control
            .front()
            .is_some_and(|sent| sent.path_end <= received)
            && let Some(sent) = path.outbound.control.pop_front()
        {
            newest = newest.max(Some(sent.sent_at));
            if let Some(Control::Fin { stream, .. }) = sent.frame {
                ended.push(stream);
            }
        }
        self.recover_path(id, now);
        while let Some(path) = self.paths.get_mut(&id)
            && path
                .outbound
                .flights
                .front()
                .is_some_and(|flight| flight.path_end <= received)
            && let Some(flight) = path.outbound.flights.pop_front()
        {
            newest = newest.max(Some(flight.sent_at));
            self.acknowledge(flight.stream, flight.range, now);
        }
        if let Some(sent_at) = newest
            && let Some(path) = self.paths.get_mut(&id)
        {
            path.note_one_way(now.saturating_sub(sent_at));
        }
        for id in ended {
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.send.fin_confirmed = true;
                // Its bytes may all be acknowledged already.
                self.acknowledge(id, 0..0, now);
            }
        }
        self.announce_writable();
        Ok(())
    }
}
