//! Stream frames from the peer: OPEN and ACCEPT, data, and both kinds of end.

use super::MAX_PIECES;
use crate::session::{Event, ProtocolError, Session};
use crate::{Class, Instant, StreamId};

impl Session {
    pub(super) fn on_open(
        &mut self,
        id: StreamId,
        class: u64,
        target: &[u8],
        now: Instant,
    ) -> Result<(), ProtocolError> {
        if self.split_id(id).1 {
            return Err(ProtocolError::UnknownStream(id));
        }
        let class = Class::of_open(class).flatten();
        let target = target.to_vec();
        self.ensure(id)?;
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(());
        };
        if !stream.opened {
            stream.opened = true;
            stream.set_class(class, now);
            self.counters.opened += 1;
            if !stream.discard {
                // Data and even the end may have overtaken the OPEN.
                let announce = stream.receive.needs_notice();
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

    pub(super) fn on_accept(&mut self, id: StreamId) -> Result<(), ProtocolError> {
        if !self.split_id(id).1 {
            return Err(ProtocolError::UnknownStream(id));
        }
        self.check_known(id)?;
        // A frame from a failed path arrives twice.
        if let Some(stream) = self.streams.get_mut(&id).filter(|stream| !stream.accepted) {
            stream.accepted = true;
            if !stream.reset_sent {
                self.events.push_back(Event::Accepted { stream: id });
            }
        }
        Ok(())
    }

    pub(super) fn on_data(
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
            self.note_arrival(now);
            self.retire_if_over(id, now);
            return Ok(());
        }
        let (reordered, pieces) = (receive.reordered(), receive.received.count());
        let in_order = receive.contiguous();
        let new = receive.store(offset, data, &mut self.spare);
        self.counters.pieces = self.counters.pieces - pieces + receive.received.count();
        if self.counters.pieces > MAX_PIECES {
            return Err(ProtocolError::Pieces(id));
        }
        // Data that overtakes the OPEN is reported after it.
        let announce = stream.opened && receive.needs_notice();
        receive.announced |= announce;
        let in_order_now = receive.contiguous();
        if end > in_order_now && new > 0 {
            receive.arrivals.note(offset, end, now);
        }
        if in_order_now > in_order {
            let waits = &mut self.counters.waits;
            receive.arrivals.advance(in_order, in_order_now, now, waits);
        }
        let reordered_now = receive.reordered();
        self.receive_credit.used += growth;
        self.counters.reorder = self.counters.reorder - reordered + reordered_now;
        self.counters.reorder_peak = self.counters.reorder_peak.max(self.counters.reorder);
        let held = self.receive_credit.used - self.receive_credit.released;
        self.counters.received_peak = self.counters.received_peak.max(held);
        self.counters.duplicates_received += data.len() as u64 - new;
        if new > 0 {
            stream.learn(|learner| learner.received(new, now));
        }
        if announce {
            self.events.push_back(Event::Readable { stream: id });
        }
        self.reports.stream_changed(&mut self.streams, id);
        self.note_arrival(now);
        self.note_stored(id, new, now);
        Ok(())
    }

    pub(super) fn on_fin(
        &mut self,
        id: StreamId,
        size: u64,
        now: Instant,
    ) -> Result<(), ProtocolError> {
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
        let announce =
            stream.opened && receive.is_whole() && receive.needs_notice() && !stream.discard;
        receive.announced |= announce;
        if announce {
            self.events.push_back(Event::Readable { stream: id });
        }
        self.reports.stream_changed(&mut self.streams, id);
        self.retire_if_over(id, now);
        Ok(())
    }

    pub(super) fn on_reset(
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
        // A FIN may carry a larger size than the bytes sent before the reset, unless all of it has
        // arrived.
        if size < receive.highest || receive.size.is_some_and(|known| size > known) {
            return Err(ProtocolError::Size(id));
        }
        let growth = size - receive.highest;
        if size > receive.granted || growth > spare_limit {
            return Err(ProtocolError::Credit(id));
        }
        receive.reset = true;
        self.receive_credit.used += growth;
        // A stream that arrived completely before the reset can still be read, as in TCP: the
        // peer's program may have closed in the belief that it was delivered.
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
        self.note_arrival(now);
        self.end_sending(id, code, now);
        if tell {
            self.events.push_back(Event::Reset { stream: id, code });
        }
        self.retire_if_over(id, now);
        Ok(())
    }
}
