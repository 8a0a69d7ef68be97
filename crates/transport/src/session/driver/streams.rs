//! Moves stream data between the engine and the pipes.

use std::sync::Arc;

use sumlink_engine::{Instant as Moment, Received, StreamError, StreamId};
use tokio::sync::mpsc::UnboundedSender;

use super::{Driver, Incoming};
use crate::api::stream::Stream;
use crate::session::command::{Command, OpenReply, Opening};
use crate::session::pipe::chunk::Chunk;
use crate::session::pipe::memory::CHUNK;
use crate::session::pipe::{Pipe, Pools};
use sumlink_exit::target::{OpenError, OwnService, Target};

/// The part of a stream's send buffer that its program may be ahead of it, in the pipe: the buffer
/// is bounded in time, and so is the pipe then.
const AHEAD: u64 = 4;

/// Least bytes that a program may be ahead: a segment of every path.
const LEAST_AHEAD: usize = 8 * 1024;

/// A program that has written this many bytes at once probably has more.
const LARGE_WRITE: usize = 32 * 1024;

/// The session's end of a stream.
#[derive(Debug)]
pub(crate) struct Local {
    pipe: Arc<Pipe>,
    /// The target, encoded as in an OPEN frame.
    target: Box<[u8]>,
    /// Taken from the pipe and not yet by the engine.
    up: Chunk,
    finished: bool,
    /// The request that waits for the stream to be connected.
    opening: Option<(OpenReply, Stream)>,
    /// This side opened it, and the peer has not yet confirmed the connection.
    unconfirmed: bool,
}

impl Local {
    pub(super) fn new(pipe: Arc<Pipe>, target: &[u8]) -> Self {
        Self {
            pipe,
            target: target.into(),
            up: Chunk::default(),
            finished: false,
            opening: None,
            unconfirmed: false,
        }
    }

    /// Whether it is the request of a published port, which stays open.
    pub(super) fn is_lease(&self) -> bool {
        let target = Target::decode(&self.target);
        target.is_ok_and(|target| target.own_service() == Some(OwnService::Publish))
    }

    /// The target in its text form.
    pub(super) fn target(&self) -> String {
        Target::decode(&self.target).map_or_else(|error| error.to_string(), |t| t.to_string())
    }

    pub(super) fn fail(self, error: OpenError) {
        self.pipe.fail(error);
        if let Some((reply, _)) = self.opening {
            let _ = reply.send(Err(error));
        }
    }
}

impl Driver {
    pub(super) fn open(&mut self, opening: Opening) {
        if opening.reply.is_closed() {
            return;
        }
        let now = self.now();
        let refusal = match self.engine.open_stream(&opening.target, opening.class, now) {
            Ok(id) => return self.opened(id, opening),
            Err(StreamError::NoMoreStreams) => {
                let since = opening.since.saturating_duration_since(self.epoch);
                if let Err(opening) = self.waiting.push(since, opening) {
                    let _ = opening.reply.send(Err(OpenError::LimitReached));
                }
                return;
            }
            Err(StreamError::TargetTooLong) => OpenError::BadTarget,
            Err(_) => OpenError::SessionClosed,
        };
        let _ = opening.reply.send(Err(refusal));
    }

    /// An OPEN is on its way. If the stream does not wait for the peer's confirmation, the
    /// program's first bytes follow immediately, a round trip earlier than they otherwise could.
    fn opened(&mut self, id: StreamId, opening: Opening) {
        self.waiting.opened();
        let Opening {
            target,
            reply,
            early,
            ..
        } = opening;
        let (mut local, stream) = stream_pair(id, &target, &self.sender, &self.pools);
        local.unconfirmed = true;
        let now = self.now();
        let is_early = early
            .is_none_or(|early| self.known.is_early(&target, early, now) && self.is_delivering());
        if is_early {
            // If the request was abandoned, the stream is dropped here, and thereby reset.
            self.locals.insert(id, local);
            self.early_opens.push(now, id);
            let _ = reply.send(Ok(stream));
        } else {
            local.opening = Some((reply, stream));
            self.locals.insert(id, local);
        }
    }

    /// Ends the streams that were given to their programs early and not confirmed by the peer in
    /// time: they wait no longer than streams that wait for the confirmation.
    pub(super) fn end_unconfirmed(&mut self, now: Moment) {
        let locals = &self.locals;
        let is_unconfirmed = |id| locals.get(&id).is_some_and(|local| local.unconfirmed);
        let mut overdue = Vec::new();
        while let Some(id) = self.early_opens.pop_overdue(is_unconfirmed, now) {
            overdue.push(id);
        }
        for id in overdue {
            self.engine.reset(id, 0, self.epoch.elapsed());
            self.fail_local(id, OpenError::TimedOut);
        }
    }

    /// When the next such stream ends.
    pub(super) fn unconfirmed_due(&self) -> Option<Moment> {
        self.early_opens.due()
    }

    /// Resets the streams whose requests were abandoned.
    pub(super) fn cancel_opens(&mut self) {
        let now = self.now();
        self.waiting.retain(|opening| !opening.reply.is_closed());
        let given_up = |local: &Local| {
            local
                .opening
                .as_ref()
                .is_some_and(|(reply, _)| reply.is_closed())
        };
        let ids = self
            .locals
            .iter()
            .filter(|(_, local)| given_up(local))
            .map(|(id, _)| *id);
        for id in ids.collect::<Vec<StreamId>>() {
            self.engine.reset(id, 0, now);
            self.locals.remove(&id);
        }
    }

