//! The programs' ends of a session's streams, which the proxy and the relay handle in the daemon.

use std::collections::BTreeMap;
use std::time::Duration;

use sumlink_bond::opens::{Unconfirmed, Waiting};
use sumlink_bond::{Early, Known, is_delivering};
use sumlink_engine::{Class, Event, Session, StreamError, StreamId};

use super::pattern::{PIECE, Pattern};
use crate::clock::{Nanos, duration};
use crate::log::Kind;
use crate::net::Net;
use crate::tcp::Side;
use crate::workload::{Channel, Progress};

/// Target of all streams.
const TARGET: &[u8] = b"10.99.0.1:5001";
#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) id: Option<StreamId>,
    /// The class requested by its program; learned if there is none.
    class: Option<Class>,
    /// Bytes that the programs want to write, have written, and have read.
    pub(super) offered: [u64; 2],
    pub(super) written: [u64; 2],
    pub(super) received: [u64; 2],
    /// The programs write no more than they have offered, and the sessions know that.
    pub(super) is_finishing: [bool; 2],
    pub(super) is_ended: [bool; 2],
    /// The programs do not read.
    pub(super) is_stalled: [bool; 2],
    /// The programs have seen the end of the stream, or its failure.
    pub(super) is_finished: [bool; 2],
    pub(super) is_broken: [bool; 2],
    /// The server knows it.
    pub(super) is_there: bool,
    /// The client's program has the stream, and the server has connected it.
    is_given: bool,
    is_confirmed: bool,
    /// The stream was not opened, or not in time.
    pub(super) is_refused: bool,
    pub(super) is_over: bool,
}

/// All streams of a session.
#[derive(Debug)]
pub(super) struct Streams {
    pub(super) channels: Vec<Stream>,
    by_id: BTreeMap<StreamId, Channel>,
    pub(super) waiting: Waiting<Channel>,
    /// When programs get their streams without waiting for the server.
    early: Early,
    known: Known,
    /// Streams that the server has not connected, by the time at which they are given up.
    unconfirmed: Unconfirmed<Channel>,
    progress: Vec<Progress>,
    pattern: Pattern,
    /// Received bytes that differ from the sent ones: a bug of the engine.
    pub(super) fault: Option<String>,
}

impl Streams {
    pub(super) fn new(early: Early) -> Self {
        Self {
            channels: Vec::new(),
            by_id: BTreeMap::new(),
            waiting: Waiting::default(),
            early,
            known: Known::default(),
            unconfirmed: Unconfirmed::default(),
            progress: Vec::new(),
            pattern: Pattern::new(),
            fault: None,
        }
    }

    /// A program connects.
    pub(super) fn open(
        &mut self,
        class: Option<Class>,
        session: &mut Session,
        now: Nanos,
    ) -> Channel {
        let channel = self.channels.len();
        self.channels.push(Stream {
            class,
            ..Stream::default()
        });
        self.try_open(channel, duration(now), session, now);
        channel
    }

    fn try_open(&mut self, channel: Channel, since: Duration, session: &mut Session, now: Nanos) {
        let at = duration(now);
        match session.open_stream(TARGET, self.channels[channel].class, at) {
            Ok(id) => {
                self.waiting.opened();
                self.channels[channel].id = Some(id);
                self.by_id.insert(id, channel);
                self.unconfirmed.push(since, channel);
                if self.known.is_early(TARGET, self.early, at)
                    && is_delivering(&session.path_stats_all(at))
                {
                    self.channels[channel].is_given = true;
                    self.progress.push(Progress::Opened(channel));
                }
                self.pump(channel, Side::Client, session, at);
            }
            Err(StreamError::NoMoreStreams) => {
                if let Err(channel) = self.waiting.push(since, channel) {
                    self.refuse(channel);
                }
            }
            Err(_) => self.refuse(channel),
        }
    }

    fn refuse(&mut self, channel: Channel) {
        self.channels[channel].is_refused = true;
        self.progress.push(Progress::Broken(channel));
    }

    /// Ends the streams that have waited too long for the peer's permission or for their targets.
    pub(super) fn end_overdue(&mut self, session: &mut Session, now: Duration) {
        while let Some(channel) = self.waiting.pop_overdue(now) {
            self.refuse(channel);
        }
        let channels = &self.channels;
        let is_unconfirmed = |channel: Channel| {
            let stream = &channels[channel];
            !stream.is_confirmed && !stream.is_over && !stream.is_broken[Side::Client.index()]
        };
        let mut overdue = Vec::new();
        while let Some(channel) = self.unconfirmed.pop_overdue(is_unconfirmed, now) {
            overdue.push(channel);
        }
        for channel in overdue {
            if let Some(id) = self.channels[channel].id {
                session.reset(id, 0, now);
            }
            self.known.failed(TARGET, false, now);
            self.refuse(channel);
        }
    }

    /// Time at which [`Streams::end_overdue`] is next due.
    pub(super) fn due(&self) -> Option<Duration> {
        let due = self.waiting.due().into_iter().chain(self.unconfirmed.due());
        due.min()
    }

