//! Operations of the random tests on a bond that the laboratory's programs do not have.

use sumlink_engine::{Session, StreamId};

use super::Bond;
use crate::clock::duration;
use crate::net::Net;
use crate::tcp::Side;
use crate::workload::Channel;

/// State of one direction of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passage {
    /// Bytes accepted by the sender's session, and bytes read by the receiver's program.
    pub(crate) written: u64,
    pub(crate) received: u64,
    /// The receiver has read the end of the stream.
    pub(crate) is_finished: bool,
    /// The receiver has seen the stream break.
    pub(crate) is_broken: bool,
    /// The stream was not opened, or not in time.
    pub(crate) is_refused: bool,
}

impl Bond {
    pub(crate) fn sessions(&self) -> [&Session; 2] {
        self.daemons.each_ref().map(|daemon| &daemon.session)
    }

    /// Whether a stream is open at either side, or a channel waits for its stream.
    pub(crate) fn has_streams(&self) -> bool {
        let open = self.sessions().map(|session| session.stats().streams_open);
        open != [0; 2] || !self.streams.waiting.is_empty()
    }

    /// The first received bytes that differ from the sent ones.
    pub(crate) fn fault(&self) -> Option<&str> {
        let fault = self.streams.fault.as_deref();
        fault.or(self.flows.fault.as_deref())
    }

    /// The stream of a channel, once it exists and the program at that side knows it.
    pub(crate) fn stream_at(&self, channel: Channel, side: Side) -> Option<StreamId> {
        let stream = &self.streams.channels[channel];
        stream
            .id
            .filter(|_| side == Side::Client || stream.is_there)
    }

    /// The direction of a channel to `side`.
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

    /// Pauses or resumes reading of the program at that side.
    pub(crate) fn set_reading(&mut self, net: &mut Net, channel: Channel, side: Side, on: bool) {
        self.streams.channels[channel].is_stalled[side.index()] = !on;
        if let Some(id) = self.stream_at(channel, side).filter(|_| on) {
            self.due[side.index()] = true;
            let session = &mut self.daemons[side.index()].session;
            self.streams.give(channel, id, side, session, net);
        }
    }

    /// The program at that side writes nothing beyond its current data.
    pub(crate) fn finish(&mut self, net: &mut Net, channel: Channel, side: Side) {
        self.streams.channels[channel].is_finishing[side.index()] = true;
        self.due[side.index()] = true;
        let session = &mut self.daemons[side.index()].session;
        let now = duration(net.now());
        self.streams.pump(channel, side, session, now);
    }

    /// The program at that side leaves the stream, without an error if `in_peace`, else by breaking
    /// it.
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