    pub(super) fn open_waiting(&mut self) {
        for (_, opening) in self.waiting.take() {
            self.open(opening);
        }
    }

    /// When the longest-waiting stream is refused; `None` while the peer has yet to allow the first
    /// one.
    pub(super) fn waiting_due(&self) -> Option<Moment> {
        self.waiting.due()
    }

    /// Refuses the streams that have waited long enough.
    pub(super) fn refuse_waiting(&mut self) {
        let now = self.now();
        while let Some(opening) = self.waiting.pop_overdue(now) {
            let _ = opening.reply.send(Err(OpenError::LimitReached));
        }
    }

    pub(super) fn incoming(&mut self, id: StreamId, target: Vec<u8>) {
        let now = self.now();
        let Some(listener) = &self.listeners.incoming else {
            self.engine.reset(id, OpenError::NotAllowed.code(), now);
            return;
        };
        let (local, stream) = stream_pair(id, &target, &self.sender, &self.pools);
        if listener.send(Incoming { id, target, stream }).is_ok() {
            self.locals.insert(id, local);
        } else {
            self.engine.reset(id, OpenError::SessionClosed.code(), now);
        }
    }

    pub(super) fn accepted(&mut self, id: StreamId) {
        let Some(local) = self.locals.get_mut(&id) else {
            return;
        };
        local.unconfirmed = false;
        self.known.connected(&local.target, self.epoch.elapsed());
        if let Some((reply, stream)) = local.opening.take() {
            // If the request was abandoned, the stream comes back, is dropped, and thereby reset.
            let _ = reply.send(Ok(stream));
        }
    }

    pub(super) fn fail_local(&mut self, id: StreamId, error: OpenError) {
        if let Some(local) = self.locals.remove(&id) {
            if local.unconfirmed {
                let peer_lacks = error == OpenError::LimitReached;
                let now = self.epoch.elapsed();
                self.known.failed(&local.target, peer_lacks, now);
            }
            local.fail(error);
        }
    }

    /// Carries out a program's operations on its stream.
    pub(super) fn serve_local(&mut self, id: StreamId) {
        let now = self.now();
        let Some(local) = self.locals.get_mut(&id) else {
            return;
        };
        local.pipe.clear_notification();
        loop {
            let bound = self.engine.send_bound(id) / AHEAD;
            let ahead = usize::try_from(bound)
                .unwrap_or(usize::MAX)
                .max(LEAST_AHEAD);
            let taken = local.pipe.take_up(&mut local.up, ahead);
            if !local.up.is_empty() {
                let rest = local.up.rest();
                let is_much = rest.len() >= LARGE_WRITE;
                let written = match local.up.is_dense() {
                    true => self.engine.write_chunk(id, rest, now),
                    false => self.engine.write(id, rest, now),
                };
                match written {
                    Ok(len) => local.up.advance(len),
                    // The peer accepts no more data; data to read may remain.
                    Err(_) => {
                        local.up.discard();
                        local.pipe.fail_up(OpenError::Reset);
                    }
                }
                if local.up.is_empty() {
                    let has_space = || {
                        self.engine
                            .send_space(id)
                            .is_ok_and(|space| space >= CHUNK as u64)
                    };
                    self.must_yield |= is_much && has_space();
                    continue;
                }
                // The engine reports when there is room again. A program that dropped the stream
                // unfinished wants no more of its data to arrive. One that had finished wants all
                // of it to arrive, but none of the answer: nothing would read it, and the target
                // might not read on before its answer is read.
                match (taken.dropped, taken.finished) {
                    (true, false) => {
                        self.engine.reset(id, 0, now);
                        self.locals.remove(&id);
                        return;
                    }
                    (true, true) => return self.engine.ignore_received(id, now),
                    (false, _) => break,
                }
            }
            if taken.finished && taken.drained && !local.finished {
                local.finished = true;
                let _ = self.engine.finish(id, now);
            }
            if taken.dropped {
                match local.finished {
                    true => self.engine.abandon(id, now),
                    false => self.engine.reset(id, 0, now),
                }
                self.locals.remove(&id);
                return;
            }
            break;
        }
        self.give_down(id);
    }

    /// Gives data received by the engine to the program.
    pub(super) fn give_down(&mut self, id: StreamId) {
        let now = self.now();
        let Some(local) = self.locals.get_mut(&id) else {
            return;
        };
        let Ok(pages) = self.engine.readable_pages(id) else {
            return;
        };
        let room = local.pipe.space_down(pages);
        if room > 0 {
            for read in self.pools.take_read() {
                self.engine.recycle(read);
            }
        }
        let mut received = Received::default();
        let Ok(outcome) = self.engine.read_pages(id, room, &mut received, now) else {
            return;
        };
        if outcome.len > 0 || outcome.finished {
            local.pipe.give_down(received, outcome.finished);
            self.must_yield = true;
        }
    }
}

/// The session's side of making a [`Stream`]: both halves of its pipe.
fn stream_pair(
    id: StreamId,
    target: &[u8],
    sender: &UnboundedSender<Command>,
    pools: &Arc<Pools>,
) -> (Local, Stream) {
    let pipe = Pipe::new(id, sender.clone(), Arc::clone(pools));
    (Local::new(Arc::clone(&pipe), target), Stream::new(pipe))
}

#[cfg(test)]
mod tests;
