//! Credit for the peer, for the session and for each stream, granted as programs read.

use std::time::Duration;

use super::Session;
use crate::path::{Control, PathState, Paths};
use crate::reader::Trip;
use crate::{Instant, StreamId};

/// Assumed round trip while no path delivers.
const UNKNOWN_TRIP: Duration = Duration::from_millis(100);

impl Session {
    /// `len` bytes of a stream are read or dropped. Grants the peer new credit once it is worth a
    /// frame.
    pub(super) fn release(&mut self, stream: StreamId, len: u64, now: Instant) {
        self.receive_credit.released += len;
        let paths = &self.paths;
        if let Some(state) = self.streams.get_mut(&stream) {
            let reader = &mut state.receive.reader;
            reader.note_read(len, now, || longest_trip(paths));
        }
        self.offer_session_credit(now);
        self.offer_stream_credit(stream, now);
    }

    /// Grants the peer the released credit once it is worth a frame: when it is large, or when the
    /// peer has less than that left. Stalled streams may hold the rest of the credit; then nothing
    /// more would be released, and the grant would wait forever.
    pub(super) fn offer_session_credit(&mut self, now: Instant) {
        let window = self.config.receive_window();
        let credit = &mut self.receive_credit;
        let gain = credit.released + window - credit.granted;
        let left = credit.granted - credit.used;
        if gain > 0 && (gain >= window / 4 || gain > left) {
            credit.granted += gain;
            self.queue(Control::CreditSession, now);
        }
        let credit = &mut self.receive_credit;
        credit.left_at_offers = credit.left_at_offers.max(credit.granted - credit.used);
    }

    /// `new` bytes have arrived that the stream did not have yet.
    pub(super) fn note_stored(&mut self, stream: StreamId, new: u64, now: Instant) {
        let paths = &self.paths;
        let Some(state) = self.streams.get_mut(&stream) else {
            return;
        };
        let receive = &mut state.receive;
        let trip = || longest_trip(paths);
        receive.reader.note_arrival(new, now, trip);
        // The reader has read all readable bytes; the gap holds up the rest.
        if receive.readable() == 0 && receive.reordered() > 0 {
            self.offer_stream_credit(stream, now);
        }
    }

    /// Bytes have arrived, so less of the session's credit is left. Streams with a grant that
    /// sufficed while more was left may need another one. Their own bytes may all have been read,
    /// so nothing else would trigger it.
    pub(super) fn note_arrival(&mut self, now: Instant) {
        self.offer_session_credit(now);
        let left = self.receive_credit.granted - self.receive_credit.used;
        let share = self.config.share();
        if !share.has_sunk(self.receive_credit.left_at_offers, left) {
            return;
        }
        self.receive_credit.left_at_offers = left;
        let streams: Vec<StreamId> = self.streams.keys().copied().collect();
        for stream in streams {
            self.offer_stream_credit(stream, now);
        }
    }

    /// Grants the peer credit for a stream, which also shows that its reader reads, when that is
    /// due.
    fn offer_stream_credit(&mut self, stream: StreamId, now: Instant) {
        let window = self.config.receive_window();
        let credit = &self.receive_credit;
        let held = credit.used - credit.released;
        let Some(state) = self.streams.get_mut(&stream) else {
            return;
        };
        let receive = &mut state.receive;
        // Sent even if the limit already covers the rest of the stream: the peer derives the
        // stream's part of the session's credit from its latest grant.
        if receive.is_whole() || state.reset_sent {
            return;
        }
        let others = held.saturating_sub(receive.highest - receive.read);
        let most = (window.saturating_sub(others) / 2).min(self.config.stream_memory);
        let most = most.max(credit.initial);
        let is_prompt = receive.readable() == 0;
        let behind_a_gap = if is_prompt { receive.reordered() } else { 0 };
        let window = receive.reader.window(receive.read, is_prompt) + behind_a_gap;
        let most = most.min(window);
        let limit = receive.read + most;
        // The peer divides the remaining session credit among the streams with recent grants, so
        // the less is left, the earlier it needs the next grant.
        let news = receive.read - receive.read_at_grant;
        let left = credit.granted - credit.used;
        let urgent = news > 0 && news >= self.config.share().more(0, left) / 2;
        // A stream that awaits an answer gets no early grant: its packet would take the place of a
        // full one in the first window of the answer.
        let is_worth_it = limit > receive.granted && limit - receive.granted >= most / 4;
        if urgent || is_worth_it {
            // A limit never shrinks, and its growth shows that the reader reads.
            receive.granted = limit.max(receive.granted + 1);
            receive.read_at_grant = receive.read;
            self.queue(Control::CreditStream { stream }, now);
        }
    }
}

/// The round trip of the slowest delivering path.
fn longest_trip(paths: &Paths) -> Trip {
    let delivering = paths.values();
    let delivering = delivering.filter(|path| path.state == PathState::Active);
    let trips = delivering.map(|path| Trip {
        smoothed: path.srtt(),
        minimum: path.min_round_trip(),
    });
    let longest = trips.max_by_key(|trip| trip.smoothed);
    longest.unwrap_or_else(|| Trip::idle(UNKNOWN_TRIP))
}
