//! What a session's task is asked to do.

use std::time::Instant;

use sumlink_bond::Early;
use sumlink_engine::{Class, Hints, PathId, StreamId};
use tokio::sync::oneshot;

use super::Driver;
use crate::carrier::Carrier;
use crate::policy::Terms;
use crate::status::SessionStatus;
use crate::stream::Stream;
use crate::target::OpenError;

/// Where the outcome of opening a stream goes.
pub(crate) type OpenReply = oneshot::Sender<Result<Stream, OpenError>>;

/// A stream that is to be opened.
#[derive(Debug)]
pub(crate) struct Opening {
    /// Where it leads, as the OPEN frame says it.
    pub(crate) target: Vec<u8>,
    pub(crate) class: Option<Class>,
    pub(crate) early: Early,
    pub(crate) reply: OpenReply,
    /// When it was asked for.
    pub(crate) since: Instant,
}

/// What a session's task is asked to do.
#[derive(Debug)]
pub(crate) enum Command {
    /// A program has written, read or let go of a stream.
    Touched(StreamId),
    /// Open a stream.
    Open(Opening),
    /// What a program wants of a stream beyond its class.
    Hint(StreamId, Hints),
    /// How a program wants what it sends on a stream to be treated; learnt without a class.
    Classify(StreamId, Option<Class>),
    /// Somebody no longer waits for a stream to be opened.
    Cancelled,
    /// The target of a stream that the peer opened is connected.
    Accept(StreamId),
    /// The target of a stream that the peer opened cannot be connected.
    Refuse(StreamId, OpenError),
    /// A carrier is ready to be a path.
    Add(Box<Carrier>),
    /// What a path may be used for from now on.
    Terms(PathId, Terms),
    /// A path is to leave.
    Remove(PathId, String),
    /// Tell about the session.
    Status(oneshot::Sender<SessionStatus>),
    /// End the session.
    Close(String),
}

impl Driver {
    pub(super) fn command(&mut self, command: Command) {
        let now = self.now();
        match command {
            Command::Touched(id) => self.serve_local(id),
            Command::Open(opening) => self.open(opening),
            // A stream that is over meanwhile wants nothing any more.
            Command::Hint(id, hints) => drop(self.engine.set_hints(id, hints)),
            Command::Classify(id, class) => drop(self.engine.set_class(id, class, now)),
            Command::Cancelled => self.cancel_opens(),
            Command::Accept(id) => {
                // The peer may have reset it meanwhile.
                let _ = self.engine.accept(id, now);
            }
            Command::Refuse(id, error) => {
                self.locals.remove(&id);
                self.engine.reset(id, error.code(), now);
            }
            Command::Add(carrier) => self.add(*carrier),
            Command::Terms(id, terms) => self.apply_terms(id, terms),
            Command::Remove(id, reason) => {
                if let Some(index) = self.carriers.iter().position(|carrier| carrier.id == id) {
                    self.end_carrier(index, &reason);
                }
            }
            Command::Status(reply) => {
                let _ = reply.send(self.status());
            }
            Command::Close(reason) => self.engine.close(0, &reason, now),
        }
    }
}