    /// A program writes more bytes.
    pub(super) fn offer(
        &mut self,
        channel: Channel,
        side: Side,
        bytes: u64,
        session: &mut Session,
        now: Duration,
    ) {
        self.channels[channel].offered[side.index()] += bytes;
        self.pump(channel, side, session, now);
    }

    /// The program at this side has finished.
    pub(super) fn leave(&mut self, channel: Channel, session: &mut Session, now: Duration) {
        self.channels[channel].is_over = true;
        if let Some(id) = self.channels[channel].id {
            session.abandon(id, now);
        }
    }

    /// Writes as much as the session accepts.
    pub(super) fn pump(
        &mut self,
        channel: Channel,
        side: Side,
        session: &mut Session,
        now: Duration,
    ) {
        let stream = &mut self.channels[channel];
        let index = side.index();
        let Some(id) = stream.id else {
            return;
        };
        if side == Side::Server && !stream.is_there {
            return;
        }
        while stream.offered[index] > 0 {
            let len = stream.offered[index].min(PIECE as u64) as usize;
            let own = id * 2 + index as u64;
            let piece = self.pattern.piece(own, stream.written[index], len);
            let Ok(taken) = session.write_chunk(id, &piece, now) else {
                stream.offered[index] = 0;
                return;
            };
            stream.written[index] += taken as u64;
            stream.offered[index] -= taken as u64;
            if taken < len {
                return;
            }
        }
        if stream.is_finishing[index] && !stream.is_ended[index] {
            stream.is_ended[index] = true;
            // A stream that has ended needs no report.
            let _ = session.finish(id, now);
        }
    }

    /// Handles an event of a session.
    pub(super) fn on_event(
        &mut self,
        event: &Event,
        side: Side,
        session: &mut Session,
        net: &mut Net,
    ) {
        let now = net.now();
        let channel = |stream: &StreamId| self.by_id.get(stream).copied();
        match event {
            Event::Opened { stream, .. } => {
                // The server's program runs on the server's machine and answers at once.
                let _ = session.accept(*stream, duration(now));
                if let Some(channel) = channel(stream) {
                    self.channels[channel].is_there = true;
                    self.pump(channel, side, session, duration(now));
                }
            }
            Event::Accepted { stream } => {
                self.known.connected(TARGET, duration(now));
                if let Some(channel) = channel(stream) {
                    let stream = &mut self.channels[channel];
                    stream.is_confirmed = true;
                    if !std::mem::replace(&mut stream.is_given, true) {
                        self.progress.push(Progress::Opened(channel));
                    }
                }
            }
            Event::Readable { stream } => {
                if let Some(channel) = channel(stream) {
                    self.give(channel, *stream, side, session, net);
                }
            }
            Event::Writable { stream } => {
                if let Some(channel) = channel(stream) {
                    self.pump(channel, side, session, duration(now));
                }
            }
            Event::Reset { stream, .. } => {
                if let Some(channel) = channel(stream) {
                    let stream = &mut self.channels[channel];
                    stream.is_broken[side.index()] = true;
                    if !stream.is_over {
                        self.progress.push(Progress::Broken(channel));
                    }
                }
            }
            Event::StreamsAvailable if side == Side::Client => {
                for (since, channel) in self.waiting.take() {
                    self.try_open(channel, since, session, now);
                }
            }
            Event::Closed { .. } => {
                let open = (0..self.channels.len()).filter(|c| !self.channels[*c].is_over);
                self.progress.extend(open.map(Progress::Broken));
            }
            _ => {}
        }
    }

    /// Gives received bytes to the program.
    pub(super) fn give(
        &mut self,
        channel: Channel,
        id: StreamId,
        side: Side,
        session: &mut Session,
        net: &mut Net,
    ) {
        let now = net.now();
        if self.channels[channel].is_stalled[side.index()] {
            return;
        }
        let stream = &mut self.channels[channel];
        let offset = stream.received[side.index()];
        let sender = id * 2 + side.peer().index() as u64;
        let (mut at, mut are_right) = (offset, true);
        let check = |bytes: &[u8]| {
            are_right = are_right && self.pattern.is(sender, at, bytes);
            at += bytes.len() as u64;
        };
        let Ok(outcome) = session.read_with(id, usize::MAX, check, duration(now)) else {
            return;
        };
        stream.is_finished[side.index()] |= outcome.finished;
        if outcome.len == 0 {
            return;
        }
        if self.fault.is_none() && !are_right {
            self.fault = Some(format!(
                "stream {id}: bytes from {offset} on are not what was sent"
            ));
        }
        stream.received[side.index()] += outcome.len as u64;
        let bytes = outcome.len as u64;
        net.log().note(now, Kind::Delivered, id, bytes);
        if let Some(trace) = net.trace() {
            let waiting = session.stats().reorder;
            trace.read(now, side, id, offset, bytes, waiting);
        }
        self.progress.push(Progress::Received(channel, side, bytes));
    }

    pub(super) fn take_progress(&mut self) -> Vec<Progress> {
        std::mem::take(&mut self.progress)
    }
}
