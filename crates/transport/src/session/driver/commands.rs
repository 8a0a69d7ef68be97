//! The commands of a session's task.

use std::time::Instant;

use sumlink_bond::Early;
use sumlink_engine::{Class, Hints, PathId, StreamId};
use tokio::sync::oneshot;

use super::Driver;
use crate::api::status::SessionStatus;
use crate::api::stream::Stream;
use crate::carrier::Carrier;
use crate::carrier::quic::DatagramCarrier;
use crate::links::policy::Terms;
use sumlink_exit::target::OpenError;

/// Receives the result of opening a stream.
pub(crate) type OpenReply = oneshot::Sender<Result<Stream, OpenError>>;

/// A stream to be opened.
#[derive(Debug)]
pub(crate) struct Opening {
    /// The target, encoded as in an OPEN frame.
    pub(crate) target: Vec<u8>,
    pub(crate) class: Option<Class>,
    pub(crate) early: Early,
    pub(crate) reply: OpenReply,
    /// When it was requested.
    pub(crate) since: Instant,
}

/// A command for a session's task.
#[derive(Debug)]
pub(crate) enum Command {
    /// A program has written to, read from or dropped a stream.
    Touched(StreamId),
    /// Open a stream.
    Open(Opening),
    /// Sets a program's hints for a stream, beyond its class.
    Hint(StreamId, Hints),
    /// Sets the class of the data that a program sends on a stream; `None` lets the stream's
    /// behavior decide.
    Classify(StreamId, Option<Class>),
    /// A program no longer waits for a stream to be opened.
    Cancelled,
    /// The target of a stream opened by the peer is connected.
    Accept(StreamId),
    /// The target of a stream opened by the peer cannot be connected.
    Refuse(StreamId, OpenError),
    /// Adds a carrier as a path.
    Add(Box<Carrier>),
    /// Adds a datagram carrier to its link.
    AddDatagrams(Box<DatagramCarrier>),
    /// Ends the datagram carrier of a link, with the reason.
    RemoveDatagrams(String, String),
    /// A link has no datagram carrier, with the reason.
    NoDatagrams(String, String),
    /// Sets the terms of a path.
    Terms(PathId, Terms),
    /// Removes a path, with the reason.
    Remove(PathId, String),
    /// Requests the session's status.
    Status(oneshot::Sender<SessionStatus>),
    /// Ends the session, with the reason.
    Close(String),
}

impl Driver {
    pub(super) fn command(&mut self, command: Command) {
        let now = self.now();
        match command {
            Command::Touched(id) => self.serve_local(id),
            Command::Open(opening) => self.open(opening),
            // The stream may have ended meanwhile.
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
            Command::AddDatagrams(carrier) => self.add_datagrams(*carrier),
            Command::RemoveDatagrams(link, reason) => self.remove_datagrams(&link, &reason),
            Command::NoDatagrams(link, reason) => self.note_no_datagrams(link, reason),
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
