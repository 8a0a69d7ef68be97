//! What the random tests do to a bond beyond what the laboratory's programs do.

use sumlink_engine::{Session, StreamId};

use super::Bond;
use crate::clock::duration;
use crate::net::Net;
use crate::tcp::Side;
use crate::workload::Channel;

/// What became of a direction of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passage {
    /// Bytes that the session of the sender has taken, and the program of the receiver was given.
    pub(crate) written: u64,
    pub(crate) received: u64,
    /// The receiver was given the end.
    pub(crate) is_finished: bool,
    /// The receiver was told that the stream is broken.
    pub(crate) is_broken: bool,
    /// The stream was not opened, or not in time.
    pub(crate) is_refused: bool,
}

impl Bond {
    pub(crate) fn sessions(&self) -> [&Session; 2] {
        self.daemons.each_ref().map(|daemon| &daemon.session)
    }

    /// Whether a stream is open at either side, or a channel waits for one.
    pub(crate) fn has_streams(&self) -> bool {
        let open = self.sessions().map(|session| session.stats().streams_open);
        open != [0; 2] || !self.streams.waiting.is_empty()
    }

    /// Bytes that arrived and were not what was sent.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.streams.fault.as_deref()
    }

    /// The stream of a channel, once there is one and the program at that side has been told of it.
    pub(crate) fn stream_at(&self, channel: Channel, side: Side) -> Option<StreamId> {
        let stream = &self.streams.channels[channel];
        stream
            .id
            .filter(|_| side == Side::Client || stream.is_there)
    }

    /// What goes to `side` over a channel.
    pub(crate) fn passage(&self, channel: Channel, side: Side) -> Passage {
        let stream = &self.streams.channels[channel];
        let (to, from) = (side.index(), side.peer().index());
        Passage {
            written: stream.written[from],
            received: stream.received[to],
            is_finished: stream.is_finished[to],
            is_broken: stream.is_broken[to],
            is_refused: stream.is_refused,
        }
    }

    /// The program at that side reads nothing until it is told to go on.
    pub(crate) fn set_reading(&mut self, net: &mut Net, channel: Channel, side: Side, on: bool) {
        self.streams.channels[channel].is_stalled[side.index()] = !on;
        if let Some(id) = self.stream_at(channel, side).filter(|_| on) {
            self.due[side.index()] = true;
            let session = &mut self.daemons[side.index()].session;
            self.streams.give(channel, id, side, session, net);
        }
    }

    /// The program at that side writes nothing after what it has offered.
    pub(crate) fn finish(&mut self, net: &mut Net, channel: Channel, side: Side) {
        self.streams.channels[channel].is_finishing[side.index()] = true;
        self.due[side.index()] = true;
        let session = &mut self.daemons[side.index()].session;
        let now = duration(net.now());
        self.streams.pump(channel, side, session, now);
    }

    /// The program at that side breaks the stream, or leaves it in peace.
    pub(crate) fn leave(&mut self, net: &mut Net, channel: Channel, side: Side, in_peace: bool) {
        let Some(id) = self.stream_at(channel, side) else {
            return;
        };
        self.due[side.index()] = true;
        self.streams.channels[channel].offered[side.index()] = 0;
        let session = &mut self.daemons[side.index()].session;
        match in_peace {
            true => session.abandon(id, duration(net.now())),
            false => session.reset(id, 3, duration(net.now())),
        }
    }

    /// That side ends the session.
    pub(crate) fn end(&mut self, net: &mut Net, side: Side) {
        self.due[side.index()] = true;
        let session = &mut self.daemons[side.index()].session;
        session.close(0, "done", duration(net.now()));
    }
}
